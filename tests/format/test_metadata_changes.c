/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "failing_allocator.h"
#include "fixture.h"
#include "format/metadata/metadata_changes.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_trailer.h"

static const char first_id[] = "01234567-89ab-4cde-8f01-23456789abcd";
static const char other_id[] = "fedcba98-7654-4321-8fed-cba987654321";

static struct bytes metadata_bytes(void)
{
    return fixture_file("fsdp2_tp_w4/ckpt/.metadata");
}

static void decode(struct metadata *metadata)
{
    struct bytes bytes = metadata_bytes();
    assert_int_equal(metadata_decode(bytes.data, bytes.size, metadata), DCP_OK);
    metadata->save_id = first_id;
    bytes_free(&bytes);
}

static struct metadata_piece *last_piece(struct metadata *metadata)
{
    struct metadata_entry *entry = &metadata->entries[metadata->count - 1];
    return &entry->pieces[entry->piece_count - 1];
}

/* One change each; what has to come of it is what the pickle of the changed metadata says. */
enum change { CHANGE_ID, CHANGE_FILES, CHANGE_ALL_PLACES, CHANGE_LAST, CHANGE_ZSTD, CHANGES };

static const char *renamed[64];
static char names[64][32];

static void change(struct metadata *metadata, enum change which)
{
    switch (which) {
    case CHANGE_ID:
        metadata->save_id = other_id;
        break;
    case CHANGE_FILES: /* one more, too */
        assert_true(metadata->file_count < 63);
        for (size_t i = 0; i <= metadata->file_count; i++) {
            snprintf(names[i], sizeof names[i], "__%zu_0.g7.distcp", i);
            renamed[i] = names[i];
        }
        metadata->files = renamed;
        last_piece(metadata)->file = (uint32_t)metadata->file_count++;
        break;
    case CHANGE_ALL_PLACES:
        for (size_t i = 0; i < metadata->count; i++)
            for (size_t k = 0; k < metadata->entries[i].piece_count; k++)
                metadata->entries[i].pieces[k].offset += 100 + i;
        break;
    case CHANGE_LAST:
        last_piece(metadata)->length += 3;
        break;
    default:
        last_piece(metadata)->zstd = true;
    }
}

static void check_equal(const struct metadata *a, const struct metadata *b)
{
    struct buffer first, second;
    buffer_init(&first, 0);
    buffer_init(&second, 0);
    assert_int_equal(metadata_encode(a, &first), DCP_OK);
    assert_int_equal(metadata_encode(b, &second), DCP_OK);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    buffer_free(&first);
    buffer_free(&second);
}

static void changes_lead_from_one_to_the_other(void **state)
{
    (void)state;
    for (unsigned set = 0; set < 1u << CHANGES; set++) {
        struct metadata before, now;
        struct buffer changes;
        struct arena texts;
        bool reported, moved;
        decode(&before);
        decode(&now);
        for (int which = 0; which < CHANGES; which++)
            if ((set >> which & 1) != 0)
                change(&now, (enum change)which);
        buffer_init(&changes, 0);
        arena_init(&texts, 0);
        assert_true(metadata_structure_equal(&before, &now));
        assert_int_equal(metadata_changes_append(&before, &now, &changes, &reported), DCP_OK);
        assert_int_equal(
            metadata_changes_apply(changes.data, changes.size, &before, &texts, &moved), DCP_OK);
        assert_int_equal(reported, moved);
        if (set == 0 || set == 1u << CHANGE_ID)
            assert_false(moved);
        if ((set >> CHANGE_ALL_PLACES & 1) != 0)
            assert_true(moved);
        check_equal(&before, &now);
        buffer_free(&changes);
        metadata_free(&before);
        metadata_free(&now);
        arena_free(&texts);
    }
}

