/* SPDX-License-Identifier: BSD-3-Clause */
/* DCP directories, and those of safetensors: what the metadata names is there, as long as it must
 * be, and of the same save. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "dcp/checkpoint.h"
#include "dcp/shard_file.h"
#include "run/run_check.h"
#include "run/run_json.h"

/* A file that the metadata names. */
struct needed_file {
    const char *name;
    uint64_t length;
};

/* One directory on its way. */
struct stored {
    struct run_check *check;
    const char *path;
    dcp_checkpoint *checkpoint;
    dcp_shard_list *shards; /* NULL: nothing is known of footers */
    dcp_save_info info;
    struct needed_file *files;
    size_t count, capacity;
    struct name_table by_name; /* of files */
    struct name_table by_shard;
    bool links; /* a load follows links to its files: they come from no .metadata */
};

static dcp_status need_length(struct stored *stored, const char *name, uint64_t length)
{
    uint64_t index = stored->count;
    bool existing;
    RETURN_IF_ERROR(name_table_add(&stored->by_name, name, strlen(name), &index, &existing));
    if (!existing && stored->count == stored->capacity) {
        size_t capacity = stored->capacity ? 2 * stored->capacity : 64;
        struct needed_file *grown = memory_reallocate_array(stored->files, capacity, sizeof *grown);
        if (!grown)
            return error_no_memory(capacity * sizeof *grown, "files of a checkpoint");
        stored->files = grown;
        stored->capacity = capacity;
    }
    if (!existing)
        stored->files[stored->count++] = (struct needed_file){name, 0};
    if (stored->files[index].length < length)
        stored->files[index].length = length;
    return DCP_OK;
}

static dcp_status take_needs(struct stored *stored)
{
    for (size_t i = 0; i < dcp_checkpoint_count(stored->checkpoint); i++) {
        dcp_entry entry;
        RETURN_IF_ERROR(dcp_checkpoint_entry(stored->checkpoint, i, &entry));
        for (size_t c = 0; c < entry.chunk_count; c++) {
            dcp_stored_chunk chunk;
            uint64_t end;
            RETURN_IF_ERROR(dcp_checkpoint_chunk(stored->checkpoint, i, c, &chunk));
            if (__builtin_add_overflow(chunk.offset, chunk.length, &end))
                end = UINT64_MAX;
            RETURN_IF_ERROR(need_length(stored, chunk.file, end));
        }
    }
    return DCP_OK;
}

/* ---- footers ---- */

static dcp_status read_shards(struct stored *stored, const char *id)
{
    dcp_status status = dcp_shard_list_read(
        id, &(dcp_shard_list_options){.storage = stored->check->place->storage}, &stored->shards);
    if (status != DCP_OK)
        return run_place_gives_up(status) ? status : DCP_OK;
    for (size_t i = 0; i < dcp_shard_list_count(stored->shards); i++) {
        dcp_shard_info shard;
        uint64_t index = i;
        bool existing;
        RETURN_IF_ERROR(dcp_shard_list_file(stored->shards, i, &shard));
        RETURN_IF_ERROR(
            name_table_add(&stored->by_shard, shard.file, strlen(shard.file), &index, &existing));
    }
    return DCP_OK;
}

static bool find_shard(const struct stored *stored, const char *name, dcp_shard_info *shard)
{
    uint64_t index;
    return name_table_find(&stored->by_shard, name, strlen(name), &index) &&
           dcp_shard_list_file(stored->shards, (size_t)index, shard) == DCP_OK;
}

/* The third group of digits of a save id tells whether all files of the save have footers
 * (src/format/README.md). */
static bool promises_footers(const char *save_id)
{
    return save_id && strlen(save_id) == 36 && memcmp(save_id + 14, "8dc9", 4) == 0;
}

static dcp_status check_footer(struct stored *stored, const dcp_shard_info *shard)
{
    const char *save_id = stored->info.save_id;
    if (shard->status != DCP_OK)
        return promises_footers(save_id) ? run_check_fault(stored->check, "%.400s", shard->problem)
                                         : DCP_OK;
    if (save_id && strcmp(save_id, shard->save_id) != 0)
        return run_check_fault(stored->check, "%s is of save %s, .metadata of save %s", shard->file,
                               shard->save_id, save_id);
    return DCP_OK;
}

/* ---- files ---- */

static dcp_status check_needed(struct stored *stored, const struct needed_file *file)
{
    struct run_check *check = stored->check;
    const struct run_contents at = {.place = check->place, .path = stored->path};
    struct run_numbers numbers;
    dcp_shard_info shard;
    uint64_t size = 0;
    bool listed = find_shard(stored, file->name, &shard), found = listed && shard.size > 0;
    if (found)
        size = shard.size;
    char *path = run_contents_path(&at, file->name);
    if (!path)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = found           ? DCP_OK
                        : stored->links ? run_place_size(check->place, path, &size, &found)
                                        : run_place_size_plain(check->place, path, &size, &found);
    check->bytes += size;
    if (status == DCP_OK && !found)
        run_check_fault(check, "%s is missing", run_check_shown(check, path));
    else if (status == DCP_OK && size < file->length)
        run_check_fault(check, "%s is cut short: it has %" PRIu64 " bytes and needs %" PRIu64,
                        run_check_shown(check, path), size, file->length);
    else if (status == DCP_OK && listed)
        status = check_footer(stored, &shard);
    memory_release(path);
    if (run_name_match("__#_%*.distcp", file->name, &numbers) && numbers.step < RUN_RANKS_MAX &&
        numbers.step >= check->ranks)
        check->ranks = numbers.step + 1;
    return status;
}

