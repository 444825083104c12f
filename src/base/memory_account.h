/* SPDX-License-Identifier: BSD-3-Clause */
/* What an operation takes of memory: everything that base/memory.h gives to a thread is charged to
 * the account that the thread works for, until it is released, by whatever thread. Threads of
 * base/thread.h work for the account of the one that started them. */
#ifndef BASE_MEMORY_ACCOUNT_H
#define BASE_MEMORY_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memory_account;

/* limit: bytes that may be taken at a time, beyond which allocations fail; 0: any. The account pays
 * for itself. NULL: no memory. */
struct memory_account *memory_account_open(uint64_t limit);
/* No thread works for it any more; blocks may outlive it. NULL is fine. */
void memory_account_close(struct memory_account *account);
/* The calling thread works for the account from now on; NULL: for none. Returns the one before. */
struct memory_account *memory_account_enter(struct memory_account *account);
struct memory_account *memory_account_current(void);

/* Memory from elsewhere. NULL pays for everything. */
bool memory_account_charge(struct memory_account *account, size_t bytes);
void memory_account_discharge(struct memory_account *account, size_t bytes);

/* The most that was taken at a time. */
uint64_t memory_account_peak(const struct memory_account *account);
void memory_account_set_limit(struct memory_account *account, uint64_t limit);
/* False of NULL. */
bool memory_account_is_limited(const struct memory_account *account);
/* Of NULL: 0. */
uint64_t memory_account_taken(const struct memory_account *account);

/* Finding out what a step of the calling thread takes: its account's peak begins anew meanwhile. */
struct memory_span {
    struct memory_account *account;
    uint64_t taken;
    uint64_t peak;
};

void memory_span_start(struct memory_span *span);
/* The most that was taken at a time beyond what was taken before. 0 without an account. */
uint64_t memory_span_end(struct memory_span *span);

/* What is charged but can be done without: when the limit would be passed, it is given back, once,
 * before an allocation fails. Said by the only thread that works for the account; NULL: nothing. */
void memory_account_set_spare(struct memory_account *account, void (*give_back)(void *context),
                              void *context);

/* The limit of the calling thread's account, if it is why an allocation failed; else 0. */
uint64_t memory_account_limit_reached(void);

#endif
