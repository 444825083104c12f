/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load/load_planning.h"

#include "base/error.h"
#include "checkpoint/load/load_gather.h"
#include "checkpoint/load/load_open.h"
#include "checkpoint/load/loading.h"
#include "group/group.h"

void load_planning_init(struct load_planning *planning, const dcp_load_options *options)
{
    *planning = (struct load_planning){0};
    load_stored_init(&planning->stored, options->memory_limit == 0 ? options->plan_cache : NULL);
}

static void find_circumstances(dcp_loading *loading)
{
    struct load_planning *planning = &loading->planning;
    const dcp_load_options *options = &loading->options;
    planning->sharing = (struct sharing_circumstances){
        .reading = options->reading,
        .verification = options->verification,
        .io = options->io,
        .group_bytes_per_second = options->group_bytes_per_second,
        .remote = loading->coordinates && shard_reader_is_far(planning->stored.reader),
    };
}

/* ---- reused ---- */

/* The record in which a rank describes its cache to the others. */
enum { AT_KNOWN = 8, AT_DEALT = 9, RECORD = 10 };

/* Whether this rank could reuse its plan, and its assignment of readers. */
static dcp_status look(dcp_loading *loading, dcp_state *state, unsigned char *record)
{
    struct load_planning *planning = &loading->planning;
    const dcp_load_plan_cache *cache = planning->stored.cache;
    bool holds = false;
    if (!planning->stored.known)
        return DCP_OK;
    record[AT_KNOWN] = 1;
    if (!loading->steps.plan_holds)
        return DCP_OK;
    RETURN_IF_ERROR(load_flatten(loading, state));
    RETURN_IF_ERROR(load_plan_cache_look(cache, &loading->options, &planning->flat, &holds));
    if (holds)
        RETURN_IF_ERROR(flatten_check_destinations(&planning->flat));
    find_circumstances(loading);
    record[AT_DEALT] = cache->dealt && !planning->stored.moved &&
                       sharing_circumstances_equal(&cache->sharing, &planning->sharing);
    store_u64(record, holds ? cache->planned : 0);
    return DCP_OK;
}

static void take_plan(struct load_planning *planning)
{
    dcp_load_plan_cache *cache = planning->stored.cache;
    planning->plan = cache->plan;
    planning->all = cache->differences;
    cache->plan = (struct load_plan){0};
    cache->differences = (struct load_differences){0};
    if (planning->dealt) {
        planning->share = cache->share;
        planning->rest = cache->rest;
        planning->share_of_objects = cache->share_of_objects;
        load_share_measure(&planning->share_of_objects, &planning->stored.metadata);
        cache->share_of_objects = (struct load_share){0};
        cache->share = (struct load_share){0};
        cache->rest = (struct load_plan){0};
    }
    if (planning->stored.moved)
        load_plan_sort(&planning->plan, &planning->stored.metadata);
    planning->reused = planning->complete = planning->plan_holds = true;
}

/* After changes were sent. *lost: some rank lacks the metadata that they apply to. */
static dcp_status agree_to_reuse(dcp_loading *loading, dcp_state *state, dcp_status status,
                                 bool *lost)
{
    struct load_planning *planning = &loading->planning;
    struct dcp_collective call = {"comparing load plans", loading->options.timeout_seconds};
    int ranks = dcp_group_size(loading->options.group);
    unsigned char record[RECORD] = {0};
    const unsigned char *records;
    if (status == DCP_OK)
        status = look(loading, state, record);
    RETURN_IF_ERROR(
        group_share(loading->options.group, &call, status, record, sizeof record, &records));
    bool reuse = load_u64(records) != 0, dealt = true;
    *lost = false;
    for (int rank = 0; rank < ranks; rank++) {
        const unsigned char *theirs = records + (size_t)rank * RECORD;
        reuse = reuse && load_u64(theirs) == load_u64(records);
        dealt = dealt && theirs[AT_DEALT] != 0;
        *lost = *lost || theirs[AT_KNOWN] == 0;
    }
    if (reuse) {
        planning->dealt = dealt;
        take_plan(planning);
    }
    return DCP_OK;
}

