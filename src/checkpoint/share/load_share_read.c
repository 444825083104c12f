/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads from storage what this rank reads for others. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/stream_copy.h"
#include "checkpoint/share/load_exchange.h"
#include "checkpoint/share/load_records.h"
#include "checkpoint/share/load_sharing.h"
#include "checkpoint/share/share_ahead.h"
#include "state/box.h"

/* Bytes of an element of any dtype. */
enum { ELEMENT_MOST = 16 };

/* This rank's runs, read in order. */
struct stored_runs {
    const struct load_sharing *sharing;
    const struct load_share *share;
    struct shard_piece *piece;
    uint64_t bytes;              /* of its elements, that were read */
    const struct share_run *run; /* for which it was opened */
    struct share_ahead ahead;
    void *room; /* for what stripes are read through; NULL until it is needed */
    const struct load_records *records;
    struct loaded_objects *objects;
};

static const struct metadata_entry *entry_of(const struct stored_runs *runs,
                                             const struct share_run *run,
                                             const struct metadata_piece **piece)
{
    const struct share_region *region = &runs->share->regions[run->region];
    const struct metadata_entry *entry = &runs->sharing->metadata->entries[region->entry];
    *piece = &entry->pieces[region->piece];
    return entry;
}

static const struct share_region *region_of(const struct stored_runs *runs,
                                            const struct share_target *target)
{
    return &runs->share->regions[target->span.run->region];
}

static bool is_same_piece(const struct share_region *a, const struct share_region *b)
{
    return a->entry == b->entry && a->piece == b->piece;
}

/* Whether this rank reads every stripe of a piece, whose first run this is. */
static bool reads_all_stripes(const struct stored_runs *runs, const struct share_run *run)
{
    const struct load_share *share = runs->share;
    const struct share_region *region = &share->regions[run->region];
    const struct metadata *metadata = runs->sharing->metadata;
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    const int64_t volume = box_volume(share_piece_box(entry, region->piece));
    const struct share_stripe stripe = share_stripe_of(metadata, region, run->from);
    int64_t elements = 0;
    if (stripe.end - stripe.from == volume)
        return true;
    for (size_t at = (size_t)(run - share->runs);
         at < share->run_count && is_same_piece(&share->regions[share->runs[at].region], region);
         at = share->next[at])
        elements += share->runs[at].end - share->runs[at].from;
    return elements == volume;
}

/* Whether less is read than what the piece is opened for. */
static bool is_cut(const struct stored_runs *runs, const struct share_run *run)
{
    if (runs->share->regions[run->region].striped)
        return !reads_all_stripes(runs, run);
    return run->from != 0 || run->end != box_volume(runs->share->regions[run->region].box);
}

static struct shard_part_sum *sum_of(const struct stored_runs *runs, const struct share_run *run)
{
    return load_records_sum(runs->records, (size_t)(run - runs->share->runs));
}

/* Whether the piece that is open for one run also serves another, which it does not where the
 * checksum of what one of them reads is wanted. */
static bool is_open_for(const struct stored_runs *runs, const struct share_run *run)
{
    if (!runs->piece || run == runs->run)
        return runs->piece != NULL;
    const struct share_region *a = &runs->share->regions[run->region];
    const struct share_region *b = &runs->share->regions[runs->run->region];
    if (!is_same_piece(a, b) || a->striped || b->striped)
        return is_same_piece(a, b) && a->striped && b->striped;
    return is_cut(runs, run) && is_cut(runs, runs->run) && !sum_of(runs, run) &&
           !sum_of(runs, runs->run);
}

/* Ends the piece that is open, if any, which checks what was read from it. */
static dcp_status end_piece(void *context)
{
    struct stored_runs *runs = context;
    dcp_status status = runs->piece ? shard_piece_end(runs->piece, runs->bytes) : DCP_OK;
    shard_piece_close(runs->piece);
    runs->piece = NULL;
    runs->bytes = 0;
    return status;
}

