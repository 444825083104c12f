/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/operation/options.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread.h"
#include "checkpoint/operation/operation.h"
#include "format/streams/item_compress.h"
#include "plan/load/load_plan.h"
#include "storage/storage_queue.h"

static dcp_status check_group(const dcp_group *group, int32_t *coordinator, double *timeout_seconds)
{
    dcp_status status = DCP_OK;

    if (*coordinator < 0 || *coordinator >= dcp_group_size(group)) {
        status = dcp_error_set(DCP_ERR_ARGUMENT, "coordinator is rank %d, expected 0 to %d",
                               *coordinator, dcp_group_size(group) - 1);
        *coordinator = 0;
    }
    if (!isfinite(*timeout_seconds) || *timeout_seconds < 0) {
        status =
            dcp_error_set(DCP_ERR_ARGUMENT, "timeout_seconds is %g, expected a positive number",
                          *timeout_seconds);
        *timeout_seconds = 0;
    }
    if (*timeout_seconds == 0)
        *timeout_seconds = OPTIONS_DEFAULT_TIMEOUT_SECONDS;
    return status;
}

static dcp_status out_of_range(const char *field, int value)
{
    return dcp_error_set(DCP_ERR_ARGUMENT, "%s is %d, which is not a defined value", field, value);
}

static dcp_status check_io_priority(dcp_io_priority priority)
{
    return (unsigned)priority > DCP_IO_PRIORITY_IDLE ? out_of_range("io_priority", (int)priority)
                                                     : DCP_OK;
}

static dcp_status check_page_cache(const dcp_save_options *options)
{
    dcp_page_cache page_cache = options->page_cache;
    if (page_cache != DCP_PAGE_CACHE_ANY && page_cache != DCP_PAGE_CACHE_KEPT &&
        page_cache != DCP_PAGE_CACHE_DROPPED && page_cache != DCP_PAGE_CACHE_AUTO)
        return out_of_range("page_cache", (int)page_cache);
    if (page_cache == DCP_PAGE_CACHE_KEPT && options->io & DCP_IO_DIRECT)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "page_cache is DCP_PAGE_CACHE_KEPT, and io has DCP_IO_DIRECT, which "
                             "bypasses the page cache: use one of them");
    return DCP_OK;
}

/* The default number of threads that compress. */
static int32_t choose_compression_threads(void)
{
    size_t half = thread_processor_count() / 2;
    return half < 1 ? 1 : half > 4 ? 4 : (int32_t)half;
}

static dcp_status check_compression(dcp_save_options *options)
{
    if ((unsigned)options->compression > DCP_COMPRESSION_ZSTD)
        return out_of_range("compression", (int)options->compression);
    if (options->compression_threads < 0 || options->compression_threads > DCP_MAX_THREADS)
        return dcp_error_set(DCP_ERR_ARGUMENT, "compression_threads is %d, expected 0 to %d",
                             options->compression_threads, DCP_MAX_THREADS);
    if (options->compression_threads == 0)
        options->compression_threads = choose_compression_threads();
    return options->compression == DCP_COMPRESSION_NONE
               ? DCP_OK
               : item_compressor_check(options->compression_level);
}

dcp_status options_check_takeover(double *seconds)
{
    if (!isfinite(*seconds) || *seconds < 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "takeover_seconds is %g, expected a positive number",
                             *seconds);
    if (*seconds == 0)
        *seconds = OPTIONS_DEFAULT_TAKEOVER_SECONDS;
    return DCP_OK;
}

void options_leave_group(dcp_save_options *options)
{
    if (!options->without_collectives)
        return;
    if (options->group)
        options->rank = dcp_group_rank(options->group);
    options->group = NULL;
    options->coordinator = 0;
    options->allow_partial = true;
}

static dcp_status check_rank(const dcp_save_options *options)
{
    if (!options->without_collectives)
        return DCP_OK;
    if (options->rank < 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "rank is %d, expected 0 or more", options->rank);
    if (options->storage_writer || options->storage_writer_count > 0)
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "a storage writer cannot save without_collectives: set only one of both");
    return DCP_OK;
}

