/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_scene.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

/* More than a block of a conversion, and no multiple of one. */
enum { LARGE_ROWS = 1237, LARGE_COLUMNS = 1021, LARGE_BYTES = LARGE_ROWS * LARGE_COLUMNS * 4 };

static unsigned char *bytes_of(size_t size, unsigned seed)
{
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(seed >> 24);
    }
    return bytes;
}

static void add(dcp_state *parent, const char *key, dcp_dtype dtype, int32_t ndim,
                const int64_t *shape, void *data)
{
    dcp_tensor tensor = {.dtype = dtype, .ndim = ndim, .data = data};
    for (int32_t d = 0; d < ndim; d++)
        tensor.global_shape[d] = shape[d];
    assert_non_null(dcp_state_tensor(parent, key, &tensor));
}

void scene_save(const char *path, bool objects)
{
    static const dcp_dtype dtypes[] = {DCP_F64, DCP_F32, DCP_F16,  DCP_BF16,      DCP_I64, DCP_I8,
                                       DCP_U8,  DCP_U16, DCP_BOOL, DCP_F8_E4M3FN, DCP_C64};
    unsigned char *bytes = bytes_of(LARGE_BYTES, 7);
    dcp_state *root = dcp_state_new();
    dcp_state *model = dcp_state_dict(root, "model"), *list = dcp_state_list(model, "blocks");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        char key[32];
        snprintf(key, sizeof key, "t%zu.weight", i);
        unsigned char *data =
            dtypes[i] == DCP_BOOL ? memset(bytes + LARGE_BYTES - 64, 1, 64) : bytes + 64 * i;
        add(model, key, dtypes[i], 2, (int64_t[]){3, 5}, data);
    }
    add(model, "large", DCP_F32, 2, (int64_t[]){LARGE_ROWS, LARGE_COLUMNS}, bytes);
    add(model, "scalar", DCP_F32, 0, NULL, bytes + 128);
    add(model, "empty", DCP_F32, 3, (int64_t[]){0, 4, 2}, NULL);
    for (int i = 0; i < 11; i++)
        add(dcp_state_dict(list, NULL), "w", DCP_F32, 4, (int64_t[]){2, 1, 3, 2},
            bytes + 999 * 4 * i);
    dcp_state *optimizer = dcp_state_dict(root, "optimizer");
    add(optimizer, "momentum", DCP_F32, 1, (int64_t[]){17}, bytes + 4096);
    if (objects) {
        must(dcp_state_int(root, "step", 12));
        must(dcp_state_string(optimizer, "name", "adam"));
        must(dcp_state_float(dcp_state_tuple(optimizer, "betas"), NULL, 0.9));
    }
    must(dcp_state_status(root));
    must(
        dcp_save(root, path, &(dcp_save_options){.has_step = true, .step = 12, .skip_sync = true}));
    dcp_state_free(root);
    free(bytes);
}

void *scene_elements(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *as)
{
    dcp_tensor tensor = {.dtype = as->dtype, .ndim = as->ndim};
    for (int32_t d = 0; d < as->ndim; d++)
        tensor.global_shape[d] = as->global_shape[d];
    tensor.data = malloc((size_t)as->bytes + 1);
    assert_non_null(tensor.data);
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor,
                                    &(dcp_read_options){.convert = true}));
    return tensor.data;
}

char *scene_object_text(dcp_checkpoint *checkpoint, size_t index)
{
    dcp_state *root = dcp_state_new();
    char *text;
    must(dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL));
    must(dcp_state_to_json(dcp_state_at(root, 0), 0, &text));
    dcp_state_free(root);
    return text;
}

