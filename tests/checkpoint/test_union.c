/* SPDX-License-Identifier: BSD-3-Clause */
/* Several directories as one checkpoint: what is united, what conflicts, and what never is. */
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
#include "fault/over_files.h"
#include "fault/simulated_file_system.h"
#include "storage/shard/shard_reader.h"

/* What one member holds: rows of a tensor of its own, and what others may hold as well. */
struct member {
    const char *own;     /* name of a 3 x 2 tensor of int32, 100 * the last character + position */
    const char *tied;    /* name of a tensor of 4096 x 3 int32 ... */
    int32_t first;       /* ... whose elements are this plus their position */
    int32_t tied_dtype;  /* other than int32 */
    int64_t tied_rows;   /* other than 4096 */
    const char *object;  /* name of a dict as an object ... */
    double value;        /* ... that has this */
    int ranks;           /* that save it, by rows; 0: one */
    bool object_is_tied; /* the object has the name of the tensor */
};

static int64_t tied_rows(const struct member *member)
{
    return member->tied_rows ? member->tied_rows : 4096;
}

static dcp_status save_body(struct rank *self)
{
    const struct member *member = self->context;
    dcp_mesh mesh = {.ndim = 1, .shape = {self->size}, .rank = self->rank};
    dcp_placement rows = dcp_shard(0);
    dcp_tensor own = {.dtype = DCP_I32, .ndim = 2, .global_shape = {3, 2}};
    dcp_tensor tied = {.dtype = member->tied_dtype ? (dcp_dtype)member->tied_dtype : DCP_I32,
                       .ndim = 2,
                       .global_shape = {tied_rows(member), 3}};
    dcp_state *root = dcp_state_new();
    int32_t data[6], *large = calloc((size_t)tied_rows(member) * 3, sizeof *large);

    must(dcp_mesh_shard(&mesh, &own, &rows));
    must(dcp_mesh_shard(&mesh, &tied, &rows));
    for (int32_t i = 0; member->own && i < (int32_t)(own.sizes[0] * 2); i++)
        data[i] = 100 * member->own[strlen(member->own) - 1] + (int32_t)own.offsets[0] * 2 + i;
    for (int32_t i = 0; i < (int32_t)(tied.sizes[0] * 3); i++)
        large[i] = member->first + (int32_t)tied.offsets[0] * 3 + i;
    own.data = data;
    tied.data = large;
    if (member->own)
        dcp_state_tensor(root, member->own, &own);
    if (member->tied && member->object_is_tied)
        dcp_state_int(root, member->tied, 1);
    else if (member->tied)
        dcp_state_tensor(root, member->tied, &tied);
    if (member->object) {
        dcp_state *tuple = dcp_state_tuple(root, member->object);
        dcp_state_float(tuple, NULL, member->value);
        dcp_state_string(tuple, NULL, "text");
    }
    dcp_save_options options = {.group = self->group, .timeout_seconds = 30};
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    free(large);
    return status;
}

static void save_member(void **state, const char *name, struct member member)
{
    ranks_must(member.ranks ? member.ranks : 1, path_in(state, name), save_body, &member);
}

static void save_stages(void **state)
{
    save_member(state, "c/pp0", (struct member){.own = "layers.0", .object = "step", .value = 7});
    save_member(state, "c/pp1",
                (struct member){.own = "layers.1", .ranks = 2, .object = "step", .value = 7});
    save_member(state, "c/pp2", (struct member){.own = "layers.2", .ranks = 3});
}

