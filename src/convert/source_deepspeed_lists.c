/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of a DeepSpeed checkpoint, and the lists of parameters in the model's. */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/source_deepspeed.h"

/* More ranks than any run has; limits what a name can make us allocate. */
enum { RANKS_MAX = 1 << 20 };

static const struct {
    const char *prefix; /* then the rank, if there is one */
    const char *suffix;
    enum deepspeed_file kind;
    bool has_rank;
} patterns[] = {
    {"mp_rank_", "_model_states.pt", DEEPSPEED_MODEL, false},
    {"zero_pp_rank_", "_model_states.pt", DEEPSPEED_RANK_MODEL, true},
    {"zero_pp_rank_", "_optim_states.pt", DEEPSPEED_OPTIMIZER, true},
    {"bf16_zero_pp_rank_", "_optim_states.pt", DEEPSPEED_OPTIMIZER, true},
    {"fp16_zero_pp_rank_", "_optim_states.pt", DEEPSPEED_OPTIMIZER, true},
};

static const struct {
    const char *pattern;
    const char *what;
} refused[] = {
    {"layer_*_expert_*_states.pt", "a DeepSpeed checkpoint with experts in files of their own"},
    {"expert_*_states.pt", "a DeepSpeed checkpoint with experts in files of their own"},
    {"expp_rank_*_states.pt", "a DeepSpeed checkpoint with experts in files of their own"},
    {"layer_*model_states.pt", "a DeepSpeed checkpoint of a pipeline, one file for each layer"},
    {"offloaded_tensors", "a DeepSpeed checkpoint with tensors that were offloaded, in raw files"},
};

static bool read_number(const char **text, uint64_t *number)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *number = strtoull(*text, &end, 10);
    *text = end;
    return errno == 0;
}

/* Takes a name apart. */
static bool match_name(const char *name, size_t pattern, uint64_t *rank, uint64_t *slice)
{
    size_t length = strlen(patterns[pattern].prefix);
    if (strncmp(name, patterns[pattern].prefix, length) != 0)
        return false;
    name += length;
    *rank = 0;
    if (patterns[pattern].has_rank) {
        if (!read_number(&name, rank) || strncmp(name, "_mp_rank_", 9) != 0)
            return false;
        name += 9;
    }
    return read_number(&name, slice) && strcmp(name, patterns[pattern].suffix) == 0;
}

static dcp_status keep_name(struct arena *arena, const char *directory, const char *name,
                            enum deepspeed_file kind, uint64_t rank, struct deepspeed_files *files)
{
    if (rank >= RANKS_MAX)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: \"%s\" is of a rank beyond %d", directory, name,
                             RANKS_MAX);
    if (rank >= files->counts[kind]) {
        size_t count = (size_t)rank + 1;
        size_t room = files->counts[kind] == 0 ? 16 : files->counts[kind];
        while (room < count)
            room *= 2;
        const char **grown =
            memory_reallocate_array((void *)files->names[kind], room, sizeof *grown);
        if (!grown)
            return error_no_memory(room * sizeof *grown, "names of files");
        files->names[kind] = grown;
        for (size_t i = files->counts[kind]; i < count; i++)
            grown[i] = NULL;
        files->counts[kind] = count;
    }
    const char **place = &files->names[kind][rank];
    if (*place)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: \"%s\" and \"%s\" are both of rank %" PRIu64,
                             directory, *place, name, rank);
    *place = arena_copy_text(arena, name, strlen(name));
    return *place ? DCP_OK : error_no_memory(strlen(name), "a name");
}

static dcp_status look_at(const struct convert_source *source, struct arena *arena,
                          const char *name, struct deepspeed_files *files)
{
    uint64_t rank, slice;
    const char *directory = source->training;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (fnmatch(refused[i].pattern, name, 0) == 0)
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "%s: %s, which cannot be converted (there is %s)", directory,
                                 refused[i].what, name);
    files->has_zero = files->has_zero || strcmp(name, "zero") == 0;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        if (!match_name(name, i, &rank, &slice))
            continue;
        if (slice > 0)
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "%s: a DeepSpeed checkpoint with tensor parallelism, which cannot "
                                 "be converted (there is %s): how its slices join is in no file",
                                 directory, name);
        return keep_name(arena, directory, name, patterns[i].kind, rank, files);
    }
    return DCP_OK;
}

dcp_status deepspeed_list(const struct convert_source *source, struct arena *arena,
                          struct deepspeed_files *files)
{
    *files = (struct deepspeed_files){0};
    DIR *directory = opendir(source->training);
    if (!directory)
        return dcp_error_set(DCP_ERR_IO, "%s: cannot be listed: %s", source->training,
                             strerror(errno));
    dcp_status status = DCP_OK;
    for (struct dirent *entry; status == DCP_OK && (entry = readdir(directory)) != NULL;)
        status = look_at(source, arena, entry->d_name, files);
    closedir(directory);
    return status;
}

dcp_status deepspeed_add_files(struct deepspeed *from, enum deepspeed_file kind, size_t count,
                               size_t *first)
{
    static const char *const what[] = {"model", "model", "optimizer"};
    const struct deepspeed_files *files = &from->files;
    const char *directory = from->source->training;
    *first = from->parts->files.count;
    for (size_t rank = 0; rank < count; rank++) {
        const char *name = rank < files->counts[kind] ? files->names[kind][rank] : NULL;
        size_t file;
        if (!name)
            return dcp_error_set(DCP_ERR_NOT_FOUND,
                                 "%s: the %s's file of rank %zu is missing: the checkpoint is of "
                                 "%zu ranks",
                                 directory, what[kind], rank, count);
        RETURN_IF_ERROR(source_files_add(&from->parts->files, directory, name, &file));
    }
    for (size_t rank = count; rank < files->counts[kind]; rank++)
        if (files->names[kind][rank])
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: %s is there, but the checkpoint is of %zu ranks: it is of "
                                 "another one; remove it",
                                 directory, files->names[kind][rank], count);
    return DCP_OK;
}

