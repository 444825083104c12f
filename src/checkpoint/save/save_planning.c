/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_planning.h"

#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "checkpoint/save/save_agreement.h"
#include "checkpoint/save/save_gather.h"
#include "checkpoint/save/save_lengths.h"
#include "checkpoint/save/save_plan_cache.h"
#include "checkpoint/save/saving.h"

static struct dcp_collective call_of(const dcp_saving *saving, const char *phase)
{
    struct dcp_collective call = {phase, saving->options.timeout_seconds};
    return call;
}

static dcp_status decode_own(dcp_saving *saving)
{
    const struct buffer *own = &saving->planning.own;
    return write_orders_decode(own->data, own->size, &saving->local.plan, &saving->orders);
}

/* ---- every rank knows its orders: only the session is shared ---- */

/* status: this rank's status so far. */
static dcp_status share_session(dcp_saving *saving, dcp_status status)
{
    struct dcp_collective call = call_of(saving, "beginning a save");
    struct buffer message, received;
    struct reader reader;
    buffer_init(&message, 0);
    buffer_init(&received, 0);
    if (saving->coordinates && status == DCP_OK) {
        save_session_append(&saving->session, &message);
        status = buffer_status(&message);
    }
    status = group_broadcast(saving->options.group, &call, saving->options.coordinator, status,
                             message.data, message.size, &received);
    if (status == DCP_OK) {
        saving->assigned = true;
        reader_init(&reader, received.data, received.size);
        status = save_session_read(saving, &reader);
    }
    buffer_free(&received);
    buffer_free(&message);
    return status;
}

dcp_status save_planning_stay(dcp_saving *saving)
{
    return share_session(saving, saving->coordinates ? save_coordinator_stay(saving) : DCP_OK);
}

/* ---- reused ---- */

/* The coordinator uses the metadata of the previous save for this one. */
static dcp_status adopt_metadata(dcp_saving *saving)
{
    dcp_save_plan_cache *cache = saving->planning.cache;
    struct save_coordinator *coordinator = &saving->coordinator;
    coordinator->rank_count = cache->size;
    coordinator->content = cache->content;
    RETURN_IF_ERROR(saving->steps.begin(saving));
    RETURN_IF_ERROR(save_coordinator_check_space(saving));
    RETURN_IF_ERROR(save_plan_cache_set_generation(cache, saving->session.generation));
    coordinator->metadata = cache->metadata;
    metadata_init(&cache->metadata);
    saving->steps.describe(saving, &coordinator->metadata);
    return DCP_OK;
}

static dcp_status reuse_plan(dcp_saving *saving)
{
    dcp_status status = DCP_OK;
    save_plan_cache_lend_extras(saving->planning.cache, &saving->extras);
    saving->planning.lends = true;
    if (saving->coordinates)
        status = adopt_metadata(saving);
    status = save_lengths_update(saving, saving->planning.lengths_travel, status);
    status = share_session(saving, status);
    if (saving->assigned)
        status = saving->steps.reuse_plan(saving, status);
    RETURN_IF_ERROR(status);
    save_plan_cache_note_lengths(saving->planning.cache, &saving->local.plan, &saving->orders);
    saving->planning.reused = true;
    return DCP_OK;
}

/* ---- alone ---- */

static void forget_merge(struct save_planning *planning)
{
    merge_free(planning->merge);
    planning->merge = NULL;
    joint_plan_free(&planning->joint);
}

/* The next save with the cache has them as the message of a coordinator. */
static dcp_status keep_own(void *context, uint32_t rank, const struct write_orders *orders)
{
    dcp_saving *saving = context;
    (void)rank;
    RETURN_IF_ERROR(write_orders_copy(orders, &saving->local.plan, &saving->orders));
    return saving->planning.cache ? write_orders_encode(orders, &saving->planning.own) : DCP_OK;
}

static dcp_status merge_alone(dcp_saving *saving)
{
    struct save_planning *planning = &saving->planning;
    struct order_sink sink = {.take = keep_own, .context = saving};
    struct save_plan_options options = save_coordinator_options(saving);
    /* All is said in the state, which is there until the end. */
    options.borrows = !planning->cache;
    dcp_status status = joint_plan_merge(&planning->joint, &options,
                                         saving->coordinates ? &saving->coordinator.metadata : NULL,
                                         &planning->merge);
    if (status == DCP_OK)
        status = merge_order_rank(planning->merge, (uint32_t)saving->rank, &sink);
    return save_plan_name_mesh(&saving->local.plan, planning->joint.rank_count, status);
}

dcp_status save_planning_describe(dcp_saving *saving)
{
    struct save_planning *planning = &saving->planning;
    if (!planning->merge)
        return DCP_OK;
    dcp_status status = merge_order_all(planning->merge, saving->session.generation, NULL);
    forget_merge(planning);
    saving->steps.describe(saving, &saving->coordinator.metadata);
    return status;
}

static dcp_status coordinate(dcp_saving *saving)
{
    struct save_coordinator *coordinator = &saving->coordinator;
    struct save_planning *planning = &saving->planning;
    RETURN_IF_ERROR(save_coordinator_await(saving));
    coordinator->rank_count = (int)planning->joint.rank_count;
    coordinator->content = merge_bytes(planning->merge);
    RETURN_IF_ERROR(save_coordinator_check_space(saving));
    planning->describes_beside = save_describes_beside(saving);
    /* Where no files are written, the metadata is wanted at once, to be measured. */
    bool writes = saving->steps.begin == save_coordinator_begin;
    return planning->describes_beside && writes ? DCP_OK : save_planning_describe(saving);
}