static dcp_status open_for(struct stored_runs *runs, const struct share_run *run)
{
    const struct load_sharing *sharing = runs->sharing;
    const struct share_region *region = &runs->share->regions[run->region];
    const struct metadata_piece *piece;
    const struct metadata_entry *entry = entry_of(runs, run, &piece);
    dcp_verification verification = sharing->options->verification;
    if (!is_open_for(runs, run))
        RETURN_IF_ERROR(end_piece(runs));
    share_ahead_move(&runs->ahead, run);
    if (runs->piece) {
        shard_piece_use(runs->piece, runs->ahead.batch);
        return DCP_OK;
    }
    runs->run = run;
    struct box whole = share_piece_box(entry, region->piece);
    struct shard_part_sum *sum = sum_of(runs, run);
    if (sum) {
        int64_t first = box_position(whole, region->box, 0);
        return shard_piece_open_part(sharing->reader, entry, piece, first + run->from,
                                     first + run->end, verification, runs->ahead.batch, sum,
                                     &runs->piece);
    }
    struct box box = region->striped ? whole : region->box;
    return shard_piece_open(sharing->reader, entry, piece, box, is_cut(runs, run), verification,
                            runs->ahead.batch, &runs->piece);
}

/* Announces the stripe that this rank reads after the one that a run lies in. */
static void foresee_stripe(struct stored_runs *runs, const struct share_run *run,
                           struct share_stripe stripe)
{
    const struct load_share *share = runs->share;
    const struct metadata *metadata = runs->sharing->metadata;
    const struct share_region *region = &share->regions[run->region], *other = region;
    struct share_stripe next = stripe;
    size_t at = share->next[run - share->runs];
    for (; at < share->run_count; at = share->next[at]) {
        other = &share->regions[share->runs[at].region];
        next = share_stripe_of(metadata, other, share->runs[at].from);
        if (!is_same_piece(other, region) || next.index != stripe.index)
            break;
    }
    if (at == share->run_count)
        return;
    const struct metadata_entry *entry = &metadata->entries[other->entry];
    shard_piece_foresee(runs->piece, entry, &entry->pieces[other->piece], next.from, next.end);
}

/* Elements on their way to the targets that want some of them. */
struct pass {
    const struct stored_runs *runs;
    const struct share_target *targets;
    size_t count;
    const struct share_region *region; /* one of those in it */
    struct box box;                    /* that they are of */
    int64_t position;                  /* in it, of what comes next */
    size_t size;                       /* bytes of an element */
    unsigned char begun[ELEMENT_MOST];
    size_t begun_size; /* bytes of an element of which not all have come */
};

/* Copies what a target wants of some elements. */
static void fill_target(const struct pass *pass, const struct share_target *target,
                        const unsigned char *bytes, int64_t count)
{
    const struct share_span *span = &target->span;
    const struct box region = region_of(pass->runs, target)->box;
    int64_t length = box_run(pass->box, region);
    int64_t at = box_elements_before(pass->box, region, pass->position);
    int64_t end = box_elements_before(pass->box, region, pass->position + count);
    at = at > span->from ? at : span->from;
    end = end < span->end ? end : span->end;
    while (at < end) {
        int64_t taken = length - at % length;
        taken = taken < end - at ? taken : end - at;
        size_t from = (size_t)(box_position(pass->box, region, at) - pass->position);
        size_t place = (size_t)(at - span->from) * pass->size, size = (size_t)taken * pass->size;
        stream_copy(target->bytes + place, bytes + from * pass->size, size);
        if (target->also)
            stream_copy(target->also + place, bytes + from * pass->size, size);
        at += taken;
    }
}

static void fill_targets(struct pass *pass, const unsigned char *bytes, int64_t count)
{
    for (size_t i = 0; i < pass->count; i++) {
        const struct share_target *target = &pass->targets[i];
        if (is_same_piece(region_of(pass->runs, target), pass->region))
            fill_target(pass, target, bytes, count);
    }
    pass->position += count;
}

