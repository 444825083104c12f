/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of .pt files, safetensors and training checkpoints that only one rank sees, which reads for
 * the others. Each rank is a thread with a current directory of its own: one path leads to the
 * checkpoint, or elsewhere. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"

struct blind {
    const char *here;      /* the directory in which `path` is the checkpoint */
    const char *elsewhere; /* of the other ranks; NULL: all see it */
    const char *path;
    dcp_take take;
    int32_t reader; /* the coordinator, which sees it */
    dcp_reading reading;
    uint64_t memory_limit;
    uint64_t read[RANKS_MAX]; /* bytes, by rank */
};

/* Adds what the checkpoint has to the tree: of tensors this rank's rows. */
static void want(const struct rank *self, dcp_checkpoint *checkpoint, dcp_state *root)
{
    const dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    const dcp_placement rows = dcp_shard(0);
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
        dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
        if (entry.ndim > 0)
            memcpy(tensor.global_shape, entry.global_shape, (size_t)entry.ndim * sizeof(int64_t));
        if (entry.is_tensor && entry.ndim > 0)
            must(dcp_mesh_shard(&mesh, &tensor, &rows));
        tensor.data = NULL; /* the load allocates it */
        if (entry.is_tensor)
            dcp_state_tensor(root, entry.name, &tensor);
        else
            dcp_state_none(root, entry.name);
    }
}

static void expect_tensor(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry,
                          const dcp_state *found)
{
    dcp_tensor tensor, expected;
    size_t bytes = dcp_dtype_size(entry->dtype);
    must(dcp_state_chunk(found, 0, &tensor));
    for (int32_t d = 0; d < tensor.ndim; d++)
        bytes *= (size_t)tensor.sizes[d];
    if (bytes == 0)
        return;
    expected = tensor;
    expected.data = malloc(bytes);
    must(dcp_checkpoint_read_tensor(checkpoint, index, &expected, NULL));
    assert_memory_equal(tensor.data, expected.data, bytes);
    free(expected.data);
}

static void expect_all(dcp_checkpoint *checkpoint, const dcp_state *root)
{
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
        const dcp_state *found = dcp_state_find(root, entry.name);
        assert_non_null(found);
        if (entry.is_tensor) {
            expect_tensor(checkpoint, i, &entry, found);
            continue;
        }
        char *text, *expected = scene_object_text(checkpoint, i);
        must(dcp_state_to_json(found, 0, &text));
        assert_string_equal(text, expected);
        dcp_text_free(text);
        dcp_text_free(expected);
    }
}

static dcp_status load_it(struct rank *self)
{
    struct blind *blind = self->context;
    char path[8192];
    dcp_checkpoint *checkpoint;
    dcp_figures figures = {.size_of = sizeof figures};
    bool sees = self->rank == blind->reader || !blind->elsewhere;
    snprintf(path, sizeof path, "%s/%s", blind->here, blind->path);
    must(dcp_checkpoint_open(path, &(dcp_open_options){.take = blind->take}, &checkpoint));
    assert_int_equal(unshare(CLONE_FS), 0);
    assert_int_equal(chdir(sees ? blind->here : blind->elsewhere), 0);
    dcp_state *root = dcp_state_new();
    want(self, checkpoint, root);
    dcp_status status = dcp_load(root, blind->path,
                                 &(dcp_load_options){.group = self->group,
                                                     .take = blind->take,
                                                     .coordinator = blind->reader,
                                                     .reading = blind->reading,
                                                     .memory_limit = blind->memory_limit,
                                                     .figures = &figures},
                                 NULL);
    blind->read[self->rank] = figures.bytes_read;
    if (status == DCP_OK)
        expect_all(checkpoint, root);
    dcp_state_free(root);
    dcp_checkpoint_close(checkpoint);
    return status;
}

