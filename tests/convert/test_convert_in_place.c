/* SPDX-License-Identifier: BSD-3-Clause */
/* Training checkpoints of other frameworks, opened, verified and loaded as they are: with the
 * values that a conversion of them has, which interop.training compares with the frameworks'. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"
#include "fault/failing_allocator.h"

static char run[4096]; /* a copy of a fixture */

static void begin(void **state, const char *fixture)
{
    char command[9000];
    snprintf(run, sizeof run, "%s", path_in(state, fixture));
    snprintf(command, sizeof command, "cp -R '%s/%s/checkpoint' '%s'", TRAINING, fixture, run);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static void expect_entry(dcp_checkpoint *opened, dcp_checkpoint *converted, size_t index)
{
    dcp_entry entry, found;
    size_t at;
    must(dcp_checkpoint_entry(converted, index, &entry));
    must(dcp_checkpoint_find(opened, entry.name, &at));
    must(dcp_checkpoint_entry(opened, at, &found));
    assert_int_equal(found.is_tensor, entry.is_tensor);
    assert_int_equal(found.path_length, entry.path_length);
    if (!entry.is_tensor) {
        char *text = scene_object_text(opened, at), *expected = scene_object_text(converted, index);
        assert_string_equal(text, expected);
        dcp_text_free(text);
        dcp_text_free(expected);
        return;
    }
    void *elements = scene_elements(opened, at, &entry),
         *expected = scene_elements(converted, index, &entry);
    assert_memory_equal(elements, expected, (size_t)entry.bytes);
    free(elements);
    free(expected);
}

/* Whether the fixture can be read in place. */
static bool compare(void **state, const char *fixture, dcp_take take)
{
    char name[300];
    dcp_checkpoint *opened, *converted;
    const dcp_open_options options = {.take = take};
    snprintf(name, sizeof name, "%s-%d", fixture, (int)take);
    snprintf(run, sizeof run, "%s/%s/checkpoint", TRAINING, fixture);
    const char *to = path_in(state, name);
    dcp_status status = dcp_convert(
        run, to, &(dcp_convert_options){.take = take, .form = DCP_FORM_DCP, .skip_sync = true},
        NULL);
    if (status != DCP_OK) { /* there are no masters */
        assert_int_equal(dcp_checkpoint_open(run, &options, &opened), status);
        return false;
    }
    status = dcp_checkpoint_open(run, &options, &opened);
    if (status == DCP_ERR_UNSUPPORTED) {
        assert_non_null(strstr(dcp_error_message(), "dcp convert takes it"));
        return false;
    }
    must(status);
    must(dcp_checkpoint_open(to, NULL, &converted));
    assert_int_equal(dcp_checkpoint_count(opened), dcp_checkpoint_count(converted));
    for (size_t i = 0; i < dcp_checkpoint_count(converted); i++)
        expect_entry(opened, converted, i);
    dcp_checkpoint_close(opened);
    dcp_checkpoint_close(converted);
    uint64_t faults;
    must(dcp_verify(run, &options, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    return true;
}

static void every_value_is_the_conversions(void **state)
{
    static const dcp_take takes[] = {DCP_TAKE_MODEL, DCP_TAKE_MASTERS, DCP_TAKE_ALL};
    DIR *directory = opendir(TRAINING);
    int count[3] = {0};
    assert_non_null(directory);
    for (struct dirent *fixture; (fixture = readdir(directory)) != NULL;)
        for (size_t i = 0; fixture->d_name[0] != '.' && i < 3; i++)
            count[i] += compare(state, fixture->d_name, takes[i]);
    closedir(directory);
    printf("in place: %d models, %d masters, %d of all\n", count[0], count[1], count[2]);
    assert_int_equal(count[0], 11);
    assert_int_equal(count[1], 9); /* the others have none */
    assert_int_equal(count[2], 11);
}

/* ---- loads ---- */

/* A rank's rows of a tensor of 11 x 5 elements that lies in the files of two ranks. */
static dcp_status load_rows(struct rank *self)
{
    enum { ROWS = 11, COLUMNS = 5 };
    float rows[ROWS * COLUMNS], expected[ROWS * COLUMNS];
    const dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    const dcp_placement by_rows = dcp_shard(0);
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}};
    const dcp_tensor whole = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = expected};
    dcp_checkpoint *checkpoint;
    size_t index;
    must(dcp_mesh_shard(&mesh, &tensor, &by_rows));
    tensor.data = rows;
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "head.weight", &tensor);
    dcp_status status = dcp_load(root, self->path, &(dcp_load_options){.group = self->group}, NULL);
    dcp_state_free(root);
    if (status != DCP_OK)
        return status;
    must(dcp_checkpoint_open(self->context, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "head.weight", &index));
    must(dcp_checkpoint_read_tensor(checkpoint, index, &whole, NULL));
    dcp_checkpoint_close(checkpoint);
    assert_memory_equal(rows, expected + tensor.offsets[0] * COLUMNS,
                        (size_t)(tensor.sizes[0] * COLUMNS) * sizeof(float));
    return DCP_OK;
}

