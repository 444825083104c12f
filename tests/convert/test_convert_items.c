/* SPDX-License-Identifier: BSD-3-Clause */
/* Checkpoints of torch_checkpointing as sources: with metadata.pkl and without it, files that are
 * missing or of another rank, metadata that lies. Every value of the fixtures is in
 * interop.training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static dcp_status convert(void **state, const char *to, dcp_take take)
{
    const dcp_convert_options options = {.take = take, .skip_sync = true, .thread_count = 1};
    return dcp_convert(run, path_in(state, to), &options, NULL);
}

/* metadata_1.0.pkl: what that of the checkpoint says, as version 1.0 has it. */
static void parts_are_the_same_in_the_older_version(void **state)
{
    char command[9000];
    begin(state, "torch_checkpointing_w2");
    must(convert(state, "new.pt", DCP_TAKE_ALL));
    snprintf(command, sizeof command,
             "cp '%s/torch_checkpointing_w2/metadata_1.0.pkl' '%s/metadata.pkl'", TRAINING, run);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c) */
    must(convert(state, "old.pt", DCP_TAKE_ALL));
    char *now = strdup(path_in(state, "new.pt"));
    scene_equal(now, path_in(state, "old.pt"));
    free(now);
    rename_in("model_1.pt", "../gone");
    must_fail(convert(state, "no.pt", DCP_TAKE_MODEL), DCP_ERR_NOT_FOUND, "model_1.pt");
}

static void parts_are_the_same_without_metadata(void **state)
{
    dcp_convert_report report;
    begin(state, "torch_checkpointing_w2");
    must(dcp_convert_recognize(run, &(dcp_convert_options){0}, &report));
    assert_int_equal(report.source, DCP_FORM_TORCH_CHECKPOINTING);
    assert_string_equal(report.source_text, "a checkpoint of torch_checkpointing");
    must(convert(state, "with.pt", DCP_TAKE_ALL));
    must(convert(state, "model.safetensors", DCP_TAKE_MODEL));
    rename_in("metadata.pkl", "../gone");
    must(convert(state, "without.pt", DCP_TAKE_ALL));
    char *with = strdup(path_in(state, "with.pt"));
    scene_equal(with, path_in(state, "without.pt"));
    free(with);
    must_fail(convert(state, "no.pt", DCP_TAKE_MASTERS), DCP_ERR_UNSUPPORTED, "no fp32 weights");
    /* A name that is no item's: anything could be in such a directory. */
    rename_in("raw_0.bin", "raw.bin");
    must_fail(convert(state, "no.pt", DCP_TAKE_MODEL), DCP_ERR_NOT_FOUND, "no checkpoint");
}

static void files_of_ranks_are_needed(void **state)
{
    begin(state, "torch_checkpointing_w2");
    rename_in("model_1.pt", "gone");
    must_fail(
        convert(state, "no.pt", DCP_TAKE_MODEL), DCP_ERR_NOT_FOUND,
        "model_1.pt: the file of rank 1 of \"model\" is missing: the checkpoint is of 2 ranks");
    rename_in("optimizer_1.pt", "model_1.pt");
    must_fail(convert(state, "no.pt", DCP_TAKE_MODEL), DCP_ERR_COVERAGE,
              "\"emb.weight\": no chunk holds [6:11, 0:6]");
    rename_in("model_0.pt", "first.pt");
    rename_in("gone", "model_0.pt"); /* the parts of rank 1 twice, of 11 rows 5 */
    rename_in("first.pt", "model_1.pt");
    must_fail(convert(state, "no.pt", DCP_TAKE_MODEL), DCP_ERR_SHAPE,
              "model_0.pt: \"gain\" has shape [0], expected [1], as the tensor's placements say");
    rename_in("metadata.pkl", "../gone");
    must_fail(convert(state, "no.pt", DCP_TAKE_MODEL), DCP_ERR_NOT_FOUND, "");
}

static void safetensors_are_parts_too(void **state)
{
    begin(state, "torch_checkpointing_safetensors_w2");
    must(convert(state, "model.safetensors", DCP_TAKE_MODEL));
    rename_in("weights/model_rank1.safetensors", "gone");
    must_fail(convert(state, "no.pt", DCP_TAKE_MODEL), DCP_ERR_NOT_FOUND,
              "weights/model_rank1.safetensors");
}

/* Each byte of metadata.pkl is changed: no crash, and no result that has other names. */
static void damaged_metadata_is_harmless(void **state)
{
    begin(state, "torch_checkpointing_w2");
    char path[8192];
    size_t size;
    snprintf(path, sizeof path, "%s/metadata.pkl", run);
    char *bytes = scene_read(path, &size);
    for (size_t i = 0; i < size; i += 7) {
        dcp_convert_report report;
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        bytes[i] ^= (char)(1 << i % 8);
        assert_int_equal(fwrite(bytes, 1, size, file), size);
        bytes[i] ^= (char)(1 << i % 8);
        assert_int_equal(fclose(file), 0);
        if (dcp_convert_recognize(run, &(dcp_convert_options){0}, &report) != DCP_OK)
            scene_expect_names(*state, 1);
    }
    free(bytes);
}

static void every_allocation_may_fail(void **state)
{
    const dcp_convert_options options = {
        .take = DCP_TAKE_ALL, .thread_count = 1, .skip_sync = true};
    begin(state, "torch_checkpointing_w2");
    scene_allocations_fail(state, run, "pt", &options, (struct scene_trials){1, 300, 17});
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parts_are_the_same_in_the_older_version),
        TEST(parts_are_the_same_without_metadata),
        TEST(files_of_ranks_are_needed),
        TEST(safetensors_are_parts_too),
        TEST(damaged_metadata_is_harmless),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