/* An object that grows where it is leaves the order of pieces as it was. */
static void lengths_of_objects_move_nothing(void **state)
{
    (void)state;
    struct metadata before, now;
    struct buffer changes;
    bool moved;
    decode(&before);
    decode(&now);
    size_t object = 0;
    while (object < now.count && now.entries[object].is_tensor)
        object++;
    assert_true(object < now.count);
    now.entries[object].pieces[0].length++;
    buffer_init(&changes, 0);
    assert_int_equal(metadata_changes_append(&before, &now, &changes, &moved), DCP_OK);
    assert_false(moved);
    now.entries[object].pieces[0].offset++;
    buffer_clear(&changes);
    assert_int_equal(metadata_changes_append(&before, &now, &changes, &moved), DCP_OK);
    assert_true(moved);
    buffer_free(&changes);
    metadata_free(&before);
    metadata_free(&now);
}

static void sees_another_structure(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++) {
        struct metadata a, b;
        decode(&a);
        decode(&b);
        size_t tensor = 0;
        while (!b.entries[tensor].is_tensor)
            tensor++;
        struct metadata_entry *entry = &b.entries[tensor];
        int64_t numbers[DCP_MAX_DIMS];
        memcpy(numbers, entry->global_shape, (size_t)entry->ndim * sizeof *numbers);
        numbers[0]++;
        switch (which) {
        case 0:
            b.count--;
            break;
        case 1:
            entry->name = "another";
            break;
        case 2:
            entry->dtype = DCP_BOOL;
            break;
        case 3:
            entry->global_shape = numbers;
            break;
        case 4:
            entry->requires_grad = !entry->requires_grad;
            break;
        case 5:
            entry->piece_count--;
            break;
        case 6:
            entry->pieces[0].offsets = numbers;
            break;
        default:
            entry->pieces[0].sizes = numbers;
        }
        assert_false(metadata_structure_equal(&a, &b));
        assert_false(metadata_structure_equal(&b, &a));
        metadata_free(&a);
        metadata_free(&b);
    }
}

static dcp_status apply(const void *bytes, size_t size)
{
    struct metadata metadata;
    struct arena texts;
    bool moved;
    decode(&metadata);
    arena_init(&texts, 0);
    dcp_status status = metadata_changes_apply(bytes, size, &metadata, &texts, &moved);
    metadata_free(&metadata);
    arena_free(&texts);
    return status;
}

static void all_changes(struct buffer *changes)
{
    struct metadata before, now;
    bool moved;
    decode(&before);
    decode(&now);
    change(&now, CHANGE_FILES);
    change(&now, CHANGE_ALL_PLACES);
    buffer_init(changes, 0);
    assert_int_equal(metadata_changes_append(&before, &now, changes, &moved), DCP_OK);
    metadata_free(&before);
    metadata_free(&now);
}

/* Cut, longer, and with each byte replaced: an error or other places, never anything worse. */
static void survives_any_message(void **state)
{
    (void)state;
    struct buffer changes;
    all_changes(&changes);
    for (size_t size = 0; size < changes.size; size++)
        assert_int_not_equal(apply(changes.data, size), DCP_OK);
    for (size_t at = 0; at < changes.size; at++) {
        static const unsigned char values[] = {0, 1, '/', 0x7f, 0x80, 0xff};
        unsigned char before = changes.data[at];
        for (size_t i = 0; i < sizeof values; i++) {
            changes.data[at] = values[i];
            dcp_status status = apply(changes.data, changes.size);
            assert_true(status == DCP_OK || status == DCP_ERR_GROUP || status == DCP_ERR_FORMAT);
        }
        changes.data[at] = before;
    }
    buffer_append_u8(&changes, 0);
    assert_int_equal(apply(changes.data, changes.size), DCP_ERR_GROUP);
    buffer_free(&changes);
}

static void expect_refusal(void (*spoil)(struct metadata *metadata))
{
    struct metadata before, now;
    struct buffer changes;
    bool moved;
    decode(&before);
    decode(&now);
    change(&now, CHANGE_FILES);
    spoil(&now);
    buffer_init(&changes, 0);
    assert_int_equal(metadata_changes_append(&before, &now, &changes, &moved), DCP_OK);
    assert_int_not_equal(apply(changes.data, changes.size), DCP_OK);
    buffer_free(&changes);
    metadata_free(&before);
    metadata_free(&now);
}