dcp_status save_planning_alone(dcp_saving *saving, bool lengths_differ)
{
    struct save_planning *planning = &saving->planning;
    joint_plan_init(&planning->joint, (uint32_t)dcp_group_size(saving->options.group));
    dcp_status status = joint_plan_add_all(&planning->joint, &saving->local.plan);
    if (lengths_differ)
        status = save_lengths_share(saving, &planning->joint, status);
    if (status == DCP_OK)
        status = merge_alone(saving);
    if (status == DCP_OK && saving->coordinates)
        status = coordinate(saving);
    if (status != DCP_OK || !saving->coordinates)
        forget_merge(planning);
    return share_session(saving, status);
}

/* ---- gathered ---- */

static dcp_status read_assignment(dcp_saving *saving, const struct buffer *assignment)
{
    struct buffer *own = &saving->planning.own;
    struct reader reader;
    reader_init(&reader, assignment->data, assignment->size);
    RETURN_IF_ERROR(save_session_read(saving, &reader));
    buffer_append(own, assignment->data + reader.position, reader_left(&reader));
    RETURN_IF_ERROR(buffer_status(own));
    return decode_own(saving);
}

dcp_status save_planning_gathered(dcp_saving *saving)
{
    struct dcp_collective dealing = call_of(saving, "dealing out save plans");
    struct save_gathering gathering;
    struct buffer assignment;
    buffer_init(&assignment, 0);
    dcp_status status = save_gather_plans(&saving->options, &saving->local.plan, &gathering);
    if (saving->coordinates && status == DCP_OK)
        status = save_coordinator_plan(saving, &gathering.joint);
    save_gathering_free(&gathering);
    status = group_scatter(saving->options.group, &dealing, saving->options.coordinator, status,
                           saving->coordinator.assignments, &assignment);
    if (status == DCP_OK) {
        saving->assigned = true;
        status = read_assignment(saving, &assignment);
    }
    buffer_free(&assignment);
    return status;
}

/* ---- which way ---- */

/* The same on all ranks, and another for each save. */
static uint64_t id_of(const struct save_session *session)
{
    uint64_t id = xxh3_64(session->save_id, strlen(session->save_id));
    return id != 0 ? id : 1;
}

/* Without memory to keep it, the next save plans anew; this one need not fail. */
static void keep_outcome(dcp_saving *saving)
{
    dcp_save_plan_cache *cache = saving->planning.cache;
    const struct buffer *own = &saving->planning.own;
    saving->planning.lends =
        save_plan_cache_keep(cache, id_of(&saving->session), &saving->options, &saving->local.plan,
                             &saving->orders, own->data, own->size) == DCP_OK;
    cache->generation = saving->session.generation;
    cache->content = saving->coordinator.content;
    error_clear();
}

static dcp_status plan_anew(dcp_saving *saving)
{
    write_orders_free(&saving->orders);
    if (saving->planning.cache)
        save_plan_cache_forget(saving->planning.cache);
    RETURN_IF_ERROR(saving->steps.plan_global(saving));
    if (saving->planning.cache)
        keep_outcome(saving);
    return DCP_OK;
}

dcp_status save_planning_forget(struct save_planning *planning, dcp_status status)
{
    if (status != DCP_OK && planning->cache) {
        save_plan_cache_forget(planning->cache);
        planning->lends = false;
    }
    return status;
}

dcp_status save_planning_begin(dcp_saving *saving, dcp_status status)
{
    struct save_planning *planning = &saving->planning;
    const dcp_save_options *options = &saving->options;
    bool grown = false;
    buffer_init(&planning->own, 0);
    planning->cache = options->plan_cache;
    saving->extras.kind = saving->kind;
    if (planning->cache && status == DCP_OK)
        status = save_plan_cache_look(planning->cache, options, &saving->extras,
                                      &saving->local.plan, &planning->id, &saving->orders, &grown);
    return save_planning_forget(planning, save_agree(saving, grown, status));
}

dcp_status save_planning_run(dcp_saving *saving)
{
    dcp_status status = saving->planning.reuse ? reuse_plan(saving) : plan_anew(saving);
    return save_planning_forget(&saving->planning, status);
}

void save_planning_end(dcp_saving *saving)
{
    if (saving->planning.lends) {
        saving->planning.cache->extras = saving->extras;
        saving->extras = (struct plan_extras){0};
    }
    if (saving->planning.lends && saving->coordinates) {
        struct metadata *metadata = &saving->planning.cache->metadata;
        save_plan_places_restore(&saving->planning.cache->extras.places,
                                 &saving->coordinator.metadata);
        *metadata = saving->coordinator.metadata;
        metadata->save_id = "";
        metadata->checkpoint_id = NULL;
        metadata->extra_files = NULL;
        metadata->extra_file_count = 0;
        metadata->planner_data = NULL;
        metadata_init(&saving->coordinator.metadata);
    }
    forget_merge(&saving->planning);
    buffer_free(&saving->planning.own);
}
