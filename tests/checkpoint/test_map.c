/* SPDX-License-Identifier: BSD-3-Clause */
/* Stored chunks as mappings: every chunk of every reference checkpoint is what reading it gives, or
 * is refused for a reason; mappings outlive what they were made of, and nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "fault/over_files.h"
#include "fault/simulated_file_system.h"

/* What the mapped chunk shows, row-major. */
static void gather(const dcp_entry *entry, const dcp_mapped_chunk *mapped, unsigned char *dense)
{
    size_t element = dcp_dtype_size(entry->dtype);
    int64_t at[DCP_MAX_DIMS] = {0};
    for (;;) {
        int64_t place = 0;
        for (int32_t d = 0; d < entry->ndim; d++)
            place += at[d] * mapped->strides[d];
        assert_true(((size_t)place + 1) * element <= mapped->bytes);
        memcpy(dense, (const unsigned char *)mapped->data + (size_t)place * element, element);
        dense += element;
        int32_t d = entry->ndim - 1;
        while (d >= 0 && ++at[d] == mapped->sizes[d])
            at[d--] = 0;
        if (d < 0)
            return;
    }
}

static size_t chunk_bytes(const dcp_entry *entry, const int64_t *sizes)
{
    size_t bytes = dcp_dtype_size(entry->dtype);
    for (int32_t d = 0; d < entry->ndim; d++)
        bytes *= (size_t)sizes[d];
    return bytes;
}

static void read_chunk(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry,
                       const dcp_stored_chunk *stored, void *bytes)
{
    dcp_tensor tensor = {
        .dtype = entry->dtype, .ndim = entry->ndim, .sharded = true, .data = bytes};
    for (int32_t d = 0; d < entry->ndim; d++) {
        tensor.global_shape[d] = entry->global_shape[d];
        tensor.offsets[d] = stored->offsets[d];
        tensor.sizes[d] = stored->sizes[d];
    }
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL));
}

static const dcp_read_options verify_none = {.verification = DCP_VERIFY_NONE};
static const dcp_read_options verify_records = {.verification = DCP_VERIFY_RECORDS};
static const dcp_read_options verify_unknown = {.verification = (dcp_verification)7};
static const dcp_read_options converting = {.convert = true};

/* Returns how the mapping ended: DCP_OK, or DCP_ERR_UNSUPPORTED. */
static dcp_status compare_chunk(dcp_checkpoint *checkpoint, size_t index, size_t chunk,
                                dcp_verification verification)
{
    dcp_entry entry;
    dcp_stored_chunk stored;
    dcp_mapping *mapping;
    dcp_mapped_chunk mapped;
    const dcp_read_options options = {.verification = verification};
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    must(dcp_checkpoint_chunk(checkpoint, index, chunk, &stored));
    dcp_status status =
        dcp_checkpoint_map_chunk(checkpoint, index, chunk, &options, &mapping, &mapped);
    if (status != DCP_OK) {
        assert_null(mapping);
        must_fail(status, DCP_ERR_UNSUPPORTED, "cannot be mapped: its elements are stored");
        return status;
    }
    size_t bytes = chunk_bytes(&entry, stored.sizes);
    unsigned char *read = malloc(bytes + 1), *seen = malloc(bytes + 1);
    for (int32_t d = 0; d < entry.ndim; d++) {
        assert_int_equal(mapped.offsets[d], stored.offsets[d]);
        assert_int_equal(mapped.sizes[d], stored.sizes[d]);
    }
    assert_true(bytes > 0 || (mapped.bytes == 0 && mapped.data == NULL));
    if (bytes > 0) {
        assert_int_equal((uintptr_t)mapped.data % mapped.alignment, 0);
        read_chunk(checkpoint, index, &entry, &stored, read);
        gather(&entry, &mapped, seen);
        assert_memory_equal(read, seen, bytes);
    }
    dcp_mapping_free(mapping);
    free(read);
    free(seen);
    return DCP_OK;
}