static void lead_outside(struct metadata *metadata)
{
    metadata->files[0] = "../secret";
}

static void drop_file(struct metadata *metadata)
{
    metadata->file_count = 1;
}

static void overflow(struct metadata *metadata)
{
    last_piece(metadata)->offset = INT64_MAX;
}

static void shorten(struct metadata *metadata)
{
    size_t tensor = 0;
    while (!metadata->entries[tensor].is_tensor)
        tensor++;
    metadata->entries[tensor].pieces[0].length = 1;
}

static void empty(struct metadata *metadata)
{
    last_piece(metadata)->length = 0;
}

static void refuses_places_that_are_none(void **state)
{
    (void)state;
    expect_refusal(lead_outside);
    expect_refusal(drop_file);
    expect_refusal(overflow);
    expect_refusal(shorten);
    expect_refusal(empty);
}

static void reports_every_failed_allocation(void **state)
{
    (void)state;
    struct buffer changes;
    all_changes(&changes);
    size_t asked = 1;
    for (size_t n = 0; n < asked; n++) {
        struct metadata metadata, now;
        struct buffer out;
        struct arena texts;
        bool moved;
        decode(&metadata);
        decode(&now);
        change(&now, CHANGE_ALL_PLACES);
        buffer_init(&out, 0);
        arena_init(&texts, 0);
        failing_allocator_install(n);
        dcp_status appended = metadata_changes_append(&metadata, &now, &out, &moved);
        dcp_status applied =
            metadata_changes_apply(changes.data, changes.size, &metadata, &texts, &moved);
        buffer_free(&out);
        arena_free(&texts);
        asked = failing_allocator_remove();
        if (n < asked)
            assert_true((appended == DCP_ERR_NO_MEMORY && applied == DCP_OK) ||
                        (appended == DCP_OK && applied == DCP_ERR_NO_MEMORY));
        metadata_free(&metadata);
        metadata_free(&now);
    }
    buffer_free(&changes);
}

/* ---- bytes that differ by the id ---- */

static void knows_bytes_that_differ_by_the_id(void **state)
{
    (void)state;
    struct metadata metadata;
    struct buffer before, now;
    char found[METADATA_ID_LENGTH + 1];
    decode(&metadata);
    buffer_init(&before, 0);
    buffer_init(&now, 0);
    assert_int_equal(metadata_encode(&metadata, &before), DCP_OK);
    metadata.save_id = other_id;
    assert_int_equal(metadata_encode(&metadata, &now), DCP_OK);
    size_t size = before.size;
    assert_int_equal(now.size, size);
    assert_true(metadata_bytes_differ_by_id(before.data, now.data, size, first_id, found));
    assert_string_equal(found, other_id);
    /* Not of this id, and not if anything else differs. */
    assert_false(metadata_bytes_differ_by_id(before.data, now.data, size, other_id, found));
    assert_false(metadata_bytes_differ_by_id(before.data, now.data, size, "", found));
    for (size_t at = 0; at < size; at++) {
        now.data[at] ^= 1;
        assert_false(metadata_bytes_differ_by_id(before.data, now.data, size, first_id, found));
        now.data[at] ^= 1;
    }
    /* Nor if the same string is there again. */
    buffer_append(&before, first_id, METADATA_ID_LENGTH);
    buffer_append(&now, first_id, METADATA_ID_LENGTH);
    assert_int_equal(metadata_trailer_append(&metadata, 0, &before), DCP_OK);
    assert_int_equal(metadata_trailer_append(&metadata, 0, &now), DCP_OK);
    assert_false(metadata_bytes_differ_by_id(before.data, now.data, before.size, first_id, found));
    buffer_free(&before);
    buffer_free(&now);
    metadata_free(&metadata);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_lead_from_one_to_the_other),
        cmocka_unit_test(lengths_of_objects_move_nothing),
        cmocka_unit_test(sees_another_structure),
        cmocka_unit_test(survives_any_message),
        cmocka_unit_test(refuses_places_that_are_none),
        cmocka_unit_test(reports_every_failed_allocation),
        cmocka_unit_test(knows_bytes_that_differ_by_the_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