/* ---- anew ---- */

/* Without memory to keep it, the next load plans anew; this one need not fail. A plan that cannot
 * be reused leaves the cache's plan, if the structure is the same. */
static void note_plan(dcp_loading *loading)
{
    struct load_planning *planning = &loading->planning;
    struct load_stored *stored = &planning->stored;
    planning->plan_holds = loading->steps.plan_holds;
    planning->complete = (!planning->plan_holds && stored->known) ||
                         load_plan_cache_note(stored->cache, &loading->options, &planning->flat,
                                              planning->plan_holds ? stored->number : 0) == DCP_OK;
    find_circumstances(loading);
    error_clear();
}

static dcp_status plan_anew(dcp_loading *loading, dcp_state *state, dcp_status status,
                            dcp_status *decoded)
{
    struct load_planning *planning = &loading->planning;
    if (status == DCP_OK)
        status = loading->steps.plan_local(loading, state);
    RETURN_IF_ERROR(load_gather_differences(&loading->options, &planning->stored.metadata,
                                            &planning->names, status, &planning->mine,
                                            &planning->all, decoded));
    if (planning->stored.cache && *decoded == DCP_OK)
        note_plan(loading);
    return DCP_OK;
}

/* ---- which ---- */

dcp_status load_planning_run(dcp_loading *loading, dcp_state *state, dcp_status status,
                             dcp_status *decoded)
{
    struct load_planning *planning = &loading->planning;
    bool lost = false;
    *decoded = DCP_OK;
    status = load_open(loading, status);
    if (planning->stored.by_changes) {
        RETURN_IF_ERROR(agree_to_reuse(loading, state, status, &lost));
        if (planning->reused)
            return DCP_OK;
        if (lost)
            status = load_open_whole(loading);
    }
    return plan_anew(loading, state, status, decoded);
}

/* ---- the end ---- */

static void keep_metadata(struct load_planning *planning)
{
    struct load_stored *stored = &planning->stored;
    dcp_load_plan_cache *cache = stored->cache;
    if (!stored->taken) {
        metadata_free(&cache->metadata);
        arena_free(&cache->texts);
    }
    if (stored->raw.data) {
        buffer_free(&cache->raw);
        cache->raw = stored->raw;
        buffer_init(&stored->raw, 0);
    }
    cache->metadata = stored->metadata;
    metadata_init(&stored->metadata);
    cache->stored = stored->since;
}

static void keep_plan(struct load_planning *planning)
{
    dcp_load_plan_cache *cache = planning->stored.cache;
    cache->plan = planning->plan;
    cache->differences = planning->all;
    cache->dealt = planning->dealt;
    cache->sharing = planning->sharing;
    load_share_free(&cache->share_of_objects);
    load_share_free(&cache->share);
    load_plan_free(&cache->rest);
    cache->share_of_objects = planning->share_of_objects;
    cache->share = planning->share;
    cache->rest = planning->rest;
    planning->plan = planning->rest = (struct load_plan){0};
    planning->all = (struct load_differences){0};
    planning->share = planning->share_of_objects = (struct load_share){0};
}

static void keep(struct load_planning *planning)
{
    keep_metadata(planning);
    if (planning->plan_holds)
        keep_plan(planning);
    else if (planning->stored.moved)
        load_plan_cache_forget_plan(planning->stored.cache);
}

void load_planning_free(struct load_planning *planning)
{
    shard_reader_free(planning->stored.reader);
    planning->stored.reader = NULL;
    if (planning->complete)
        keep(planning);
    else if (planning->stored.taken)
        load_plan_cache_forget(planning->stored.cache);
    load_differences_free(&planning->all);
    load_differences_free(&planning->mine);
    load_share_free(&planning->share_of_objects);
    load_share_free(&planning->share);
    load_plan_free(&planning->rest);
    load_plan_free(&planning->plan);
    flatten_free(&planning->flat);
    load_stored_free(&planning->stored);
    load_names_free(&planning->names);
}