static void test_references(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        bool mapped, refused; /* some chunk is */
    } cases[] = {
        {"basic/ckpt", true, false},
        {"dtypes/ckpt", true, false},
        {"shapes/ckpt", true, false},
        {"fsdp2_adam_w2/ckpt", true, false},
        {"layouts/ckpt", true, true},
        {"hf_sharded_w2/ckpt", true, false},
        {"hf_single/ckpt", true, false},
        {"pt_state_dict/ckpt.pt", true, true},
        {"pt_big_endian/ckpt.pt", false, true},
#if DCP_HAVE_ZSTD
        {"zstd/ckpt", false, true},
#endif
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_checkpoint *checkpoint;
        char path[1024];
        size_t mapped = 0, refused = 0;
        snprintf(path, sizeof path, "%s/%s", FIXTURES, cases[i].path);
        must(dcp_checkpoint_open(path, NULL, &checkpoint));
        for (size_t e = 0; e < dcp_checkpoint_count(checkpoint); e++) {
            dcp_entry entry;
            must(dcp_checkpoint_entry(checkpoint, e, &entry));
            for (size_t c = 0; c < entry.chunk_count && entry.is_tensor; c++) {
                dcp_status status =
                    compare_chunk(checkpoint, e, c, c % 2 ? DCP_VERIFY_ALL : DCP_VERIFY_NONE);
                mapped += status == DCP_OK;
                refused += status != DCP_OK;
            }
        }
        if ((mapped > 0) != cases[i].mapped || (refused > 0) != cases[i].refused)
            fail_msg("%s: %zu mapped, %zu refused", cases[i].path, mapped, refused);
        dcp_checkpoint_close(checkpoint);
    }
}

#define ROWS    600
#define COLUMNS 100

static dcp_status save_matrix(const struct file_ops *ops, const char *path, bool zstd)
{
    static float values[ROWS * COLUMNS];
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = values};
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (float)i;
    if (zstd)
        options.compression = DCP_COMPRESSION_ZSTD;
    dcp_state_tensor(root, "matrix", &tensor);
    dcp_state_int(root, "step", 4);
    dcp_status status = save_over(ops, root, path, &options);
    dcp_state_free(root);
    return status;
}

static void check_matrix(const dcp_mapped_chunk *mapped)
{
    const float *values = mapped->data;
    assert_int_equal(mapped->bytes, ROWS * COLUMNS * sizeof *values);
    assert_int_equal(mapped->strides[0], COLUMNS);
    assert_int_equal(mapped->strides[1], 1);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(values[i] == (float)i);
}

/* Large tensors of ours begin at a page. What is mapped stays when all else is gone. */
static void test_outlives_everything(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    dcp_mapping *mapping;
    dcp_mapped_chunk mapped;
    size_t index;
    must(save_matrix(&file_ops_system, path, false));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "matrix", &index));
    must(dcp_checkpoint_map_chunk(checkpoint, index, 0, &verify_records, &mapping, &mapped));
    assert_int_equal(mapped.alignment, 4096);
    dcp_checkpoint_close(checkpoint);
    must(save_matrix(&file_ops_system, path, false));
    check_matrix(&mapped);
    assert_int_equal(mapped.offsets[0], 0);
    dcp_mapping_free(mapping);
    dcp_mapping_free(NULL);
}

static void test_refused(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    dcp_mapping *mapping = NULL;
    dcp_mapped_chunk mapped;
    size_t matrix, step;
    must(save_matrix(&file_ops_system, path, false));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "matrix", &matrix));
    must(dcp_checkpoint_find(checkpoint, "step", &step));
    must_fail(dcp_checkpoint_map_chunk(checkpoint, step, 0, NULL, &mapping, &mapped), DCP_ERR_KIND,
              "step: is an object");
    must_fail(dcp_checkpoint_map_chunk(checkpoint, matrix, 1, NULL, &mapping, &mapped),
              DCP_ERR_ARGUMENT, "chunk 1");
    must_fail(dcp_checkpoint_map_chunk(checkpoint, 9, 0, NULL, &mapping, &mapped), DCP_ERR_ARGUMENT,
              "entry 9");
    must_fail(dcp_checkpoint_map_chunk(NULL, 0, 0, NULL, &mapping, &mapped), DCP_ERR_ARGUMENT,
              "NULL");
    must_fail(dcp_checkpoint_map_chunk(checkpoint, matrix, 0, NULL, NULL, &mapped),
              DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_checkpoint_map_chunk(checkpoint, matrix, 0, NULL, &mapping, NULL),
              DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_checkpoint_map_chunk(checkpoint, matrix, 0, &verify_unknown, &mapping, &mapped),
              DCP_ERR_ARGUMENT, "verification");
    must_fail(dcp_checkpoint_map_chunk(checkpoint, matrix, 0, &converting, &mapping, &mapped),
              DCP_ERR_ARGUMENT, "matrix: only dcp_checkpoint_read_tensor() converts elements");
    const struct {
        dcp_read_options known;
        int64_t unknown;
    } newer = {.unknown = 1};
    must_fail(dcp_checkpoint_map_chunk_sized(checkpoint, matrix, 0, &newer.known, sizeof newer,
                                             &mapping, &mapped, sizeof mapped),
              DCP_ERR_ARGUMENT, "dcp_read_options");
    dcp_checkpoint_close(checkpoint);
