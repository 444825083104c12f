/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces from the ranks that have them to those that want them, a few megabytes at a time. */
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/state_catalog.h"
#include "format/item.h"
#include "group/group.h"

/* Bytes of tensors in one round, unless one chunk is larger; and what an object counts as. */
#define ROUND_SIZE  ((uint64_t)8 << 20)
#define OBJECT_SIZE ((uint64_t)4096)

/* A position among all pieces, in order. */
struct position {
    size_t entry, piece;
};

static bool is_end(const struct state_transfer *transfer, struct position at)
{
    return at.entry >= transfer->whole->count;
}

static struct position skip_empty(const struct state_transfer *transfer, struct position at)
{
    while (!is_end(transfer, at) && at.piece >= transfer->whole->entries[at.entry].piece_count)
        at = (struct position){at.entry + 1, 0};
    return at;
}

static struct position next(const struct state_transfer *transfer, struct position at)
{
    return skip_empty(transfer, (struct position){at.entry, at.piece + 1});
}

static bool is_before(struct position a, struct position b)
{
    return a.entry < b.entry || (a.entry == b.entry && a.piece < b.piece);
}

static const struct metadata_piece *piece_at(const struct state_transfer *transfer,
                                             struct position at)
{
    return &transfer->whole->entries[at.entry].pieces[at.piece];
}

/* Where the round that begins at a position ends: the same on every rank. */
static struct position round_end(const struct state_transfer *transfer, struct position at)
{
    uint64_t bytes = 0;
    for (; !is_end(transfer, at); at = next(transfer, at)) {
        bool is_tensor = transfer->whole->entries[at.entry].is_tensor;
        uint64_t more = is_tensor ? piece_at(transfer, at)->length : OBJECT_SIZE;
        if (bytes > 0 && (more > ROUND_SIZE || bytes + more > ROUND_SIZE))
            break;
        bytes += more;
    }
    return at;
}

/* Appends a piece that is here: its size, then its bytes. */
static dcp_status append_piece(const struct state_transfer *transfer,
                               const struct metadata_piece *piece, struct buffer *message)
{
    if (!transfer->mine || piece->offset >= transfer->mine->count)
        return dcp_error_set(DCP_ERR_INTERNAL, "a piece that this rank does not have is asked for");
    const struct catalog_source *source = &transfer->mine->sources[piece->offset];
    struct buffer bytes;
    const void *elements;
    size_t size = 0;
    buffer_init(&bytes, 0);
    dcp_status status;
    if (source->chunk) {
        status = state_catalog_elements(source, &bytes, &elements, &size);
    } else {
        status = item_encode_stream(source->node, &bytes);
        elements = bytes.data;
        size = bytes.size;
    }
    if (status == DCP_OK) {
        buffer_append_u64(message, size);
        buffer_append(message, elements, size);
        status = buffer_status(message);
    }
    buffer_free(&bytes);
    return status;
}

static dcp_status append_mine(const struct state_transfer *transfer, struct position from,
                              struct position end, struct buffer *message)
{
    int rank = dcp_group_rank(transfer->group);
    for (; is_before(from, end); from = next(transfer, from)) {
        const struct metadata_piece *piece = piece_at(transfer, from);
        if (transfer->from_all ? state_catalog_owner(transfer->whole, piece) != rank : rank != 0)
            continue;
        dcp_status status = append_piece(transfer, piece, message);
        if (status != DCP_OK)
            return error_prefix(status, "%s", transfer->whole->entries[from.entry].name);
    }
    return DCP_OK;
}

static dcp_status read_piece(struct reader *message, const void **bytes, size_t *size)
{
    uint64_t length = reader_u64(message);
    *bytes = length <= SIZE_MAX ? reader_bytes(message, (size_t)length) : NULL;
    *size = (size_t)length;
    if (message->failed || !*bytes)
        return dcp_error_set(DCP_ERR_GROUP, "a rank's part of a state is cut short");
    return DCP_OK;
}

