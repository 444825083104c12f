/* SPDX-License-Identifier: BSD-3-Clause */
/* What runs on the device. */
#ifndef TRAINER_CUDA_KERNELS_H
#define TRAINER_CUDA_KERNELS_H

#include "network.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kernel {
    KERNEL_SET_VALUES,
    KERNEL_MAKE_SAMPLES,
    KERNEL_FIND_HIDDEN,
    KERNEL_FIND_ERRORS,
    KERNEL_ADD_UP,
    KERNEL_UPDATE
};

/* Puts it into the network's stream, for elements 0 to count - 1; see elements.h for what it does.
 */
void kernel_launch(enum kernel kernel, const struct network *network, int count);

#ifdef __cplusplus
}
#endif

#endif
