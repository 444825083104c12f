/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/replica_message.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum { BOX_TEXT = 256, NAME_MOST = 200, RANKS_MOST = 8, CLASSES_MOST = 4 };
#define NO_CLASS UINT32_MAX

/* ---- on each rank ---- */

static dcp_status append_one(struct replica_digester *digester, const struct shard_source *source,
                             struct buffer *out)
{
    const struct write_item *item = source->item;
    uint64_t digests[REPLICA_SEGMENTS_MAX];
    char box[BOX_TEXT] = "";
    size_t count;
    RETURN_IF_ERROR(replica_digest_segments(digester, source, digests, &count));
    if (item->is_tensor)
        box_format(item->box, box, sizeof box);
    buffer_append_u8(out, 1);
    buffer_append_u8(out, item->is_tensor);
    buffer_append_text(out, item->name, strlen(item->name));
    buffer_append_text(out, box, strlen(box));
    buffer_append_u64(out, (uint64_t)replica_elements(item));
    buffer_append_u64(out, count);
    buffer_append(out, digests, count * sizeof *digests);
    return buffer_status(out);
}

dcp_status replica_message_append(const struct shard_source *sources, const struct buffer *own,
                                  const struct buffer *keys, struct buffer *out)
{
    struct replica_digester digester;
    dcp_status status = replica_digester_init(&digester);
    for (size_t at = 0; at < keys->size && status == DCP_OK; at += sizeof(uint64_t)) {
        size_t item = 0, count = own->size / sizeof(uint64_t);
        while (item < count &&
               memcmp(own->data + item * sizeof(uint64_t), keys->data + at, sizeof(uint64_t)) != 0)
            item++;
        if (item < count)
            status = append_one(&digester, &sources[item], out);
        else
            buffer_append_u8(out, 0);
    }
    replica_digester_free(&digester);
    return status == DCP_OK ? buffer_status(out) : status;
}

/* ---- at the coordinator ---- */

/* One rank's description of a replica. */
struct description {
    struct reader reader; /* positioned at the next description */
    bool present;
    bool is_tensor;
    const char *name, *box;
    size_t name_length, box_length;
    uint64_t elements;
    uint64_t digest_count;
    const unsigned char *digests;
    uint32_t kind; /* the lowest rank with the same bytes */
};

struct writing {
    struct description *descriptions; /* by rank */
    int rank_count;
    char *text;
    size_t used;
};

static DCP_PRINTF(2, 3) void say(struct writing *writing, const char *format, ...)
{
    size_t room = ERROR_TEXT_MAX - writing->used;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(writing->text + writing->used, room, format, arguments);
    va_end(arguments);
    if (length > 0)
        writing->used += (size_t)length < room ? (size_t)length : room - 1;
}

static dcp_status read_one(struct description *description, int rank)
{
    struct reader *reader = &description->reader;
    description->kind = NO_CLASS;
    description->present = reader_u8(reader) != 0;
    if (description->present) {
        description->is_tensor = reader_u8(reader) != 0;
        description->name = reader_text(reader, &description->name_length);
        description->box = reader_text(reader, &description->box_length);
        description->elements = reader_u64(reader);
        description->digest_count = reader_u64(reader);
        bool fits = description->digest_count <= REPLICA_SEGMENTS_MAX;
        description->digests =
            reader_bytes(reader, fits ? (size_t)description->digest_count * sizeof(uint64_t) : 0);
        reader->failed |= !fits || description->elements > INT64_MAX;
    }
    return !reader->failed
               ? DCP_OK
               : dcp_error_set(DCP_ERR_GROUP,
                               "rank %d: its message on differing replicas ends too early", rank);
}

static bool texts_equal(const char *a, size_t a_length, const char *b, size_t b_length)
{
    return a_length == b_length && memcmp(a, b, a_length) == 0;
}

static bool is_same_thing(const struct description *a, const struct description *b)
{
    return a->is_tensor == b->is_tensor &&
           texts_equal(a->name, a->name_length, b->name, b->name_length) &&
           texts_equal(a->box, a->box_length, b->box, b->box_length);
}

static bool has_same_bytes(const struct description *a, const struct description *b)
{
    return a->elements == b->elements && a->digest_count == b->digest_count &&
           memcmp(a->digests, b->digests, (size_t)a->digest_count * sizeof(uint64_t)) == 0;
}

/* Groups ranks by equal bytes. Returns the kind of most ranks, the lowest of several. *ranks: the
 * number of ranks with the replica. NO_CLASS: the ranks do not mean the same item. */
static uint32_t find_kinds(struct writing *writing, uint32_t *ranks)
{
    struct description *descriptions = writing->descriptions;
    uint32_t count = (uint32_t)writing->rank_count, best = NO_CLASS, most = 0;
    const struct description *first = NULL;
    *ranks = 0;
    for (uint32_t r = 0; r < count; r++) {
        if (!descriptions[r].present)
            continue;
        first = first ? first : &descriptions[r];
        if (!is_same_thing(first, &descriptions[r]))
            return NO_CLASS;
        ++*ranks;
        if (descriptions[r].kind != NO_CLASS)
            continue;
        uint32_t members = 0;
        for (uint32_t other = r; other < count; other++)
            if (descriptions[other].present && descriptions[other].kind == NO_CLASS &&
                has_same_bytes(&descriptions[r], &descriptions[other])) {
                descriptions[other].kind = r;
                members++;
            }
        if (members > most) {
            most = members;
            best = r;
        }
    }
    return best;
}