/* At rank 0: all ranks' pieces in order. */
static dcp_status merge(const struct state_transfer *transfer, struct position from,
                        struct position end, const struct group_messages *messages,
                        struct buffer *merged)
{
    struct reader *readers = memory_allocate_array((size_t)messages->count, sizeof *readers);
    if (!readers)
        return error_no_memory((size_t)messages->count * sizeof *readers, "messages");
    for (int r = 0; r < messages->count; r++)
        reader_init(&readers[r], messages->bytes + messages->offsets[r],
                    messages->offsets[r + 1] - messages->offsets[r]);
    dcp_status status = DCP_OK;
    for (; is_before(from, end) && status == DCP_OK; from = next(transfer, from)) {
        int owner = state_catalog_owner(transfer->whole, piece_at(transfer, from));
        const void *bytes = NULL;
        size_t size = 0;
        if (owner < 0 || owner >= messages->count)
            status = dcp_error_set(DCP_ERR_GROUP, "a state has a piece of rank %d", owner);
        else
            status = read_piece(&readers[owner], &bytes, &size);
        if (status == DCP_OK) {
            buffer_append_u64(merged, size);
            buffer_append(merged, bytes, size);
            status = buffer_status(merged);
        }
    }
    memory_release(readers);
    return status;
}

static dcp_status receive(const struct state_transfer *transfer, struct position from,
                          struct position end, const struct buffer *merged)
{
    struct reader reader;
    reader_init(&reader, merged->data, merged->size);
    for (; is_before(from, end); from = next(transfer, from)) {
        const struct metadata_entry *entry = &transfer->whole->entries[from.entry];
        const void *bytes;
        size_t size;
        RETURN_IF_ERROR(read_piece(&reader, &bytes, &size));
        if (entry->is_tensor && size != entry->pieces[from.piece].length)
            return dcp_error_set(DCP_ERR_GROUP, "%s: a chunk of %zu bytes came, expected %llu",
                                 entry->name, size,
                                 (unsigned long long)entry->pieces[from.piece].length);
        dcp_status status =
            transfer->receive(transfer->context, from.entry, from.piece, bytes, size);
        if (status != DCP_OK)
            return error_prefix(status, "%s", entry->name);
    }
    return DCP_OK;
}

static dcp_status collect(const struct state_transfer *transfer, struct position from,
                          struct position end, dcp_status status, struct buffer *merged)
{
    struct dcp_collective call = {"gathering a state", transfer->timeout_seconds};
    struct group_messages messages = {0};
    struct buffer mine;
    if (!transfer->from_all)
        return status == DCP_OK ? append_mine(transfer, from, end, merged) : status;
    buffer_init(&mine, 0);
    if (status == DCP_OK)
        status = append_mine(transfer, from, end, &mine);
    status = group_gather(transfer->group, &call, 0, status, mine.data, mine.size, &messages);
    buffer_free(&mine);
    if (status == DCP_OK && dcp_group_rank(transfer->group) == 0)
        status = merge(transfer, from, end, &messages, merged);
    group_messages_free(&messages);
    return status;
}

static dcp_status run_round(const struct state_transfer *transfer, struct position from,
                            struct position end, dcp_status status)
{
    struct dcp_collective call = {"passing on a state", transfer->timeout_seconds};
    struct buffer merged, received;
    buffer_init(&merged, 0);
    buffer_init(&received, 0);
    status = collect(transfer, from, end, status, &merged);
    if (transfer->to_all)
        status =
            group_broadcast(transfer->group, &call, 0, status, merged.data, merged.size, &received);
    bool receives = transfer->to_all || dcp_group_rank(transfer->group) == 0;
    if (status == DCP_OK && receives)
        status = receive(transfer, from, end, transfer->to_all ? &received : &merged);
    buffer_free(&received);
    buffer_free(&merged);
    return status;
}

/* A failure of a round is heard in the next one, so that all ranks stay in step. */
dcp_status state_transfer_run(const struct state_transfer *transfer, dcp_status status)
{
    struct dcp_collective call = {"finishing a state", transfer->timeout_seconds};
    struct position from = skip_empty(transfer, (struct position){0, 0});
    status = group_agree(transfer->group, &call, status);
    while (status == DCP_OK && !is_end(transfer, from)) {
        struct position end = round_end(transfer, from);
        status = run_round(transfer, from, end, status);
        status = group_agree(transfer->group, &call, status);
        from = end;
    }
    return status;
}
