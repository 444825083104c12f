/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints of Megatron-Core as sources: which directory of a run is taken, layers that are
 * stacked, flat shards in grids, what is refused. Every value of the fixtures is in
 * interop.training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"

static char run[4096]; /* a copy of a fixture */

static void begin(void **state, const char *fixture)
{
    char command[9000];
    snprintf(run, sizeof run, "%s", path_in(state, fixture));
    snprintf(command, sizeof command, "cp -R '%s/%s/checkpoint' '%s'", TRAINING, fixture, run);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
}

static dcp_status convert(void **state, const char *to, dcp_take take)
{
    const dcp_convert_options options = {
        .take = take, .unstack = true, .skip_sync = true, .thread_count = 1};
    return dcp_convert(run, path_in(state, to), &options, NULL);
}

static void write_train_state(int64_t step)
{
    char directory[8192], file[8192];
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_I64, .data = &step};
    snprintf(directory, sizeof directory, "%s/train_state", run);
    snprintf(file, sizeof file, "%s/latest_train_state.pt", run);
    unlink(file);
    assert_non_null(dcp_state_tensor(root, "step", &tensor));
    must(dcp_save(root, directory, &(dcp_save_options){.skip_sync = true}));
    must(dcp_convert(directory, file, &(dcp_convert_options){.skip_sync = true}, NULL));
    snprintf(file, sizeof file, "rm -r '%.4000s'", directory);
    assert_int_equal(system(file), 0); /* NOLINT(cert-env33-c) */
    dcp_state_free(root);
}

static void marks_lead_to_a_step(void **state)
{
    dcp_convert_report report;
    const dcp_convert_options options = {0};
    begin(state, "megatron_torch_dist_w2");
    must(dcp_convert_recognize(run, &options, &report));
    assert_int_equal(report.source, DCP_FORM_MEGATRON);
    assert_string_equal(report.source_text,
                        "a checkpoint of Megatron-Core (torch_dist), iter_0000002");
    /* Bridge's mark comes first, unless there is no such step. */
    scene_write(run, "latest_checkpointed_iteration.txt", "7");
    must_fail(dcp_convert_recognize(run, &options, &report), DCP_ERR_UNSUPPORTED,
              "a run of Megatron");
    write_train_state(2);
    must(dcp_convert_recognize(run, &options, &report));
    write_train_state(3);
    scene_write(run, "latest_checkpointed_iteration.txt", "2");
    must(dcp_convert_recognize(run, &options, &report));
    strcat(run, "/iter_0000002");
    must(convert(state, "step.safetensors", DCP_TAKE_MODEL));
    scene_write(run, "metadata.json", "{\"sharded_backend\": \"zarr\"}");
    must_fail(dcp_convert_recognize(run, &options, &report), DCP_ERR_UNSUPPORTED, "zarr");
}

static void expect_shape(dcp_checkpoint *checkpoint, const char *name, dcp_dtype dtype,
                         int32_t ndim, int64_t first)
{
    dcp_entry entry;
    size_t index;
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_int_equal(entry.dtype, dtype);
    assert_int_equal(entry.ndim, ndim);
    assert_int_equal(entry.global_shape[0], first);
}

static unsigned char *read_elements(dcp_checkpoint *checkpoint, const char *name, uint64_t *bytes)
{
    dcp_entry entry;
    size_t index;
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
    memcpy(tensor.global_shape, entry.global_shape, (size_t)entry.ndim * sizeof(int64_t));
    tensor.data = malloc((size_t)entry.bytes + 1);
    assert_non_null(tensor.data);
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL));
    *bytes = entry.bytes;
    return tensor.data;
}

static void layers_of_flat_shards_are_apart(void **state)
{
    const dcp_convert_options stacked = {.take = DCP_TAKE_MASTERS, .skip_sync = true};
    dcp_checkpoint *whole, *apart;
    uint64_t bytes, bytes_apart;
    begin(state, "megatron_legacy_flat_w2");
    must(convert(state, "apart.safetensors", DCP_TAKE_MASTERS));
    must(dcp_convert(run, path_in(state, "whole.safetensors"), &stacked, NULL));
    must(dcp_checkpoint_open(path_in(state, "whole.safetensors"), NULL, &whole));
    must(dcp_checkpoint_open(path_in(state, "apart.safetensors"), NULL, &apart));
    unsigned char *all = read_elements(whole, "decoder.layers.mlp.linear_fc1.weight", &bytes);
    for (size_t layer = 0; layer < 2; layer++) {
        char name[64];
        snprintf(name, sizeof name, "decoder.layers.%zu.mlp.linear_fc1.weight", layer);
        unsigned char *one = read_elements(apart, name, &bytes_apart);
        assert_int_equal(2 * bytes_apart, bytes);
        assert_memory_equal(one, all + layer * bytes_apart, (size_t)bytes_apart);
        free(one);
    }
    free(all);
    dcp_checkpoint_close(whole);
    dcp_checkpoint_close(apart);
}