/* The values of ZeRO-3's model are those of the optimizer, in place not rounded. */
static void ranks_load_their_rows(void **state)
{
    begin(state, "deepspeed_zero3_w2");
    char *from = strdup(run);
    const char *to = path_in(state, "masters.safetensors");
    must(dcp_convert(from, to, &(dcp_convert_options){.take = DCP_TAKE_MASTERS}, NULL));
    ranks_must(1, from, load_rows, (void *)to);
    ranks_must(3, from, load_rows, (void *)to);
    free(from);
}

/* Flat shards, whose pieces are ranges of streams: of a grid, and of buckets. */
static void ranks_load_shares_of_flat_tensors(void **state)
{
    static const char *const fixtures[] = {"megatron_legacy_flat_w2", "megatron_distopt_w2"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        begin(state, fixtures[i]);
        char *from = strdup(run), *to = strdup(path_in(state, "masters.safetensors"));
        unlink(to);
        must(dcp_convert(from, to, &(dcp_convert_options){.take = DCP_TAKE_MASTERS}, NULL));
        for (int size = 1; size <= 5; size += size == 1 ? 1 : 3)
            for (int32_t dim = 0; dim < 3; dim++)
                for (int way = 0; way < 3; way++) {
                    const dcp_load_options options = {.take = DCP_TAKE_MASTERS,
                                                      .reading = way == 0 ? DCP_READING_DIRECT
                                                                          : DCP_READING_COOPERATIVE,
                                                      .memory_limit = way == 2 ? 8 << 20 : 0};
                    scene_ranks_load(size, from, to, &options, dim);
                }
        free(from);
        free(to);
    }
}

static dcp_status load_otherwise(struct rank *self)
{
    dcp_state *root = dcp_state_new();
    dcp_state_none(root, "x");
    const dcp_load_options options = {.group = self->group,
                                      .take = self->rank == 0 ? DCP_TAKE_MODEL : DCP_TAKE_ALL};
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    if (self->rank == 1)
        assert_non_null(strstr(dcp_error_message(), "take"));
    dcp_state_free(root);
    return status == DCP_ERR_ARGUMENT ? DCP_OK : DCP_ERR_INTERNAL;
}

static void ranks_take_the_same(void **state)
{
    dcp_checkpoint *checkpoint;
    begin(state, "deepspeed_zero2_w2");
    ranks_must(2, run, load_otherwise, NULL);
    must_fail(dcp_checkpoint_open(run, &(dcp_open_options){.take = (dcp_take)7}, &checkpoint),
              DCP_ERR_ARGUMENT, "7");
    const char *plain = path_in(state, "plain");
    scene_save(plain, false);
    must_fail(
        dcp_checkpoint_open(plain, &(dcp_open_options){.take = DCP_TAKE_MASTERS}, &checkpoint),
        DCP_ERR_UNSUPPORTED, "fp32 weights");
}

