/* SPDX-License-Identifier: BSD-3-Clause */
/* Every form into every form and back, bit for bit; what options choose; what is refused. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"

static const struct {
    dcp_form form;
    const char *name; /* of a result */
} forms[] = {
    {DCP_FORM_DCP, "dcp"},
    {DCP_FORM_PT, "file.pt"},
    {DCP_FORM_SAFETENSORS, "file.safetensors"},
    {DCP_FORM_HF, "model"},
};
enum { FORMS = sizeof forms / sizeof *forms };

static dcp_convert_report convert(const char *from, const char *to, dcp_convert_options options)
{
    dcp_convert_report report;
    options.skip_sync = true;
    must(dcp_convert(from, to, &options, &report));
    return report;
}

static void every_pair_is_exact(void **state)
{
    char from[4096], to[4096], name[64];
    snprintf(from, sizeof from, "%s", path_in(state, "source"));
    scene_save(from, false);
    for (size_t i = 0; i < FORMS; i++) {
        char first[4096];
        snprintf(first, sizeof first, "%s", path_in(state, forms[i].name));
        dcp_convert_report report =
            convert(from, first, (dcp_convert_options){.form = forms[i].form});
        assert_int_equal(report.tensors, 26);
        assert_int_equal(report.source, DCP_FORM_DCP);
        assert_int_equal(report.target, forms[i].form);
        scene_equal(from, first);
        for (size_t k = 0; k < FORMS; k++) {
            snprintf(name, sizeof name, "%zu-%s", i, forms[k].name);
            snprintf(to, sizeof to, "%s", path_in(state, name));
            dcp_convert_options options = {.form = forms[k].form};
            if (forms[k].form == DCP_FORM_HF)
                options.shard_size = 1000; /* many files */
            report = convert(first, to, options);
            assert_int_equal(report.source, forms[i].form);
            scene_equal(from, to);
        }
    }
}

static void objects_and_lists_are_kept(void **state)
{
    const char *from = path_in(state, "source"), *file = path_in(state, "file.pt");
    const char *back = path_in(state, "back"), *again = path_in(state, "again.pt");
    size_t size, other;
    dcp_checkpoint *checkpoint;
    dcp_save_info info;
    scene_save(from, true);
    assert_int_equal(convert(from, file, (dcp_convert_options){0}).objects, 3);
    convert(file, back, (dcp_convert_options){.form = DCP_FORM_DCP});
    convert(back, again, (dcp_convert_options){.thread_count = 3});
    scene_equal(from, back);
    char *one = scene_read(file, &size), *two = scene_read(again, &other);
    assert_int_equal(size, other);
    assert_memory_equal(one, two, size);
    free(one);
    free(two);
    /* What belongs to the save as a whole goes from one directory to the next. */
    const char *next = path_in(state, "next");
    convert(from, next, (dcp_convert_options){.form = DCP_FORM_DCP});
    must(dcp_checkpoint_open(next, NULL, &checkpoint));
    must(dcp_checkpoint_info(checkpoint, NULL, NULL, &info));
    assert_true(info.has_step);
    assert_int_equal(info.step, 12);
    dcp_checkpoint_close(checkpoint);
}

