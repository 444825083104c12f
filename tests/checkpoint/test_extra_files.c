/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files: given by ranks, replaced with their checkpoint, read back and checked, in every kind
 * of save. What a crash leaves of them is in fault/test_extra_file_faults.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "fault/over_files.h"

#define FILE_OF(text_name, text)                                                                   \
    {                                                                                              \
        .size_of = sizeof(dcp_extra_file), .name = (text_name), .bytes = (text),                   \
        .size = sizeof(text) - 1                                                                   \
    }

static dcp_status save_with(const char *path, int64_t value, const dcp_save_options *options)
{
    dcp_state *root = dcp_state_new();
    if (!root)
        return DCP_ERR_NO_MEMORY;
    dcp_state_int(root, "value", value);
    dcp_status status = dcp_state_status(root);
    if (status == DCP_OK)
        status = dcp_save(root, path, options);
    dcp_state_free(root);
    return status;
}

static dcp_status save_files(const char *path, const dcp_extra_file *files, size_t count)
{
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                .extra_files = files,
                                .extra_file_count = count,
                                .timeout_seconds = 20};
    return save_with(path, 1, &options);
}

static dcp_status read_file(dcp_checkpoint *checkpoint, const char *name, char text[1024])
{
    dcp_extra_file_info info;
    size_t index;
    dcp_status status = dcp_checkpoint_find_extra_file(checkpoint, name, &index);
    if (status == DCP_OK)
        status = dcp_checkpoint_extra_file(checkpoint, index, &info);
    if (status == DCP_OK && (info.size >= 1024 || strcmp(info.name, name) != 0))
        return dcp_error_set(DCP_ERR_INTERNAL, "another file");
    if (status == DCP_OK)
        status = dcp_checkpoint_read_extra_file(checkpoint, index, text, (size_t)info.size, NULL);
    text[status == DCP_OK ? info.size : 0] = '\0';
    return status;
}

static void expect_file(dcp_checkpoint *checkpoint, const char *name, const char *expected)
{
    char text[1024];
    must(read_file(checkpoint, name, text));
    assert_string_equal(text, expected);
}

/* All that a checkpoint has: "name=text name=text". */
static void expect_files(const char *path, const char *expected)
{
    char found[2048] = "";
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    for (size_t i = 0; i < dcp_checkpoint_extra_file_count(checkpoint); i++) {
        dcp_extra_file_info info;
        char text[1024];
        must(dcp_checkpoint_extra_file(checkpoint, i, &info));
        must(dcp_checkpoint_read_extra_file(checkpoint, i, text, (size_t)info.size, NULL));
        size_t length = strlen(found);
        snprintf(found + length, sizeof found - length, "%s%s=%.*s", length ? " " : "", info.name,
                 (int)info.size, text);
    }
    dcp_checkpoint_close(checkpoint);
    assert_string_equal(found, expected);
}

static dcp_status count_extra(void *context, const char *name)
{
    *(int *)context += strstr(name, ".extra.") != NULL;
    return DCP_OK;
}

static int count_stored(const char *path)
{
    int count = 0;
    must(dcp_storage_list(NULL, path, count_extra, &count));
    return count;
}

/* ---- several ranks ---- */

enum { RANKS = 3 };

static dcp_status save_of_rank(struct rank *self)
{
    const char *const *names = self->context; /* of each rank; NULL: none */
    char text[64];
    dcp_extra_file files[2] = {{.size_of = sizeof *files, .name = names[self->rank], .bytes = text},
                               FILE_OF("config.yaml", "layers: 2\n")};
    dcp_save_options options = {.group = self->group,
                                .coordinator = 1,
                                .timeout_seconds = 20,
                                .extra_files = files,
                                .extra_file_count = names[self->rank] ? 1 : 0};
    files[0].size = (size_t)snprintf(text, sizeof text, "of %d", self->rank);
    if (self->rank == 2)
        options.extra_file_count = 2;
    return save_with(self->path, 1, &options);
}

