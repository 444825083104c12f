/* SPDX-License-Identifier: BSD-3-Clause */
/* Which training checkpoint a directory is, by the names in it and the small files that lead from
 * the directory of a run to that of a step. */
#include "convert/source_training.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/model_config.h"
#include "convert/source_deepspeed.h"

static bool is_directory(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* DIRECTORY/NAME, in the arena. */
static dcp_status join(struct convert_source *source, const char *directory, const char *name,
                       const char **path)
{
    size_t size = strlen(directory) + strlen(name) + 2;
    char *joined = arena_allocate(&source->arena, size);
    if (!joined)
        return error_no_memory(size, "a path");
    snprintf(joined, size, "%s/%s", directory, name);
    *path = joined;
    return DCP_OK;
}

/* The directory that a small text file names; *path NULL: there is no such file, or no such
 * directory. */
static dcp_status follow(struct convert_source *source, const char *name, const char **path)
{
    char text[256];
    const char *file;
    *path = NULL;
    RETURN_IF_ERROR(join(source, source->path, name, &file));
    FILE *opened = is_directory(file) ? NULL : fopen(file, "rb");
    if (!opened)
        return DCP_OK;
    size_t length = fread(text, 1, sizeof text - 1, opened);
    fclose(opened);
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' '))
        length--;
    text[length] = '\0';
    if (length == 0 || strlen(text) != length || strchr(text, '/') || strcmp(text, ".") == 0 ||
        strcmp(text, "..") == 0)
        return DCP_OK;
    RETURN_IF_ERROR(join(source, source->path, text, path));
    if (!is_directory(*path))
        *path = NULL;
    return DCP_OK;
}

/* Whether a directory holds files of DeepSpeed; fills in what is said of them. */
static dcp_status try_deepspeed(struct convert_source *source, const char *directory, bool *found)
{
    struct deepspeed_files files;
    struct arena arena;
    arena_init(&arena, 0);
    source->training = directory;
    dcp_status status = deepspeed_list(source, &arena, &files);
    const size_t *counts = files.counts;
    *found = status == DCP_OK && (counts[DEEPSPEED_MODEL] > 0 || counts[DEEPSPEED_RANK_MODEL] > 0 ||
                                  counts[DEEPSPEED_OPTIMIZER] > 0);
    if (*found) {
        bool universal = files.has_zero && counts[DEEPSPEED_OPTIMIZER] == 0;
        source->form = DCP_FORM_DEEPSPEED;
        source->open_training = universal ? universal_open : deepspeed_open;
        if (universal)
            snprintf(source->text, sizeof source->text, "a universal checkpoint of DeepSpeed");
        else if (counts[DEEPSPEED_OPTIMIZER] == 0)
            snprintf(source->text, sizeof source->text, "a DeepSpeed checkpoint, the model alone");
        else
            snprintf(source->text, sizeof source->text, "a DeepSpeed checkpoint, %s, of %zu ranks",
                     counts[DEEPSPEED_RANK_MODEL] > 0 ? "ZeRO-3" : "ZeRO-1 or ZeRO-2",
                     counts[DEEPSPEED_OPTIMIZER]);
    }
    arena_free(&arena);
    for (size_t i = 0; i < DEEPSPEED_FILE_KINDS; i++)
        memory_release((void *)files.names[i]);
    return status;
}

dcp_status training_read_backend(struct convert_source *source, const char *file,
                                 const char **backend)
{
    const char *text;
    size_t size;
    *backend = NULL;
    RETURN_IF_ERROR(convert_read_text(source, file, &text, &size));
    if (!text)
        return DCP_OK;
    dcp_status status = model_config_find(text, size, "sharded_backend", &source->arena, backend);
    return status == DCP_OK ? DCP_OK
                            : error_prefix(status,
                                           "%s/%s would say whether this is a checkpoint of "
                                           "Megatron-Core, but is no JSON: mend or remove it",
                                           source->path, file);
}

/* A directory of Megatron-Core, as its metadata.json says; name: below the source's path, "" for
 * itself. Other back ends are refused later, by name. */
static dcp_status try_megatron(struct convert_source *source, const char *name, bool *found)
{
    const char *file = "metadata.json", *backend;
    if (*name)
        RETURN_IF_ERROR(join(source, name, "metadata.json", &file));
    RETURN_IF_ERROR(training_read_backend(source, file, &backend));
    *found = backend && strcmp(backend, "torch_dist") == 0;
    if (!*found)
        return DCP_OK;
    source->training = source->path;
    if (*name)
        RETURN_IF_ERROR(join(source, source->path, name, &source->training));
    source->form = DCP_FORM_MEGATRON;
    source->open_training = megatron_open;
    snprintf(source->text, sizeof source->text, "a checkpoint of Megatron-Core (torch_dist)%s%.40s",
             *name ? ", " : "", name);
    return DCP_OK;
}

