/* SPDX-License-Identifier: BSD-3-Clause */
#include "kernels.h"

#include "elements.h"

enum { THREADS = 128 };

template <void (*element)(const struct network *, int)>
__global__ static void each(struct network network, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        element(&network, i);
}

template <void (*element)(const struct network *, int)>
static void launch(const struct network *network, int count)
{
    int blocks = (count + THREADS - 1) / THREADS;
    each<element><<<blocks, THREADS, 0, network->stream>>>(*network, count);
}

void kernel_launch(enum kernel kernel, const struct network *network, int count)
{
    switch (kernel) {
    case KERNEL_SET_VALUES:
        return launch<set_value>(network, count);
    case KERNEL_MAKE_SAMPLES:
        return launch<make_sample>(network, count);
    case KERNEL_FIND_HIDDEN:
        return launch<find_hidden>(network, count);
    case KERNEL_FIND_ERRORS:
        return launch<find_error>(network, count);
    case KERNEL_ADD_UP:
        return launch<add_up>(network, count);
    case KERNEL_UPDATE:
        return launch<update>(network, count);
    }
}