static void ranks_give_files_that_are_read_back(void **state)
{
    const char *const names[RANKS] = {"rng_0.bin", NULL, "rng_2.bin"};
    const char *path = path_in(state, "c");
    dcp_extra_file_info info;
    dcp_checkpoint *checkpoint;
    char text[8];
    size_t index = 7;
    ranks_must(RANKS, path, save_of_rank, (void *)names);
    expect_files(path, "rng_0.bin=of 0 rng_2.bin=of 2 config.yaml=layers: 2\n");
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_extra_file(checkpoint, 2, &info));
    assert_string_equal(info.file, "__2.g0.extra.config.yaml");
    assert_true(info.xxh3 != 0);
    must_fail(dcp_checkpoint_extra_file(checkpoint, 3, &info), DCP_ERR_ARGUMENT, "has 3");
    must_fail(dcp_checkpoint_extra_file(NULL, 0, &info), DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_checkpoint_extra_file_sized(checkpoint, 0, NULL, 0), DCP_ERR_ARGUMENT, "place");
    must_fail(dcp_checkpoint_find_extra_file(checkpoint, "value", &index), DCP_ERR_NOT_FOUND,
              "value");
    must_fail(dcp_checkpoint_find_extra_file(checkpoint, NULL, &index), DCP_ERR_ARGUMENT, "name");
    must_fail(dcp_checkpoint_read_extra_file(checkpoint, 0, text, 3, NULL), DCP_ERR_ARGUMENT,
              "expected 4");
    must_fail(dcp_checkpoint_read_extra_file(checkpoint, 0, NULL, 4, NULL), DCP_ERR_ARGUMENT,
              "rng_0");
    must_fail(dcp_checkpoint_read_extra_file(checkpoint, 9, text, 4, NULL), DCP_ERR_ARGUMENT, "9");
    assert_int_equal(index, 7);
    assert_int_equal(dcp_checkpoint_extra_file_count(NULL), 0);
    dcp_checkpoint_close(checkpoint);
}

static void a_name_is_given_by_one_rank(void **state)
{
    const char *const names[RANKS] = {"same", "other", "same"};
    struct rank ranks[RANKS_MAX];
    dcp_checkpoint *checkpoint;
    ranks_run(ranks, RANKS, path_in(state, "c"), save_of_rank, (void *)names);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_DUPLICATE);
        assert_non_null(strstr(ranks[r].message, "\"same\" is given by rank 0 and by rank 2"));
    }
    must_fail(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint), DCP_ERR_NOT_FOUND, "");
}

/* ---- what is refused ---- */

static void names_that_checkpoints_use_are_refused(void **state)
{
    static const char *const refused[] = {
        "",
        ".metadata",
        ".dcp_owner.3",
        "..",
        "../a",
        "a/b",
        "a\\b",
        "/a",
        "metadata.json",
        "__0_0.distcp",
        "__0.g0.extra.a",
        "a.distcp",
        "a.safetensors",
        "a.tmp",
        "model.safetensors.index.json",
        "pp0",
        "a\nb",
        "\xff",
        "0123456789012345678901234567890123456789012345678901234567890123"};
    static const char *const taken[] = {
        "pp",
        "pp0.txt",
        "a b",
        "metadata.json.bak",
        "r\xc3\xa9sum\xc3\xa9",
        "distcp",
        "012345678901234567890123456789012345678901234567890123456789012"};
    const char *path = path_in(state, "c");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const dcp_extra_file file = {sizeof file, refused[i], "x", 1};
        must_fail(save_files(path, &file, 1), DCP_ERR_ARGUMENT, "cannot be the name");
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const dcp_extra_file file = {sizeof file, taken[i], "x", 1};
        char expected[128];
        must(save_files(path, &file, 1));
        snprintf(expected, sizeof expected, "%s=x", taken[i]);
        expect_files(path, expected);
    }
}

static void wrong_arguments_are_refused(void **state)
{
    const char *path = path_in(state, "c");
    dcp_extra_file files[2] = {FILE_OF("a", "1"), FILE_OF("a", "2")};
    must_fail(save_files(path, files, 2), DCP_ERR_DUPLICATE, "\"a\" is given twice");
    must_fail(save_files(path, NULL, 2), DCP_ERR_ARGUMENT, "extra_files is NULL");
    files[1].name = NULL;
    must_fail(save_files(path, files, 2), DCP_ERR_ARGUMENT, "file 1 has no name");
    files[1].name = "b";
    files[1].bytes = NULL;
    must_fail(save_files(path, files, 2), DCP_ERR_ARGUMENT, "file 1 has no bytes");
    files[1].size = 0;
    must(save_files(path, files, 2));
    expect_files(path, "a=1 b=");
    files[1].size_of = 8;
    must_fail(save_files(path, files, 2), DCP_ERR_ARGUMENT, "file 1 has size_of 8");
    files[0].size_of = 0;
    must_fail(save_files(path, files, 2), DCP_ERR_ARGUMENT, "size_of 0");
}