static dcp_status check_files(struct stored *stored, const char *id)
{
    RETURN_IF_ERROR(take_needs(stored));
    RETURN_IF_ERROR(read_shards(stored, id));
    /* Of metadata.json only what it says of the save is wanted, if it says anything. */
    dcp_status status = dcp_checkpoint_info(stored->checkpoint, NULL, NULL, &stored->info);
    if (run_place_gives_up(status))
        return status;
    if (stored->info.has_step) {
        stored->check->entry->has_saved_step = true;
        stored->check->entry->saved_step = stored->info.step;
    }
    if (stored->info.unix_time > stored->check->unix_time)
        stored->check->unix_time = stored->info.unix_time;
    for (size_t i = 0; i < stored->count; i++)
        RETURN_IF_ERROR(check_needed(stored, &stored->files[i]));
    return DCP_OK;
}

static dcp_status check_stored(struct run_check *check, const char *path, bool links)
{
    struct stored stored = {.check = check, .path = path, .links = links};
    const dcp_open_options options = {.storage = check->place->storage};
    char *id = run_place_id(check->place, path);
    if (!id)
        return DCP_ERR_NO_MEMORY;
    name_table_init(&stored.by_name);
    name_table_init(&stored.by_shard);
    dcp_status status = dcp_checkpoint_open(id, &options, &stored.checkpoint);
    if (status == DCP_OK)
        status = check_files(&stored, id);
    dcp_checkpoint_close(stored.checkpoint);
    dcp_shard_list_free(stored.shards);
    name_table_free(&stored.by_name);
    name_table_free(&stored.by_shard);
    memory_release(stored.files);
    memory_release(id);
    return run_check_judge(check, status);
}

dcp_status run_check_dcp(struct run_check *check, const char *path)
{
    const struct run_contents at = {.place = check->place, .path = path};
    uint64_t size = 0;
    bool found;
    char *name = run_contents_path(&at, ".metadata");
    if (!name)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = run_place_size(check->place, name, &size, &found);
    check->bytes += size;
    if (status == DCP_OK && !found)
        run_check_fault(check, "no %s", run_check_shown(check, name));
    else if (status == DCP_OK && size == 0)
        run_check_fault(check, "%s is empty", run_check_shown(check, name));
    else if (status == DCP_OK)
        status = check_stored(check, path, false);
    memory_release(name);
    return status;
}

/* ---- safetensors ---- */

/* *empty: the index names no file. */
static dcp_status check_index(struct run_check *check, const struct run_contents *contents,
                              const char *name, bool *empty)
{
    struct buffer text;
    bool found;
    char *path = run_contents_path(contents, name);
    if (!path)
        return DCP_ERR_NO_MEMORY;
    buffer_init(&text, 0);
    dcp_status status = run_place_read(check->place, path, RUN_JSON_LIMIT, &text, &found);
    const char *bytes = (const char *)text.data;
    if (status == DCP_OK && (!found || !run_json_has(bytes, text.size, "weight_map")))
        run_check_fault(check, "%s is no index of safetensors files, or cut short",
                        run_check_shown(check, path));
    *empty = status == DCP_OK && found && !run_json_has_members(bytes, text.size, "weight_map");
    buffer_free(&text);
    memory_release(path);
    return status;
}

static dcp_status check_weights(struct run_check *check, const struct run_contents *contents)
{
    static const char index_suffix[] = ".safetensors.index.json";
    const struct run_names *names = &contents->names;
    if (run_names_has(names, ".metadata"))
        return run_check_dcp(check, contents->path);
    for (size_t i = 0; i < names->count; i++) {
        size_t length = strlen(names->names[i]), suffix = sizeof index_suffix - 1;
        bool empty;
        if (length < suffix || strcmp(names->names[i] + length - suffix, index_suffix) != 0)
            continue;
        RETURN_IF_ERROR(check_index(check, contents, names->names[i], &empty));
        if (check->why[0] || empty)
            return DCP_OK;
    }
    if (!run_contents_have(contents, "*.safetensors"))
        return run_check_fault(check, "no safetensors files in %s",
                               run_check_shown(check, contents->path));
    return check_stored(check, contents->path, true);
}

dcp_status run_check_weights(struct run_check *check, const char *path)
{
    struct run_contents contents = {.place = check->place, .path = path};
    bool found;
    dcp_status status = run_place_list(check->place, path, &contents.names, &found);
    if (status == DCP_OK && !found)
        run_check_fault(check, "%s is missing", run_check_shown(check, path));
    else if (status == DCP_OK)
        status = check_weights(check, &contents);
    run_names_free(&contents.names);
    return status;
}
