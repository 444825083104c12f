/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_agreement.h"

#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "checkpoint/hooks/save_hooks.h"
#include "checkpoint/save/saving.h"
#include "group/group.h"
#include "plan/save/joint_plan.h"

/* Options that must be the same on all ranks, as numbers; for some only whether they are set. */
enum { TRAITS = 12 };
static const char *const trait_names[TRAITS] = {"coordinator",
                                                "overwrite",
                                                "replicas",
                                                "files",
                                                "thread_count",
                                                "skip_sync",
                                                "compression",
                                                "plan_cache",
                                                "unflattened",
                                                "check_replicas",
                                                "allow_different_replicas",
                                                "allow_partial"};

/* A rank's record: the id, a digest of the path, the memory limit, its hooks, flags for the other
 * ranks, the traits. */
enum {
    AT_PATH = 8,
    AT_LIMIT = 16,
    AT_STORAGE = 24,
    AT_HOOKS = 32,
    AT_TELLS = 40,
    AT_TRAITS = 44,
    RECORD = AT_TRAITS + 4 * TRAITS
};
_Static_assert((int)RECORD <= (int)GROUP_RECORD_MAX, "a record is shared in one collective");

enum { TELLS_GROWN = 1, TELLS_EXTRA_FILES = 2 };

static uint64_t digest_path(const char *path)
{
    return path != NULL && *path != '\0' ? xxh3_64(path, strlen(path)) : 0;
}

static void make_record(const dcp_saving *saving, bool grown, unsigned char *record)
{
    const dcp_save_options *options = &saving->options;
    const uint32_t traits[TRAITS] = {
        (uint32_t)options->coordinator,
        (uint32_t)options->overwrite,
        (uint32_t)options->replicas,
        (uint32_t)options->files,
        (uint32_t)options->thread_count,
        options->skip_sync,
        (uint32_t)options->compression,
        options->plan_cache != NULL,
        options->unflattened,
        (uint32_t)options->check_replicas,
        options->allow_different_replicas,
        options->allow_partial,
    };
    store_u64(record, saving->planning.id);
    store_u64(record + AT_PATH, digest_path(saving->path));
    store_u64(record + AT_LIMIT, options->memory_limit);
    store_u64(record + AT_STORAGE, saving->kind.storage);
    store_u64(record + AT_HOOKS, saving->kind.present);
    store_u32(record + AT_TELLS, (grown ? TELLS_GROWN : 0u) |
                                     (saving->extra_files.count > 0 ? TELLS_EXTRA_FILES : 0u));
    for (size_t i = 0; i < TRAITS; i++)
        store_u32(record + AT_TRAITS + 4 * i, traits[i]);
}

static struct hooks_kind kind_in(const unsigned char *record)
{
    return (struct hooks_kind){load_u64(record + AT_STORAGE), load_u64(record + AT_HOOKS)};
}

/* All ranks see the same records, so they all return the same. */
static dcp_status compare_traits(const unsigned char *records, int ranks)
{
    uint64_t limit = load_u64(records + AT_LIMIT);
    for (int rank = 1; rank < ranks; rank++) {
        const unsigned char *record = records + (size_t)rank * RECORD;
        if (load_u64(record + AT_LIMIT) != limit)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "memory_limit is %" PRIu64 " on rank 0, but %" PRIu64
                                 " on rank %d: all ranks must pass the same",
                                 limit, load_u64(record + AT_LIMIT), rank);
        for (size_t i = 0; i < TRAITS; i++) {
            uint32_t first = load_u32(records + AT_TRAITS + 4 * i);
            uint32_t other = load_u32(record + AT_TRAITS + 4 * i);
            if (first != other)
                return dcp_error_set(
                    DCP_ERR_ARGUMENT,
                    "%s is %u on rank 0, but %u on rank %d: all ranks must pass the same",
                    trait_names[i], first, other, rank);
        }
        RETURN_IF_ERROR(save_hooks_compare(kind_in(records), kind_in(record), rank));
    }
    return DCP_OK;
}