/* Parts may end in the middle of an element. */
static dcp_status take_part(void *context, const unsigned char *bytes, size_t size)
{
    struct pass *pass = context;
    while (size > 0 && (pass->begun_size > 0 || size < pass->size)) {
        pass->begun[pass->begun_size++] = *bytes++;
        size--;
        if (pass->begun_size != pass->size)
            continue;
        fill_targets(pass, pass->begun, 1);
        pass->begun_size = 0;
    }
    if (size == 0)
        return DCP_OK;
    fill_targets(pass, bytes, (int64_t)(size / pass->size));
    memcpy(pass->begun, bytes + size / pass->size * pass->size, size % pass->size);
    pass->begun_size = size % pass->size;
    return DCP_OK;
}

/* Reads elements of a box in the open piece, for those targets that are of the same piece as the
 * first one. */
static dcp_status pass_elements(struct stored_runs *runs, const struct share_target *targets,
                                size_t count, struct box box, int64_t from, int64_t end)
{
    const struct share_region *region = region_of(runs, &targets[0]);
    struct pass pass = {.runs = runs,
                        .targets = targets,
                        .count = count,
                        .region = region,
                        .box = box,
                        .position = from,
                        .size =
                            share_element_size(&runs->sharing->metadata->entries[region->entry])};
    if (!runs->room)
        runs->room = memory_allocate(SHARD_PASS_ROOM);
    if (!runs->room)
        return error_no_memory(SHARD_PASS_ROOM, "stripes to read for other ranks");
    return shard_piece_pass_span(runs->piece, box, from, end, runs->room, take_part, &pass);
}

/* Reads the stripe of a target, and what all targets want of it. */
static dcp_status read_stripe(struct stored_runs *runs, struct share_target *targets, size_t count)
{
    const struct share_run *run = targets[0].span.run;
    const struct share_region *region = region_of(runs, &targets[0]);
    const struct metadata *metadata = runs->sharing->metadata;
    const struct metadata_piece *piece;
    const struct metadata_entry *entry = entry_of(runs, run, &piece);
    const struct share_stripe stripe = share_stripe_of(metadata, region, targets[0].span.from);
    RETURN_IF_ERROR(open_for(runs, run));
    foresee_stripe(runs, run, stripe);
    RETURN_IF_ERROR(pass_elements(runs, targets, count, share_piece_box(entry, region->piece),
                                  stripe.from, stripe.end));
    runs->bytes += (uint64_t)(stripe.end - stripe.from) * share_element_size(entry);
    for (size_t i = 0; i < count; i++)
        targets[i].done = targets[i].done || is_same_piece(region_of(runs, &targets[i]), region);
    return DCP_OK;
}

/* Each of those that are read together once, in the order of runs. */
static dcp_status read_stripes(struct stored_runs *runs, struct share_target *targets, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!targets[i].done)
            RETURN_IF_ERROR(read_stripe(runs, &targets[i], count - i));
    return DCP_OK;
}

/* Announces what is read after a span, from where it is read as it lies. */
static void foresee_span(struct stored_runs *runs, const struct share_span *next)
{
    const struct share_region *region = &runs->share->regions[next->run->region];
    const struct metadata_entry *entry = &runs->sharing->metadata->entries[region->entry];
    const struct box piece = share_piece_box(entry, region->piece);
    if (region->striped || box_run(piece, region->box) < box_volume(region->box))
        return;
    int64_t first = box_position(piece, region->box, 0);
    shard_piece_foresee(runs->piece, entry, &entry->pieces[region->piece], first + next->from,
                        first + next->end);
}

