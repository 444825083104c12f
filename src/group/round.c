/* SPDX-License-Identifier: BSD-3-Clause */
#include "group/round.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checksum.h"

/* A rank's entry in a round: status, length of its message, whether that names a rank already,
 * whether bulk bytes can still pass, the call that the rank is in, and a number for the
 * exchange. */
struct round_entry {
    dcp_status status;
    uint32_t message_length;
    bool named;
    bool bulk_broken;
    uint64_t number;
    uint64_t call; /* digest of the operation and the phase */
    int root;      /* of the exchange */
};

enum { ENTRY_NAMED = 1, ENTRY_BULK_BROKEN = 2 };

static void round_entry_encode(const struct round_entry *entry, unsigned char *bytes)
{
    store_u32(bytes, (uint32_t)entry->status);
    store_u32(bytes + 4, entry->message_length);
    store_u32(bytes + 8,
              (entry->named ? ENTRY_NAMED : 0u) | (entry->bulk_broken ? ENTRY_BULK_BROKEN : 0u));
    store_u64(bytes + 12, entry->number);
    store_u64(bytes + 20, entry->call);
    store_u32(bytes + 28, (uint32_t)entry->root);
}

/* Entries of other ranks are not trusted, except that all ranks read the same ones. */
static struct round_entry round_entry_decode(const unsigned char *bytes)
{
    struct round_entry entry = {.status = (dcp_status)load_u32(bytes),
                                .message_length = load_u32(bytes + 4),
                                .named = (load_u32(bytes + 8) & ENTRY_NAMED) != 0,
                                .bulk_broken = (load_u32(bytes + 8) & ENTRY_BULK_BROKEN) != 0,
                                .number = load_u64(bytes + 12),
                                .call = load_u64(bytes + 20),
                                .root = (int)load_u32(bytes + 28)};
    if (entry.status != DCP_OK && !error_is_status(entry.status))
        entry.status = DCP_ERR_GROUP;
    if (entry.message_length >= ERROR_TEXT_MAX)
        entry.message_length = ERROR_TEXT_MAX - 1;
    return entry;
}

static struct round_entry entry_of(const dcp_group *group, int rank)
{
    return round_entry_decode(group->table + (size_t)rank * ROUND_BYTES);
}

uint64_t round_number(const dcp_group *group, int rank)
{
    return entry_of(group, rank).number;
}

/* The calling thread's message if it belongs to this failure, otherwise the status's text. */
void round_own_error(dcp_status mine, struct saved_error *error)
{
    error_save(error);
    if (mine == DCP_OK)
        error->text[0] = '\0';
    else if (error->status != mine || error->text[0] == '\0')
        snprintf(error->text, sizeof error->text, "%s", dcp_status_string(mine));
    error->status = mine;
}

/* The failed rank broadcasts its message, which becomes the message of all. */
static dcp_status share_failure(dcp_group *group, const dcp_collective *call, int failed,
                                const struct round_entry *announced, const struct saved_error *mine)
{
    struct round_entry entry = *announced;
    char text[ERROR_TEXT_MAX] = {0};
    if (group->rank == failed)
        memcpy(text, mine->text, entry.message_length);
    if (entry.message_length != 0)
        RETURN_IF_ERROR(collective_broadcast(group, call, failed, text, entry.message_length));
    text[entry.message_length] = '\0';
    if (entry.named)
        dcp_error_set(entry.status, "%s", text);
    else
        dcp_error_set(entry.status, "rank %d: %s", failed, text);
    error_save(&group->agreed);
    return entry.status;
}

/* ---- ranks in different calls */

/* "dcp_save (gathering save plans)", as it is sent. */
enum { CALL_TEXT = 192 };

static void call_text(const dcp_group *group, const dcp_collective *call, char text[CALL_TEXT])
{
    memset(text, 0, CALL_TEXT);
    if (group->operation != NULL)
        snprintf(text, CALL_TEXT, "%s (%s)", group->operation, call->phase);
    else
        snprintf(text, CALL_TEXT, "%s", call->phase);
}