/* Each rank wants the layers that are its own when they are dealt out in turn. */
static dcp_status load_body(struct rank *self)
{
    dcp_state *root = dcp_state_new();
    int32_t data[3][6] = {{0}};
    char name[32];
    for (int layer = self->rank; layer < 3; layer += self->size) {
        dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {3, 2}};
        tensor.data = data[layer];
        snprintf(name, sizeof name, "layers.%d", layer);
        dcp_state_tensor(root, name, &tensor);
    }
    dcp_state *step = dcp_state_tuple(root, "step");
    dcp_load_options options = {
        .group = self->group, .strictness = DCP_STRICT_RAISE_ALL, .timeout_seconds = 30};
    const struct dcp_load_options *given = self->context ? self->context : &options;
    options.members = given->members;
    options.member_count = given->member_count;
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    for (int layer = self->rank; layer < 3 && status == DCP_OK; layer += self->size)
        for (int i = 0; i < 6; i++)
            if (data[layer][i] != 100 * ('0' + layer) + i)
                status = dcp_error_set(DCP_ERR_INTERNAL, "layer %d, element %d", layer, i);
    double value = 0;
    if (status == DCP_OK)
        status = dcp_state_as_float(dcp_state_at(step, 0), &value);
    dcp_state_free(root);
    return status == DCP_OK && value != 7 ? DCP_ERR_INTERNAL : status;
}

static void test_stages_load_at_any_number_of_stages(void **state)
{
    save_stages(state);
    for (int ranks = 1; ranks <= 4; ranks++)
        ranks_must(ranks, path_in(state, "c"), load_body, NULL);
}

/* One job, of which every two ranks are a stage and save to a directory of its own. */
static dcp_status save_stage_body(struct rank *self)
{
    static const char *const layers[] = {"layers.0", "layers.1", "layers.2"};
    int stage = self->rank / 2;
    struct member member = {.own = layers[stage], .object = "step", .value = 7};
    char path[512];
    struct rank inner = {.path = path, .context = &member};
    snprintf(path, sizeof path, "%s/pp%d", self->path, stage);
    must(dcp_group_split(self->group, stage, 0, 30, &inner.group));
    inner.rank = dcp_group_rank(inner.group);
    inner.size = dcp_group_size(inner.group);
    dcp_status status = save_body(&inner);
    dcp_group_free(inner.group);
    return status;
}

static void test_stages_of_a_job_save_by_themselves(void **state)
{
    ranks_must(5, path_in(state, "c"), save_stage_body, NULL);
    for (int ranks = 1; ranks <= 4; ranks++)
        ranks_must(ranks, path_in(state, "c"), load_body, NULL);
}