/* Of a version to come. */
static void files_of_a_larger_struct_are_taken(void **state)
{
    struct larger {
        dcp_extra_file file;
        uint64_t later;
    } files[2] = {{FILE_OF("a", "1"), 0}, {FILE_OF("b", "2"), 0}};
    files[0].file.size_of = files[1].file.size_of = sizeof *files;
    must(save_files(path_in(state, "c"), &files[0].file, 2));
    expect_files(path_in(state, "c"), "a=1 b=2");
    files[1].later = 1;
    must_fail(save_files(path_in(state, "c"), &files[0].file, 2), DCP_ERR_ARGUMENT,
              "dcp_extra_file");
}

/* ---- overwriting ---- */

static void files_are_replaced_with_their_checkpoint(void **state)
{
    const dcp_extra_file first[] = {FILE_OF("a", "a1"), FILE_OF("b", "b1")};
    const dcp_extra_file second[] = {FILE_OF("b", "b2"), FILE_OF("c", "c2")};
    const char *path = path_in(state, "c");
    must(save_files(path, first, 2));
    must(save_files(path, second, 2));
    expect_files(path, "b=b2 c=c2");
    must(save_files(path, NULL, 0));
    expect_files(path, "");
}

static void what_is_not_named_is_swept(void **state)
{
    const dcp_extra_file first[] = {FILE_OF("a", "a1"), FILE_OF("b", "b1")};
    const char *path = path_in(state, "c");
    needs_files();
    must(save_files(path, first, 2));
    assert_int_equal(count_stored(path), 2);
    must(save_files(path, first, 1));
    assert_int_equal(count_stored(path), 1);
    must(save_files(path, NULL, 0));
    assert_int_equal(count_stored(path), 0);
}

static void a_reader_learns_that_the_checkpoint_was_replaced(void **state)
{
    const dcp_extra_file first = FILE_OF("a", "a1"), second = FILE_OF("a", "a2");
    const char *path = path_in(state, "c");
    char text[1024];
    dcp_checkpoint *checkpoint;
    must(save_files(path, &first, 1));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    expect_file(checkpoint, "a", "a1");
    must(save_files(path, &second, 1));
    must_fail(read_file(checkpoint, "a", text), DCP_ERR_BUSY, "replaced while it was read");
    dcp_checkpoint_close(checkpoint);
    expect_files(path, "a=a2");
}

