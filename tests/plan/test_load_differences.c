/* SPDX-License-Identifier: BSD-3-Clause */
/* Differences on their way between ranks, and what is made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "plan/load/load_differences.h"
#include "samples.h"

enum { NAMES = 12 };

/* Metadata with names alone. */
static void make_metadata(struct metadata *metadata, const char *const *names, size_t count)
{
    metadata_init(metadata);
    metadata->entries = arena_allocate_array(&metadata->arena, count, sizeof *metadata->entries);
    assert_non_null(metadata->entries);
    metadata->count = count;
    for (size_t i = 0; i < count; i++)
        metadata->entries[i] = (struct metadata_entry){.name = names[i]};
    assert_int_equal(metadata_index(metadata), DCP_OK);
}

static void add(struct load_differences *differences, dcp_difference difference, const char *name,
                const char *detail)
{
    assert_int_equal(
        differences_add(differences, difference, name, strlen(name), detail, strlen(detail)),
        DCP_OK);
}

/* Two ranks that want 12 names but one, disagree about one, and both miss two. */
static void make_ranks(struct load_differences ranks[2])
{
    for (int rank = 0; rank < 2; rank++) {
        struct load_differences *mine = &ranks[rank];
        assert_int_equal(differences_init(mine, NAMES, 0), DCP_OK);
        for (size_t i = 0; i < NAMES; i++)
            if (i % 2 == (size_t)rank && i != 3)
                differences_want(mine, i);
        add(mine, DCP_DIFFERENCE_MISSING, "z", "");
        add(mine, DCP_DIFFERENCE_CONVERTED, "n4", "float32 -> bfloat16");
        add(mine, DCP_DIFFERENCE_MISSING, "a", "");
    }
    assert_int_equal(
        differences_add_mismatch(&ranks[1], DCP_ERR_DTYPE, "n5", "stored int8, wanted bool"),
        DCP_OK);
    assert_int_equal(
        differences_add_mismatch(&ranks[1], DCP_ERR_SHAPE, "n7", "stored [1], wanted [2]"), DCP_OK);
}

static const char *const names[NAMES] = {"n0", "n1", "n2", "n3", "n4",  "n5",
                                         "n6", "n7", "n8", "n9", "n10", "n11"};

static void free_ranks(struct load_differences ranks[2])
{
    load_differences_free(&ranks[0]);
    load_differences_free(&ranks[1]);
}

static dcp_status decode_copy(const unsigned char *data, size_t size,
                              struct load_differences *differences)
{
    unsigned char *copy = malloc(size != 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    dcp_status status = load_differences_decode(copy, size, differences);
    free(copy);
    return status;
}

static void assert_same(const struct load_differences *a, const struct load_differences *b)
{
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->failure, b->failure);
    assert_int_equal(a->entry_count, b->entry_count);
    assert_memory_equal(a->wanted, b->wanted, (a->entry_count + 7) / 8);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->lines[i].difference, b->lines[i].difference);
        assert_string_equal(a->lines[i].name, b->lines[i].name);
        assert_string_equal(a->lines[i].detail, b->lines[i].detail);
    }
}

static void differences_survive_the_journey(void **state)
{
    (void)state;
    struct load_differences ranks[2], arrived;
    struct buffer bytes;
    make_ranks(ranks);
    for (int rank = 0; rank < 2; rank++) {
        buffer_init(&bytes, 0);
        assert_int_equal(load_differences_encode(&ranks[rank], &bytes), DCP_OK);
        assert_int_equal(decode_copy(bytes.data, bytes.size, &arrived), DCP_OK);
        assert_same(&arrived, &ranks[rank]);
        load_differences_free(&arrived);
        for (size_t size = 0; size < bytes.size; size++) {
            assert_int_equal(decode_copy(bytes.data, size, &arrived), DCP_ERR_FORMAT);
            load_differences_free(&arrived);
        }
        for (size_t i = 0; i < bytes.size * 256; i++) {
            unsigned char kept = bytes.data[i / 256];
            bytes.data[i / 256] = (unsigned char)i;
            dcp_status status = decode_copy(bytes.data, bytes.size, &arrived);
            assert_true(status == DCP_OK || status == DCP_ERR_FORMAT);
            load_differences_free(&arrived);
            bytes.data[i / 256] = kept;
        }
        buffer_free(&bytes);
    }
    free_ranks(ranks);
}