static uint64_t call_digest(const dcp_group *group, const dcp_collective *call)
{
    char text[CALL_TEXT];
    call_text(group, call, text);
    return xxh3_64(text, strlen(text));
}

/* The lowest rank that is in another call than rank 0; -1: none. */
static int rank_elsewhere(const dcp_group *group)
{
    uint64_t call = entry_of(group, 0).call;
    for (int rank = 1; rank < group->size; rank++)
        if (entry_of(group, rank).call != call)
            return rank;
    return -1;
}

/* Every rank has seen the same entries and reports the same. No rank knows what the others will
 * call next, so the group is broken. */
static dcp_status fail_elsewhere(dcp_group *group, const dcp_collective *call, int other)
{
    char first[CALL_TEXT], second[CALL_TEXT];
    call_text(group, call, first);
    memcpy(second, first, sizeof second);
    RETURN_IF_ERROR(collective_broadcast(group, call, 0, first, sizeof first));
    RETURN_IF_ERROR(collective_broadcast(group, call, other, second, sizeof second));
    first[CALL_TEXT - 1] = second[CALL_TEXT - 1] = '\0';
    dcp_error_set(DCP_ERR_GROUP,
                  "rank 0 is in %s, but rank %d in %s: all ranks of a group must make the same "
                  "calls in the same order",
                  first, other, second);
    error_save(&group->agreed);
    error_save(&group->broken);
    return DCP_ERR_GROUP;
}

/* Ranks with different coordinators would wait for each other for ever. */
static dcp_status check_roots(const dcp_group *group)
{
    int first = entry_of(group, 0).root;
    for (int rank = 1; rank < group->size; rank++) {
        int other = entry_of(group, rank).root;
        if (other != first)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "the coordinator is rank %d on rank 0, but rank %d on rank %d: "
                                 "all ranks must pass the same",
                                 first, other, rank);
    }
    return DCP_OK;
}

/* ---- a round */

/* Whether bulk bytes of some rank cannot pass any more. All ranks learn that here, so the group is
 * broken for all. */
static bool bulk_is_broken(const dcp_group *group)
{
    bool broken = false;
    for (int rank = 0; rank < group->size; rank++)
        broken = broken || entry_of(group, rank).bulk_broken;
    return broken;
}

/* What all ranks conclude, alike, from all entries. */
static dcp_status judge(dcp_group *group, const dcp_collective *call,
                        const struct saved_error *mine)
{
    int other = rank_elsewhere(group);
    if (other >= 0)
        return fail_elsewhere(group, call, other);
    for (int rank = 0; rank < group->size; rank++) {
        struct round_entry announced = entry_of(group, rank);
        if (announced.status == DCP_OK)
            continue;
        dcp_status status = share_failure(group, call, rank, &announced, mine);
        if (group->broken.status == DCP_OK && bulk_is_broken(group))
            error_save(&group->broken);
        return status;
    }
    return check_roots(group);
}

dcp_status round_run(dcp_group *group, const dcp_collective *call, const struct round *round)
{
    const struct saved_error *mine = round->mine;
    struct round_entry entry = {
        .status = mine->status,
        .message_length = (uint32_t)strlen(mine->text),
        .named = mine->status != DCP_OK && group->agreed.status == mine->status &&
                 strcmp(group->agreed.text, mine->text) == 0,
        .bulk_broken = group->bulk != NULL && group->bulk->broken.status != DCP_OK,
        .number = round->number,
        .call = call_digest(group, call),
        .root = round->root,
    };
    unsigned char bytes[ROUND_BYTES] = {0};
    round_entry_encode(&entry, bytes);
    if (round->record_size != 0)
        memcpy(bytes + ROUND_ENTRY_SIZE, round->record, round->record_size);
    dcp_status status = collective_all_gather(group, call, bytes, sizeof bytes, group->table);
    if (status == DCP_OK)
        return judge(group, call, mine);
    return mine->status != DCP_OK ? error_restore(mine) : status;
}

dcp_status round_ready(dcp_group *group, const dcp_collective *call, dcp_status status)
{
    struct saved_error error;
    round_own_error(status, &error);
    return round_run(group, call, &(struct round){.mine = &error});
}