static void test_opens_with_the_names_of_files(void **state)
{
    dcp_checkpoint *checkpoint;
    dcp_stored_chunk chunk;
    size_t index;
    int32_t data[6];
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {3, 2}, .data = data};
    uint64_t faults = 1;
    save_stages(state);
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 4);
    must(dcp_checkpoint_find(checkpoint, "layers.1", &index));
    must(dcp_checkpoint_chunk(checkpoint, index, 1, &chunk));
    assert_string_equal(chunk.file, "pp1/__1_0.distcp");
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor,
                                    &(dcp_read_options){.verification = DCP_VERIFY_RECORDS}));
    assert_int_equal(data[5], 100 * '1' + 5);
    dcp_checkpoint_close(checkpoint);
    must(dcp_verify(path_in(state, "c"), NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

static void test_members_anywhere(void **state)
{
    const char *members[] = {"left", path_in(state, "right"), "link"};
    dcp_load_options options = {.members = members, .member_count = 3};
    dcp_checkpoint *checkpoint;
    uint64_t faults = 1;
    save_member(state, "left", (struct member){.own = "layers.0", .object = "step", .value = 7});
    save_member(state, "right", (struct member){.own = "layers.1"});
    save_member(state, "third", (struct member){.own = "layers.2"});
    if (getenv("DCP_TEST_STORAGE"))
        members[2] = "third"; /* other storages have no links */
    else
        assert_int_equal(symlink("third", path_in(state, "link")), 0);
    for (int ranks = 1; ranks <= 2; ranks++)
        ranks_must(ranks, *state, load_body, &options);
    must(dcp_checkpoint_open(*state, &(dcp_open_options){.members = members, .member_count = 3},
                             &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 4);
    dcp_checkpoint_close(checkpoint);
    must(dcp_verify(*state, &(dcp_open_options){.members = members, .member_count = 3}, NULL, NULL,
                    &faults));
    assert_int_equal(faults, 0);
}

static void must_not_open(void **state, dcp_status expected, const char *text)
{
    dcp_checkpoint *checkpoint;
    must_fail(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint), expected, text);
    assert_null(checkpoint);
}

static void test_what_is_no_union(void **state)
{
    needs_files();
    save_member(state, "c/step_0", (struct member){.own = "layers.0"});
    save_member(state, "c/step_1", (struct member){.own = "layers.1"});
    must_not_open(state, DCP_ERR_NOT_FOUND, "no checkpoint");
    save_member(state, "c/pp1", (struct member){.own = "layers.1"});
    must_not_open(state, DCP_ERR_NOT_FOUND, "there is pp1, but no pp0");
    save_member(state, "c/pp0/pp0", (struct member){.own = "layers.0"});
    must_not_open(state, DCP_ERR_NOT_FOUND, "c/pp0: no checkpoint");
    save_member(state, "c/pp0", (struct member){.own = "layers.0"});
    save_member(state, "c/pp02", (struct member){.own = "layers.1"});
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 2);
    dcp_checkpoint_close(checkpoint);
    assert_int_equal(rename(path_in(state, "c/pp1"), path_in(state, "c/other")), 0);
    assert_int_equal(symlink("other", path_in(state, "c/pp1")), 0);
    must_not_open(state, DCP_ERR_FORMAT, "pp1 is a symbolic link");
    assert_int_equal(unlink(path_in(state, "c/pp1")), 0);
    fclose(fopen(path_in(state, "c/pp1"), "w"));
    must_not_open(state, DCP_ERR_NOT_FOUND, "pp1: no such directory");
    assert_int_equal(unlink(path_in(state, "c/pp1")), 0);
    assert_int_equal(mkdir(path_in(state, "c/pp1"), 0777), 0);
    must_not_open(state, DCP_ERR_NOT_FOUND, "c/pp1: no checkpoint");
    assert_int_equal(unlink(path_in(state, "c/pp0/.metadata")), 0);
    must_not_open(state, DCP_ERR_NOT_FOUND, "c/pp0: a save was interrupted here");
    /* A checkpoint of its own goes before its stages, and so does one that was interrupted. */
    save_member(state, "c", (struct member){.own = "layers.9"});
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    assert_int_equal(dcp_checkpoint_count(checkpoint), 1);
    dcp_checkpoint_close(checkpoint);
    assert_int_equal(unlink(path_in(state, "c/.metadata")), 0);
    must_not_open(state, DCP_ERR_NOT_FOUND, "c: a save was interrupted here");
}

static void test_wrong_members(void **state)
{
    static const char *many[5000];
    static char names[5000][16];
    const char *twice[] = {"a", "a"}, *none[] = {"a", NULL}, *file[] = {"a", "a/.metadata"},
               *gone[] = {"a", "b"};
    dcp_checkpoint *checkpoint;
    dcp_load_options options = {.members = none, .member_count = 2};
    dcp_state *root = dcp_state_new();
    uint64_t faults;
    for (int i = 0; i < 5000; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        many[i] = names[i];
    }
    save_member(state, "a", (struct member){.own = "layers.0"});
    must_fail(dcp_checkpoint_open(
                  *state, &(dcp_open_options){.members = many, .member_count = 5000}, &checkpoint),
              DCP_ERR_UNSUPPORTED, "at most 4096");
    must_fail(dcp_checkpoint_open(*state, &(dcp_open_options){.members = twice, .member_count = 2},
                                  &checkpoint),
              DCP_ERR_ARGUMENT, "twice");
    must_fail(dcp_checkpoint_open(*state, &(dcp_open_options){.members = none, .member_count = 2},
                                  &checkpoint),
              DCP_ERR_ARGUMENT, "no name");
    must_fail(dcp_checkpoint_open(*state, &(dcp_open_options){.members = NULL, .member_count = 2},
                                  &checkpoint),
              DCP_ERR_ARGUMENT, "needs members");
    must_fail(dcp_checkpoint_open(*state, &(dcp_open_options){.members = twice, .member_count = 0},
                                  &checkpoint),
              DCP_ERR_ARGUMENT, "needs members");
    must_fail(dcp_checkpoint_open(NULL, &(dcp_open_options){.members = gone, .member_count = 1},
                                  &checkpoint),
              DCP_ERR_ARGUMENT, "needs a path");
    must_fail(dcp_checkpoint_open(*state, &(dcp_open_options){.members = file, .member_count = 2},
                                  &checkpoint),
              DCP_ERR_NOT_FOUND, "/a/.metadata: no "); /* directory, or checkpoint in it */
    must_fail(dcp_checkpoint_open(*state, &(dcp_open_options){.members = gone, .member_count = 2},
                                  &checkpoint),
              DCP_ERR_NOT_FOUND, "/b: no ");
    must_fail(dcp_load(root, *state, &options, NULL), DCP_ERR_ARGUMENT, "member 1 of 2 has no");
    must_fail(dcp_verify(*state, &(dcp_open_options){.members = twice, .member_count = 0}, NULL,
                         NULL, &faults),
              DCP_ERR_ARGUMENT, "members");
    dcp_state_free(root);
}

struct conflict {
    struct member left, right;
    dcp_status status;
    const char *message;
};

static void take_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    (void)offset;
    snprintf(context, 2048, "%s %s %s", file, name, fault);
}