static void removing_a_checkpoint_removes_its_files(void **state)
{
    const dcp_extra_file file = FILE_OF("a", "a1");
    const char *path = path_in(state, "c");
    dcp_removal removal;
    needs_files();
    must(save_files(path, &file, 1));
    must(dcp_checkpoint_remove(path, NULL, &removal));
    assert_int_equal(removal.removed, 4);
    assert_int_equal(removal.foreign, 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- what saves with files keep ---- */

static dcp_status save_with_cache(struct rank *self)
{
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_extra_file files[] = {FILE_OF("first", "1"), FILE_OF("second", "2"), FILE_OF("third", "3")};
    dcp_save_options options = {.group = self->group,
                                .timeout_seconds = 20,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .figures = &figures};
    dcp_status status = dcp_save_plan_cache_new(&options.plan_cache);
    for (int i = 0; i < 4 && status == DCP_OK; i++) {
        options.extra_files = &files[i];
        options.extra_file_count = self->rank == i && i < 3 ? 1 : 0;
        status = save_with(self->path, i, &options);
        if (status == DCP_OK && figures.plan_reused != (i > 0))
            status = dcp_error_set(DCP_ERR_INTERNAL, "save %d planned anew", i);
        static const char *const expected[] = {"first=1", "second=2", "third=3", ""};
        if (status == DCP_OK)
            status = dcp_group_agree(self->group, DCP_OK, 20);
        if (status == DCP_OK && self->rank == 0)
            expect_files(self->path, expected[i]);
        if (status == DCP_OK)
            status = dcp_group_agree(self->group, DCP_OK, 20);
    }
    dcp_save_plan_cache_free(options.plan_cache);
    return status;
}

static void plans_are_kept_whatever_files_there_are(void **state)
{
    ranks_must(RANKS, path_in(state, "c"), save_with_cache, NULL);
}

static dcp_status save_behind(dcp_save_chain *chain, const char *path, int64_t value,
                              dcp_extra_file *file, const struct file_ops *ops, dcp_future **future)
{
    dcp_save_options options = {.chain = chain,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .extra_files = file,
                                .extra_file_count = 1};
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "value", value);
    dcp_status status = ops ? save_async_over(ops, root, path, &options, future)
                            : dcp_save_async(root, path, &options, future);
    dcp_state_free(root);
    return status;
}

static void asynchronous_saves_have_copies(void **state)
{
    char name[] = "a.txt", text[] = "before";
    dcp_extra_file file = {sizeof file, name, text, sizeof text - 1};
    dcp_future *future;
    must(save_behind(NULL, path_in(state, "c"), 1, &file, NULL, &future));
    memset(name, 'x', sizeof name);
    memset(text, 'x', sizeof text);
    memset(&file, 0xff, sizeof file);
    must(dcp_future_wait(future, 60));
    dcp_future_free(future);
    expect_files(path_in(state, "c"), "a.txt=before");
}

/* The system's files, of which making some fails for a while. */
static atomic_int failures_left;
static const char *failing_part;

static int failing_open(void *context, int within, const char *path, unsigned flags,
                        int *descriptor)
{
    if ((flags & FILE_CREATE_NEW) && strstr(path, failing_part) && failures_left > 0) {
        failures_left--;
        return 5; /* EIO */
    }
    return file_ops_system.open(context, within, path, flags, descriptor);
}

static void retries_and_a_fallback_have_them(void **state)
{
    needs_files();
    static struct file_ops failing;
    dcp_save_chain_options how = {
        .retries = 1, .retry_seconds = 0.001, .fallback_path = path_in(state, "elsewhere")};
    dcp_extra_file file = FILE_OF("a", "text");
    for (int failures = 1; failures <= 2; failures++) {
        dcp_save_chain *chain;
        dcp_future *future;
        failing = file_ops_system;
        failing.open = failing_open;
        failures_left = failures;
        failing_part = ".extra.";
        must(dcp_save_chain_new(&how, &chain));
        must(save_behind(chain, path_in(state, "c"), failures, &file, &failing, &future));
        must(dcp_future_wait(future, 60));
        dcp_future_free(future);
        dcp_save_chain_free(chain);
        assert_int_equal(failures_left, 0);
        expect_files(path_in(state, failures == 1 ? "c" : "elsewhere/c"), "a=text");
        assert_int_equal(count_stored(path_in(state, "c")), 1);
    }
}

/* Before and after the extra files of the save were made. */
static void a_failed_save_leaves_none(void **state)
{
    static const char *const parts[] = {"extra.b", ".distcp"};
    static struct file_ops failing;
    const dcp_extra_file files[] = {FILE_OF("a", "text"), FILE_OF("b", "another")};
    dcp_save_options options = {
        .overwrite = DCP_OVERWRITE_REPLACE, .extra_files = files, .extra_file_count = 2};
    dcp_state *root = dcp_state_new();
    needs_files();
    dcp_state_int(root, "value", 1);
    must(save_files(path_in(state, "c"), files, 1));
    failing = file_ops_system;
    failing.open = failing_open;
    for (size_t i = 0; i < 2; i++) {
        failures_left = 1;
        failing_part = parts[i];
        must_fail(save_over(&failing, root, path_in(state, "c"), &options), DCP_ERR_IO, parts[i]);
        assert_int_equal(count_stored(path_in(state, "c")), 1);
        expect_files(path_in(state, "c"), "a=text");
    }
    dcp_state_free(root);
}

/* Where there is no place to begin with. */
static void a_place_that_cannot_be_is_fallen_back_from(void **state)
{
    needs_files();
    dcp_save_chain_options how = {.fallback_path = path_in(state, "elsewhere")};
    dcp_extra_file file = FILE_OF("a", "text");
    dcp_save_chain *chain;
    dcp_future *future;
    FILE *in_the_way = fopen(path_in(state, "file"), "w");
    assert_non_null(in_the_way);
    fclose(in_the_way);
    must(dcp_save_chain_new(&how, &chain));
    must(save_behind(chain, path_in(state, "file/c"), 1, &file, NULL, &future));
    must(dcp_future_wait(future, 60));
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    expect_files(path_in(state, "elsewhere/c"), "a=text");
}

/* ---- ranks by themselves, and unions ---- */

static char faults[4096];

static void keep_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    (void)context, (void)offset;
    size_t length = strlen(faults);
    snprintf(faults + length, sizeof faults - length, "%s: %s: %s\n", file, name, fault);
}