static void load(void **state, const char *here, const char *path, dcp_take take)
{
    const char *elsewhere = path_in(state, "elsewhere");
    struct blind blind = {here, elsewhere, path, take, 0, DCP_READING_AUTO, 0, {0}};
    scene_write(elsewhere, "notes.txt", "nothing to see");
    ranks_must(3, path, load_it, &blind);
    blind.memory_limit = 256 << 20;
    ranks_must(3, path, load_it, &blind);
    blind.memory_limit = 0;
    assert_true(blind.read[0] > 0 && blind.read[1] == 0 && blind.read[2] == 0);
    blind.reader = 2;
    ranks_must(3, path, load_it, &blind);
    assert_true(blind.read[2] > 0 && blind.read[0] == 0 && blind.read[1] == 0);
    blind.elsewhere = NULL;
    blind.reader = 1;
    ranks_must(4, path, load_it, &blind);
    assert_true(blind.read[0] > 0 && blind.read[3] > 0);
}

/* Each form, with tensors of all dtypes, nested names, lists and objects. */
static void one_rank_reads_a_file(void **state)
{
    char from[4096];
    static const struct {
        const char *name;
        dcp_form form;
    } forms[] = {{"model.pt", DCP_FORM_PT}, {"model.safetensors", DCP_FORM_SAFETENSORS}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(from, sizeof from, "%s/saved%zu", (const char *)*state, i);
        scene_save(from, forms[i].form == DCP_FORM_PT);
        must(dcp_convert(from, path_in(state, forms[i].name),
                         &(dcp_convert_options){.form = forms[i].form}, NULL));
        load(state, *state, forms[i].name, DCP_TAKE_MODEL);
    }
}

/* A file of another size is another one. Who is told to read by itself, does. */
static void another_file_is_not_taken(void **state)
{
    const char *elsewhere = path_in(state, "elsewhere");
    struct blind blind = {*state, elsewhere, "model.pt", 0, 0, DCP_READING_AUTO, 0, {0}};
    struct rank ranks[RANKS_MAX];
    char from[4096];
    snprintf(from, sizeof from, "%s/saved", (const char *)*state);
    scene_save(from, true);
    must(dcp_convert(from, path_in(state, "model.pt"), NULL, NULL));
    scene_write(elsewhere, "model.pt", "something else");
    ranks_must(2, blind.path, load_it, &blind);
    scene_write(elsewhere, "notes.txt", "");
    blind.reading = DCP_READING_DIRECT;
    ranks_run(ranks, 2, blind.path, load_it, &blind);
    assert_int_not_equal(ranks[0].status, DCP_OK);
    assert_int_equal(ranks[0].status, ranks[1].status);
    assert_non_null(strstr(ranks[0].message, "rank 1"));
}

static void one_rank_reads_a_model(void **state)
{
    char from[4096];
    snprintf(from, sizeof from, "%s/saved", (const char *)*state);
    scene_save(from, false);
    must(dcp_convert(from, path_in(state, "model"),
                     &(dcp_convert_options){.form = DCP_FORM_HF, .shard_size = 1000}, NULL));
    load(state, *state, "model", DCP_TAKE_MODEL);
}

static void one_rank_reads_a_training_checkpoint(void **state)
{
    static const struct {
        const char *name;
        dcp_take take;
    } cases[] = {{"deepspeed_zero2_w2", DCP_TAKE_ALL},
                 {"deepspeed_zero3_w2", DCP_TAKE_MODEL},
                 {"deepspeed_universal", DCP_TAKE_MASTERS},
                 {"megatron_distopt_full_w2", DCP_TAKE_ALL},
                 {"torch_checkpointing_w2", DCP_TAKE_ALL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char here[4096];
        snprintf(here, sizeof here, "%s/%s", TRAINING, cases[i].name);
        load(state, here, "checkpoint", cases[i].take);
    }
}

/* Views of a storage that are not row-major. */
static void one_rank_reads_transposed_tensors(void **state)
{
    load(state, FIXTURES "/pt_state_dict", "ckpt.pt", DCP_TAKE_MODEL);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_rank_reads_a_file),
        TEST(another_file_is_not_taken),
        TEST(one_rank_reads_a_model),
        TEST(one_rank_reads_a_training_checkpoint),
        TEST(one_rank_reads_transposed_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