static void test_conflicts_name_both_members(void **state)
{
    static const struct conflict conflicts[] = {
        {{.tied = "w"},
         {.tied = "w", .object_is_tied = true},
         DCP_ERR_KIND,
         "\"w\" is an object in pp1, but a tensor in pp0"},
        {{.tied = "w"},
         {.tied = "w", .tied_dtype = DCP_F32},
         DCP_ERR_DTYPE,
         "\"w\" is float32 in pp1, but int32 in pp0"},
        {{.tied = "w"},
         {.tied = "w", .tied_rows = 4097},
         DCP_ERR_SHAPE,
         "\"w\" has the shape [4097, 3] in pp1, but [4096, 3] in pp0"},
        {{.tied = "w"},
         {.tied = "w", .first = 1},
         DCP_ERR_DUPLICATE,
         "\"w\" has one value in pp0 and another in pp1"},
        {{.tied = "w", .ranks = 3},
         {.tied = "w", .first = 1, .ranks = 2},
         DCP_ERR_DUPLICATE,
         "\"w\" has one value in pp0 and another in pp1"},
        {{.object = "o", .value = 1},
         {.object = "o", .value = 2},
         DCP_ERR_DUPLICATE,
         "\"o\" has one value in pp0 and another in pp1"},
    };
    for (size_t i = 0; i < sizeof conflicts / sizeof *conflicts; i++) {
        char directory[32], name[32], fault[2048] = "";
        dcp_checkpoint *checkpoint;
        uint64_t faults = 0;
        snprintf(directory, sizeof directory, "c%zu", i);
        snprintf(name, sizeof name, "c%zu/pp0", i);
        save_member(state, name, conflicts[i].left);
        snprintf(name, sizeof name, "c%zu/pp1", i);
        save_member(state, name, conflicts[i].right);
        const char *path = path_in(state, directory);
        must_fail(dcp_checkpoint_open(path, NULL, &checkpoint), conflicts[i].status,
                  conflicts[i].message);
        must(dcp_verify(path, NULL, take_fault, fault, &faults));
        assert_int_equal(faults, conflicts[i].left.ranks ? 2 : 1);
        assert_non_null(strstr(fault, conflicts[i].message));
        struct rank ranks[RANKS_MAX];
        ranks_run(ranks, 2, path, load_body, NULL);
        for (int r = 0; r < 2; r++) {
            assert_int_equal(ranks[r].status, conflicts[i].status);
            assert_non_null(strstr(ranks[r].message, conflicts[i].message));
        }
    }
}

