/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks that all ranks have the same options. Lists are sent as digests, as they may be long. */
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/operation/options.h"
#include "dcp/load_planner.h"

/* One option as a number. */
struct trait {
    const char *option;
    bool is_digest; /* the number is only a digest */
    uint64_t value;
};

enum { TRAITS = 14 };

static void append_text(struct buffer *bytes, const char *text)
{
    buffer_append_text(bytes, text, strlen(text));
}

static dcp_status digest_texts(const char *const *texts, size_t count, uint64_t *digest)
{
    struct buffer bytes;
    buffer_init(&bytes, 0);
    for (size_t i = 0; i < count; i++)
        append_text(&bytes, texts[i]);
    dcp_status status = buffer_status(&bytes);
    *digest = xxh3_64(bytes.data, bytes.size);
    buffer_free(&bytes);
    return status;
}

static dcp_status digest_renames(const dcp_rename *renames, size_t count, uint64_t *digest)
{
    struct buffer bytes;
    buffer_init(&bytes, 0);
    for (size_t i = 0; i < count; i++) {
        buffer_append_u32(&bytes, (uint32_t)renames[i].kind);
        append_text(&bytes, renames[i].wanted);
        append_text(&bytes, renames[i].stored);
    }
    dcp_status status = buffer_status(&bytes);
    *digest = xxh3_64(bytes.data, bytes.size);
    buffer_free(&bytes);
    return status;
}

/* Only whether there are hooks, and which. */
static dcp_status mask_planner(const dcp_load_planner *theirs, uint64_t *mask)
{
    dcp_load_planner planner;
    RETURN_IF_ERROR(hooks_take(&planner, sizeof planner, theirs, "dcp_load_planner"));
    *mask = hooks_mask(&planner, offsetof(dcp_load_planner, set_up_planner), sizeof planner);
    if (theirs)
        *mask |= UINT64_C(1) << 63;
    return DCP_OK;
}

static dcp_status list_traits(const dcp_load_options *options, struct trait traits[TRAITS])
{
    const struct trait all[TRAITS] = {
        {"strictness", false, (uint64_t)options->strictness},
        {"verification", false, (uint64_t)options->verification},
        {"convert", false, options->convert},
        {"unflattened", false, options->unflattened},
        {"include", true, 0},
        {"exclude", true, 0},
        {"renames", true, 0},
        {"members", true, 0},
        {"reading", false, (uint64_t)options->reading},
        {"the planner's set of hooks", true, 0},
        {"memory_limit", false, options->memory_limit},
        {"plan_cache", false, options->plan_cache != NULL},
        {"allow_unused_patterns", false, options->allow_unused_patterns},
        {"take", false, (uint64_t)options->take},
    };
    memcpy(traits, all, sizeof all);
    RETURN_IF_ERROR(digest_texts(options->include, options->include_count, &traits[4].value));
    RETURN_IF_ERROR(digest_texts(options->exclude, options->exclude_count, &traits[5].value));
    RETURN_IF_ERROR(digest_texts(options->members, options->member_count, &traits[7].value));
    RETURN_IF_ERROR(mask_planner(options->planner, &traits[9].value));
    return digest_renames(options->renames, options->rename_count, &traits[6].value);
}

dcp_status options_append_load(const dcp_load_options *options, struct buffer *message)
{
    struct trait traits[TRAITS];
    RETURN_IF_ERROR(list_traits(options, traits));
    for (size_t i = 0; i < TRAITS; i++)
        buffer_append_u64(message, traits[i].value);
    return buffer_status(message);
}

dcp_status options_compare_load(const dcp_load_options *options, struct reader *message)
{
    struct trait traits[TRAITS];
    RETURN_IF_ERROR(list_traits(options, traits));
    for (size_t i = 0; i < TRAITS; i++) {
        uint64_t expected = reader_u64(message);
        if (message->failed)
            return dcp_error_set(DCP_ERR_GROUP,
                                 "the coordinator's message with its options ends too early");
        if (traits[i].value == expected)
            continue;
        if (traits[i].is_digest)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "%s differs from the coordinator's: all ranks must pass the same",
                                 traits[i].option);
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s is %" PRIu64 ", but the coordinator's is %" PRIu64
                             ": all ranks must pass the same",
                             traits[i].option, traits[i].value, expected);
    }
    return DCP_OK;
}