static uint64_t verify(const char *path)
{
    uint64_t count;
    faults[0] = '\0';
    must(dcp_verify(path, NULL, keep_fault, NULL, &count));
    return count;
}

static void save_rank(const char *path, int32_t rank, const char *name, const char *text)
{
    const dcp_extra_file file = {sizeof file, name, text, strlen(text)};
    dcp_save_options options = {.without_collectives = true,
                                .rank = rank,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .extra_files = &file,
                                .extra_file_count = 1};
    must(save_with(path, 1, &options));
}

static void ranks_by_themselves_have_their_own(void **state)
{
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    save_rank(path, 0, "rng_0", "zero");
    save_rank(path, 1, "rng_1", "one");
    save_rank(path, 1, "rng_1", "one again");
    expect_files(path, "rng_0=zero rng_1=one again");
    assert_int_equal(verify(path), 0);
    save_rank(path, 1, "rng_0", "of another");
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    expect_file(checkpoint, "rng_0", "zero");
    dcp_checkpoint_close(checkpoint);
    assert_int_equal(verify(path), 1);
    assert_non_null(strstr(faults, "rng_0: an extra file of this name is in __0.g0.extra.rng_0"));
    const dcp_extra_file file = FILE_OF("all", "ranks");
    must(save_files(path, &file, 1));
    expect_files(path, "all=ranks");
}

static void a_union_has_those_of_its_members(void **state)
{
    const dcp_extra_file first = FILE_OF("config", "1"), second = FILE_OF("config", "2");
    dcp_save_options options = {.extra_file_count = 1};
    dcp_open_options open = {.members = (const char *const[]){"x", "pp1"}, .member_count = 2};
    dcp_extra_file_info info;
    dcp_checkpoint *checkpoint;
    options.extra_files = &first;
    must(save_with(path_in(state, "u/pp0"), 1, &options));
    must(save_with(path_in(state, "u/x"), 1, &options));
    options.extra_files = &second;
    must(save_with(path_in(state, "u/pp1"), 1, &options));
    expect_files(path_in(state, "u"), "pp0/config=1 pp1/config=2");
    assert_int_equal(verify(path_in(state, "u")), 0);
    must(dcp_checkpoint_open(path_in(state, "u"), &open, &checkpoint));
    expect_file(checkpoint, "x/config", "1");
    expect_file(checkpoint, "pp1/config", "2");
    must(dcp_checkpoint_extra_file(checkpoint, 0, &info));
    assert_string_equal(info.file, "x/__0.g0.extra.config");
    dcp_checkpoint_close(checkpoint);
}

/* ---- hooks ---- */

static dcp_status wants_no_directory(void *context, dcp_saving *saving, bool is_coordinator)
{
    (void)context, (void)saving, (void)is_coordinator;
    return DCP_OK;
}

static dcp_status is_not_called(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context, (void)saving, (void)plan;
    return dcp_error_set(DCP_ERR_INTERNAL, "nothing is to be written");
}

static dcp_status finishes_nothing(void *context, dcp_saving *saving,
                                   const dcp_checkpoint *metadata, const dcp_write_result *results,
                                   size_t count)
{
    (void)context, (void)saving, (void)metadata, (void)results, (void)count;
    return DCP_OK;
}

static void a_writer_without_a_directory_cannot_take_them(void **state)
{
    const dcp_extra_file file = FILE_OF("a", "text");
    const dcp_storage_writer writer = {.size_of = sizeof writer,
                                       .set_up_storage_writer = wants_no_directory,
                                       .write_data = is_not_called,
                                       .finish = finishes_nothing};
    dcp_save_options options = {
        .storage_writer = &writer, .extra_files = &file, .extra_file_count = 1};
    must_fail(save_with(path_in(state, "c"), 1, &options), DCP_ERR_ARGUMENT, "no directory");
}

/* ---- publishing ---- */

