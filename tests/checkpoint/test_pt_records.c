/* SPDX-License-Identifier: BSD-3-Clause */
/* A .pt file whose records are small: when it is checked, neighbours are read at once, around the
 * page cache, by several threads, and whatever is wrong with one of them is found and named; when
 * parts of them are loaded, each is read once to be checked, by one rank or by several together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ranks.h"
#include "dcp.h"
#include "fault/simulated_file_system.h"
#include "fault/transfer_watch.h"
#include "format/zip_builder.h"
#include "storage/files/files.h"
#include "verify_scene.h"

enum { TENSORS = 50, BYTES = 700000, FEW_BYTES = 3000, NAME_SIZE = 32 };

#define ALL ((uint64_t)TENSORS * BYTES)
/* A record between those of tensors that no tensor refers to, and that is not read at once with
 * them. */
#define APART ((size_t)100000)

static char names[TENSORS][NAME_SIZE];
static uint64_t places[TENSORS]; /* of the tensors' data */

#define PUT(pickle, text) buffer_append(pickle, text, sizeof(text) - 1)

/* A dict of tensors of so many bytes, as torch.save writes it. */
static void write_pickle(struct buffer *pickle, uint32_t bytes)
{
    PUT(pickle, "\x80\x02}(");
    for (int i = 0; i < TENSORS; i++) {
        char key[8];
        snprintf(key, sizeof key, "%02d", i);
        PUT(pickle, "X\2\0\0\0");
        buffer_append(pickle, key, 2);
        PUT(pickle, "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage");
        PUT(pickle, "ctorch\nByteStorage\nX\2\0\0\0");
        buffer_append(pickle, key, 2);
        PUT(pickle, "X\3\0\0\0cpuJ");
        buffer_append_u32(pickle, bytes);
        PUT(pickle, "tQK\0J");
        buffer_append_u32(pickle, bytes);
        PUT(pickle, "\x85K\1\x85\x89");
        PUT(pickle, "ccollections\nOrderedDict\n)RtR");
    }
    PUT(pickle, "u.");
}

static struct simulated_file_system *disk_with(uint32_t size)
{
    struct simulated_file_system *fs = simulated_new();
    struct zip_builder builder;
    struct buffer pickle;
    unsigned char *bytes = malloc(BYTES);
    assert_non_null(bytes);
    buffer_init(&pickle, 0);
    write_pickle(&pickle, size);
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle.data, pickle.size);
    for (int i = 0; i < TENSORS; i++) {
        for (int b = 0; b < BYTES; b++)
            bytes[b] = (unsigned char)(b % (200 + i));
        if (i == TENSORS / 2)
            zip_builder_add(&builder, "archive/note", bytes, APART);
        snprintf(names[i], sizeof names[i], "archive/data/%02d", i);
        zip_builder_add(&builder, names[i], bytes, size);
        places[i] = builder.out.size - size;
    }
    zip_builder_finish(&builder);
    verify_scene_put(fs, builder.out.data, builder.out.size);
    zip_builder_free(&builder);
    buffer_free(&pickle);
    free(bytes);
    return fs;
}

static struct simulated_file_system *disk_with_file(void)
{
    return disk_with(BYTES);
}

static void records_go_around_the_page_cache_once(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    const dcp_open_options options = {.storage = &storage};
    uint64_t faults;
    assert_int_equal(dcp_verify(VERIFY_SCENE, &options, NULL, NULL, &faults), DCP_OK);
    assert_int_equal(faults, 0);
    struct transfer_count direct = transfer_watch_count(true), others = transfer_watch_count(false);
    /* The simulated page cache has every other group of 8 MiB. Of the rest, headers on opening and
     * once more, and all records together. */
    assert_int_equal(direct.largest, 2 << 20);
    assert_in_range(direct.count, TENSORS / 2 + ALL / 3 / direct.largest,
                    TENSORS + ALL / 2 / direct.largest + 2);
    assert_in_range(others.count, TENSORS, 2 * TENSORS);
    assert_true(transfer_watch_announced() <= 65536);
    simulated_free(fs);
}

static void headers_are_read_ahead_on_opening(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    const dcp_open_options options = {.storage = &storage};
    dcp_checkpoint *checkpoint;
    assert_int_equal(dcp_checkpoint_open(VERIFY_SCENE, &options, &checkpoint), DCP_OK);
    dcp_checkpoint_close(checkpoint);
    assert_in_range(transfer_watch_count(true).count, TENSORS / 3, TENSORS);
    assert_in_range(transfer_watch_at_once(), 4, TENSORS);
    simulated_free(fs);
}

/* On opening, and when the records are checked. */
static void headers_that_are_near_are_read_together(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with(FEW_BYTES);
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    const dcp_open_options options = {.storage = &storage};
    uint64_t faults;
    assert_int_equal(dcp_verify(VERIFY_SCENE, &options, NULL, NULL, &faults), DCP_OK);
    assert_int_equal(faults, 0);
    assert_in_range(transfer_watch_count(false).count, 1, TENSORS - 1);
    simulated_free(fs);
}

