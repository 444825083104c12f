/* SPDX-License-Identifier: BSD-3-Clause */
#include "contents.h"

#include <err.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct value {
    char *name;
    char *json; /* objects; NULL for tensors */
    dcp_tensor whole;
    uint64_t bytes;
};

struct contents {
    dcp_verification verification;
    size_t count;
    struct value *values;
};

/* ---- memory ---- */

static atomic_size_t memory_held;
static size_t memory_limit;
static atomic_bool limit_met;

static void *limited_reallocate(void *context, void *block, size_t size)
{
    size_t *old = block ? (size_t *)block - 2 : NULL;
    size_t before = old ? *old : 0;

    (void)context;
    if (size > memory_limit || memory_held - before + size > memory_limit) {
        limit_met = true;
        return NULL;
    }
    size_t *grown = realloc(old, size + 2 * sizeof *grown);
    if (!grown)
        return NULL;
    memory_held += size - before;
    *grown = size;
    return grown + 2;
}

static void *limited_allocate(void *context, size_t size)
{
    return limited_reallocate(context, NULL, size);
}

static void limited_release(void *context, void *block)
{
    size_t *old = block ? (size_t *)block - 2 : NULL;

    (void)context;
    if (old)
        memory_held -= *old;
    free(old);
}

void memory_limit_install(size_t limit)
{
    const dcp_allocator limited = {limited_allocate, limited_reallocate, limited_release, NULL};

    memory_limit = limit;
    dcp_set_allocator(&limited);
}

bool memory_limit_met(void)
{
    return atomic_exchange(&limit_met, false);
}

/* ---- reading ---- */

static dcp_status read_json(dcp_checkpoint *checkpoint, size_t index, char **json)
{
    dcp_state *root = dcp_state_new();
    char *text = NULL;
    dcp_status status = dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL);

    if (status == DCP_OK)
        status = dcp_state_to_json(dcp_state_find(root, "value"), 1 << 20, &text);
    *json = status == DCP_OK ? strdup(text) : NULL;
    dcp_text_free(text);
    dcp_state_free(root);
    return status;
}

static dcp_tensor whole_of(const dcp_entry *entry)
{
    dcp_tensor whole = {.dtype = entry->dtype, .ndim = entry->ndim};

    if (entry->ndim > 0)
        memcpy(whole.global_shape, entry->global_shape, (size_t)entry->ndim * sizeof(int64_t));
    return whole;
}

struct contents *contents_read(const char *path, dcp_verification verification)
{
    struct contents *contents = calloc(1, sizeof *contents);
    dcp_checkpoint *checkpoint = NULL;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);

    if (!contents || status != DCP_OK)
        errx(1, "%s: %s", path, dcp_error_message());
    contents->verification = verification;
    contents->count = dcp_checkpoint_count(checkpoint);
    contents->values = calloc(contents->count + 1, sizeof *contents->values);
    for (size_t i = 0; i < contents->count && status == DCP_OK; i++) {
        struct value *value = &contents->values[i];
        dcp_entry entry;
        status = dcp_checkpoint_entry(checkpoint, i, &entry);
        if (status != DCP_OK)
            break;
        value->name = strdup(entry.name);
        if (!entry.is_tensor) {
            status = read_json(checkpoint, i, &value->json);
            continue;
        }
        value->whole = whole_of(&entry);
        value->bytes = entry.bytes;
        value->whole.data = malloc(entry.bytes + 1);
        status = dcp_checkpoint_read_tensor(checkpoint, i, &value->whole, NULL);
    }
    if (status != DCP_OK)
        errx(1, "%s: %s", path, dcp_error_message());
    dcp_checkpoint_close(checkpoint);
    return contents;
}

void contents_free(struct contents *contents)
{
    for (size_t i = 0; i < contents->count; i++) {
        free(contents->values[i].name);
        free(contents->values[i].json);
        free(contents->values[i].whole.data);
    }
    free(contents->values);
    free(contents);
}

/* ---- reading again ---- */

