/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_contents.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "run/run_json.h"
#include "run/run_name.h"

char *run_contents_path(const struct run_contents *contents, const char *name)
{
    const char *path = contents->path;
    char *joined = *path && *name ? path_join(path, name) : memory_copy_text(*path ? path : name);
    if (!joined)
        error_no_memory(strlen(path) + strlen(name) + 2, "a path");
    return joined;
}

bool run_contents_have(const struct run_contents *contents, const char *patterns)
{
    for (size_t i = 0; i < contents->names.count; i++)
        if (run_name_match_any(patterns, contents->names.names[i]))
            return true;
    return false;
}

dcp_status run_contents_json(const struct run_contents *contents, const char *name, const char *key,
                             bool *found, bool *key_found)
{
    struct buffer text;
    uint64_t size;
    *found = *key_found = false;
    char *path = run_contents_path(contents, name);
    if (!path)
        return DCP_ERR_NO_MEMORY;
    buffer_init(&text, 0);
    bool read = false;
    dcp_status status = run_place_size(contents->place, path, &size, found);
    if (status == DCP_OK && *found)
        status = run_place_read(contents->place, path, RUN_JSON_LIMIT, &text, &read);
    if (status == DCP_OK && read)
        *key_found = run_json_has((const char *)text.data, text.size, key);
    buffer_free(&text);
    memory_release(path);
    return status;
}

/* "mp_rank_*" and "model_optim_rng.pt": the file in one of the folders. */
static dcp_status show_inner(const struct run_contents *contents, const char *pattern,
                             const char *file, bool *shown)
{
    for (size_t i = 0; i < contents->names.count && !*shown; i++) {
        const char *name = contents->names.names[i];
        uint64_t size;
        if (!run_name_match_any(pattern, name))
            continue;
        char *folder = run_contents_path(contents, name);
        char *path = folder ? path_join(folder, file) : NULL;
        dcp_status status = path ? run_place_size(contents->place, path, &size, shown)
                                 : error_no_memory(strlen(file) + strlen(name), "a path");
        memory_release(path);
        memory_release(folder);
        RETURN_IF_ERROR(status);
    }
    return DCP_OK;
}

/* sign is cut. */
static dcp_status show_one(const struct run_contents *contents, char *sign, bool *shown)
{
    char *colon = strchr(sign, ':'), *slash = strchr(sign, '/');
    bool found;
    if (colon) {
        *colon = '\0';
        if (!slash && !run_names_has(&contents->names, sign))
            return DCP_OK;
        return run_contents_json(contents, sign, colon + 1, &found, shown);
    }
    if (slash) {
        *slash = '\0';
        return show_inner(contents, sign, slash + 1, shown);
    }
    *shown = run_contents_have(contents, sign);
    return DCP_OK;
}

dcp_status run_contents_show(const struct run_contents *contents, const char *signs, bool *shown)
{
    enum { SIGN_MAX = 128 };
    *shown = false;
    while (signs && *signs && !*shown) {
        char sign[SIGN_MAX];
        size_t length = strcspn(signs, " ");
        memcpy(sign, signs, length);
        sign[length] = '\0';
        RETURN_IF_ERROR(show_one(contents, sign, shown));
        signs += length + (signs[length] == ' ');
    }
    return DCP_OK;
}
