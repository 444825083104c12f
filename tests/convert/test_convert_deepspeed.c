/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints of DeepSpeed as sources: what is missing, too much or of another shape is an error
 * that names it; forms that no fixture has. Every value of the fixtures is in interop.training. */
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

static void rename_in(const char *from, const char *to)
{
    char one[8192], other[8192];
    snprintf(one, sizeof one, "%s/%s", run, from);
    snprintf(other, sizeof other, "%s/%s", run, to);
    assert_int_equal(rename(one, other), 0);
}

static dcp_status convert(void **state, dcp_take take)
{
    static int number;
    char name[64];
    const dcp_convert_options options = {.take = take, .skip_sync = true, .thread_count = 1};
    snprintf(name, sizeof name, "out-%d.pt", number++);
    return dcp_convert(run, path_in(state, name), &options, NULL);
}

static void sources_are_recognised(void **state)
{
    dcp_convert_report report;
    begin(state, "deepspeed_zero3_w2");
    must(dcp_convert_recognize(run, &(dcp_convert_options){0}, &report));
    assert_int_equal(report.source, DCP_FORM_DEEPSPEED);
    assert_string_equal(report.source_text, "a DeepSpeed checkpoint, ZeRO-3, of 2 ranks");
    assert_string_equal(dcp_form_name(report.source), "deepspeed");
    /* Also the directory of the step itself, and where the mark is gone. */
    strcat(run, "/global_step3");
    must(convert(state, DCP_TAKE_MODEL));
    must_fail(dcp_convert(run, path_in(state, "to"),
                          &(dcp_convert_options){.form = DCP_FORM_DEEPSPEED}, NULL),
              DCP_ERR_ARGUMENT, "no form that checkpoints are written in");
    snprintf(run, sizeof run, "%s", path_in(state, "out-0.pt"));
    must_fail(convert(state, DCP_TAKE_MASTERS), DCP_ERR_UNSUPPORTED, "no fp32 weights");
    must_fail(convert(state, (dcp_take)7), DCP_ERR_ARGUMENT, "7");
}

static void what_is_elsewhere_is_refused_by_name(void **state)
{
    static const char *const optimizer =
        "global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt";
    char path[8192];
    begin(state, "deepspeed_zero3_w2");
    snprintf(path, sizeof path, "%s/global_step3/offloaded_tensors", run);
    assert_int_equal(mkdir(path, 0700), 0);
    must_fail(convert(state, DCP_TAKE_MODEL), DCP_ERR_UNSUPPORTED, "offloaded");
    assert_int_equal(rmdir(path), 0);
    rename_in(optimizer, "gone");
    dcp_state *root = dcp_state_new(), *inner = dcp_state_dict(root, "optimizer_state_dict");
    dcp_state *group = dcp_state_dict(dcp_state_list(inner, "ds_zero_partition_groups"), NULL);
    dcp_state_int(group, "group_size", 1);
    must(dcp_save(root, path_in(state, "saved"), &(dcp_save_options){.skip_sync = true}));
    snprintf(path, sizeof path, "%s/%s", run, optimizer);
    must(dcp_convert(path_in(state, "saved"), path, NULL, NULL));
    must_fail(convert(state, DCP_TAKE_MODEL), DCP_ERR_UNSUPPORTED, "AutoEP");
    dcp_state_free(root);
}

