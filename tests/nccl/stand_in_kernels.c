/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels of examples/trainer_cuda over the stand-in for the CUDA runtime: work in the stream,
 * which does for each element what the kernel does for it. How kernels are launched on a GPU is
 * shown by a GPU alone. */
#include <stdlib.h>

#include "cuda/stand_in_cuda.h"
#include "device/stand_in.h"
#include "trainer_cuda/elements.h"
#include "trainer_cuda/kernels.h"

struct launch {
    enum kernel kernel;
    struct network network;
    int count;
};

/* Where the stand-in keeps what lies on the device. */
static void find_memory(struct network *network)
{
    float **floats[] = {&network->values, &network->exp_avg, &network->exp_avg_sq, &network->inputs,
                        &network->wanted, &network->hidden,  &network->errors};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        *floats[i] = (float *)(void *)stand_in_bytes(*floats[i]);
    network->sums = (int64_t *)(void *)stand_in_bytes(network->sums);
}

static void run(void *argument)
{
    static void (*const elements[])(const struct network *, int) = {
        [KERNEL_SET_VALUES] = set_value,    [KERNEL_MAKE_SAMPLES] = make_sample,
        [KERNEL_FIND_HIDDEN] = find_hidden, [KERNEL_FIND_ERRORS] = find_error,
        [KERNEL_ADD_UP] = add_up,           [KERNEL_UPDATE] = update,
    };
    struct launch *launch = argument;
    find_memory(&launch->network);
    for (int i = 0; i < launch->count; i++)
        elements[launch->kernel](&launch->network, i);
    free(launch);
}

/* Of what others use as well: the library's copies, and NCCL. */
static void count_uses(enum kernel kernel, const struct network *network)
{
    bool updates = kernel == KERNEL_UPDATE || kernel == KERNEL_SET_VALUES;
    stand_in_stream_use(network->stream, network->values, updates);
    stand_in_stream_use(network->stream, network->exp_avg, updates);
    stand_in_stream_use(network->stream, network->exp_avg_sq, updates);
    stand_in_stream_use(network->stream, network->sums, kernel == KERNEL_ADD_UP);
}

void kernel_launch(enum kernel kernel, const struct network *network, int count)
{
    struct launch *launch = malloc(sizeof *launch);
    if (!launch)
        abort();
    *launch = (struct launch){kernel, *network, count};
    count_uses(kernel, network);
    stand_in_stream_run(network->stream, run, launch);
}