static void entries_equal(dcp_checkpoint *left, size_t index, dcp_checkpoint *right)
{
    dcp_entry one, other;
    size_t found;
    must(dcp_checkpoint_entry(left, index, &one));
    must(dcp_checkpoint_find(right, one.name, &found));
    must(dcp_checkpoint_entry(right, found, &other));
    assert_int_equal(one.is_tensor, other.is_tensor);
    if (!one.is_tensor) {
        char *text = scene_object_text(left, index), *also = scene_object_text(right, found);
        assert_string_equal(text, also);
        dcp_text_free(text);
        dcp_text_free(also);
        return;
    }
    assert_int_equal(one.dtype, other.dtype);
    assert_int_equal(one.ndim, other.ndim);
    for (int32_t d = 0; d < one.ndim; d++)
        assert_int_equal(one.global_shape[d], other.global_shape[d]);
    void *bytes = scene_elements(left, index, &one), *also = scene_elements(right, found, &other);
    assert_memory_equal(bytes, also, (size_t)one.bytes);
    free(bytes);
    free(also);
}

void scene_equal(const char *left, const char *right)
{
    dcp_checkpoint *one, *other;
    must(dcp_checkpoint_open(left, NULL, &one));
    must(dcp_checkpoint_open(right, NULL, &other));
    assert_int_equal(dcp_checkpoint_count(one), dcp_checkpoint_count(other));
    for (size_t i = 0; i < dcp_checkpoint_count(one); i++)
        entries_equal(one, i, other);
    dcp_checkpoint_close(one);
    dcp_checkpoint_close(other);
}

static void expect_same_chunk(const dcp_stored_chunk *one, const dcp_stored_chunk *other,
                              int32_t ndim)
{
    assert_string_equal(one->file, other->file);
    assert_int_equal(one->offset, other->offset);
    assert_int_equal(one->length, other->length);
    assert_int_equal(one->compressed, other->compressed);
    for (int32_t d = 0; d < ndim; d++) {
        assert_int_equal(one->offsets[d], other->offsets[d]);
        assert_int_equal(one->sizes[d], other->sizes[d]);
    }
}

void scene_same_places(const char *left, const char *right)
{
    dcp_checkpoint *one, *other;
    must(dcp_checkpoint_open(left, NULL, &one));
    must(dcp_checkpoint_open(right, NULL, &other));
    assert_int_equal(dcp_checkpoint_count(one), dcp_checkpoint_count(other));
    for (size_t i = 0; i < dcp_checkpoint_count(one); i++) {
        dcp_entry a, b;
        must(dcp_checkpoint_entry(one, i, &a));
        must(dcp_checkpoint_entry(other, i, &b));
        assert_string_equal(a.name, b.name);
        assert_int_equal(a.requires_grad, b.requires_grad);
        assert_int_equal(a.chunk_count, b.chunk_count);
        for (size_t k = 0; k < a.chunk_count; k++) {
            dcp_stored_chunk first, second;
            must(dcp_checkpoint_chunk(one, i, k, &first));
            must(dcp_checkpoint_chunk(other, i, k, &second));
            expect_same_chunk(&first, &second, a.ndim);
        }
    }
    dcp_checkpoint_close(one);
    dcp_checkpoint_close(other);
}

/* What ranks load: of a checkpoint whose conversion they compare with, divided in dimension `dim`,
 * or the last one, of those that tensors have. */
struct shares {
    const char *converted;
    const dcp_load_options *options;
    int32_t dim;
};

static size_t add_share(const struct rank *self, dcp_state *root, const dcp_entry *entry,
                        int32_t dim, dcp_tensor *share)
{
    const dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    const dcp_placement by_dim = dcp_shard(dim < entry->ndim ? dim : entry->ndim - 1);
    size_t bytes = dcp_dtype_size(entry->dtype);
    *share = (dcp_tensor){.dtype = entry->dtype, .ndim = entry->ndim};
    memcpy(share->global_shape, entry->global_shape, (size_t)entry->ndim * sizeof(int64_t));
    must(dcp_mesh_shard(&mesh, share, &by_dim));
    for (int32_t d = 0; d < share->ndim; d++)
        bytes *= (size_t)share->sizes[d];
    share->data = malloc(bytes + 1);
    assert_non_null(share->data);
    assert_non_null(dcp_state_tensor(root, entry->name, share));
    return bytes;
}