/* The step that Bridge's latest_train_state.pt says; -1: there is no such file, or it says none. */
static int64_t read_train_state(struct convert_source *source)
{
    int64_t step = -1;
    const dcp_tensor place = {.dtype = DCP_I64, .data = &step};
    const char *path;
    dcp_checkpoint *checkpoint;
    size_t index;
    if (join(source, source->path, "latest_train_state.pt", &path) != DCP_OK ||
        access(path, F_OK) != 0 ||
        dcp_checkpoint_open(path, &(dcp_open_options){0}, &checkpoint) != DCP_OK)
        return -1;
    if (dcp_checkpoint_find(checkpoint, "step", &index) != DCP_OK ||
        dcp_checkpoint_read_tensor(checkpoint, index, &place,
                                   &(dcp_read_options){.convert = true}) != DCP_OK)
        step = -1;
    dcp_checkpoint_close(checkpoint);
    return step;
}

/* The directory itself, or that of the step which a run's marks name: Bridge's first, which is
 * right where an older version of it has left the other one wrong. */
static dcp_status try_run(struct convert_source *source, bool *found)
{
    char name[64];
    const char *text;
    size_t size;
    RETURN_IF_ERROR(try_megatron(source, "", found));
    int64_t step = *found ? -1 : read_train_state(source);
    if (step >= 0) {
        snprintf(name, sizeof name, "iter_%07" PRId64, step);
        RETURN_IF_ERROR(try_megatron(source, name, found));
    }
    if (*found)
        return DCP_OK;
    RETURN_IF_ERROR(convert_read_text(source, "latest_checkpointed_iteration.txt", &text, &size));
    if (!text)
        return DCP_OK;
    size_t digits = strspn(text, "0123456789");
    bool release = strncmp(text, "release", 7) == 0;
    if (!release && (digits == 0 || digits > 18))
        return DCP_OK;
    if (release)
        snprintf(name, sizeof name, "release");
    else
        snprintf(name, sizeof name, "iter_%07" PRId64, (int64_t)strtoll(text, NULL, 10));
    return try_megatron(source, name, found);
}

static dcp_status try_items(struct convert_source *source, bool *found)
{
    const char *metadata;
    RETURN_IF_ERROR(join(source, source->path, "metadata.pkl", &metadata));
    *found = access(metadata, F_OK) == 0;
    bool described = *found;
    if (!described)
        RETURN_IF_ERROR(torch_checkpointing_look(source->path, found));
    if (!*found)
        return DCP_OK;
    source->training = source->path;
    source->form = DCP_FORM_TORCH_CHECKPOINTING;
    source->open_training = torch_checkpointing_open;
    snprintf(source->text, sizeof source->text, "a checkpoint of torch_checkpointing%s",
             described ? "" : ", without metadata.pkl");
    return DCP_OK;
}

dcp_status training_recognize(struct convert_source *source, bool *recognized)
{
    static const char *const marks[] = {"latest", "latest_universal"};
    *recognized = false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && !*recognized; i++) {
        const char *directory;
        RETURN_IF_ERROR(follow(source, marks[i], &directory));
        if (directory)
            RETURN_IF_ERROR(try_deepspeed(source, directory, recognized));
    }
    if (!*recognized)
        RETURN_IF_ERROR(try_deepspeed(source, source->path, recognized));
    if (!*recognized)
        RETURN_IF_ERROR(try_run(source, recognized));
    if (!*recognized)
        RETURN_IF_ERROR(try_items(source, recognized));
    if (!*recognized)
        source->training = NULL;
    return DCP_OK;
}

dcp_status training_check_take(dcp_take take)
{
    if (take == DCP_TAKE_MODEL || take == DCP_TAKE_MASTERS || take == DCP_TAKE_ALL)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_ARGUMENT, "take is %d, which is none of the values of dcp_take",
                         (int)take);
}

dcp_status training_open(struct convert_source *source)
{
    source->parts = arena_allocate(&source->arena, sizeof *source->parts);
    if (!source->parts)
        return error_no_memory(sizeof *source->parts, "a training checkpoint");
    source_parts_init(source->parts, &source->arena);
    return source->open_training(source);
}