/* Loads one half of each tensor. */
static dcp_status load_halves(int half, const dcp_load_options *options)
{
    enum { HALF = BYTES / 2 };
    unsigned char *halves = calloc(TENSORS, HALF);
    dcp_state *root = dcp_state_new();
    assert_non_null(halves);
    for (int i = 0; i < TENSORS; i++) {
        char name[8];
        const dcp_tensor tensor = {.dtype = DCP_U8,
                                   .ndim = 1,
                                   .global_shape = {BYTES},
                                   .sharded = true,
                                   .offsets = {half * HALF},
                                   .sizes = {HALF},
                                   .data = halves + (size_t)i * HALF};
        snprintf(name, sizeof name, "%02d", i);
        assert_non_null(dcp_state_tensor(root, name, &tensor));
    }
    dcp_status status = dcp_load(root, VERIFY_SCENE, options, NULL);
    dcp_state_free(root);
    for (int i = 0; i < TENSORS && status == DCP_OK; i++)
        for (int b = 0; b < HALF; b++)
            if (halves[(size_t)i * HALF + (size_t)b] != (half * HALF + b) % (200 + i))
                fail_msg("element %d of tensor %d is wrong", b, i);
    free(halves);
    return status;
}

static void records_of_which_parts_are_wanted_are_read_once(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {.storage = &storage, .thread_count = 1, .figures = &figures};
    assert_int_equal(load_halves(1, &options), DCP_OK);
    assert_int_equal(figures.bytes_unchecked, 0);
    assert_in_range(figures.bytes_read, ALL, ALL + ALL / 20);
    assert_true(transfer_watch_count(true).count > 0);
    verify_scene_damage(fs, VERIFY_SCENE, places[7] + 1); /* in the other half */
    assert_int_equal(load_halves(1, &options), DCP_ERR_CHECKSUM);
    assert_non_null(strstr(dcp_error_message(), "07"));
    simulated_free(fs);
}

/* A load within a limit does not read headers ahead: what it needs at least is not more for that.
 */
static void the_smallest_limit_is_that_of_a_limited_load(void **state)
{
    (void)state;
    static const char before[] = "sufficient limit is ";
    struct simulated_file_system *fs = disk_with_file();
    dcp_load_options options = {.storage = simulated_storage(fs), .memory_limit = 1};
    assert_int_equal(load_halves(0, &options), DCP_ERR_NO_MEMORY);
    const char *smallest = strstr(dcp_error_message(), before);
    assert_non_null(smallest);
    options.memory_limit = strtoull(smallest + strlen(before), NULL, 10);
    assert_in_range(options.memory_limit, 1, 8 << 20);
    assert_int_equal(load_halves(0, &options), DCP_OK);
    simulated_free(fs);
}

static dcp_status load_unchecked(struct rank *self)
{
    dcp_load_options options = *(const dcp_load_options *)self->context;
    options.group = self->group;
    return load_halves(self->rank, &options);
}

/* What no other rank reads need not come into the page cache. */
static void ranks_read_their_parts_around_the_page_cache(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    dcp_load_options options = {
        .storage = &storage, .thread_count = 1, .verification = DCP_VERIFY_NONE};
    ranks_must(2, VERIFY_SCENE, load_unchecked, &options);
    assert_true(transfer_watch_count(true).count > 0);
    simulated_free(fs);
}

/* context: of each rank its storage. */
static dcp_status load_checked(struct rank *self)
{
    const dcp_storage *const *storages = self->context;
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {.storage = storages[self->rank],
                                      .group = self->group,
                                      .reading = DCP_READING_DIRECT,
                                      .thread_count = 1,
                                      .figures = &figures};
    dcp_status status = load_halves(self->rank % 2, &options);
    if (status == DCP_OK) {
        assert_int_equal(figures.bytes_unchecked, 0);
        assert_in_range(figures.bytes_read, ALL / 2, ALL / 2 + ALL / 20);
    }
    return status;
}

static void expect_damage(const struct rank *ranks, int count, const char *text)
{
    for (int r = 0; r < count; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_CHECKSUM);
        assert_non_null(strstr(ranks[r].message, "07"));
        assert_non_null(strstr(ranks[r].message, text));
    }
}

/* Each reads its half alone, around the page cache, and either half is checked. */
static void ranks_check_records_together(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    const dcp_storage storage = files_storage(transfer_watch(simulated_ops(fs)));
    const dcp_storage *storages[] = {&storage, &storage};
    struct rank ranks[RANKS_MAX];
    ranks_must(2, VERIFY_SCENE, load_checked, storages);
    assert_true(transfer_watch_count(true).count > TENSORS); /* more than headers */
    for (int half = 0; half < 2; half++) {
        uint64_t place = places[7] + 1 + (uint64_t)half * (BYTES / 2);
        verify_scene_damage(fs, VERIFY_SCENE, place);
        ranks_run(ranks, 2, VERIFY_SCENE, load_checked, storages);
        verify_scene_damage(fs, VERIFY_SCENE, place);
        expect_damage(ranks, 2, "CRC-32");
    }
    simulated_free(fs);
}

