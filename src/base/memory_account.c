/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/memory_account.h"

#include <stdatomic.h>

#include "base/memory.h"

struct memory_account {
    atomic_uint_fast64_t taken; /* includes the account itself: at 0 there are no references left */
    atomic_uint_fast64_t peak;
    uint64_t limit;
    atomic_bool limit_reached;
    void (*give_back)(void *context); /* NULL: nothing is spare */
    void *spare;
};

static _Thread_local struct memory_account *current;

struct memory_account *memory_account_open(uint64_t limit)
{
    struct memory_account *account = memory_allocate_unpaid(sizeof *account);
    if (account) {
        *account = (struct memory_account){.limit = limit};
        atomic_init(&account->taken, sizeof *account);
        atomic_init(&account->peak, sizeof *account);
    }
    return account;
}

void memory_account_close(struct memory_account *account)
{
    if (account)
        memory_account_discharge(account, sizeof *account);
}

struct memory_account *memory_account_enter(struct memory_account *account)
{
    struct memory_account *before = current;
    current = account;
    return before;
}

struct memory_account *memory_account_current(void)
{
    return current;
}

static bool make_room(struct memory_account *account)
{
    void (*give_back)(void *context) = account->give_back;
    if (!give_back)
        return false;
    account->give_back = NULL;
    give_back(account->spare);
    return true;
}

bool memory_account_charge(struct memory_account *account, size_t bytes)
{
    if (!account)
        return true;
    uint64_t taken =
        atomic_fetch_add_explicit(&account->taken, bytes, memory_order_relaxed) + bytes;
    if (account->limit != 0 && taken > account->limit) {
        memory_account_discharge(account, bytes);
        if (make_room(account))
            return memory_account_charge(account, bytes);
        atomic_store_explicit(&account->limit_reached, true, memory_order_relaxed);
        return false;
    }
    uint_fast64_t peak = atomic_load_explicit(&account->peak, memory_order_relaxed);
    while (taken > peak &&
           !atomic_compare_exchange_weak_explicit(&account->peak, &peak, taken,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    return true;
}

void memory_account_discharge(struct memory_account *account, size_t bytes)
{
    /* The thread that releases the last byte must see what all others did before. */
    if (account && atomic_fetch_sub_explicit(&account->taken, bytes, memory_order_acq_rel) == bytes)
        memory_release(account);
}

uint64_t memory_account_peak(const struct memory_account *account)
{
    return atomic_load_explicit(&account->peak, memory_order_relaxed);
}

void memory_account_set_limit(struct memory_account *account, uint64_t limit)
{
    if (account)
        account->limit = limit;
}

bool memory_account_is_limited(const struct memory_account *account)
{
    return account && account->limit != 0;
}

uint64_t memory_account_taken(const struct memory_account *account)
{
    if (!account)
        return 0;
    return atomic_load_explicit(&account->taken, memory_order_relaxed);
}

void memory_account_set_spare(struct memory_account *account, void (*give_back)(void *context),
                              void *context)
{
    if (!account)
        return;
    account->give_back = give_back;
    account->spare = context;
}

void memory_span_start(struct memory_span *span)
{
    *span = (struct memory_span){.account = current};
    if (!current)
        return;
    span->taken = memory_account_taken(current);
    span->peak = atomic_exchange(&current->peak, span->taken);
}

uint64_t memory_span_end(struct memory_span *span)
{
    if (!span->account)
        return 0;
    uint64_t peak = memory_account_peak(span->account);
    if (span->peak > peak)
        atomic_store(&span->account->peak, span->peak);
    return peak - span->taken;
}

uint64_t memory_account_limit_reached(void)
{
    bool reached = current && atomic_load_explicit(&current->limit_reached, memory_order_relaxed);
    return reached ? current->limit : 0;
}
