/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/extra_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"

dcp_status extra_scene_save(const char *path, int64_t value, const dcp_save_options *options)
{
    dcp_state *root = dcp_state_new();
    if (!root)
        return DCP_ERR_NO_MEMORY;
    dcp_state_int(root, "value", value);
    dcp_status status = dcp_state_status(root);
    if (status == DCP_OK)
        status = dcp_save(root, path, options);
    dcp_state_free(root);
    return status;
}

dcp_status extra_scene_save_files(const char *path, const dcp_extra_file *files, size_t count)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                .extra_files = files,
                                .extra_file_count = count,
                                .timeout_seconds = 20};
    return extra_scene_save(path, 1, &options);
}

dcp_status extra_scene_read(dcp_checkpoint *checkpoint, const char *name, char text[1024])
{
    dcp_extra_file_info info;
    size_t index;
    dcp_status status = dcp_checkpoint_find_extra_file(checkpoint, name, &index);
    if (status == DCP_OK)
        status = dcp_checkpoint_extra_file(checkpoint, index, &info);
    if (status == DCP_OK && (info.size >= 1024 || strcmp(info.name, name) != 0))
        return dcp_error_set(DCP_ERR_INTERNAL, "another file");
    if (status == DCP_OK)
        status = dcp_checkpoint_read_extra_file(checkpoint, index, text, (size_t)info.size, NULL);
    text[status == DCP_OK ? info.size : 0] = '\0';
    return status;
}

void extra_scene_expect(dcp_checkpoint *checkpoint, const char *name, const char *expected)
{
    char text[1024];
    must(extra_scene_read(checkpoint, name, text));
    assert_string_equal(text, expected);
}

void extra_scene_expect_all(const char *path, const char *expected)
{
    char found[2048] = "";
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    for (size_t i = 0; i < dcp_checkpoint_extra_file_count(checkpoint); i++) {
        dcp_extra_file_info info;
        char text[1024];
        must(dcp_checkpoint_extra_file(checkpoint, i, &info));
        must(dcp_checkpoint_read_extra_file(checkpoint, i, text, (size_t)info.size, NULL));
        size_t length = strlen(found);
        snprintf(found + length, sizeof found - length, "%s%s=%.*s", length ? " " : "", info.name,
                 (int)info.size, text);
    }
    dcp_checkpoint_close(checkpoint);
    assert_string_equal(found, expected);
}

static dcp_status count_extra(void *context, const char *name)
{
    *(int *)context += strstr(name, ".extra.") != NULL;
    return DCP_OK;
}

int extra_scene_count_stored(const char *path)
{
    int count = 0;
    must(dcp_storage_list(NULL, path, count_extra, &count));
    return count;
}

char extra_scene_faults[4096];

static void keep_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    (void)context, (void)offset;
    size_t length = strlen(extra_scene_faults);
    snprintf(extra_scene_faults + length, sizeof extra_scene_faults - length, "%s: %s: %s\n", file,
             name, fault);
}

uint64_t extra_scene_verify(const char *path)
{
    uint64_t count;
    extra_scene_faults[0] = '\0';
    must(dcp_verify(path, NULL, keep_fault, NULL, &count));
    return count;
}
