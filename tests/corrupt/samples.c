/* SPDX-License-Identifier: BSD-3-Clause */
#include "samples.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "storage/scratch.h"

/* The samples are of a few kilobytes. */
enum { MOST_MEMORY = 48 << 20, MOST_SECONDS = 5 };

static const struct origin {
    const char *title;
    const char *path; /* of a reference checkpoint; NULL: ours */
    dcp_save_options options;
    bool zstd;
} origins[SAMPLE_COUNT] = {
    {"ours", NULL, {.skip_sync = true}, false},
    {"ours, a file per item", NULL, {.files = DCP_FILE_PER_ITEM, .skip_sync = true}, false},
    {"ours, three files", NULL, {.thread_count = 3, .skip_sync = true}, false},
    {"PyTorch's", "basic/ckpt", {0}, false},
    {"PyTorch's, protocol 2", "meta_protocol2/ckpt", {0}, false},
    {"PyTorch's, zstd", "zstd_extra_frame/ckpt", {0}, true},
    {"PyTorch's, rank-local", "rank_local_w2/ckpt", {0}, false},
    {"safetensors", "hf_single/ckpt", {0}, false},
    {"safetensors, sharded", "hf_sharded_w2/ckpt", {0}, false},
    {"torch.save, objects", "pt_objects/ckpt.pt", {0}, false},
    {"torch.save, protocol 4", "pt_protocol4/ckpt.pt", {0}, false},
    {"torch.save, deflated", "pt_plain_zip/ckpt.pt", {0}, false},
    {"torch.save, state dict", "pt_state_dict/ckpt.pt", {0}, false},
};

/* Tensors of equal form, so that one could be taken for another. */
static void save_ours(const struct origin *origin, const char *path)
{
    static float weights[4][6] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9}, {-1, -2}, {0.5f}};
    dcp_state *root = dcp_state_new(), *model = dcp_state_dict(root, "model");
    char key[] = "w0";

    for (int i = 0; i < 4; i++) {
        dcp_tensor tensor = {
            .dtype = DCP_F32, .ndim = 2, .global_shape = {2, 3}, .data = weights[i]};
        key[1] = (char)('0' + i);
        dcp_state_tensor(model, key, &tensor);
    }
    dcp_state_int(root, "step", 1000);
    dcp_state_int(root, "stop", 1001);
    dcp_state_string(root, "text", "some words");
    assert_int_equal(dcp_save(root, path, &origin->options), DCP_OK);
    dcp_state_free(root);
}

static void read_files(struct checkpoint_sample *sample)
{
    DIR *directory = opendir(sample->directory);
    const struct dirent *entry;

    assert_non_null(directory);
    while ((entry = readdir(directory)) != NULL) {
        struct sample_file *file = &sample->files[sample->file_count];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        assert_true(++sample->file_count < sizeof sample->files / sizeof *sample->files);
        file->name = strdup(entry->d_name);
        file->bytes = scratch_read(sample->directory, file->name, &file->size);
    }
    closedir(directory);
}

bool checkpoint_sample_make(struct checkpoint_sample *sample, int number, const char *scratch)
{
    const struct origin *origin = &origins[number];
    char name[20];

    memory_limit_install(MOST_MEMORY);
    *sample = (struct checkpoint_sample){.title = origin->title, .ours = origin->path == NULL};
    if (origin->zstd && !DCP_HAVE_ZSTD)
        return false;
    snprintf(name, sizeof name, "sample%d", number);
    sample->directory = scratch_path(scratch, name);
    sample->path = scratch_path(scratch, name);
    if (!origin->path) {
        save_ours(origin, sample->path);
    } else if (strstr(origin->path, ".pt")) {
        size_t size;
        unsigned char *bytes = scratch_read(FIXTURES, origin->path, &size);
        assert_int_equal(mkdir(sample->directory, 0777), 0);
        scratch_write(sample->directory, "ckpt.pt", bytes, size);
        free(sample->path);
        sample->path = scratch_path(sample->directory, "ckpt.pt");
        free(bytes);
    } else {
        char *from = scratch_path(FIXTURES, origin->path);
        scratch_copy(from, sample->directory);
        free(from);
    }
    read_files(sample);
    /* Views of shared storages in .pt files are parts of records. */
    bool is_pt = strcmp(sample->path, sample->directory) != 0;
    sample->contents = contents_read(sample->path, is_pt ? DCP_VERIFY_RECORDS : DCP_VERIFY_ALL);
    return true;
}

void checkpoint_sample_free(struct checkpoint_sample *sample)
{
    for (size_t i = 0; i < sample->file_count; i++) {
        free((char *)sample->files[i].name);
        free(sample->files[i].bytes);
    }
    if (sample->contents)
        contents_free(sample->contents);
    free(sample->path);
    free(sample->directory);
    dcp_set_allocator(NULL);
}

void checkpoint_sample_write(const struct checkpoint_sample *sample, size_t file,
                             const unsigned char *bytes, size_t size)
{
    scratch_write(sample->directory, sample->files[file].name, bytes, size);
}

struct damage_report checkpoint_sample_examine(const struct checkpoint_sample *sample,
                                               const char *what, size_t at, bool covered)
{
    struct damage_report report;
    struct deadline deadline = deadline_after(MOST_SECONDS);

    contents_compare(sample->contents, sample->path, &report);
    if (report.unexplained)
        fail_msg("%s: %s at %zu: %s", sample->title, what, at, report.message);
    if (report.wrong > 0 && covered)
        fail_msg("%s: %s at %zu: %s, %d faults found", sample->title, what, at, report.message,
                 (int)report.faults);
    if (memory_limit_met())
        fail_msg("%s: %s at %zu: more than %d bytes asked for", sample->title, what, at,
                 MOST_MEMORY);
    if (deadline_passed(deadline))
        fail_msg("%s: %s at %zu: took more than %d seconds", sample->title, what, at, MOST_SECONDS);
    return report;
}
