/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/files/sync_beside.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/clock.h"

/* A thread begins and ends in less. */
#define LONG_WAIT_NS 300000

static _Atomic int64_t last_wait_ns;

bool sync_beside_pays(void)
{
    return atomic_load_explicit(&last_wait_ns, memory_order_relaxed) > LONG_WAIT_NS;
}

static void wait_for_disk(struct sync_beside *sync)
{
    const struct file_ops *ops = sync->ops;
    int64_t began_ns = clock_monotonic_ns();
    do
        sync->result = sync->of_directory ? ops->sync_directory(ops->context, sync->descriptor)
                                          : ops->sync(ops->context, sync->descriptor);
    while (sync->result == EINTR);
    atomic_store_explicit(&last_wait_ns, clock_monotonic_ns() - began_ns, memory_order_relaxed);
}

static void *run(void *argument)
{
    wait_for_disk(argument);
    return NULL;
}

void sync_beside_start(struct sync_beside *sync, const struct file_ops *ops, int descriptor,
                       bool of_directory)
{
    *sync =
        (struct sync_beside){.ops = ops, .descriptor = descriptor, .of_directory = of_directory};
    if (!sync_beside_pays())
        return;
    /* Not charged to the account: of its stack, the thread needs a page. */
    struct memory_account *account = memory_account_enter(NULL);
    sync->runs = thread_start(&sync->thread, run, sync) == 0;
    memory_account_enter(account);
}

int sync_beside_end(struct sync_beside *sync)
{
    if (sync->runs)
        thread_join(&sync->thread);
    else
        wait_for_disk(sync);
    sync->runs = false;
    return sync->result;
}

void sync_beside_drop(struct sync_beside *sync)
{
    if (sync->runs)
        sync_beside_end(sync);
}