static dcp_status add_param(struct deepspeed *from, dcp_checkpoint *checkpoint, size_t index,
                            const dcp_path_part *name, size_t group, bool frozen)
{
    struct deepspeed_param param = {.name = name->key, .frozen = frozen, .group = group};
    int64_t shape[DCP_MAX_DIMS];
    uint64_t number = from->param_count;
    bool existing;
    if (from->param_count == from->param_capacity) {
        size_t capacity = from->param_capacity == 0 ? 256 : from->param_capacity * 2;
        struct deepspeed_param *grown =
            memory_reallocate_array(from->params, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "parameters");
        from->params = grown;
        from->param_capacity = capacity;
    }
    RETURN_IF_ERROR(source_value_shape(checkpoint, index, shape, &param.ndim));
    if (!name->key || !shape_volume(param.ndim, shape, &param.elements))
        return dcp_error_set(DCP_ERR_FORMAT, "the shape of \"%s\" is impossible",
                             name->key ? name->key : "");
    param.name = arena_copy_text(from->arena, name->key, strlen(name->key));
    param.shape = arena_copy(from->arena, shape, (size_t)param.ndim * sizeof *shape);
    if (!param.name || !param.shape)
        return error_no_memory(strlen(name->key), "a parameter");
    RETURN_IF_ERROR(
        name_table_add(&from->by_name, param.name, strlen(param.name), &number, &existing));
    if (existing)
        return dcp_error_set(DCP_ERR_DUPLICATE, "the shape of \"%s\" is given twice", param.name);
    from->params[from->param_count++] = param;
    if (!frozen && group >= from->group_count)
        from->group_count = group + 1;
    return DCP_OK;
}

static dcp_status add_tied(struct deepspeed *from, dcp_checkpoint *checkpoint, size_t index,
                           const char *key)
{
    const char *name = arena_copy_text(from->arena, key, strlen(key)), *holder;
    uint64_t number = from->holder_count;
    bool existing;
    RETURN_IF_ERROR(source_value_text(checkpoint, index, from->arena, &holder));
    if (!name)
        return error_no_memory(strlen(key), "a name");
    const char **grown =
        memory_reallocate_array((void *)from->holders, from->holder_count + 1, sizeof *grown);
    if (!grown)
        return error_no_memory(sizeof *grown, "tied names");
    from->holders = grown;
    from->holders[from->holder_count++] = holder;
    return name_table_add(&from->tied, name, strlen(name), &number, &existing);
}

/* An entry of the model's file, if it is of one of the lists. */
static dcp_status read_listed(struct deepspeed *from, dcp_checkpoint *checkpoint, size_t index)
{
    dcp_entry entry;
    RETURN_IF_ERROR(dcp_checkpoint_entry(checkpoint, index, &entry));
    if (entry.is_tensor || entry.path_length < 2)
        return DCP_OK;
    const dcp_path_part *path = entry.path, *last = &path[entry.path_length - 1];
    if (source_entry_is_below(&entry, "param_shapes") && entry.path_length == 3 && !path[1].key)
        return add_param(from, checkpoint, index, last, (size_t)path[1].position, false);
    if (source_entry_is_below(&entry, "param_shapes") && entry.path_length == 2)
        return add_param(from, checkpoint, index, last, 0, false);
    if (source_entry_is_below(&entry, "frozen_param_shapes") && entry.path_length == 2)
        return add_param(from, checkpoint, index, last, 0, true);
    if (source_entry_is_below(&entry, "shared_params") && entry.path_length == 2 && last->key)
        return add_tied(from, checkpoint, index, last->key);
    return DCP_OK;
}

dcp_status deepspeed_begin(struct deepspeed *from, struct convert_source *source)
{
    dcp_checkpoint *checkpoint;
    *from = (struct deepspeed){.source = source, .parts = source->parts, .arena = &source->arena};
    name_table_init(&from->by_name);
    name_table_init(&from->tied);
    RETURN_IF_ERROR(deepspeed_list(source, from->arena, &from->files));
    from->is_cut = from->files.counts[DEEPSPEED_RANK_MODEL] > 0;
    if (from->is_cut && from->files.counts[DEEPSPEED_MODEL] > 0)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: there are files of ZeRO-3 and of another stage",
                             source->training);
    enum deepspeed_file kind = from->is_cut ? DEEPSPEED_RANK_MODEL : DEEPSPEED_MODEL;
    from->ranks = from->is_cut ? from->files.counts[kind] : 1;
    RETURN_IF_ERROR(deepspeed_add_files(from, kind, from->ranks, &from->model));
    RETURN_IF_ERROR(source_files_take(&from->parts->files, from->model, &checkpoint));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint) && status == DCP_OK; i++)
        status = read_listed(from, checkpoint, i);
    source_files_give(&from->parts->files, from->model);
    return status == DCP_OK
               ? DCP_OK
               : error_prefix(status, "%s", from->parts->files.files[from->model].path);
}

void deepspeed_end(struct deepspeed *from)
{
    for (size_t i = 0; i < DEEPSPEED_FILE_KINDS; i++)
        memory_release((void *)from->files.names[i]);
    memory_release(from->params);
    memory_release((void *)from->holders);
    name_table_free(&from->by_name);
    name_table_free(&from->tied);
}