/* Appends "rank 3" or "ranks 0, 2"; returns the number of ranks. */
static uint32_t say_ranks(struct writing *writing, uint32_t kind)
{
    uint32_t members = 0, count = 0;
    for (int r = 0; r < writing->rank_count; r++)
        members += writing->descriptions[r].kind == kind;
    say(writing, members == 1 ? "rank" : "ranks");
    for (int r = 0; r < writing->rank_count && count < RANKS_MOST; r++)
        if (writing->descriptions[r].kind == kind)
            say(writing, "%s %d", count++ > 0 ? "," : "", r);
    if (members > count)
        say(writing, " and %u more", members - count);
    return members;
}

/* Appends the range in which two replicas differ. */
static void say_range(struct writing *writing, const struct description *a,
                      const struct description *b)
{
    if (a->elements != b->elements) {
        say(writing, ", with %" PRIu64 " bytes instead of %" PRIu64, b->elements, a->elements);
        return;
    }
    size_t first = SIZE_MAX, last = 0;
    for (size_t i = 0; i < a->digest_count && i < b->digest_count; i++)
        if (memcmp(a->digests + i * sizeof(uint64_t), b->digests + i * sizeof(uint64_t),
                   sizeof(uint64_t)) != 0) {
            first = first == SIZE_MAX ? i : first;
            last = i;
        }
    if (first == SIZE_MAX)
        return;
    int64_t length = replica_segment_elements((int64_t)a->elements);
    uint64_t from = first * (uint64_t)length, end = (last + 1) * (uint64_t)length;
    end = end < a->elements ? end : a->elements;
    say(writing, " in %s %" PRIu64 " to %" PRIu64, a->is_tensor ? "elements" : "bytes", from,
        end - 1);
}

static void say_thing(struct writing *writing, uint32_t best, uint32_t ranks)
{
    const struct description *descriptions = writing->descriptions,
                             *reference = &descriptions[best];
    uint32_t kinds = 0;
    say(writing, "%s \"%.*s\"%s%.*s: ", reference->is_tensor ? "tensor" : "object",
        (int)(reference->name_length < NAME_MOST ? reference->name_length : NAME_MOST),
        reference->name, reference->box_length > 0 ? " " : "", (int)reference->box_length,
        reference->box);
    uint32_t members = 0;
    for (int r = 0; r < writing->rank_count; r++)
        members += descriptions[r].kind == best;
    if (members == ranks) {
        say(writing,
            "the bytes of %u ranks differed, but are the same now: do not change tensors during a "
            "save",
            ranks);
        return;
    }
    if (members > 1) {
        say_ranks(writing, best);
        say(writing, " agree");
    }
    for (uint32_t r = 0; r < (uint32_t)writing->rank_count; r++) {
        if (descriptions[r].kind != r || r == best)
            continue;
        if (kinds++ == CLASSES_MOST) {
            say(writing, "; and other ranks differ");
            return;
        }
        say(writing, kinds > 1 || members > 1 ? "; " : "");
        say(writing, say_ranks(writing, r) == 1 ? " differs" : " differ");
        if (members == 1)
            say(writing, " from rank %u", best);
        say_range(writing, reference, &descriptions[r]);
    }
}

dcp_status replica_message_make(const struct group_messages *messages, size_t key_count,
                                size_t differing, char *text)
{
    struct writing writing = {.rank_count = messages->count, .text = text};
    dcp_status status = DCP_OK;
    size_t said = 0;
    text[0] = '\0';
    writing.descriptions =
        memory_allocate_zeroed((size_t)messages->count, sizeof *writing.descriptions);
    if (!writing.descriptions)
        return error_no_memory((size_t)messages->count * sizeof *writing.descriptions, "a message");
    for (int r = 0; r < messages->count; r++)
        reader_init(&writing.descriptions[r].reader, messages->bytes + messages->offsets[r],
                    messages->offsets[r + 1] - messages->offsets[r]);
    for (size_t i = 0; i < key_count && status == DCP_OK; i++) {
        for (int r = 0; r < messages->count && status == DCP_OK; r++)
            status = read_one(&writing.descriptions[r], r);
        uint32_t ranks = 0, best = status == DCP_OK ? find_kinds(&writing, &ranks) : NO_CLASS;
        if (best == NO_CLASS)
            continue;
        if (said++ == 0)
            say(&writing,
                "ranks do not hold the same bytes of %zu tensor chunk%s or object%s: ", differing,
                differing == 1 ? "" : "s", differing == 1 ? "" : "s");
        else
            say(&writing, " | ");
        say_thing(&writing, best, ranks);
    }
    if (said > 0 && differing > key_count)
        say(&writing, " | and %zu more", differing - key_count);
    memory_release(writing.descriptions);
    return status;
}
