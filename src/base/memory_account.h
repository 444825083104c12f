/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts the memory of an operation. A block from base/memory.h is charged to the account that the
 * allocating thread works for, until any thread releases it. Threads of base/thread.h work for the
 * account of the thread that started them. */
#ifndef BASE_MEMORY_ACCOUNT_H
#define BASE_MEMORY_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memory_account;

/* limit: the most bytes at a time, beyond which allocations fail; 0: no limit. The account is
 * charged for itself. NULL: no memory. */
struct memory_account *memory_account_open(uint64_t limit);
/* To be called when no thread works for the account any more; blocks may outlive it. NULL is
 * allowed. */
void memory_account_close(struct memory_account *account);
/* Makes the calling thread work for the account; NULL: for none. Returns the previous one. */
struct memory_account *memory_account_enter(struct memory_account *account);
struct memory_account *memory_account_current(void);

/* Charges memory that was allocated elsewhere. Always succeeds for NULL. */
bool memory_account_charge(struct memory_account *account, size_t bytes);
void memory_account_discharge(struct memory_account *account, size_t bytes);

/* The most that was taken at a time. */
uint64_t memory_account_peak(const struct memory_account *account);
void memory_account_set_limit(struct memory_account *account, uint64_t limit);
/* False for NULL. */
bool memory_account_is_limited(const struct memory_account *account);
/* 0 for NULL. */
uint64_t memory_account_taken(const struct memory_account *account);

/* Measures the memory of one step of the calling thread, by restarting its account's peak. */
struct memory_span {
    struct memory_account *account;
    uint64_t taken;
    uint64_t peak;
};

void memory_span_start(struct memory_span *span);
/* The peak of the step beyond what was taken when it began. 0 without an account. */
uint64_t memory_span_end(struct memory_span *span);

/* Registers memory that is charged but dispensable: it is given back, once, before an allocation
 * fails because of the limit. Only while a single thread works for the account. NULL: nothing is
 * spare. */
void memory_account_set_spare(struct memory_account *account, void (*give_back)(void *context),
                              void *context);

/* The limit of the calling thread's account if an allocation failed because of it, otherwise 0. */
uint64_t memory_account_limit_reached(void);

#endif