static void ranks_and_compression_change_nothing(void **state)
{
    const char *from = path_in(state, "source"), *to = path_in(state, "ranks");
    uint64_t faults;
    scene_save(from, true);
    convert(from, to, (dcp_convert_options){.form = DCP_FORM_DCP, .ranks = 5});
    scene_equal(from, to);
    must(dcp_verify(to, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    scene_expect_size(path_in(state, "ranks/__5_0.distcp"), -1);
    assert_int_equal(access(path_in(state, "ranks/__4_0.distcp"), F_OK), 0);
    if (DCP_HAVE_ZSTD) {
        const char *small = path_in(state, "small");
        convert(from, small,
                (dcp_convert_options){.form = DCP_FORM_DCP, .compression = DCP_COMPRESSION_ZSTD});
        scene_equal(from, small);
    }
}

/* Small tensors are read with their neighbours: of one dtype and of another. */
static void a_damaged_neighbour_is_named(void **state)
{
    const char *from = path_in(state, "many"), *file = path_in(state, "many/__0_0.distcp");
    float values[3000] = {0};
    dcp_state *root = dcp_state_new();
    dcp_checkpoint *checkpoint;
    dcp_stored_chunk chunk;
    size_t index, size;
    for (int i = 0; i < 20; i++) {
        char name[8];
        snprintf(name, sizeof name, "t%d", i);
        dcp_state_tensor(
            root, name,
            &(dcp_tensor){.dtype = DCP_F32, .ndim = 1, .global_shape = {3000}, .data = values});
    }
    must(dcp_save(root, from, NULL));
    dcp_state_free(root);
    must(dcp_checkpoint_open(from, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "t7", &index));
    must(dcp_checkpoint_chunk(checkpoint, index, 0, &chunk));
    dcp_checkpoint_close(checkpoint);
    char *bytes = scene_read(file, &size);
    bytes[chunk.offset + chunk.length / 2] ^= 1;
    int damaged = open(file, O_WRONLY);
    assert_int_equal(write(damaged, bytes, size), size);
    close(damaged);
    free(bytes);
    must_fail(dcp_convert(from, path_in(state, "many.pt"), NULL, NULL), DCP_ERR_CHECKSUM, "t7");
    const dcp_convert_options half = {.form = DCP_FORM_SAFETENSORS, .dtype = DCP_BF16};
    must_fail(dcp_convert(from, path_in(state, "many.safetensors"), &half, NULL), DCP_ERR_CHECKSUM,
              "t7");
    assert_int_equal(access(path_in(state, "many.pt"), F_OK), -1);
}

static void names_are_chosen(void **state)
{
    static const char *const include[] = {"model.t*", "model.blocks"};
    static const char *const exclude[] = {"model.blocks.3.w"};
    static const dcp_convert_rename renames[] = {{DCP_RENAME_GLOB, "model.t*.weight", "net.*.w"}};
    static const char *const nothing[] = {"model.q*"};
    static const dcp_convert_rename twice[] = {{DCP_RENAME_EXACT, "model.large", "model.scalar"}};
    const char *from = path_in(state, "source"), *to = path_in(state, "some.pt");
    dcp_checkpoint *checkpoint;
    size_t index;
    scene_save(from, true);
    dcp_convert_report report = convert(from, to,
                                        (dcp_convert_options){.include = include,
                                                              .include_count = 2,
                                                              .exclude = exclude,
                                                              .exclude_count = 1,
                                                              .renames = renames,
                                                              .rename_count = 1});
    assert_int_equal(report.tensors, 21);
    assert_int_equal(report.left_out, 8);
    must(dcp_checkpoint_open(to, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "net.0.w", &index));
    must(dcp_checkpoint_find(checkpoint, "model.blocks.10.w", &index)); /* of a dict by now */
    must_fail(dcp_checkpoint_find(checkpoint, "model.blocks.3.w", &index), DCP_ERR_NOT_FOUND, "");
    dcp_checkpoint_close(checkpoint);
    must_fail(dcp_convert(from, path_in(state, "no.pt"),
                          &(dcp_convert_options){.include = nothing, .include_count = 1}, NULL),
              DCP_ERR_ARGUMENT, "model.q*");
    must_fail(dcp_convert(from, path_in(state, "no.pt"),
                          &(dcp_convert_options){.renames = twice, .rename_count = 1}, NULL),
              DCP_ERR_DUPLICATE, "model.scalar");
    scene_expect_size(path_in(state, "no.pt"), -1);
}

static void the_model_alone(void **state)
{
    const char *from = path_in(state, "source"), *to = path_in(state, "model.safetensors");
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t index;
    scene_save(from, true);
    must_fail(dcp_convert(from, to, NULL, NULL), DCP_ERR_UNSUPPORTED, "is an object");
    static const char *const odd[] = {"model.t9.weight"};
    dcp_convert_report report =
        convert(from, to,
                (dcp_convert_options){
                    .model_only = true, .exclude = odd, .exclude_count = 1, .dtype = DCP_BF16});
    assert_int_equal(report.tensors, 24);
    must(dcp_checkpoint_open(to, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "large", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_int_equal(entry.dtype, DCP_BF16);
    must(dcp_checkpoint_find(checkpoint, "t4.weight", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_int_equal(entry.dtype, DCP_I64);
    dcp_checkpoint_close(checkpoint);
    must_fail(
        dcp_convert(from, path_in(state, "f8.pt"), &(dcp_convert_options){.dtype = DCP_BF16}, NULL),
        DCP_ERR_UNSUPPORTED, "model.t9.weight");
}

static void nothing_is_overwritten(void **state)
{
    const char *from = path_in(state, "source"), *file = path_in(state, "file.pt");
    const char *full = path_in(state, "full");
    scene_save(from, false);
    scene_write(*state, "file.pt", "mine");
    scene_write(full, "mine", "mine");
    must_fail(dcp_convert(from, file, NULL, NULL), DCP_ERR_EXISTS, "file.pt");
    must_fail(dcp_convert(from, full, &(dcp_convert_options){.form = DCP_FORM_HF}, NULL),
              DCP_ERR_EXISTS, "full");
    must_fail(dcp_convert(from, from, &(dcp_convert_options){.form = DCP_FORM_DCP}, NULL),
              DCP_ERR_EXISTS, "the source itself");
    must_fail(dcp_convert(from, path_in(state, "unknown"), NULL, NULL), DCP_ERR_ARGUMENT,
              "which form");
    scene_expect_size(file, 4);
    scene_expect_names(full, 1);
    scene_expect_names(*state, 3);
}

static bool stop_later(void *context, const dcp_progress *progress)
{
    uint64_t *at = context;
    return progress->bytes_done < *at;
}

static void cancelled_leaves_nothing(void **state)
{
    uint64_t at[] = {0, 1000000, 4 << 20};
    char *from = strdup(path_in(state, "source"));
    scene_save(from, true);
    for (size_t i = 0; i < FORMS; i++)
        for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
            dcp_convert_options options = {.form = forms[i].form,
                                           .model_only = true,
                                           .thread_count = 2,
                                           .progress = stop_later,
                                           .progress_context = &at[k]};
            must_fail(dcp_convert(from, path_in(state, forms[i].name), &options, NULL),
                      DCP_ERR_CANCELLED, "");
            scene_expect_names(*state, 1);
        }
    free(from);
}

static void foreign_forms_are_refused_by_name(void **state)
{
    static const struct {
        const char *file, *text, *error;
    } cases[] = {
        {"layer_00-model_states.pt", "", "DeepSpeed"},
        {"latest_checkpointed_iteration.txt", "2", "Megatron"},
        {"metadata.json", "{\"sharded_backend\": \"zarr\"}", "zarr"},
        {"model.gguf", "GGUF", "GGUF"},
        {"pytorch_model.bin", "", "pytorch_model.bin"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[16];
        snprintf(name, sizeof name, "case%zu", i);
        const char *path = path_in(state, name);
        scene_write(path, cases[i].file, cases[i].text);
        must_fail(dcp_convert(path, path_in(state, "to.pt"), NULL, NULL), DCP_ERR_UNSUPPORTED,
                  cases[i].error);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_pair_is_exact),
        TEST(objects_and_lists_are_kept),
        TEST(ranks_and_compression_change_nothing),
        TEST(a_damaged_neighbour_is_named),
        TEST(names_are_chosen),
        TEST(the_model_alone),
        TEST(nothing_is_overwritten),
        TEST(cancelled_leaves_nothing),
        TEST(foreign_forms_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