/* Ranks without a path take the coordinator's. */
static bool paths_match(const unsigned char *records, int ranks, int32_t coordinator)
{
    uint64_t expected = load_u64(records + (size_t)coordinator * RECORD + AT_PATH);
    for (int rank = 0; rank < ranks; rank++) {
        uint64_t path = load_u64(records + (size_t)rank * RECORD + AT_PATH);
        if (path != 0 && path != expected)
            return false;
    }
    return true;
}

/* Some rank has another path than the coordinator: the message has both. */
static dcp_status refuse_path(const dcp_save_options *options, const char *path)
{
    struct dcp_collective call = {"comparing paths", options->timeout_seconds};
    struct buffer expected;
    buffer_init(&expected, 0);
    const char *own = path != NULL ? path : "";
    dcp_status status = group_broadcast(options->group, &call, options->coordinator, DCP_OK, own,
                                        strlen(own), &expected);
    if (status == DCP_OK && *own != '\0' &&
        (strlen(own) != expected.size || memcmp(own, expected.data, expected.size) != 0))
        status =
            dcp_error_set(DCP_ERR_ARGUMENT, "saves to \"%.512s\", but the coordinator to \"%.*s\"",
                          own, (int)(expected.size < 512 ? expected.size : 512),
                          expected.size != 0 ? (const char *)expected.data : "");
    buffer_free(&expected);
    return group_agree(options->group, &call, status);
}

dcp_status save_agree(dcp_saving *saving, bool grown, dcp_status status)
{
    const dcp_save_options *options = &saving->options;
    struct save_planning *planning = &saving->planning;
    struct dcp_collective call = {"comparing saves", options->timeout_seconds};
    int ranks = dcp_group_size(options->group);
    unsigned char record[RECORD];
    const unsigned char *records;
    make_record(saving, grown, record);
    RETURN_IF_ERROR(group_share(options->group, &call, status, record, sizeof record, &records));
    RETURN_IF_ERROR(compare_traits(records, ranks));
    planning->reuse = planning->id != 0;
    for (int rank = 0; rank < ranks; rank++) {
        const unsigned char *theirs = records + (size_t)rank * RECORD;
        planning->reuse = planning->reuse && load_u64(theirs) == planning->id;
        planning->lengths_travel |=
            rank != options->coordinator && load_u32(theirs + AT_TELLS) & TELLS_GROWN;
        planning->extra_files |= (load_u32(theirs + AT_TELLS) & TELLS_EXTRA_FILES) != 0;
    }
    return paths_match(records, ranks, options->coordinator) ? DCP_OK
                                                             : refuse_path(options, saving->path);
}

dcp_status save_agree_alone(const dcp_save_options *options, const struct save_plan *plan,
                            bool *alone, bool *lengths_differ)
{
    enum { AT_LENGTHS = 8, AT_IMPLIES_ALL = 16, ALONE_RECORD = 20 };
    struct dcp_collective call = {"comparing save plans", options->timeout_seconds};
    int ranks = dcp_group_size(options->group);
    unsigned char record[ALONE_RECORD];
    const unsigned char *records;
    uint64_t digest = 0, lengths = 0;
    bool implies = false;
    dcp_status status = save_plan_implies_all(plan, (uint32_t)dcp_group_rank(options->group),
                                              (uint32_t)ranks, &implies, &digest, &lengths);
    store_u64(record, digest);
    store_u64(record + AT_LENGTHS, lengths);
    store_u32(record + AT_IMPLIES_ALL, implies);
    RETURN_IF_ERROR(group_share(options->group, &call, status, record, sizeof record, &records));
    *alone = true;
    *lengths_differ = false;
    for (int rank = 0; rank < ranks; rank++) {
        const unsigned char *theirs = records + (size_t)rank * ALONE_RECORD;
        *alone = *alone && load_u32(theirs + AT_IMPLIES_ALL) != 0 &&
                 load_u64(theirs) == load_u64(records);
        *lengths_differ |= load_u64(theirs + AT_LENGTHS) != load_u64(records + AT_LENGTHS);
    }
    return DCP_OK;
}