/* The directory of a step has .metadata, too: as such it is opened for its model alone. */
static void a_step_is_opened_as_its_run_is(void **state)
{
    static const dcp_take takes[] = {DCP_TAKE_MASTERS, DCP_TAKE_ALL};
    dcp_checkpoint *whole, *step;
    char directory[8192];
    begin(state, "megatron_legacy_flat_w2");
    snprintf(directory, sizeof directory, "%s/iter_0000002", run);
    for (size_t t = 0; t < 2; t++) {
        const dcp_open_options options = {.take = takes[t]};
        must(dcp_checkpoint_open(run, &options, &whole));
        must(dcp_checkpoint_open(directory, &options, &step));
        assert_int_equal(dcp_checkpoint_count(step), dcp_checkpoint_count(whole));
        for (size_t i = 0; i < dcp_checkpoint_count(whole); i++)
            expect_entry(step, whole, i);
        dcp_checkpoint_close(whole);
        dcp_checkpoint_close(step);
    }
    must(dcp_checkpoint_open(directory, NULL, &step));
    dcp_entry entry;
    size_t index;
    must(dcp_checkpoint_find(
        step, "optimizer.state.fp32_param.decoder.layers.mlp.linear_fc1.weight", &index));
    must(dcp_checkpoint_entry(step, index, &entry));
    assert_int_equal(entry.ndim, 4); /* a grid of flat shards */
    dcp_checkpoint_close(step);
}

/* ---- what is wrong ---- */

static void count_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    int *count = context;
    (void)offset, (void)name, (void)fault;
    assert_string_equal(file, "global_step3/mp_rank_00_model_states.pt");
    *count += 1;
}

static void a_flipped_bit_is_found(void **state)
{
    char path[8192];
    int count = 0;
    uint64_t faults;
    size_t size, index;
    dcp_entry entry;
    dcp_stored_chunk chunk;
    dcp_checkpoint *checkpoint;
    begin(state, "deepspeed_zero2_w2");
    must(dcp_checkpoint_open(run, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "head.weight", &index));
    must(dcp_checkpoint_chunk(checkpoint, index, 0, &chunk));
    assert_true(chunk.has_crc32);
    assert_false(chunk.is_stream || chunk.compressed || chunk.deflated);
    assert_string_equal(chunk.file, "global_step3/mp_rank_00_model_states.pt");
    snprintf(path, sizeof path, "%s/%s", run, chunk.file);
    char *bytes = scene_read(path, &size);
    bytes[chunk.offset + 7] ^= 1;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    free(bytes);
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    dcp_tensor tensor = {.dtype = entry.dtype, .ndim = 2, .global_shape = {11, 5}};
    tensor.data = malloc((size_t)entry.bytes);
    must_fail(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL), DCP_ERR_CHECKSUM,
              "head.weight");
    free(tensor.data);
    dcp_checkpoint_close(checkpoint);
    must(dcp_verify(run, NULL, count_fault, &count, &faults));
    assert_true(count > 0 && faults == (uint64_t)count);
}

/* ---- ranges of streams ---- */

static const char fc1[] = "decoder.layers.mlp.linear_fc1.weight";

/* The bytes of the file that the first chunk of a flat tensor lies in, and the path of that. */
static unsigned char *open_range(void **state, dcp_stored_chunk *chunk, char path[8192],
                                 size_t *size)
{
    dcp_checkpoint *checkpoint;
    size_t index;
    static char file[256];
    begin(state, "megatron_legacy_flat_w2");
    must(dcp_checkpoint_open(run, &(dcp_open_options){.take = DCP_TAKE_MASTERS}, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, fc1, &index));
    must(dcp_checkpoint_chunk(checkpoint, index, 0, chunk));
    assert_true(chunk->is_range);
    assert_false(chunk->is_stream || chunk->compressed || chunk->has_crc32);
    assert_null(chunk->strides);
    must_fail(dcp_checkpoint_read_stream(checkpoint, index, 0, NULL, NULL, NULL), DCP_ERR_ARGUMENT,
              "sink");
    snprintf(file, sizeof file, "%s", chunk->file);
    chunk->file = file;
    dcp_checkpoint_close(checkpoint);
    snprintf(path, 8192, "%s/%s", run, file);
    return (unsigned char *)scene_read(path, size);
}

