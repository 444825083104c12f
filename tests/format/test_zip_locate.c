/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the data of all records begins: found by few reads, of which the source is told many at a
 * time, and a wrong header is the fault of its record alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "failing_allocator.h"
#include "format/zip/zip.h"
#include "zip_builder.h"

enum { SMALL = 40, LARGE = 5, SMALL_BYTES = 3000, LARGE_BYTES = 30000 };

/* A source that counts. */
struct watched {
    const struct zip_builder *builder;
    int reads;
    uint64_t bytes;
    size_t together;    /* ranges that it was told of at a time, at most */
    dcp_status failure; /* of reads */
};

static dcp_status read_watched(void *context, uint64_t offset, void *bytes, size_t size)
{
    struct watched *watched = context;
    watched->reads++;
    watched->bytes += size;
    assert_true(offset <= watched->builder->out.size &&
                size <= watched->builder->out.size - offset);
    if (watched->failure != DCP_OK)
        return dcp_error_set(watched->failure, "as the test wants");
    memcpy(bytes, watched->builder->out.data + offset, size);
    return DCP_OK;
}

static dcp_status read_several(void *context, const struct byte_range *ranges, size_t count,
                               unsigned char *room, byte_range_visitor visit, void *visiting)
{
    struct watched *watched = context;
    dcp_status status = DCP_OK;
    watched->together = count > watched->together ? count : watched->together;
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        status = read_watched(watched, ranges[i].offset, room, ranges[i].size);
        status = visit(visiting, i, status == DCP_OK ? room : NULL, status);
    }
    return status;
}

static struct byte_source source_of(struct watched *watched)
{
    return (struct byte_source){.read = read_watched,
                                .read_ranges = read_several,
                                .context = watched,
                                .size = watched->builder->out.size};
}

/* Small records, then large ones. */
static void build(struct zip_builder *builder)
{
    static char names[SMALL + LARGE][32];
    static const unsigned char bytes[LARGE_BYTES];
    zip_builder_init(builder);
    zip_builder_add_container(builder, "\x80\x02}.", 4);
    for (int i = 0; i < SMALL + LARGE; i++) {
        snprintf(names[i], sizeof names[i], "archive/data/%d", i);
        zip_builder_add(builder, names[i], bytes, i < SMALL ? SMALL_BYTES : LARGE_BYTES);
    }
    zip_builder_finish(builder);
}

static void open_built(struct zip_builder *builder, struct watched *watched,
                       struct zip_archive *archive)
{
    *watched = (struct watched){.builder = builder};
    assert_int_equal(zip_open(source_of(watched), archive), DCP_OK);
}

static void expect_offset(const struct zip_archive *archive, const struct zip_builder *builder,
                          size_t index)
{
    uint64_t offset;
    const struct zip_builder_record *built = &builder->records[index];
    assert_int_equal(zip_data_offset(archive, &archive->records[index], &offset), DCP_OK);
    assert_int_equal(offset, built->header_offset + 30 + built->name_length);
}

static void headers_are_read_together(void **state)
{
    (void)state;
    struct zip_builder builder;
    struct zip_archive archive;
    build(&builder);
    struct watched watched;
    open_built(&builder, &watched, &archive);
    watched.reads = 0;
    watched.bytes = 0;
    assert_int_equal(zip_locate(&archive), DCP_OK);
    /* Those of small ones, and the first of large ones, in two reads, and each other by itself. */
    assert_int_equal(watched.together, LARGE + 1);
    assert_int_equal(watched.reads, LARGE + 1);
    assert_in_range(watched.bytes, (SMALL - 1) * SMALL_BYTES, SMALL * (SMALL_BYTES + 100));
    for (size_t i = 0; i < archive.count; i++)
        expect_offset(&archive, &builder, i);
    assert_int_equal(watched.reads, LARGE + 1); /* no more */
    zip_close(&archive);
    zip_builder_free(&builder);
}

/* Whatever the directory's order is. */
static void records_in_another_order_are_found(void **state)
{
    (void)state;
    struct zip_builder builder;
    struct zip_archive archive;
    build(&builder);
    struct watched watched;
    open_built(&builder, &watched, &archive);
    struct zip_record first = archive.records[5];
    struct zip_builder_record built = builder.records[5];
    archive.records[5] = archive.records[SMALL];
    archive.records[SMALL] = first;
    builder.records[5] = builder.records[SMALL];
    builder.records[SMALL] = built;
    assert_int_equal(zip_locate(&archive), DCP_OK);
    int reads = watched.reads;
    for (size_t i = 0; i < archive.count; i++)
        expect_offset(&archive, &builder, i);
    assert_int_equal(watched.reads, reads);
    zip_close(&archive);
    zip_builder_free(&builder);
}

static void a_wrong_header_fails_its_record(void **state)
{
    (void)state;
    enum { WRONG = 7 };
    struct zip_builder builder;
    struct zip_archive archive;
    uint64_t offset;
    build(&builder);
    struct watched watched;
    builder.out.data[builder.records[WRONG].header_offset] = 'X';
    open_built(&builder, &watched, &archive);
    assert_int_equal(zip_locate(&archive), DCP_OK);
    assert_string_equal(dcp_error_message(), "");
    for (size_t i = 0; i < archive.count; i++)
        if (i != WRONG)
            expect_offset(&archive, &builder, i);
    assert_int_equal(zip_data_offset(&archive, &archive.records[WRONG], &offset), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "no local header"));
    zip_close(&archive);
    zip_builder_free(&builder);
}

/* What cannot be read now may be read later; what is our own failure ends it. */
static void failures(void **state)
{
    (void)state;
    struct zip_builder builder;
    struct zip_archive archive;
    build(&builder);
    struct watched watched;
    open_built(&builder, &watched, &archive);
    watched.failure = DCP_ERR_IO;
    assert_int_equal(zip_locate(&archive), DCP_OK);
    watched.failure = DCP_ERR_NO_MEMORY;
    assert_int_equal(zip_locate(&archive), DCP_ERR_NO_MEMORY);
    watched.failure = DCP_OK;
    for (size_t i = 0; i < archive.count; i++)
        expect_offset(&archive, &builder, i);
    failing_allocator_install(0);
    assert_int_equal(zip_locate(&archive), DCP_ERR_NO_MEMORY);
    failing_allocator_remove();
    zip_close(&archive);
    zip_builder_free(&builder);
}

/* Which the directory has behind the end of the file. */
static void a_header_that_is_not_there_fails_its_record(void **state)
{
    (void)state;
    enum { WRONG = SMALL + 2 };
    struct zip_builder builder;
    struct zip_archive archive;
    struct watched watched;
    uint64_t offset;
    build(&builder);
    open_built(&builder, &watched, &archive);
    archive.records[WRONG].header_offset = builder.out.size - 5;
    assert_int_equal(zip_locate(&archive), DCP_OK);
    for (size_t i = 0; i < archive.count; i++)
        if (i != WRONG)
            expect_offset(&archive, &builder, i);
    assert_int_equal(zip_data_offset(&archive, &archive.records[WRONG], &offset), DCP_ERR_FORMAT);
    zip_close(&archive);
    zip_builder_free(&builder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_read_together),
        cmocka_unit_test(records_in_another_order_are_found),
        cmocka_unit_test(a_wrong_header_fails_its_record),
        cmocka_unit_test(a_header_that_is_not_there_fails_its_record),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