static void lies_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t size;
        unsigned char bytes[16];
        const char *message;
    } lies[] = {
        {6, {0x31, 52, 0, 0, 0, 0}, "bytes behind the end of the message"},
        {5, {0x31, 52, 0, 0, 0}, "the failure contradicts the differences"},
        {5, {0x31, 20, 0, 0, 0}, "the failure contradicts the differences"},
        {8, {0x31, 0, 0, 0, 1, 3, 0, 0}, "the failure contradicts the differences"},
        {8, {0x31, 0, 0, 0, 1, 5, 0, 0}, "a difference is of an unknown kind"},
        {9, {0x31, 0, 0, 0, 1, 0, 1, 0, 0}, "a text is not UTF-8, or contains NUL"},
        {10, {0x31, 0, 0, 0, 1, 0x80, 0, 0, 1, 0}, "a text is not UTF-8, or contains NUL"},
        {6, {0x31, 0, 3, 8, 0, 0}, "the bitmap of wanted entries has extra bits"},
        {4, {0x31, 0, 9, 0}, "the bitmap of wanted entries is too short"},
        {5, {0x31, 0, 0, 2, 0}, "the marks of used rules and patterns are too short"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct load_differences differences;
        assert_int_equal(decode_copy(lies[i].bytes, lies[i].size, &differences), DCP_ERR_FORMAT);
        if (strstr(dcp_error_message(), lies[i].message) == NULL)
            fail_msg("\"%s\" does not contain \"%s\"", dcp_error_message(), lies[i].message);
        load_differences_free(&differences);
    }
}

static void lines_are_united_and_sorted(void **state)
{
    (void)state;
    static const struct load_difference expected[] = {
        {DCP_DIFFERENCE_MISSING, "a", "", "a"},
        {DCP_DIFFERENCE_MISSING, "z", "", "z"},
        {DCP_DIFFERENCE_UNEXPECTED, "n3", "", "n3"},
        {DCP_DIFFERENCE_CONVERTED, "n4", "float32 -> bfloat16", "n4"},
        {DCP_DIFFERENCE_MISMATCHED, "n5", "stored int8, wanted bool on rank 1", "n5"},
        {DCP_DIFFERENCE_MISMATCHED, "n7", "stored [1], wanted [2] on rank 1", "n7"},
    };
    struct load_differences ranks[2], merged;
    struct metadata metadata;
    make_metadata(&metadata, names, NAMES);
    make_ranks(ranks);
    assert_int_equal(load_differences_merge(ranks, 2, &metadata, NULL, &merged), DCP_OK);
    assert_int_equal(merged.count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(merged.lines[i].difference, expected[i].difference);
        assert_string_equal(merged.lines[i].name, expected[i].name);
        assert_string_equal(merged.lines[i].detail, expected[i].detail);
    }
    assert_int_equal(merged.failure, DCP_ERR_DTYPE);
    assert_false(differences_is_wanted(&merged, 3));
    assert_true(differences_is_wanted(&merged, 11));
    load_differences_free(&merged);
    metadata.count--;
    assert_int_equal(load_differences_merge(ranks, 2, &metadata, NULL, &merged), DCP_ERR_FORMAT);
    assert_string_equal(dcp_error_message(),
                        "rank 0 finds 12 names in the checkpoint, but the coordinator finds 11: "
                        "all ranks must load the same checkpoint");
    load_differences_free(&merged);
    free_ranks(ranks);
    metadata_free(&metadata);
}

/* Two of three ranks want one thing, all of them another one. */
static void mismatches_name_their_ranks(void **state)
{
    (void)state;
    struct load_differences ranks[3], merged;
    struct metadata metadata;
    make_metadata(&metadata, names, NAMES);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(differences_init(&ranks[rank], NAMES, 0), DCP_OK);
        assert_int_equal(differences_add_mismatch(&ranks[rank], DCP_ERR_SHAPE, "n1", "everywhere"),
                         DCP_OK);
        if (rank != 1)
            assert_int_equal(
                differences_add_mismatch(&ranks[rank], DCP_ERR_SHAPE, "n2", "somewhere"), DCP_OK);
        for (size_t i = 0; i < NAMES; i++)
            differences_want(&ranks[rank], i);
    }
    assert_int_equal(load_differences_merge(ranks, 3, &metadata, NULL, &merged), DCP_OK);
    assert_int_equal(merged.count, 2);
    assert_string_equal(merged.lines[0].detail, "everywhere");
    assert_string_equal(merged.lines[1].detail, "somewhere on rank 0 and 1 more");
    load_differences_free(&merged);
    for (int rank = 0; rank < 3; rank++)
        load_differences_free(&ranks[rank]);
    metadata_free(&metadata);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct load_differences ranks[2];
    struct metadata metadata;
    make_metadata(&metadata, names, NAMES);
    make_ranks(ranks);
    for (long n = 1;; n++) {
        struct load_differences merged, arrived = {0};
        struct buffer bytes;
        buffer_init(&bytes, 0);
        failing_allocator_install(n, false);
        dcp_status status = load_differences_merge(ranks, 2, &metadata, NULL, &merged);
        if (status == DCP_OK)
            status = load_differences_encode(&merged, &bytes);
        if (status == DCP_OK)
            status = load_differences_decode(bytes.data, bytes.size, &arrived);
        load_differences_free(&arrived);
        load_differences_free(&merged);
        buffer_free(&bytes);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    free_ranks(ranks);
    metadata_free(&metadata);
}