static void test_replicas_in_any_division(void **state)
{
    dcp_checkpoint *checkpoint;
    size_t index;
    dcp_entry entry;
    uint64_t faults = 1;
    save_member(state, "c/pp0", (struct member){.tied = "w", .object = "o", .value = 0.5});
    save_member(state, "c/pp1", (struct member){.tied = "w", .object = "o", .value = 0.5});
    save_member(state, "c/pp2", (struct member){.tied = "w", .ranks = 3});
    save_member(state, "c/pp3", (struct member){.own = "layers.0", .tied = "w", .ranks = 2});
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "w", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_int_equal(entry.chunk_count, 1);
    dcp_checkpoint_close(checkpoint);
    must(dcp_verify(path_in(state, "c"), NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
}

/* Without checking, the first member's value is taken. */
static void test_unchecked_values_are_the_first_members(void **state)
{
    int32_t *data = calloc(4096 * 3, sizeof *data);
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {4096, 3}, .data = data};
    dcp_load_options options = {.verification = DCP_VERIFY_NONE};
    dcp_state *root = dcp_state_new();
    save_member(state, "c/pp0", (struct member){.tied = "w", .first = 5});
    save_member(state, "c/pp1", (struct member){.tied = "w", .first = 6});
    dcp_state_tensor(root, "w", &tensor);
    must(dcp_load(root, path_in(state, "c"), &options, NULL));
    assert_int_equal(data[0], 5);
    dcp_state_free(root);
    free(data);
}

static void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    for (size_t size; (size = fread(bytes, 1, sizeof bytes, in)) > 0;)
        assert_int_equal(fwrite(bytes, 1, size, out), size);
    fclose(in);
    fclose(out);
}

/* What PyTorch's ranks saved without collectives, each rank's in a directory of its own: their
 * tensors lie in both. */
static void test_chunks_in_several_members(void **state)
{
    needs_files();
    static const char *const files[][2] = {
        {"a", "__0.metadata"}, {"a", "__0_0.distcp"}, {"b", "__1.metadata"}, {"b", "__1_0.distcp"}};
    const char *members[] = {"a", "b"};
    dcp_checkpoint *whole, *united;
    uint64_t faults = 1;
    assert_int_equal(mkdir(path_in(state, "a"), 0777), 0);
    assert_int_equal(mkdir(path_in(state, "b"), 0777), 0);
    for (int i = 0; i < 4; i++) {
        char from[1024], name[64];
        snprintf(from, sizeof from, FIXTURES "/rank_local_w2/ckpt/%s", files[i][1]);
        snprintf(name, sizeof name, "%s/%s", files[i][0], files[i][1]);
        copy_file(from, path_in(state, name));
    }
    must_fail(dcp_checkpoint_open(
                  *state, &(dcp_open_options){.members = members, .member_count = 1}, &united),
              DCP_ERR_COVERAGE, "no chunk holds");
    must(dcp_checkpoint_open(*state, &(dcp_open_options){.members = members, .member_count = 2},
                             &united));
    must(dcp_checkpoint_open(FIXTURES "/rank_local_w2/ckpt", NULL, &whole));
    assert_int_equal(dcp_checkpoint_count(united), dcp_checkpoint_count(whole));
    for (size_t i = 0; i < dcp_checkpoint_count(whole); i++) {
        dcp_entry one, other;
        unsigned char bytes[2][4096];
        must(dcp_checkpoint_entry(whole, i, &one));
        must(dcp_checkpoint_entry(united, i, &other));
        assert_string_equal(one.name, other.name);
        if (!one.is_tensor || one.bytes > sizeof bytes[0])
            continue;
        dcp_tensor tensor = {.dtype = one.dtype, .ndim = one.ndim, .data = bytes[0]};
        for (int32_t d = 0; d < one.ndim; d++)
            tensor.global_shape[d] = one.global_shape[d];
        must(dcp_checkpoint_read_tensor(whole, i, &tensor, NULL));
        tensor.data = bytes[1];
        must(dcp_checkpoint_read_tensor(united, i, &tensor, NULL));
        assert_memory_equal(bytes[0], bytes[1], (size_t)one.bytes);
    }
    dcp_checkpoint_close(whole);
    dcp_checkpoint_close(united);
    must(dcp_verify(*state, &(dcp_open_options){.members = members, .member_count = 2}, NULL, NULL,
                    &faults));
    assert_int_equal(faults, 0);
    must(dcp_verify(*state, &(dcp_open_options){.members = members, .member_count = 1}, NULL, NULL,
                    &faults));
    assert_true(faults > 0);
}