static void note_failure(struct damage_report *report, const char *what, dcp_status status)
{
    if (status == DCP_OK || (status != DCP_ERR_INTERNAL && *dcp_error_message()))
        return;
    report->unexplained = true;
    snprintf(report->message, sizeof report->message, "%s: %s: %s", what, dcp_status_string(status),
             dcp_error_message());
}

static void note_wrong(struct damage_report *report, const char *how, const char *name)
{
    report->wrong++;
    snprintf(report->message, sizeof report->message, "%s %s is another value", how, name);
}

static void read_again(const struct contents *contents, dcp_checkpoint *checkpoint,
                       const struct value *value, size_t index, struct damage_report *report)
{
    dcp_entry entry;
    dcp_status status = dcp_checkpoint_entry(checkpoint, index, &entry);

    note_failure(report, value->name, status);
    if (status != DCP_OK)
        return;
    if (!entry.is_tensor) {
        char *json = NULL;
        status = read_json(checkpoint, index, &json);
        if (status == DCP_OK && (!value->json || strcmp(json, value->json) != 0))
            note_wrong(report, "read: ", value->name);
        free(json);
    } else if (entry.bytes < 1 << 20) {
        dcp_tensor whole = whole_of(&entry);
        whole.data = calloc(1, entry.bytes + 1);
        status = dcp_checkpoint_read_tensor(
            checkpoint, index, &whole, &(dcp_read_options){.verification = contents->verification});
        if (status == DCP_OK &&
            (value->json || entry.bytes != value->bytes || entry.dtype != value->whole.dtype ||
             memcmp(whole.data, value->whole.data, entry.bytes) != 0))
            note_wrong(report, "read: ", value->name);
        free(whole.data);
    }
    note_failure(report, value->name, status);
}

/* Everything that was there is wanted, some of it with memory of the library's. */
static void load_again(const struct contents *contents, const char *path,
                       struct damage_report *report)
{
    dcp_state *state = dcp_state_new();
    dcp_load_report *lines = NULL;
    dcp_tensor chunk;

    for (size_t i = 0; i < contents->count; i++) {
        const struct value *value = &contents->values[i];
        dcp_tensor whole = value->whole;
        whole.data = NULL;
        if (value->json)
            dcp_state_none(state, value->name);
        else
            dcp_state_tensor(state, value->name, &whole);
    }
    const dcp_load_options options = {.verification = contents->verification};
    dcp_status status = dcp_load(state, path, &options, &lines);
    note_failure(report, "load", status);
    for (size_t i = 0; i < contents->count && status == DCP_OK; i++) {
        const struct value *value = &contents->values[i];
        dcp_state *node = dcp_state_find(state, value->name);
        if (!value->json && dcp_state_chunk(node, 0, &chunk) == DCP_OK && chunk.data &&
            memcmp(chunk.data, value->whole.data, value->bytes) != 0)
            note_wrong(report, "load: ", value->name);
    }
    dcp_load_report_free(lines);
    dcp_state_free(state);
}

static void take_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    struct damage_report *report = context;

    (void)file, (void)offset, (void)name;
    if (!*fault)
        report->unexplained = true;
}

void contents_compare(const struct contents *contents, const char *path,
                      struct damage_report *report)
{
    dcp_checkpoint *checkpoint = NULL;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);

    *report = (struct damage_report){.opened = status == DCP_OK};
    note_failure(report, "open", status);
    for (size_t i = 0; i < contents->count && report->opened; i++) {
        const struct value *value = &contents->values[i];
        size_t index;
        if (dcp_checkpoint_find(checkpoint, value->name, &index) == DCP_OK)
            read_again(contents, checkpoint, value, index, report);
    }
    dcp_checkpoint_close(checkpoint);
    load_again(contents, path, report);
    status = dcp_verify(path, NULL, take_fault, report, &report->faults);
    note_failure(report, "verify", status);
    if (status != DCP_OK)
        report->faults++;
    if (memory_held != 0) {
        report->unexplained = true;
        snprintf(report->message, sizeof report->message, "leaked %zu bytes", (size_t)memory_held);
        memory_held = 0;
    }
}