static void expect_verdict(const struct load_differences *merged, const struct metadata *metadata,
                           dcp_strictness strictness, dcp_status expected, const char *message)
{
    assert_int_equal(load_differences_judge(merged, strictness, false, metadata), expected);
    if (expected != DCP_OK)
        assert_string_equal(dcp_error_message(), message);
}

static void strictness_decides(void **state)
{
    (void)state;
    static const char *const stored[] = {"model.w1", "model.w2"};
    static const char missing[] =
        "1 name not in the checkpoint: \"model.w\" (did you mean \"model.w1\"?)";
    struct load_differences mine, merged;
    struct metadata metadata;
    make_metadata(&metadata, stored, 2);
    assert_int_equal(differences_init(&mine, 2, 0), DCP_OK);
    differences_want(&mine, 1);
    assert_int_equal(load_differences_merge(&mine, 1, &metadata, NULL, &merged), DCP_OK);
    expect_verdict(&merged, &metadata, DCP_STRICT_MISSING, DCP_OK, "");
    expect_verdict(&merged, &metadata, DCP_STRICT_PARTIAL, DCP_OK, "");
    expect_verdict(&merged, &metadata, DCP_STRICT_RAISE_ALL, DCP_ERR_UNEXPECTED_KEY,
                   "1 name in the checkpoint, but not wanted: \"model.w1\"");
    load_differences_free(&merged);

    add(&mine, DCP_DIFFERENCE_MISSING, "model.w", "");
    add(&mine, DCP_DIFFERENCE_CONVERTED, "model.w2", "float32 -> bfloat16");
    assert_int_equal(load_differences_merge(&mine, 1, &metadata, NULL, &merged), DCP_OK);
    expect_verdict(&merged, &metadata, DCP_STRICT_PARTIAL, DCP_OK, "");
    expect_verdict(&merged, &metadata, DCP_STRICT_MISSING, DCP_ERR_MISSING_KEY, missing);
    expect_verdict(&merged, &metadata, DCP_STRICT_RAISE_ALL, DCP_ERR_MISSING_KEY, missing);
    load_differences_free(&merged);

    differences_add_mismatch(&mine, DCP_ERR_SHAPE, "model.w2", "stored [1], wanted [2]");
    assert_int_equal(load_differences_merge(&mine, 1, &metadata, NULL, &merged), DCP_OK);
    expect_verdict(&merged, &metadata, DCP_STRICT_PARTIAL, DCP_ERR_SHAPE,
                   "1 name in the checkpoint does not fit: \"model.w2\" (stored [1], wanted [2])");
    load_differences_free(&merged);
    load_differences_free(&mine);
    metadata_free(&metadata);
}

static void messages_are_short(void **state)
{
    (void)state;
    struct load_differences merged;
    struct metadata metadata;
    char longest[2000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    make_metadata(&metadata, names, 0);
    assert_int_equal(differences_init(&merged, 0, 0), DCP_OK);
    for (size_t i = 0; i < NAMES; i++)
        add(&merged, DCP_DIFFERENCE_MISSING, names[i], i == 0 ? "why" : "");
    expect_verdict(&merged, &metadata, DCP_STRICT_MISSING, DCP_ERR_MISSING_KEY,
                   "12 names not in the checkpoint: \"n0\" (why), \"n1\", \"n2\", \"n3\", \"n4\", "
                   "and 7 more");
    load_differences_free(&merged);
    assert_int_equal(differences_init(&merged, 0, 0), DCP_OK);
    for (int i = 0; i < 3; i++)
        add(&merged, DCP_DIFFERENCE_MISSING, longest, "");
    assert_int_equal(load_differences_judge(&merged, DCP_STRICT_MISSING, false, &metadata),
                     DCP_ERR_MISSING_KEY);
    const char *message = dcp_error_message();
    assert_string_equal(message + strlen(message) - 4, "x...");
    load_differences_free(&merged);
    metadata_free(&metadata);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences_survive_the_journey),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(lines_are_united_and_sorted),
        cmocka_unit_test(mismatches_name_their_ranks),
        cmocka_unit_test(memory_may_run_out_anywhere),
        cmocka_unit_test(strictness_decides),
        cmocka_unit_test(messages_are_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