dcp_status options_check_save(const dcp_save_options *given, dcp_save_options *options)
{
    *options = *given;
    options_leave_group(options);
    if (options->no_dist) {
        options->group = NULL;
        options->coordinator = 0;
    }
    RETURN_IF_ERROR(check_group(options->group, &options->coordinator, &options->timeout_seconds));
    if ((unsigned)options->overwrite > DCP_OVERWRITE_REPLACE)
        return out_of_range("overwrite", (int)options->overwrite);
    if ((unsigned)options->replicas > DCP_REPLICAS_LOWEST)
        return out_of_range("replicas", (int)options->replicas);
    if ((unsigned)options->files > DCP_FILE_PER_ITEM)
        return out_of_range("files", (int)options->files);
    if ((unsigned)options->check_replicas > DCP_REPLICA_CHECK_ALL)
        return out_of_range("check_replicas", (int)options->check_replicas);
    if (options->thread_count < 0 || options->thread_count > DCP_MAX_THREADS)
        return dcp_error_set(DCP_ERR_ARGUMENT, "thread_count is %d, expected 0 to %d",
                             options->thread_count, DCP_MAX_THREADS);
    if (options->thread_count == 0)
        options->thread_count = 1;
    RETURN_IF_ERROR(storage_check_io(options->io));
    RETURN_IF_ERROR(check_page_cache(options));
    RETURN_IF_ERROR(check_compression(options));
    RETURN_IF_ERROR(check_io_priority(options->io_priority));
    if (options->io_threads < 0 || options->io_threads > DCP_MAX_THREADS)
        return dcp_error_set(DCP_ERR_ARGUMENT, "io_threads is %d, expected 0 to %d",
                             options->io_threads, DCP_MAX_THREADS);
    if (options->info && dcp_state_kind(options->info) != DCP_KIND_DICT)
        return dcp_error_set(DCP_ERR_ARGUMENT, "info is not a dict");
    if (options->checkpoint_id &&
        !utf8_is_valid(options->checkpoint_id, strlen(options->checkpoint_id)))
        return dcp_error_set(DCP_ERR_ARGUMENT, "checkpoint_id is not valid UTF-8");
    RETURN_IF_ERROR(options_check_takeover(&options->takeover_seconds));
    RETURN_IF_ERROR(check_rank(options));
    return operation_check_figures(options->figures);
}

static dcp_status check_members(const dcp_load_options *options)
{
    for (size_t i = 0; i < options->member_count; i++)
        if (!options->members || !options->members[i] || !*options->members[i])
            return dcp_error_set(DCP_ERR_ARGUMENT, "members: member %zu of %zu has no name", i,
                                 options->member_count);
    return DCP_OK;
}

dcp_status options_check_load(const dcp_load_options *given, dcp_load_options *options)
{
    *options = *given;
    if (options->no_dist) {
        options->group = NULL;
        options->coordinator = 0;
    }
    RETURN_IF_ERROR(check_group(options->group, &options->coordinator, &options->timeout_seconds));
    if (!strictness_is_known(options->strictness))
        return out_of_range("strictness", (int)options->strictness);
    if (options->reading != DCP_READING_AUTO && options->reading != DCP_READING_DIRECT &&
        options->reading != DCP_READING_COOPERATIVE)
        return out_of_range("reading", (int)options->reading);
    RETURN_IF_ERROR(storage_check_io(options->io));
    RETURN_IF_ERROR(check_io_priority(options->io_priority));
    if (options->thread_count < 0 || options->thread_count > DCP_MAX_LOAD_THREADS)
        return dcp_error_set(DCP_ERR_ARGUMENT, "thread_count is %d, expected 0 to %d",
                             options->thread_count, DCP_MAX_LOAD_THREADS);
    RETURN_IF_ERROR(operation_check_figures(options->figures));
    RETURN_IF_ERROR(check_members(options));
    return options_check_verification(options->verification);
}

dcp_status options_check_verification(dcp_verification verification)
{
    if ((unsigned)verification > DCP_VERIFY_NONE)
        return out_of_range("verification", (int)verification);
    return DCP_OK;
}