static dcp_status load_shares(struct rank *self)
{
    enum { TENSORS_MAX = 64 };
    const struct shares *shares = self->context;
    dcp_tensor loaded[TENSORS_MAX];
    size_t bytes[TENSORS_MAX], count;
    dcp_load_options options = *shares->options;
    dcp_checkpoint *converted;
    dcp_state *root = dcp_state_new();
    must(dcp_checkpoint_open(shares->converted, NULL, &converted));
    count = dcp_checkpoint_count(converted);
    assert_in_range(count, 1, TENSORS_MAX);
    for (size_t i = 0; i < count; i++) {
        dcp_entry entry;
        must(dcp_checkpoint_entry(converted, i, &entry));
        bytes[i] = add_share(self, root, &entry, shares->dim, &loaded[i]);
    }
    options.group = self->group;
    options.convert = true;
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    for (size_t i = 0; i < count; i++) {
        dcp_tensor expected = loaded[i];
        expected.data = malloc(bytes[i] + 1);
        assert_non_null(expected.data);
        must(dcp_checkpoint_read_tensor(converted, i, &expected, NULL));
        if (status == DCP_OK)
            assert_memory_equal(loaded[i].data, expected.data, bytes[i]);
        free(loaded[i].data);
        free(expected.data);
    }
    dcp_checkpoint_close(converted);
    dcp_state_free(root);
    return status;
}

void scene_ranks_load(int ranks, const char *path, const char *converted,
                      const dcp_load_options *options, int32_t dim)
{
    struct shares shares = {converted, options, dim};
    ranks_must(ranks, path, load_shares, &shares);
}

void scene_allocations_fail(void *const *state, const char *from, const char *extension,
                            const dcp_convert_options *options, struct scene_trials trials)
{
    char source[4096]; /* path_in() has few places */
    snprintf(source, sizeof source, "%s", from);
    for (long n = 1;; n += n < trials.until ? trials.first : trials.then) {
        char name[64];
        snprintf(name, sizeof name, "%ld.%s", n, extension);
        const char *to = path_in(state, name);
        failing_allocator_install(n, false);
        dcp_status status = dcp_convert(source, to, options, NULL);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            must(status);
            return;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
        scene_expect_size(to, -1);
    }
}

void scene_expect_size(const char *path, long size)
{
    struct stat about;
    int found = stat(path, &about);
    assert_int_equal(found == 0 ? (long)about.st_size : -1, size);
}

void scene_expect_names(const char *path, size_t count)
{
    DIR *directory = opendir(path);
    size_t names = 0;
    assert_non_null(directory);
    while (readdir(directory))
        names++;
    closedir(directory);
    assert_int_equal(names, count + 2);
}

void scene_write(const char *directory, const char *name, const char *text)
{
    char path[4096];
    mkdir(directory, 0777);
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

char *scene_read(const char *path, size_t *size)
{
    struct stat about;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &about), 0);
    char *bytes = malloc((size_t)about.st_size + 1);
    assert_non_null(bytes);
    *size = fread(bytes, 1, (size_t)about.st_size, file);
    bytes[*size] = '\0';
    fclose(file);
    return bytes;
}

void scene_same_file(const char *left, const char *right)
{
    size_t size, also;
    char *one = scene_read(left, &size), *other = scene_read(right, &also);
    assert_int_equal(size, also);
    assert_memory_equal(one, other, size);
    free(one);
    free(other);
}

bool scene_end_at_first(void *context, const dcp_progress *told)
{
    (void)context;
    /* What follows within a hundredth of a second would not be told. */
    if (told->phase == DCP_PHASE_WRITING && told->bytes_done == 0)
        usleep(11000);
    return told->phase != DCP_PHASE_WRITING || told->bytes_done == 0;
}