/* Metadata that was lost comes back with the files that it names, and with others. */
static void publishing_adds_files(void **state)
{
    const dcp_extra_file first = FILE_OF("a", "text"), more = FILE_OF("b", "another");
    const char *path = path_in(state, "c");
    dcp_publish_options options = {.extra_files = &more, .extra_file_count = 1};
    dcp_checkpoint *checkpoint;
    needs_files();
    must(save_files(path, &first, 1));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must_fail(dcp_checkpoint_publish(checkpoint, path, &options), DCP_ERR_EXISTS, "refused");
    assert_int_equal(count_stored(path), 1);
    assert_int_equal(unlink(path_in(state, "c/.metadata")), 0);
    must(dcp_checkpoint_publish(checkpoint, path, &options));
    expect_files(path, "a=text b=another");
    assert_int_equal(access(path_in(state, "c/__0.g1.extra.b"), F_OK), 0);
    assert_int_equal(verify(path), 0);
    options.overwrite = DCP_OVERWRITE_REPLACE;
    options.extra_files = &first;
    must_fail(dcp_checkpoint_publish(checkpoint, path, &options), DCP_ERR_DUPLICATE, "\"a\"");
    options.extra_file_count = 0;
    must(dcp_checkpoint_publish(checkpoint, path, &options));
    expect_files(path, "a=text");
    dcp_checkpoint_close(checkpoint);
    must(save_files(path, &more, 1));
    assert_int_equal(count_stored(path), 1);
}

/* ---- damage ---- */

static const char long_text[] = "a text of some length, of which one bit is flipped";

static void damage(const char *file, long offset, long size)
{
    FILE *stream = fopen(file, "r+b");
    assert_non_null(stream);
    if (offset >= 0) {
        assert_int_equal(fseek(stream, offset, SEEK_SET), 0);
        int byte = fgetc(stream);
        assert_int_equal(fseek(stream, offset, SEEK_SET), 0);
        fputc(byte ^ 1, stream);
    }
    assert_int_equal(fclose(stream), 0);
    if (size >= 0)
        assert_int_equal(truncate(file, size), 0);
}

static void expect_damage(const char *path, dcp_status expected, const char *fault)
{
    char text[1024];
    dcp_checkpoint *checkpoint;
    assert_int_equal(verify(path), 1);
    assert_non_null(strstr(faults, "__0.g0.extra.a: a: "));
    assert_non_null(strstr(faults, fault));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must_fail(read_file(checkpoint, "a", text), expected, fault);
    expect_file(checkpoint, "b", "b");
    dcp_checkpoint_close(checkpoint);
}

/* The damaged file is returned if no checksums are wanted. */
static void expect_unchecked(const char *path)
{
    char text[sizeof long_text - 1];
    size_t index;
    dcp_checkpoint *checkpoint;
    dcp_read_options options = {.verification = DCP_VERIFY_NONE};
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find_extra_file(checkpoint, "a", &index));
    must(dcp_checkpoint_read_extra_file(checkpoint, index, text, sizeof text, &options));
    assert_memory_equal(text, long_text, 20);
    assert_int_equal(text[20], long_text[20] ^ 1);
    options.convert = true;
    must_fail(dcp_checkpoint_read_extra_file(checkpoint, index, text, sizeof text, &options),
              DCP_ERR_ARGUMENT, "convert");
    dcp_checkpoint_close(checkpoint);
}

static void damage_is_found(void **state)
{
    const dcp_extra_file files[] = {FILE_OF("a", long_text), FILE_OF("b", "b")};
    const char *path = path_in(state, "c"), *file = path_in(state, "c/__0.g0.extra.a");
    needs_files();
    must(save_files(path, files, 2));
    assert_int_equal(verify(path), 0);
    damage(file, 20, -1);
    expect_damage(path, DCP_ERR_CHECKSUM, "has XXH3");
    expect_unchecked(path);
    damage(file, 20, -1);
    assert_int_equal(verify(path), 0);
    damage(file, -1, 10);
    expect_damage(path, DCP_ERR_FORMAT, "has 10 bytes, expected 50");
    assert_int_equal(unlink(file), 0);
    expect_damage(path, DCP_ERR_NOT_FOUND, "__0.g0.extra.a");
    assert_int_equal(symlink(path_in(state, "c/__0.g0.extra.b"), file), 0);
    assert_int_equal(verify(path), 1);
}

/* A text of .metadata, in the place of another of the same length. The checksum goes. */
static void replace(const char *directory, const char *text, const char *other)
{
    char file[1100];
    char bytes[65536];
    size_t length = strlen(text), at = 0;
    snprintf(file, sizeof file, "%s/.metadata", directory);
    FILE *stream = fopen(file, "r+b");
    assert_non_null(stream);
    size_t size = fread(bytes, 1, sizeof bytes, stream);
    while (at + length <= size && memcmp(bytes + at, text, length) != 0)
        at++;
    assert_true(at + length <= size);
    assert_int_equal(fseek(stream, (long)at, SEEK_SET), 0);
    assert_int_equal(fwrite(other, 1, length, stream), length);
    assert_int_equal(fclose(stream), 0);
    if (memcmp(bytes + size - 16, "\211DCPSUM\n", 8) == 0)
        assert_int_equal(truncate(file, (off_t)size - 16), 0);
}