static dcp_status read_elements(void *context, struct share_target *targets, size_t count,
                                const struct share_span *next)
{
    struct stored_runs *runs = context;
    const struct share_span *span = &targets[0].span;
    const struct share_region *region = region_of(runs, &targets[0]);
    size_t size = share_element_size(&runs->sharing->metadata->entries[region->entry]);
    if (region->striped)
        return read_stripes(runs, targets, count);
    RETURN_IF_ERROR(open_for(runs, span->run));
    if (next)
        foresee_span(runs, next);
    RETURN_IF_ERROR(targets[0].also
                        ? pass_elements(runs, targets, 1, region->box, span->from, span->end)
                        : shard_piece_read_span(runs->piece, region->box, span->from, span->end,
                                                targets[0].bytes));
    runs->bytes += (uint64_t)(span->end - span->from) * size;
    return DCP_OK;
}

static struct load_exchange exchange_of_tensors(struct stored_runs *runs)
{
    const struct load_sharing *sharing = runs->sharing;
    return (struct load_exchange){
        .group = sharing->options->group,
        .call = {"exchanging tensors", sharing->options->timeout_seconds},
        .metadata = sharing->metadata,
        .share = runs->share,
        .flat = sharing->flat,
        .plan = sharing->plan,
        .progress = sharing->progress,
        .read = read_elements,
        .end = end_piece,
        .read_context = runs,
    };
}

uint64_t load_share_memory(const struct load_sharing *sharing, const struct load_share *share)
{
    struct stored_runs runs = {.sharing = sharing, .share = share};
    const struct load_exchange exchange = exchange_of_tensors(&runs);
    return load_exchange_memory(&exchange) + load_records_memory(sharing, share) + SHARD_PASS_ROOM;
}

dcp_status load_share_tensors(const struct load_sharing *sharing, const struct load_share *share,
                              const struct load_records *records, uint64_t *moved,
                              uint64_t *received)
{
    struct stored_runs runs = {.sharing = sharing,
                               .share = share,
                               .records = records,
                               .ahead = {.sharing = sharing, .share = share}};
    const struct load_exchange exchange = exchange_of_tensors(&runs);
    if (share->run_count == 0)
        return DCP_OK;
    dcp_status status = load_exchange_run(&exchange, DCP_OK, moved, received);
    shard_piece_close(runs.piece);
    share_ahead_end(&runs.ahead);
    memory_release(runs.room);
    return status;
}

static dcp_status read_stream(void *context, struct share_target *targets, size_t count,
                              const struct share_span *next)
{
    const struct stored_runs *runs = context;
    const struct share_span *span = &targets[0].span;
    const struct metadata_piece *piece;
    const struct metadata_entry *entry = entry_of(runs, span->run, &piece);
    (void)count;
    (void)next;
    return shard_read_stored(runs->sharing->reader, entry, piece,
                             runs->sharing->options->verification, (uint64_t)span->from,
                             (size_t)(span->end - span->from), targets[0].bytes);
}

static dcp_status take_object(void *context, const struct read_item *item,
                              const unsigned char *bytes, size_t size)
{
    const struct stored_runs *runs = context;
    const struct load_sharing *sharing = runs->sharing;
    const struct metadata_entry *entry = &sharing->metadata->entries[item->entry];
    struct loaded_object *loaded;
    RETURN_IF_ERROR(
        loaded_objects_add(runs->objects, sharing->flat->entries[item->wanted].node, &loaded));
    return shard_take_object(sharing->reader, entry, &entry->pieces[item->piece], bytes, size,
                             loaded->pool, &loaded->object);
}

dcp_status load_share_objects(const struct load_sharing *sharing, const struct load_share *share,
                              dcp_status mine, struct loaded_objects *objects, uint64_t *received)
{
    struct stored_runs runs = {.sharing = sharing, .share = share, .objects = objects};
    const struct load_exchange exchange = {
        .group = sharing->options->group,
        .call = {"sharing objects", sharing->options->timeout_seconds},
        .metadata = sharing->metadata,
        .share = share,
        .flat = sharing->flat,
        .plan = sharing->plan,
        .read = read_stream,
        .read_context = &runs,
        .take = take_object,
        .take_context = &runs,
    };
    uint64_t moved = 0;
    return load_exchange_run(&exchange, mine, &moved, received);
}