/* Each member is a save of its own: a shard of another member is foreign. */
static void test_members_keep_their_own_files(void **state)
{
    needs_files();
    char fault[2048] = "";
    uint64_t faults = 0;
    int32_t data[6];
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 2, .global_shape = {3, 2}, .data = data};
    dcp_checkpoint *checkpoint;
    save_member(state, "c/pp0", (struct member){.own = "layers.0"});
    save_member(state, "c/pp1", (struct member){.own = "layers.1"});
    copy_file(path_in(state, "c/pp1/__0_0.distcp"), path_in(state, "c/pp0/__0_0.distcp"));
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    must_fail(dcp_checkpoint_read_tensor(checkpoint, 0, &tensor, NULL), DCP_ERR_FOREIGN, "pp0");
    dcp_checkpoint_close(checkpoint);
    must(dcp_verify(path_in(state, "c"), NULL, take_fault, fault, &faults));
    assert_true(faults > 0);
    assert_non_null(strstr(fault, "pp0/__0_0.distcp"));
    copy_file(path_in(state, "c/pp0/__0_0.distcp"), path_in(state, "c/pp0/.metadata"));
    must(dcp_verify(path_in(state, "c"), NULL, take_fault, fault, &faults));
    assert_true(faults > 0);
}

static dcp_status other_members_body(struct rank *self)
{
    const char *members[] = {"pp0", "pp1"};
    dcp_load_options options = {.members = members,
                                .member_count = self->rank == 1 ? 2 : 1,
                                .group = self->group,
                                .timeout_seconds = 30};
    dcp_state *root = dcp_state_new();
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    dcp_state_free(root);
    return status;
}

static void test_ranks_must_name_the_same_members(void **state)
{
    struct rank ranks[RANKS_MAX];
    save_stages(state);
    ranks_run(ranks, 3, path_in(state, "c"), other_members_body, NULL);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_ARGUMENT);
        assert_non_null(strstr(ranks[r].message, "members differs from the coordinator's"));
    }
}

/* What ranks pass on to each other is not trusted. */
static void test_cut_messages(void **state)
{
    needs_files();
    struct buffer raw;
    struct metadata metadata;
    struct shard_reader *reader;
    struct storage_directory opened;
    save_stages(state);
    const char *path = path_in(state, "c");
    buffer_init(&raw, 0);
    must(storage_read_raw(dcp_storage_files(), storage_at(path), &raw, &opened));
    storage_directory_close(&opened);
    for (size_t size = 0; size <= raw.size; size++) {
        unsigned char *cut = malloc(size + 1);
        memcpy(cut, raw.data, size);
        dcp_status status =
            storage_decode_raw(dcp_storage_files(), path, cut, size, &metadata, &reader);
        assert_int_equal(status == DCP_OK, size == raw.size);
        shard_reader_free(reader);
        metadata_free(&metadata);
        free(cut);
    }
    buffer_free(&raw);
}

