/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/source_reformulated.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/pickle/pickle.h"

static const char key[] = "nd_reformulated_orig_global_shape";
#define METADATA_BYTES_MAX (INT64_C(4) << 30)
enum { WINDOW = 1 << 16 };

/* Whether a file has the key, which few do: the others are not read as a whole. */
static dcp_status search(FILE *file, const char *path, bool *found)
{
    size_t overlap = sizeof key - 2, kept = 0;
    char *window = memory_allocate(WINDOW);
    if (!window)
        return error_no_memory(WINDOW, path);
    *found = false;
    while (!*found) {
        size_t read = fread(window + kept, 1, WINDOW - kept, file);
        if (read == 0)
            break;
        *found = memmem(window, kept + read, key, sizeof key - 1) != NULL;
        size_t have = kept + read;
        kept = have < overlap ? have : overlap;
        memmove(window, window + have - kept, kept);
    }
    memory_release(window);
    return ferror(file) ? dcp_error_set(DCP_ERR_IO, "%s: cannot be read: %s", path, strerror(errno))
                        : DCP_OK;
}

static dcp_status add_shape(struct reformulated_shapes *shapes, const struct pickle_value *name,
                            const struct pickle_value *value)
{
    int64_t shape[DCP_MAX_DIMS];
    uint64_t index = shapes->count;
    bool existing, is_size = pickle_is_call(value, "torch", "Size");
    if (is_size && value->as.call->arguments->as.sequence.count == 1)
        value = value->as.call->arguments->as.sequence.items[0];
    bool fits = name->kind == PICKLE_STRING &&
                (value->kind == PICKLE_TUPLE || value->kind == PICKLE_LIST) &&
                value->as.sequence.count <= DCP_MAX_DIMS;
    for (uint32_t d = 0; fits && d < value->as.sequence.count; d++) {
        const struct pickle_value *size = value->as.sequence.items[d];
        fits = size->kind == PICKLE_INT && size->as.integer >= 0;
        shape[d] = fits ? size->as.integer : 0;
    }
    if (!fits)
        return dcp_error_set(DCP_ERR_FORMAT, "mcore_data: \"%s\" is not a shape", key);
    struct reformulated *added = &shapes->shapes[shapes->count];
    const char *text = arena_copy_text(shapes->arena, name->as.text.bytes, name->as.text.length);
    added->ndim = (int32_t)value->as.sequence.count;
    added->shape = arena_copy(shapes->arena, shape, (size_t)added->ndim * sizeof *shape);
    if (!text || !added->shape)
        return error_no_memory(name->as.text.length, "a shape");
    shapes->count++;
    return name_table_add(&shapes->names, text, strlen(text), &index, &existing);
}

/* The whole, of its class or of Megatron-Core's. */
static bool is_metadata(const struct pickle_value *value)
{
    static const char module[] = "torch.distributed.checkpoint.metadata";
    static const char core[] = "megatron.core.dist_checkpointing.strategies.torch";
    return pickle_is_call(value, module, "Metadata") ||
           pickle_is_call(value, core, "MCoreMetadata");
}

/* Ranks' plans have mcore_data as well, of what they have alone: those and all else are let go
 * of. */
static dcp_status digest(void *context, const struct pickle_value *value, uint16_t *tag,
                         const void **kept, bool *taken)
{
    struct reformulated_shapes *shapes = context;
    *taken = value->kind == PICKLE_OBJECT;
    *tag = 0;
    *kept = NULL;
    const struct pickle_value *data = is_metadata(value) && value->as.call->state
                                          ? pickle_dict_get(value->as.call->state, "mcore_data")
                                          : NULL;
    if (!data || data->kind != PICKLE_DICT || shapes->shapes)
        return DCP_OK;
    size_t count = data->as.sequence.count / 2;
    shapes->shapes = arena_allocate_array(shapes->arena, count, sizeof *shapes->shapes);
    if (!shapes->shapes)
        return error_no_memory(count * sizeof *shapes->shapes, "shapes");
    for (size_t i = 0; i < count; i++) {
        const struct pickle_value *shape = pickle_dict_get(data->as.sequence.items[2 * i + 1], key);
        if (shape)
            RETURN_IF_ERROR(add_shape(shapes, data->as.sequence.items[2 * i], shape));
    }
    return DCP_OK;
}

static dcp_status decode(struct reformulated_shapes *shapes, const void *bytes, size_t size)
{
    const struct pickle_digester digester = {digest, shapes};
    struct pickle_document document;
    RETURN_IF_ERROR(pickle_read_digested(bytes, size, &digester, &document));
    pickle_free(&document);
    return DCP_OK;
}

static dcp_status read_pickle(struct reformulated_shapes *shapes, FILE *file, const char *path)
{
    struct stat about;
    if (fstat(fileno(file), &about) != 0 || about.st_size > METADATA_BYTES_MAX)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: has no size that is possible", path);
    size_t size = (size_t)about.st_size;
    void *bytes = memory_allocate(size);
    if (!bytes)
        return error_no_memory(size, path);
    rewind(file);
    dcp_status status = fread(bytes, 1, size, file) == size
                            ? DCP_OK
                            : dcp_error_set(DCP_ERR_IO, "%s: cannot be read", path);
    if (status == DCP_OK)
        status = decode(shapes, bytes, size);
    memory_release(bytes);
    return status;
}

dcp_status reformulated_decode(struct reformulated_shapes *shapes, const void *bytes, size_t size,
                               struct arena *arena)
{
    *shapes = (struct reformulated_shapes){.arena = arena};
    name_table_init(&shapes->names);
    return decode(shapes, bytes, size);
}

dcp_status reformulated_read(struct reformulated_shapes *shapes, const char *directory,
                             struct arena *arena)
{
    size_t length = strlen(directory) + sizeof "/.metadata";
    char *path = arena_allocate(arena, length);
    bool found;
    *shapes = (struct reformulated_shapes){.arena = arena};
    name_table_init(&shapes->names);
    if (!path)
        return error_no_memory(length, "a path");
    snprintf(path, length, "%s/.metadata", directory);
    FILE *file = fopen(path, "rb");
    if (!file)
        return dcp_error_set(DCP_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    dcp_status status = search(file, path, &found);
    if (status == DCP_OK && found)
        status = read_pickle(shapes, file, path);
    fclose(file);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", path);
}

void reformulated_free(struct reformulated_shapes *shapes)
{
    name_table_free(&shapes->names);
}