/* Ranks that read the same part may find different bytes, each on its machine. */
static void each_that_reads_a_part_is_checked(void **state)
{
    (void)state;
    struct simulated_file_system *one = disk_with_file(), *other = disk_with_file();
    const dcp_storage *storages[] = {simulated_storage(one), simulated_storage(one),
                                     simulated_storage(other), simulated_storage(other)};
    struct rank ranks[RANKS_MAX];
    ranks_must(4, VERIFY_SCENE, load_checked, storages);
    verify_scene_damage(other, VERIFY_SCENE, places[7] + BYTES - 1);
    ranks_run(ranks, 4, VERIFY_SCENE, load_checked, storages);
    expect_damage(ranks, 4, "ranks 1 and 3 read the same part");
    simulated_free(one);
    simulated_free(other);
}

static dcp_status load_everything(struct rank *self)
{
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {.storage = simulated_storage(self->context),
                                      .group = self->group,
                                      .thread_count = 1,
                                      .figures = &figures};
    unsigned char *bytes = calloc(TENSORS, BYTES);
    dcp_state *root = dcp_state_new();
    assert_non_null(bytes);
    for (int i = 0; i < TENSORS; i++) {
        char name[8];
        const dcp_tensor tensor = {
            .dtype = DCP_U8, .ndim = 1, .global_shape = {BYTES}, .data = bytes + (size_t)i * BYTES};
        snprintf(name, sizeof name, "%02d", i);
        assert_non_null(dcp_state_tensor(root, name, &tensor));
    }
    dcp_status status = dcp_load(root, VERIFY_SCENE, &options, NULL);
    for (int i = 0; i < TENSORS && status == DCP_OK; i++)
        for (int b = 0; b < BYTES; b += 999)
            assert_int_equal(bytes[(size_t)i * BYTES + (size_t)b], b % (200 + i));
    if (status == DCP_OK)
        assert_in_range(figures.bytes_read, ALL / 8, ALL / 2);
    dcp_state_free(root);
    free(bytes);
    return status;
}

/* What the page cache lacks is read by one of them. */
static void ranks_read_records_for_each_other(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    ranks_must(4, VERIFY_SCENE, load_everything, fs);
    simulated_free(fs);
}

struct found {
    bool tensors[TENSORS];
    bool note;
};

static void note_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    struct found *found = context;
    const char *record = strstr(fault, "\"data/");
    assert_string_equal(file, "scene");
    assert_string_equal(name, "");
    assert_non_null(strstr(fault, "CRC-32"));
    found->note = found->note || strstr(fault, "\"note\"");
    if (!record)
        return;
    long tensor = strtol(record + strlen("\"data/"), NULL, 10);
    assert_in_range(tensor, 0, TENSORS - 1);
    assert_false(found->tensors[tensor]);
    found->tensors[tensor] = true;
    assert_true(offset < places[tensor] && places[tensor] - offset < 100);
}

static void each_damaged_record_is_named(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    const dcp_open_options options = {.storage = simulated_storage(fs)};
    struct found found = {0};
    uint64_t faults;
    for (int i = 0; i < TENSORS; i += 3)
        verify_scene_damage(fs, VERIFY_SCENE, places[i] + (i % 2 == 0 ? 0 : BYTES - 1));
    verify_scene_damage(fs, VERIFY_SCENE, places[TENSORS / 2] - 1000);
    assert_int_equal(dcp_verify(VERIFY_SCENE, &options, note_fault, &found, &faults), DCP_OK);
    for (int i = 0; i < TENSORS; i++)
        assert_int_equal(found.tensors[i], i % 3 == 0);
    assert_true(found.note);
    assert_int_equal(faults, (TENSORS + 2) / 3 + 1);
    simulated_free(fs);
}

static void what_cannot_be_read_is_a_fault(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    dcp_storage storages[2] = {*simulated_storage(fs), *simulated_storage(fs)};
    verify_scene_make_costly(&storages[1]);
    for (size_t i = 0; i < 2; i++)
        verify_scene_fail_each(fs, &storages[i], true);
    simulated_free(fs);
}

static void missing_memory_is_an_error(void **state)
{
    (void)state;
    struct simulated_file_system *fs = disk_with_file();
    verify_scene_fail_each_allocation(simulated_storage(fs));
    simulated_free(fs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_go_around_the_page_cache_once),
        cmocka_unit_test(headers_are_read_ahead_on_opening),
        cmocka_unit_test(headers_that_are_near_are_read_together),
        cmocka_unit_test(records_of_which_parts_are_wanted_are_read_once),
        cmocka_unit_test(the_smallest_limit_is_that_of_a_limited_load),
        cmocka_unit_test(ranks_read_their_parts_around_the_page_cache),
        cmocka_unit_test(ranks_check_records_together),
        cmocka_unit_test(each_that_reads_a_part_is_checked),
        cmocka_unit_test(ranks_read_records_for_each_other),
        cmocka_unit_test(each_damaged_record_is_named),
        cmocka_unit_test(what_cannot_be_read_is_a_fault),
        cmocka_unit_test(missing_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
