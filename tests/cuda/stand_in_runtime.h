/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the stand-in for the CUDA runtime share. */
#ifndef CUDA_STAND_IN_RUNTIME_H
#define CUDA_STAND_IN_RUNTIME_H

#include <pthread.h>

#include "cuda/stand_in_cuda.h"

struct CUstream_st {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct stream_work *first, *last;
    bool busy, ending;
    int device;
    int number; /* of its order */
};

struct runtime {
    pthread_mutex_t lock; /* guards the rest */
    long made;            /* streams, events, page-locked blocks and ranges that are not freed */
    long hasty_streams;
    int max_pitch;
};

extern struct runtime runtime;

/* Every function of the runtime passes here first. */
cudaError_t runtime_enter(const char *name);
/* The current device, the first one if none was made so. Something happens there: it has a context
 * now. */
int runtime_device(void);
void runtime_make_context(int device);

/* NULL is the default stream of the current device. */
struct CUstream_st *stream_of(cudaStream_t stream);
/* Puts a function into the stream's work. */
void stream_add(cudaStream_t stream, void (*function)(void *), void *argument);
/* Ends the default streams. */
void streams_end(void);

#endif
