/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_own.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "run/run_name.h"

static const struct {
    dcp_run_layout layout;
    const char *name;
    const char *pattern;
    const char *framework; /* whose row says what is needed */
} layouts[] = {{DCP_RUN_LAYOUT_DCP, "dcp", "step_{N}", "dcp"},
               {DCP_RUN_LAYOUT_KEMPNERFORGE, "kempnerforge", "step_{N}", "KempnerForge"},
               {DCP_RUN_LAYOUT_BRIDGE, "megatron-bridge", "iter_{N:07d}", "Megatron-Bridge"}};
enum { LAYOUT_COUNT = sizeof layouts / sizeof *layouts };

static size_t layout_index(dcp_run_layout layout)
{
    size_t i = 0;
    while (i < LAYOUT_COUNT && layouts[i].layout != layout)
        i++;
    return i;
}

/* ---- names ---- */

static bool is_plain(const char *text, size_t length)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    for (size_t i = 0; i < length; i++)
        if (!text[i] || !strchr(plain, text[i]))
            return false;
    return true;
}

bool run_own_identity_is_valid(const char *identity)
{
    size_t length = strlen(identity);
    return length > 0 && length < RUN_IDENTITY_MAX && is_plain(identity, length);
}

/* "{N}" or "{N:07d}": its length; 0: neither. */
static size_t number_length(const char *text, int *digits)
{
    *digits = 1;
    if (strncmp(text, "{N}", 3) == 0)
        return 3;
    if (strncmp(text, "{N:0", 4) != 0 || text[4] < '1' || text[4] > '9')
        return 0;
    char *end;
    long count = strtol(text + 4, &end, 10);
    if (count > 18 || strncmp(end, "d}", 2) != 0)
        return 0;
    *digits = (int)count;
    return (size_t)(end + 2 - text);
}

dcp_status run_own_set_pattern(struct run_own *own, const char *pattern, dcp_run_layout layout)
{
    size_t index = layout_index(layout);
    if (index == LAYOUT_COUNT)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%d is no layout of a run", (int)layout);
    const char *text = pattern ? pattern : layouts[index].pattern;
    const char *number = strchr(text, '{');
    size_t length = number ? number_length(number, &own->digits) : 0;
    if (length == 0 || strlen(text) >= RUN_PATTERN_MAX || *text == '.' || *text == '_' ||
        !is_plain(text, (size_t)(number - text)) ||
        !is_plain(number + length, strlen(number + length)))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "\"%.100s\" is no pattern of a run: expected letters, digits, \".\", "
                             "\"_\" and \"-\" around one \"{N}\" or \"{N:07d}\", of at most %d "
                             "bytes, that do not begin with \".\" or \"_\"",
                             text, RUN_PATTERN_MAX - 1);
    snprintf(own->pattern, sizeof own->pattern, "%s", text);
    snprintf(own->before, sizeof own->before, "%.*s", (int)(number - text), text);
    snprintf(own->after, sizeof own->after, "%s", number + length);
    own->layout = layout;
    return DCP_OK;
}

void run_own_name(const struct run_own *own, int64_t step, char name[RUN_NAME_MAX])
{
    snprintf(name, RUN_NAME_MAX, "%.40s%0*" PRId64 "%.40s", own->before, own->digits, step,
             own->after);
}

bool run_own_step(const struct run_own *own, const char *name, int64_t *step)
{
    size_t before = strlen(own->before);
    char expected[RUN_NAME_MAX];
    int64_t value = 0;
    if (strncmp(name, own->before, before) != 0)
        return false;
    for (const char *c = name + before; *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *c - '0', &value))
            return false;
    run_own_name(own, value, expected);
    *step = value;
    return strcmp(name, expected) == 0;
}

void run_own_note_name(const char *prefix, const char *name, char joined[2 * RUN_NAME_MAX])
{
    snprintf(joined, (size_t)2 * RUN_NAME_MAX, "%s%.200s", prefix, name);
}

/* ---- the row of a layout ---- */

void run_own_layout(const struct run_own *own, char names[RUN_NAME_MAX], struct run_layout *layout)
{
    const char *framework = layouts[layout_index(own->layout)].framework;
    static const char digits[] = "##################";
    snprintf(names, RUN_NAME_MAX, "%.40s%.*s%.40s", own->before, own->digits, digits, own->after);
    for (size_t i = 0; i < run_layout_count; i++)
        if (strcmp(run_layouts[i].framework, framework) == 0)
            *layout = run_layouts[i];
    layout->names = names;
    layout->signs = RUN_OWN_SIGN;
    layout->beside = layout->traces = NULL;
    layout->shares = false;
}

/* ---- the run's file ---- */

enum { FILE_MAX = 4096 };
static const char head[] = "dcp run 1\n";

dcp_status run_own_write(const struct run_place *place, const struct run_own *own,
                         dcp_storage_condition condition)
{
    char text[FILE_MAX];
    int length = snprintf(text, sizeof text, "%sidentity: %s\npattern: %s\nlayout: %s\n", head,
                          own->identity, own->pattern, layouts[layout_index(own->layout)].name);
    return run_place_publish(place, "", RUN_OWN_FILE, text, (size_t)length, condition);
}