/* The optimizer's state is in the model's file then, by numbers. */
static void without_zero_all_is_taken_as_it_is(void **state)
{
    float weight[] = {1, 2, 3}, moment[] = {4, 5, 6};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {3}, .data = weight};
    dcp_state *root = dcp_state_new(), *optimizer = dcp_state_dict(root, "optimizer");
    dcp_checkpoint *checkpoint;
    size_t index;
    dcp_state_tensor(dcp_state_dict(root, "module"), "a.weight", &tensor);
    tensor.data = moment;
    dcp_state_tensor(dcp_state_dict(dcp_state_dict(optimizer, "state"), "0"), "exp_avg", &tensor);
    dcp_state_none(root, "param_shapes");
    dcp_state_int(root, "global_steps", 7);
    snprintf(run, sizeof run, "%s", path_in(state, "run"));
    assert_int_equal(mkdir(run, 0700), 0);
    strcat(run, "/mp_rank_00_model_states.pt");
    const char *saved = path_in(state, "saved"), *all = path_in(state, "all.pt");
    must(dcp_save(root, saved, &(dcp_save_options){.skip_sync = true}));
    must(dcp_convert(saved, run, NULL, NULL));
    *strrchr(run, '/') = '\0';
    must(dcp_convert(run, all, &(dcp_convert_options){.take = DCP_TAKE_ALL}, NULL));
    must(dcp_checkpoint_open(all, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "model.a.weight", &index));
    must(dcp_checkpoint_find(checkpoint, "optimizer.state.0.exp_avg", &index));
    tensor.data = weight;
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL));
    assert_memory_equal(weight, moment, sizeof moment);
    must(dcp_checkpoint_find(checkpoint, "global_steps", &index));
    dcp_checkpoint_close(checkpoint);
    must_fail(convert(state, DCP_TAKE_MASTERS), DCP_ERR_UNSUPPORTED, "no fp32 weights by name");
    dcp_state_free(root);
}

static void files_of_ranks_are_counted(void **state)
{
    static const char *const first = "global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt";
    static const char *const second = "global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";
    begin(state, "deepspeed_zero2_w2");
    rename_in(first, "gone");
    must_fail(convert(state, DCP_TAKE_MASTERS), DCP_ERR_NOT_FOUND, "rank 0 is missing");
    must(convert(state, DCP_TAKE_MODEL)); /* which is in another file */
    rename_in("gone", first);
    rename_in(second, "gone");
    must_fail(convert(state, DCP_TAKE_MASTERS), DCP_ERR_FORMAT,
              "partition_count\" is 2, expected 1");
    rename_in("gone", "global_step3/bf16_zero_pp_rank_10_mp_rank_00_optim_states.pt");
    must_fail(convert(state, DCP_TAKE_ALL), DCP_ERR_NOT_FOUND, "rank 1 is missing");
    rename_in("global_step3/bf16_zero_pp_rank_10_mp_rank_00_optim_states.pt",
              "global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt");
    must_fail(convert(state, DCP_TAKE_ALL), DCP_ERR_FORMAT, "are both of rank 0");
    rename_in("global_step3/zero_pp_rank_0_mp_rank_00_optim_states.pt",
              "global_step3/zero_pp_rank_0_mp_rank_01_optim_states.pt");
    must_fail(convert(state, DCP_TAKE_MODEL), DCP_ERR_UNSUPPORTED, "tensor parallelism");
    rename_in("global_step3/zero_pp_rank_0_mp_rank_01_optim_states.pt",
              "global_step3/layer_00-model_states.pt");
    must_fail(convert(state, DCP_TAKE_MODEL), DCP_ERR_UNSUPPORTED, "layer_00-model_states.pt");
}