/* Each chunk of a flat tensor, mapped and read. */
static void ranges_are_mapped(void **state)
{
    static const char *const fixtures[] = {"megatron_legacy_flat_w2", "megatron_distopt_w2"};
    for (size_t i = 0; i < sizeof fixtures / sizeof *fixtures; i++) {
        dcp_checkpoint *checkpoint;
        dcp_entry entry;
        size_t index;
        begin(state, fixtures[i]);
        must(dcp_checkpoint_open(run, &(dcp_open_options){.take = DCP_TAKE_MASTERS}, &checkpoint));
        must(dcp_checkpoint_find(checkpoint, fc1, &index));
        must(dcp_checkpoint_entry(checkpoint, index, &entry));
        float *elements = scene_elements(checkpoint, index, &entry);
        for (size_t chunk = 0; chunk < entry.chunk_count; chunk++) {
            dcp_mapping *mapping;
            dcp_mapped_chunk mapped;
            must(dcp_checkpoint_map_chunk(checkpoint, index, chunk, &(dcp_read_options){0},
                                          &mapping, &mapped));
            int64_t first = 0;
            for (int32_t d = 0; d < 3; d++)
                first = first * entry.global_shape[d] + mapped.offsets[d];
            assert_int_equal(mapped.sizes[2], entry.global_shape[2]); /* so it is one run */
            assert_memory_equal(mapped.data, elements + first, mapped.bytes);
            dcp_mapping_free(mapping);
        }
        free(elements);
        dcp_checkpoint_close(checkpoint);
    }
}

static void count_named(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    const dcp_stored_chunk *chunk = context;
    (void)fault;
    if (strcmp(name, fc1) == 0) {
        assert_string_equal(file, chunk->file);
        assert_in_range(offset, chunk->offset, chunk->offset + chunk->length);
    }
}

/* That a changed file is an error of reading, and found by verifying. */
static void expect_damage(const char *path, const unsigned char *bytes, size_t size,
                          const dcp_stored_chunk *chunk, dcp_status expected, const char *words)
{
    const dcp_open_options options = {.take = DCP_TAKE_MASTERS};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 3, .global_shape = {2, 20, 8}};
    float elements[2 * 20 * 8];
    dcp_checkpoint *checkpoint;
    size_t index;
    uint64_t faults;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    tensor.data = elements;
    must(dcp_checkpoint_open(run, &options, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, fc1, &index));
    must_fail(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL), expected, words);
    assert_non_null(strstr(dcp_error_message(), fc1));
    assert_non_null(strstr(dcp_error_message(), chunk->file));
    dcp_checkpoint_close(checkpoint);
    must(dcp_verify(run, &options, count_named, (void *)chunk, &faults));
    assert_true(faults > 0);
}

/* The pickle of a stream's tensor with 79 elements instead of 80, and its checksum. */
static void make_lie(unsigned char *stream, size_t length)
{
    unsigned char *directory = memmem(stream, length, "PK\1\2", 4);
    unsigned char *pickle = memmem(stream, length, "\200\2ctorch", 7), crc[4];
    assert_true(directory && pickle);
    uint32_t size = directory[24] | (uint32_t)directory[25] << 8, made;
    memcpy(crc, directory + 16, sizeof crc);
    unsigned char *shape = memmem(pickle, size, "K\1KPt", 5);
    assert_non_null(shape);
    shape[3]--; /* K is followed by a number, t ends the tuple */
    made = crc32_update(0, pickle, size);
    for (unsigned char *at = stream;
         (at = memmem(at, (size_t)(stream + length - at), crc, sizeof crc)); at++)
        for (int i = 0; i < 4; i++)
            at[i] = (unsigned char)(made >> 8 * i);
}