/* The rest of the line that begins with a key; false: there is none, or it is too long. */
static bool find_line(const char *text, const char *key, char *value, size_t size)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        size_t length = strlen(key), rest;
        if (strncmp(line, key, length) != 0)
            continue;
        rest = strcspn(line + length, "\n");
        if (rest >= size)
            return false;
        memcpy(value, line + length, rest);
        value[rest] = '\0';
        return true;
    }
    return false;
}

static dcp_status parse(const struct run_place *place, const char *text, struct run_own *own)
{
    char pattern[RUN_PATTERN_MAX], name[32];
    size_t index = 0;
    bool good = strncmp(text, head, sizeof head - 1) == 0 &&
                find_line(text, "identity: ", own->identity, sizeof own->identity) &&
                run_own_identity_is_valid(own->identity) &&
                find_line(text, "pattern: ", pattern, sizeof pattern) &&
                find_line(text, "layout: ", name, sizeof name);
    while (good && index < LAYOUT_COUNT && strcmp(layouts[index].name, name) != 0)
        index++;
    if (good && index < LAYOUT_COUNT &&
        run_own_set_pattern(own, pattern, layouts[index].layout) == DCP_OK)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT,
                         "%s/" RUN_OWN_FILE " is no file of a run of this version; if no run is "
                         "to go on there, remove it",
                         place->root);
}

dcp_status run_own_read(const struct run_place *place, const char *folder, struct run_own *own,
                        bool *found)
{
    struct buffer text;
    *own = (struct run_own){0};
    *found = false;
    char *path = *folder ? path_join(folder, RUN_OWN_FILE) : memory_copy_text(RUN_OWN_FILE);
    if (!path)
        return error_no_memory(strlen(folder) + sizeof RUN_OWN_FILE + 1, "a path");
    buffer_init(&text, 0);
    dcp_status status = run_place_read(place, path, FILE_MAX, &text, found);
    memory_release(path);
    if (status == DCP_OK && *found) {
        buffer_append_u8(&text, 0);
        status = buffer_status(&text);
    }
    if (status == DCP_OK && *found)
        status = parse(place, (const char *)text.data, own);
    buffer_free(&text);
    return status;
}

/* ---- whose a checkpoint is ---- */

static dcp_status read_owner(const struct run_place *place, const char *folder, const char *file,
                             const char *identity, enum run_owner *owner)
{
    char path[4 * RUN_NAME_MAX];
    struct buffer text;
    bool found;
    snprintf(path, sizeof path, "%.255s/%.255s", folder, file);
    buffer_init(&text, 0);
    dcp_status status = run_place_read(place, path, RUN_IDENTITY_MAX, &text, &found);
    size_t length = strlen(identity);
    if (status == DCP_OK && found)
        *owner = text.size == length && memcmp(text.data, identity, length) == 0 &&
                         *owner != RUN_OWNER_OTHER
                     ? RUN_OWNER_US
                     : RUN_OWNER_OTHER;
    buffer_free(&text);
    return status;
}

dcp_status run_own_owner(const struct run_place *place, const char *name, const char *identity,
                         enum run_owner *owner)
{
    struct run_names names;
    bool found;
    *owner = RUN_OWNER_NONE;
    dcp_status status = run_place_list(place, name, &names, &found);
    for (size_t i = 0; i < names.count && status == DCP_OK; i++)
        if (run_name_match_any(RUN_OWN_SIGN, names.names[i]))
            status = read_owner(place, name, names.names[i], identity, owner);
    run_names_free(&names);
    return status;
}

/* A file has its name before it has its bytes. */
static dcp_status is_unwritten(const struct run_place *place, const char *folder, const char *file,
                               bool *unwritten)
{
    char path[4 * RUN_NAME_MAX];
    struct buffer text;
    bool found;
    snprintf(path, sizeof path, "%.255s/%.255s", folder, file);
    buffer_init(&text, 0);
    dcp_status status = run_place_read(place, path, RUN_IDENTITY_MAX, &text, &found);
    *unwritten =
        status == DCP_OK && found && (text.size == 0 || *(const unsigned char *)text.data == 0);
    buffer_free(&text);
    return status;
}

dcp_status run_own_is_only_begun(const struct run_place *place, const struct run_own *own,
                                 const char *name, bool *begun)
{
    struct run_names names;
    char link[RUN_LINK_MAX];
    bool found;
    dcp_status status = run_place_list(place, name, &names, &found);
    bool is_owned = run_names_has(&names, ".dcp_owner"),
         has_side = own->layout != DCP_RUN_LAYOUT_DCP;
    *begun = status == DCP_OK && found && !run_place_is_link(place, name, link);
    for (size_t i = 0; i < names.count && *begun && status == DCP_OK; i++) {
        const char *file = names.names[i];
        if (run_name_match_any(RUN_OWN_SIGN, file))
            status = is_unwritten(place, name, file, begun);
        else
            *begun = run_name_match_any(RUN_OWN_BEGUN, file) ||
                     (has_side && run_name_match_any(RUN_OWN_SIDE, file)) ||
                     (is_owned && run_name_match_any(RUN_OWN_OTHERS, file) &&
                      !run_name_match_any(RUN_OWN_FIRST, file));
    }
    run_names_free(&names);
    return status;
}