static void test_every_failed_allocation(void **state)
{
    needs_files();
    save_member(state, "c/pp0", (struct member){.own = "a", .tied = "w", .object = "o"});
    save_member(state, "c/pp1", (struct member){.own = "b", .tied = "w", .ranks = 2});
    save_member(state, "c/pp2", (struct member){.tied = "w", .object = "o"});
    const char *path = path_in(state, "c");
    for (int verifies = 0; verifies < 2; verifies++) {
        dcp_status status = DCP_ERR_NO_MEMORY;
        for (long n = 1; status != DCP_OK; n++) {
            dcp_checkpoint *checkpoint = NULL;
            uint64_t faults = 0;
            failing_allocator_install(n, false);
            status = verifies ? dcp_verify(path, NULL, NULL, NULL, &faults)
                              : dcp_checkpoint_open(path, NULL, &checkpoint);
            bool reached = failing_allocator_reached();
            dcp_checkpoint_close(checkpoint);
            assert_int_equal(failing_allocator_remove(), 0);
            assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
            assert_int_equal(faults, 0);
        }
    }
}

static void save_simulated(struct simulated_file_system *fs, const char *path, int32_t layer)
{
    dcp_save_options options = {0};
    int32_t tied[6] = {1, 2, 3, 4, 5, 6}, own[6] = {layer};
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 1, .global_shape = {6}, .data = tied};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "tied", &tensor);
    tensor.data = own;
    dcp_state_tensor(root, layer == 0 ? "first" : "last", &tensor);
    dcp_state_int(root, "step", 5);
    must(save_over(simulated_ops(fs), root, path, &options));
    dcp_state_free(root);
}

/* Whatever fails while a union is opened, compared and loaded is an error with a message. */
static void test_every_failed_file_operation(void **state)
{
    (void)state;
    struct simulated_file_system *fs = simulated_new();
    save_simulated(fs, "/c/pp0", 0);
    save_simulated(fs, "/c/pp1", 1);
    for (int loads = 0; loads < 2; loads++) {
        bool reached = true;
        for (long n = 1; reached; n++) {
            struct simulated_file_system *copy = simulated_copy(fs);
            struct simulated_fault fault = {
                .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO};
            dcp_checkpoint *checkpoint = NULL;
            dcp_load_options options = {0};
            int32_t data[6];
            dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 1, .global_shape = {6}, .data = data};
            dcp_state *root = dcp_state_new();
            dcp_state_tensor(root, "last", &tensor);
            dcp_state_tensor(root, "first",
                             &(dcp_tensor){.dtype = DCP_I32, .ndim = 1, .global_shape = {6}});
            simulated_set_fault(copy, &fault);
            dcp_status status = loads ? load_over(simulated_ops(copy), root, "/c", &options, NULL)
                                      : open_over(simulated_ops(copy), "/c", &checkpoint);
            reached = simulated_fault_reached(copy);
            if (reached && status != DCP_OK)
                assert_int_equal(status, DCP_ERR_IO);
            if (!reached)
                assert_int_equal(status, DCP_OK);
            dcp_checkpoint_close(checkpoint);
            dcp_state_free(root);
            assert_int_equal(simulated_open_descriptors(copy), 0);
            simulated_free(copy);
        }
    }
    simulated_free(fs);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(test_stages_load_at_any_number_of_stages),
        directory_test(test_stages_of_a_job_save_by_themselves),
        directory_test(test_opens_with_the_names_of_files),
        directory_test(test_members_anywhere),
        directory_test(test_what_is_no_union),
        directory_test(test_wrong_members),
        directory_test(test_conflicts_name_both_members),
        directory_test(test_replicas_in_any_division),
        directory_test(test_unchecked_values_are_the_first_members),
        directory_test(test_chunks_in_several_members),
        directory_test(test_members_keep_their_own_files),
        directory_test(test_ranks_must_name_the_same_members),
        directory_test(test_cut_messages),
        directory_test(test_every_failed_allocation),
        cmocka_unit_test(test_every_failed_file_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