static void damaged_streams_of_ranges_are_found(void **state)
{
    dcp_stored_chunk chunk;
    char path[8192];
    size_t size;
    unsigned char *bytes = open_range(state, &chunk, path, &size);
    unsigned char *stream = bytes + chunk.offset;
    unsigned char *data = memmem(stream, (size_t)chunk.length, "archive/data/0", 14);
    unsigned char *end = memmem(stream, (size_t)chunk.length, "PK\5\6", 4);
    assert_true(data && end);
    data += 200; /* behind the padding, which ends at a multiple of 64 */
    *data ^= 1;
    expect_damage(path, bytes, size, &chunk, DCP_ERR_CHECKSUM, "CRC-32");
    *data ^= 1;
    *end ^= 1;
    expect_damage(path, bytes, size, &chunk, DCP_ERR_FORMAT, "zip");
    *end ^= 1;
    expect_damage(path, bytes, (size_t)(chunk.offset + chunk.length / 2), &chunk, DCP_ERR_FORMAT,
                  "bytes expected");
    make_lie(stream, (size_t)chunk.length);
    expect_damage(path, bytes, size, &chunk, DCP_ERR_FORMAT, "metadata says [");
    free(bytes);
}

static void what_is_no_checkpoint_is_said(void **state)
{
    dcp_checkpoint *checkpoint;
    const char *empty = path_in(state, "empty");
    scene_write(empty, "notes.txt", "nothing");
    must_fail(dcp_checkpoint_open(empty, NULL, &checkpoint), DCP_ERR_NOT_FOUND,
              "files of other frameworks");
    begin(state, "deepspeed_zero2_w2");
    char *whole = strdup(run);
    strcat(run, "/global_step3");
    scene_write(run, "zero_pp_rank_0_mp_rank_01_optim_states.pt", "");
    must_fail(dcp_checkpoint_open(whole, NULL, &checkpoint), DCP_ERR_UNSUPPORTED,
              "tensor parallelism");
    free(whole);
}

/* Directories that say they are training checkpoints, and whose parts are themselves. */
static void what_leads_to_itself_ends(void **state)
{
    dcp_checkpoint *checkpoint;
    const char *megatron = path_in(state, "megatron"), *deepspeed = path_in(state, "deepspeed");
    scene_write(megatron, "metadata.json", "{\"sharded_backend\": \"torch_dist\"}");
    must_fail(dcp_checkpoint_open(megatron, NULL, &checkpoint), DCP_ERR_NOT_FOUND, "no checkpoint");
    must_fail(dcp_convert(megatron, path_in(state, "to.pt"), NULL, NULL), DCP_ERR_NOT_FOUND,
              "no checkpoint");
    scene_write(deepspeed, "notes.txt", "");
    snprintf(run, sizeof run, "%s/mp_rank_00_model_states.pt", deepspeed);
    assert_int_equal(symlink(".", run), 0);
    must_fail(dcp_checkpoint_open(deepspeed, NULL, &checkpoint), DCP_ERR_NOT_FOUND,
              "no checkpoint");
}

static void fail_each_allocation(dcp_take take)
{
    for (long n = 1;; n += n < 300 ? 1 : 13) {
        dcp_checkpoint *checkpoint = NULL;
        failing_allocator_install(n, false);
        dcp_status status =
            dcp_checkpoint_open(run, &(dcp_open_options){.take = take}, &checkpoint);
        bool reached = failing_allocator_reached();
        dcp_checkpoint_close(checkpoint);
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
        assert_null(checkpoint);
    }
}

/* Objects in memory, boxes of DTensors; ranges of flat storages, and of streams. */
static void every_allocation_may_fail(void **state)
{
    begin(state, "torch_checkpointing_w2");
    fail_each_allocation(DCP_TAKE_ALL);
    begin(state, "deepspeed_zero3_w2");
    fail_each_allocation(DCP_TAKE_MASTERS);
    begin(state, "megatron_legacy_flat_w2");
    fail_each_allocation(DCP_TAKE_MASTERS);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_value_is_the_conversions),
        TEST(ranks_load_their_rows),
        TEST(ranks_load_shares_of_flat_tensors),
        TEST(a_step_is_opened_as_its_run_is),
        TEST(ranks_take_the_same),
        TEST(a_flipped_bit_is_found),
        TEST(ranges_are_mapped),
        TEST(damaged_streams_of_ranges_are_found),
        TEST(what_is_no_checkpoint_is_said),
        TEST(what_leads_to_itself_ends),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