static void flat_shards_get_their_shapes_back(void **state)
{
    dcp_checkpoint *checkpoint;
    begin(state, "megatron_legacy_flat_w2");
    must(convert(state, "masters.safetensors", DCP_TAKE_MASTERS));
    must(convert(state, "all.pt", DCP_TAKE_ALL));
    must(dcp_checkpoint_open(path_in(state, "masters.safetensors"), NULL, &checkpoint));
    expect_shape(checkpoint, "decoder.layers.1.mlp.linear_fc1.weight", DCP_F32, 2, 20);
    expect_shape(checkpoint, "embedding.word_embeddings.weight", DCP_F32, 2, 100);
    dcp_checkpoint_close(checkpoint);
}

/* Where some weights lie in the bucket, as bucket_map of the fixture's expected.json says. */
static void expect_bucket(const char *masters, const char *all)
{
    static const char bucket[] = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch."
                                 "bfloat16, torch.bfloat16).bucket_idx_0.param";
    static const struct {
        const char *name;
        size_t start, count;
    } places[] = {{"decoder.layers.1.mlp.linear_fc2.weight", 0, 80},
                  {"decoder.layers.1.mlp.linear_fc1.weight", 128, 160},
                  {"decoder.layers.1.mlp.linear_fc1.layer_norm_weight", 320, 8},
                  {"decoder.layers.0.self_attention.linear_qkv.weight", 1088, 192},
                  {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight", 1344, 8},
                  {"embedding.word_embeddings.weight", 1408, 800}};
    dcp_checkpoint *one, *other;
    uint64_t bytes;
    must(dcp_checkpoint_open(masters, NULL, &one));
    must(dcp_checkpoint_open(all, NULL, &other));
    unsigned char *whole = read_elements(other, bucket, &bytes);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        unsigned char *found = read_elements(one, places[i].name, &bytes);
        assert_int_equal(bytes, places[i].count * sizeof(float));
        assert_memory_equal(found, whole + places[i].start * sizeof(float), (size_t)bytes);
        free(found);
    }
    expect_shape(one, "decoder.final_layernorm.weight", DCP_F32, 1, 8); /* frozen */
    free(whole);
    dcp_checkpoint_close(one);
    dcp_checkpoint_close(other);
}

static void masters_are_found_by_name(void **state)
{
    dcp_checkpoint *checkpoint;
    begin(state, "megatron_distopt_full_w2");
    must(convert(state, "masters.safetensors", DCP_TAKE_MASTERS));
    must(dcp_checkpoint_open(path_in(state, "masters.safetensors"), NULL, &checkpoint));
    expect_shape(checkpoint, "decoder.layers.0.self_attention.linear_qkv.weight", DCP_F32, 2, 24);
    /* Frozen: it has no fp32 weights but these. */
    expect_shape(checkpoint, "decoder.final_layernorm.weight", DCP_F32, 1, 8);
    dcp_checkpoint_close(checkpoint);
    begin(state, "megatron_distopt_w2");
    must(convert(state, "bucket.safetensors", DCP_TAKE_MASTERS));
    must(convert(state, "all.pt", DCP_TAKE_ALL));
    expect_bucket(path_in(state, "bucket.safetensors"), path_in(state, "all.pt"));
}

/* Each byte of .metadata is changed: no crash, and no shape that does not fit its data. */
static void damaged_metadata_is_harmless(void **state)
{
    begin(state, "megatron_legacy_flat_w2");
    char path[8192];
    size_t size;
    snprintf(path, sizeof path, "%s/iter_0000002/.metadata", run);
    char *bytes = scene_read(path, &size);
    for (size_t i = 0; i < size; i += 61) {
        const dcp_convert_options options = {.take = DCP_TAKE_ALL};
        dcp_convert_report report;
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        bytes[i] ^= (char)(1 << i % 8);
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        bytes[i] ^= (char)(1 << i % 8);
        assert_int_equal(fclose(file), 0);
        if (dcp_convert_recognize(run, &options, &report) != DCP_OK)
            scene_expect_names(*state, 1);
    }
    free(bytes);
}

static void a_missing_shard_is_an_error(void **state)
{
    char path[8192];
    begin(state, "megatron_torch_dist_w2");
    snprintf(path, sizeof path, "%s/iter_0000002/__1_0.distcp", run);
    assert_int_equal(unlink(path), 0);
    must_fail(convert(state, "no.pt", DCP_TAKE_ALL), DCP_ERR_NOT_FOUND, "__1_0.distcp");
}

static void every_allocation_may_fail(void **state)
{
    const dcp_convert_options options = {
        .take = DCP_TAKE_MASTERS, .unstack = true, .thread_count = 1, .skip_sync = true};
    begin(state, "megatron_legacy_flat_w2");
    scene_allocations_fail(state, run, "pt", &options, (struct scene_trials){1, 200, 23});
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(marks_lead_to_a_step),
        TEST(flat_shards_get_their_shapes_back),
        TEST(layers_of_flat_shards_are_apart),
        TEST(masters_are_found_by_name),
        TEST(damaged_metadata_is_harmless),
        TEST(a_missing_shard_is_an_error),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