static void models_of_ranks_are_counted(void **state)
{
    begin(state, "deepspeed_zero3_w2");
    rename_in("global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt", "gone");
    must_fail(convert(state, DCP_TAKE_MODEL), DCP_ERR_NOT_FOUND,
              "model's files of 1 ranks and optimizer's of 2");
    rename_in("gone", "global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt");
    rename_in("global_step3/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "gone");
    rename_in("global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "gone too");
    must_fail(convert(state, DCP_TAKE_MODEL), DCP_ERR_UNSUPPORTED, "no optimizer's files");
}

static void files_of_parameters_are_needed(void **state)
{
    begin(state, "deepspeed_universal");
    rename_in("global_step3_universal/zero/gain/fp32.pt", "gone");
    must_fail(convert(state, DCP_TAKE_MASTERS), DCP_ERR_NOT_FOUND, "zero/gain/fp32.pt");
    rename_in("global_step3_universal/zero/emb.weight/fp32.pt",
              "global_step3_universal/zero/gain/fp32.pt");
    must_fail(convert(state, DCP_TAKE_MASTERS), DCP_ERR_SHAPE,
              "has shape [11, 5], expected [1], or that many elements in a row");
    rename_in("global_step3_universal/zero/blocks.0.up.bias/fp32.pt",
              "global_step3_universal/zero/gain/fp32.pt");
    must_fail(convert(state, DCP_TAKE_MASTERS), DCP_ERR_SHAPE,
              "], expected [1], or that many elements in a row");
    must(convert(state, DCP_TAKE_MODEL));
}

/* ---- checkpoints that are made here ---- */

static void write_pt(void **state, dcp_state *root, const char *name)
{
    char directory[4096], file[8192], command[9000];
    snprintf(directory, sizeof directory, "%s", path_in(state, "pt"));
    snprintf(file, sizeof file, "%s/%s", run, name);
    must(dcp_state_status(root));
    must(dcp_save(root, directory, &(dcp_save_options){.skip_sync = true}));
    must(dcp_convert(directory, file, &(dcp_convert_options){.skip_sync = true}, NULL));
    snprintf(command, sizeof command, "rm -r '%s'", directory);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
    dcp_state_free(root);
}

static void put(dcp_state *parent, const char *key, dcp_dtype dtype, int32_t ndim,
                const int64_t *shape, void *data)
{
    dcp_tensor tensor = {.dtype = dtype, .ndim = ndim, .data = data};
    for (int32_t d = 0; d < ndim; d++)
        tensor.global_shape[d] = shape[d];
    assert_non_null(dcp_state_tensor(parent, key, &tensor));
}

enum { RANKS = 11, ROWS = 5, COLUMNS = 3, MORE = 7, PADDING = 1 };
enum { FLAT = ROWS * COLUMNS + PADDING + MORE, PIECE = 4 };

/* Of 11 ranks, of which the last ones have nothing; a gap behind the first parameter; the
 * optimizer's state as a list, as with elastic_checkpoint. */
static void write_zero2(void **state, int64_t shorter)
{
    static const int64_t shape[] = {ROWS, COLUMNS}, more[] = {MORE};
    float flat[FLAT], moments[FLAT];
    char name[128];
    for (int i = 0; i < FLAT; i++) {
        flat[i] = (float)i;
        moments[i] = (float)(1000 + i);
    }
    snprintf(run, sizeof run, "%s", path_in(state, "zero2"));
    mkdir(run, 0777);
    dcp_state *root = dcp_state_new(), *module = dcp_state_dict(root, "module");
    dcp_state *group = dcp_state_dict(dcp_state_list(root, "param_shapes"), NULL);
    put(module, "a", DCP_F32, 2, shape, flat);
    put(module, "b", DCP_F32, 1, more, flat + ROWS * COLUMNS + PADDING);
    must(dcp_state_size(group, "a", shape, 2));
    must(dcp_state_size(group, "b", more, 1));
    write_pt(state, root, "mp_rank_00_model_states.pt");
    for (int rank = 0; rank < RANKS; rank++) {
        int64_t left = FLAT - rank * PIECE, length[] = {left < 0 ? 0 : left < PIECE ? left : PIECE};
        int64_t moment[] = {rank == 2 ? length[0] - shorter : length[0]};
        int at = length[0] > 0 ? rank * PIECE : 0;
        root = dcp_state_new();
        dcp_state *inner = dcp_state_dict(root, "optimizer_state_dict");
        put(dcp_state_list(inner, "single_partition_of_fp32_groups"), NULL, DCP_F32, 1, length,
            flat + at);
        put(dcp_state_dict(dcp_state_list(inner, "base_optimizer_state"), NULL), "exp_avg", DCP_F32,
            1, moment, moments + at);
        must(dcp_state_int(dcp_state_list(inner, "partition_count"), NULL, RANKS));
        dcp_state *gaps = dcp_state_list(dcp_state_list(inner, "param_alignment_paddings"), NULL);
        must(dcp_state_int(gaps, NULL, PADDING));
        must(dcp_state_int(gaps, NULL, 0));
        snprintf(name, sizeof name, "zero_pp_rank_%d_mp_rank_00_optim_states.pt", rank);
        write_pt(state, root, name);
    }
}

static void expect_run(dcp_checkpoint *checkpoint, const char *name, float first, int count)
{
    float elements[FLAT];
    dcp_tensor tensor = {.data = elements};
    dcp_entry entry;
    size_t index;
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    tensor.dtype = entry.dtype;
    tensor.ndim = entry.ndim;
    for (int32_t d = 0; d < entry.ndim; d++)
        tensor.global_shape[d] = entry.global_shape[d];
    assert_int_equal(entry.bytes, (size_t)count * sizeof *elements);
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL));
    for (int i = 0; i < count; i++)
        assert_true(elements[i] == first + (float)i);
}

