/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_tell.h"

#include <string.h>

#include "base/buffer.h"
#include "base/error.h"

/* Of every message: the texts of a choice, and numbers. */
enum { MESSAGE_SIZE = sizeof(struct run_choice) + 64 };

static dcp_status error_message(const char *what)
{
    return dcp_error_set(DCP_ERR_GROUP,
                         "rank 0's message about %s does not fit this version of the library: all "
                         "ranks need the same version",
                         what);
}

/* False: it is too long, or has an end within. */
static bool read_text(struct reader *reader, char *text, size_t size)
{
    size_t length;
    const char *bytes = reader_text(reader, &length);
    if (!bytes || length >= size || memchr(bytes, '\0', length))
        return false;
    memcpy(text, bytes, length);
    text[length] = '\0';
    return true;
}

static bool read_flag(struct reader *reader)
{
    return reader_u8(reader) != 0;
}

static void append_text(struct buffer *message, const char *text)
{
    buffer_append_text(message, text, strlen(text));
}

typedef void (*append_function)(struct buffer *message, const void *decision);
typedef dcp_status (*read_function)(struct reader *reader, void *decision);

dcp_status run_agree(const dcp_run *run, dcp_status mine)
{
    return dcp_group_agree(run->options.group, mine, run->options.timeout_seconds);
}

dcp_status run_broadcast(const dcp_run *run, void *data, size_t size)
{
    return dcp_group_broadcast(run->options.group, 0, size, run->options.timeout_seconds, data);
}

dcp_status run_gather(const dcp_run *run, const void *data, size_t size, void *gathered)
{
    return dcp_group_all_gather(run->options.group, data, size, run->options.timeout_seconds,
                                gathered);
}

/* status: rank 0's. Ranks agree before the message and after it. */
static dcp_status tell(const dcp_run *run, dcp_status status, append_function append,
                       read_function read, void *decision)
{
    struct buffer message;
    struct reader reader;
    buffer_init(&message, MESSAGE_SIZE);
    if (status == DCP_OK) {
        if (run->rank == 0)
            append(&message, decision);
        buffer_append_zeros(&message, MESSAGE_SIZE - message.size);
        status = buffer_status(&message);
    }
    status = run_agree(run, status);
    if (status == DCP_OK)
        status = run_broadcast(run, message.data, MESSAGE_SIZE);
    if (status == DCP_OK) {
        reader_init(&reader, message.data, message.size);
        status = run_agree(run, run->rank == 0 ? DCP_OK : read(&reader, decision));
    }
    buffer_free(&message);
    return status;
}

/* ---- which run it is ---- */

static void append_own(struct buffer *message, const void *decision)
{
    const struct run_own *own = decision;
    append_text(message, own->identity);
    append_text(message, own->pattern);
    buffer_append_u32(message, (uint32_t)own->layout);
}

static dcp_status read_own(struct reader *reader, void *decision)
{
    struct run_own *own = decision;
    char pattern[RUN_PATTERN_MAX];
    bool whole = read_text(reader, own->identity, sizeof own->identity) &&
                 read_text(reader, pattern, sizeof pattern);
    uint32_t layout = reader_u32(reader);
    if (!whole || reader->failed || !run_own_identity_is_valid(own->identity) ||
        run_own_set_pattern(own, pattern, (dcp_run_layout)layout) != DCP_OK)
        return error_message("the run");
    return DCP_OK;
}

dcp_status run_tell_own(const dcp_run *run, dcp_status status, struct run_own *own)
{
    return tell(run, status, append_own, read_own, own);
}

/* ---- which checkpoint is resumed ---- */

static void append_choice(struct buffer *message, const void *decision)
{
    const struct run_choice *choice = decision;
    const bool flags[] = {choice->found,        choice->named,      choice->own,
                          choice->no_optimizer, choice->pretrained, choice->local};
    for (size_t i = 0; i < sizeof flags; i++)
        buffer_append_u8(message, flags[i]);
    buffer_append_u32(message, choice->missing_optimizers);
    buffer_append_u32(message, (uint32_t)choice->kind);
    buffer_append_u64(message, (uint64_t)choice->step);
    append_text(message, choice->name);
    append_text(message, choice->save_id);
    append_text(message, choice->path);
    append_text(message, choice->reason);
}

static dcp_status read_choice(struct reader *reader, void *decision)
{
    struct run_choice *choice = decision;
    choice->found = read_flag(reader);
    choice->named = read_flag(reader);
    choice->own = read_flag(reader);
    choice->no_optimizer = read_flag(reader);
    choice->pretrained = read_flag(reader);
    choice->local = read_flag(reader);
    choice->missing_optimizers = reader_u32(reader);
    choice->kind = (int32_t)reader_u32(reader);
    choice->step = (int64_t)reader_u64(reader);
    bool whole = read_text(reader, choice->name, sizeof choice->name) &&
                 read_text(reader, choice->save_id, sizeof choice->save_id) &&
                 read_text(reader, choice->path, sizeof choice->path) &&
                 read_text(reader, choice->reason, sizeof choice->reason);
    return whole && !reader->failed ? DCP_OK : error_message("the checkpoint to resume from");
}

dcp_status run_tell_choice(const dcp_run *run, dcp_status status, struct run_choice *choice)
{
    return tell(run, status, append_choice, read_choice, choice);
}

dcp_status run_tell_flag(const dcp_run *run, bool *flag)
{
    uint8_t byte = *flag;
    RETURN_IF_ERROR(run_broadcast(run, &byte, sizeof byte));
    *flag = byte != 0;
    return DCP_OK;
}