#if DCP_HAVE_ZSTD
    must(save_matrix(&file_ops_system, path, true));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must_fail(dcp_checkpoint_map_chunk(checkpoint, matrix, 0, &verify_none, &mapping, &mapped),
              DCP_ERR_UNSUPPORTED, "compressed");
    dcp_checkpoint_close(checkpoint);
#endif
}

/* With verification, damage is found before anybody sees it. */
static void test_damage(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    dcp_stored_chunk stored;
    dcp_mapping *mapping;
    dcp_mapped_chunk mapped;
    size_t index;
    must(save_matrix(&file_ops_system, path, false));
    FILE *file = fopen(path_in(state, "c/__0_0.distcp"), "r+b");
    assert_non_null(file);
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "matrix", &index));
    must(dcp_checkpoint_chunk(checkpoint, index, 0, &stored));
    assert_int_equal(fseek(file, (long)(stored.offset + stored.length / 2), SEEK_SET), 0);
    fputc(0x55, file);
    fclose(file);
    must_fail(dcp_checkpoint_map_chunk(checkpoint, index, 0, NULL, &mapping, &mapped),
              DCP_ERR_CHECKSUM, "matrix");
    must(dcp_checkpoint_map_chunk(checkpoint, index, 0, &verify_none, &mapping, &mapped));
    dcp_mapping_free(mapping);
    dcp_checkpoint_close(checkpoint);
    /* A file that was cut is known as such, not mapped beyond its end. */
    assert_int_equal(truncate(path_in(state, "c/__0_0.distcp"), (long)stored.offset + 100000), 0);
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    dcp_status status =
        dcp_checkpoint_map_chunk(checkpoint, index, 0, &verify_none, &mapping, &mapped);
    must_fail(status, DCP_ERR_FORMAT, "matrix");
    dcp_checkpoint_close(checkpoint);
}

static dcp_status map_once(const struct file_ops *ops, const char *path)
{
    dcp_checkpoint *checkpoint;
    dcp_mapping *mapping = NULL;
    dcp_mapped_chunk mapped;
    size_t index = 0;
    dcp_status status = open_over(ops, path, &checkpoint);
    if (status != DCP_OK)
        return status;
    status = dcp_checkpoint_find(checkpoint, "matrix", &index);
    if (status == DCP_OK)
        status = dcp_checkpoint_map_chunk(checkpoint, index, 0, NULL, &mapping, &mapped);
    dcp_checkpoint_close(checkpoint);
    if (status == DCP_OK)
        check_matrix(&mapped);
    dcp_mapping_free(mapping);
    return status;
}

static void test_faults(void **state)
{
    needs_files();
    (void)state;
    struct simulated_file_system *fs = simulated_new();
    must(save_matrix(simulated_ops(fs), "c", false));
    bool reached = true;
    for (long n = 1; reached; n++) {
        struct simulated_file_system *copy = simulated_copy(fs);
        simulated_set_fault(copy, &(struct simulated_fault){n, SIMULATED_ERROR, EIO, n % 2});
        dcp_status status = map_once(simulated_ops(copy), "c");
        reached = simulated_fault_reached(copy);
        assert_int_equal(simulated_open_descriptors(copy), 0);
        if (!reached)
            must(status);
        simulated_free(copy);
    }
    /* A file system that knows no mappings. */
    struct file_ops without = *simulated_ops(fs);
    without.map = NULL;
    must_fail(map_once(&without, "c"), DCP_ERR_UNSUPPORTED, "cannot map");
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = map_once(simulated_ops(fs), "c");
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(simulated_open_descriptors(fs), 0);
        if (!reached)
            break;
        if (status != DCP_OK)
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    simulated_free(fs);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_references), TEST(test_outlives_everything),
        TEST(test_refused),    TEST(test_damage),
        TEST(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