static void lies_are_refused(void **state)
{
    static const char *const lies[][2] = {
        {"xxh3", "XXh3"},
        {"name", "NAme"},
        {"\x8c\x13__0.g0.extra.aaaaaa", "\x8c\x13__0.g0.extra.bbbbbb"},
        {"\x8c\x13__0.g0.extra.aaaaaa", "\x8c\x13../../../../etc/xxx"},
        {"\x8c\x13__0.g0.extra.aaaaaa", "\x8c\x13__0.g0.extra.aa/aaa"},
        {"\x8c\x06"
         "aaaaaa",
         "\x8c\x06"
         "aaa/aa"},
    };
    const dcp_extra_file file = FILE_OF("aaaaaa", "text");
    const char *path = path_in(state, "c");
    needs_files();
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        dcp_checkpoint *checkpoint;
        must(save_files(path, NULL, 0));
        must(dcp_checkpoint_remove(path, NULL, NULL));
        must(save_files(path, &file, 1));
        replace(path, lies[i][0], lies[i][1]);
        must_fail(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_ERR_FORMAT, "dcp_extra_files");
        must(dcp_checkpoint_remove(path, NULL, NULL));
    }
}

static void a_name_that_is_there_twice_is_refused(void **state)
{
    const dcp_extra_file files[] = {FILE_OF("aaaaaa", "text"), FILE_OF("bbbbbb", "text")};
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    needs_files();
    must(save_files(path, files, 2));
    replace(path, "extra.bbbbbb", "extra.aaaaaa");
    replace(path,
            "\x8c\x06"
            "bbbbbb",
            "\x8c\x06"
            "aaaaaa");
    must_fail(dcp_checkpoint_open(path, NULL, &checkpoint), DCP_ERR_DUPLICATE, "aaaaaa");
}

/* ---- what is said of them ---- */

static void metadata_lists_them(void **state)
{
    const dcp_extra_file file = FILE_OF("a.txt", "text");
    dcp_checkpoint *metadata = NULL;
    dcp_save_options options = {.metadata = &metadata, .extra_files = &file, .extra_file_count = 1};
    char text[8], json[8192], expected[256];
    dcp_extra_file_info info;
    must(save_with(path_in(state, "c"), 1, &options));
    assert_int_equal(dcp_checkpoint_extra_file_count(metadata), 1);
    must(dcp_checkpoint_extra_file(metadata, 0, &info));
    assert_string_equal(info.name, "a.txt");
    must_fail(dcp_checkpoint_read_extra_file(metadata, 0, text, 4, NULL), DCP_ERR_STATE, "a.txt");
    snprintf(expected, sizeof expected, "\"xxh3\":\t\"%016llx\"", (unsigned long long)info.xxh3);
    dcp_checkpoint_close(metadata);
    needs_files();
    FILE *stream = fopen(path_in(state, "c/metadata.json"), "r");
    assert_non_null(stream);
    json[fread(json, 1, sizeof json - 1, stream)] = '\0';
    fclose(stream);
    assert_non_null(strstr(json, "\"extra_files\":"));
    assert_non_null(strstr(json, "\"name\":\t\"a.txt\""));
    assert_non_null(strstr(json, "\"file\":\t\"__0.g0.extra.a.txt\""));
    assert_non_null(strstr(json, "\"size\":\t4"));
    assert_non_null(strstr(json, expected));
}

static dcp_status add_size(void *context, const char *name)
{
    void *const *state = context;
    uint64_t *sizes = state[1];
    char path[256];
    snprintf(path, sizeof path, "c/%s", name);
    FILE *stream = fopen(path_in(&state[0], path), "rb");
    assert_non_null(stream);
    fseek(stream, 0, SEEK_END);
    sizes[0] += (uint64_t)ftell(stream);
    sizes[1]++;
    fclose(stream);
    return DCP_OK;
}