static void ranks_are_numbers_and_gaps_are_skipped(void **state)
{
    dcp_checkpoint *checkpoint;
    const char *to = path_in(state, "all");
    const dcp_convert_options options = {.take = DCP_TAKE_ALL, .form = DCP_FORM_DCP, .ranks = 3};
    write_zero2(state, 0);
    must(dcp_convert(run, to, &options, NULL));
    must(dcp_checkpoint_open(to, NULL, &checkpoint));
    expect_run(checkpoint, "model.a", 0, ROWS * COLUMNS);
    expect_run(checkpoint, "optim.a.fp32", 0, ROWS * COLUMNS);
    expect_run(checkpoint, "optim.b.fp32", ROWS * COLUMNS + PADDING, MORE);
    expect_run(checkpoint, "optim.a.exp_avg", 1000, ROWS * COLUMNS);
    expect_run(checkpoint, "optim.b.exp_avg", 1000 + ROWS * COLUMNS + PADDING, MORE);
    dcp_checkpoint_close(checkpoint);
}

static void a_short_piece_is_an_error(void **state)
{
    write_zero2(state, 1);
    must(convert(state, DCP_TAKE_MASTERS));
    must_fail(convert(state, DCP_TAKE_ALL), DCP_ERR_SHAPE,
              "zero_pp_rank_2_mp_rank_00_optim_states.pt: \"exp_avg\" of group 0 has 3 elements, "
              "expected 4");
    rename_in("zero_pp_rank_4_mp_rank_00_optim_states.pt", "other");
    rename_in("zero_pp_rank_9_mp_rank_00_optim_states.pt",
              "zero_pp_rank_4_mp_rank_00_optim_states.pt");
    rename_in("other", "zero_pp_rank_9_mp_rank_00_optim_states.pt");
    rename_in("zero_pp_rank_0_mp_rank_00_optim_states.pt", "first");
    rename_in("zero_pp_rank_10_mp_rank_00_optim_states.pt",
              "zero_pp_rank_0_mp_rank_00_optim_states.pt");
    rename_in("first", "gone");
    must_fail(convert(state, DCP_TAKE_MASTERS), DCP_ERR_FORMAT, "partition_count\" is 11");
}

static void every_allocation_may_fail(void **state)
{
    const dcp_convert_options options = {
        .take = DCP_TAKE_MASTERS, .thread_count = 1, .skip_sync = true};
    begin(state, "deepspeed_zero3_w2");
    scene_allocations_fail(state, run, "safetensors", &options, (struct scene_trials){1, 400, 13});
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sources_are_recognised),
        TEST(what_is_elsewhere_is_refused_by_name),
        TEST(without_zero_all_is_taken_as_it_is),
        TEST(files_of_ranks_are_counted),
        TEST(models_of_ranks_are_counted),
        TEST(files_of_parameters_are_needed),
        TEST(ranks_are_numbers_and_gaps_are_skipped),
        TEST(a_short_piece_is_an_error),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