static void estimates_count_them(void **state)
{
    const dcp_extra_file file = FILE_OF("a", long_text);
    dcp_save_options options = {.extra_files = &file, .extra_file_count = 1};
    dcp_estimate estimate = {.size_of = sizeof estimate};
    uint64_t sizes[2] = {0};
    void *context[2] = {*state, sizes};
    dcp_state *root = dcp_state_new();
    needs_files();
    dcp_state_int(root, "value", 1);
    must(dcp_save_estimate(root, path_in(state, "c"), &options, &estimate));
    dcp_state_free(root);
    must(save_with(path_in(state, "c"), 1, &options));
    must(dcp_storage_list(NULL, path_in(state, "c"), add_size, context));
    assert_int_equal(estimate.total_files, sizes[1]);
    assert_int_equal(estimate.total_bytes, sizes[0]);
}

/* ---- memory ---- */

static dcp_status save_once(const char *path)
{
    const dcp_extra_file files[] = {FILE_OF("a", "text"), FILE_OF("b", "another")};
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                .skip_sync = true,
                                .extra_files = files,
                                .extra_file_count = 2};
    return save_with(path, 1, &options);
}

static dcp_status save_behind_once(const char *path)
{
    dcp_extra_file file = FILE_OF("a", "text");
    dcp_future *future = NULL;
    dcp_save_chain_options how = {.timeout_seconds = 20};
    dcp_save_chain *chain = NULL;
    dcp_state *root = dcp_state_new();
    dcp_status status = root ? dcp_state_int(root, "value", 1) ? DCP_OK : dcp_state_status(root)
                             : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK)
        status = dcp_save_chain_new(&how, &chain);
    dcp_save_options options = {.chain = chain,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .skip_sync = true,
                                .extra_files = &file,
                                .extra_file_count = 1};
    if (status == DCP_OK)
        status = dcp_save_async(root, path, &options, &future);
    if (status == DCP_OK)
        status = dcp_future_wait(future, 60);
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    dcp_state_free(root);
    return status;
}

static dcp_status publish_once(const char *path)
{
    const dcp_extra_file file = FILE_OF("c", "more");
    dcp_publish_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                   .skip_sync = true,
                                   .extra_files = &file,
                                   .extra_file_count = 1};
    dcp_checkpoint *checkpoint;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    if (status != DCP_OK)
        return status;
    status = dcp_checkpoint_publish(checkpoint, path, &options);
    dcp_checkpoint_close(checkpoint);
    return status;
}

static dcp_status read_once(const char *path)
{
    char text[1024];
    dcp_checkpoint *checkpoint;
    uint64_t count;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    if (status != DCP_OK)
        return status;
    status = read_file(checkpoint, "a", text);
    dcp_checkpoint_close(checkpoint);
    return status == DCP_OK ? dcp_verify(path, NULL, NULL, NULL, &count) : status;
}

static void each_allocation_may_fail(void **state)
{
    static dcp_status (*const calls[])(const char *) = {save_once, read_once, publish_once,
                                                        save_behind_once};
    const char *path = path_in(state, "c");
    needs_files();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (long n = 1;; n++) {
            must(save_once(path));
            failing_allocator_install(n, false);
            dcp_status status = calls[i](path);
            bool reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            if (!reached) {
                must(status);
                break;
            }
            /* what fails after the commit is logged */
            assert_true(status == DCP_ERR_NO_MEMORY || (status == DCP_OK && calls[i] != read_once));
            if (i < 2)
                expect_files(path, "a=text b=another");
        }
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_give_files_that_are_read_back),
        TEST(a_name_is_given_by_one_rank),
        TEST(names_that_checkpoints_use_are_refused),
        TEST(wrong_arguments_are_refused),
        TEST(files_of_a_larger_struct_are_taken),
        TEST(files_are_replaced_with_their_checkpoint),
        TEST(what_is_not_named_is_swept),
        TEST(a_reader_learns_that_the_checkpoint_was_replaced),
        TEST(removing_a_checkpoint_removes_its_files),
        TEST(plans_are_kept_whatever_files_there_are),
        TEST(asynchronous_saves_have_copies),
        TEST(retries_and_a_fallback_have_them),
        TEST(a_failed_save_leaves_none),
        TEST(a_place_that_cannot_be_is_fallen_back_from),
        TEST(ranks_by_themselves_have_their_own),
        TEST(a_union_has_those_of_its_members),
        TEST(a_writer_without_a_directory_cannot_take_them),
        TEST(publishing_adds_files),
        TEST(damage_is_found),
        TEST(lies_are_refused),
        TEST(a_name_that_is_there_twice_is_refused),
        TEST(metadata_lists_them),
        TEST(estimates_count_them),
        TEST(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
