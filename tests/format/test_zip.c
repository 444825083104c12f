/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/streams/stream.h"
#include "format/zip/zip.h"
#include "stream_part.h"
#include "zip_builder.h"

static const char pickle[] = "not looked at here, but long enough to be deflated, deflated";

static struct byte_source source_of(const struct zip_builder *builder)
{
    return byte_source_memory(builder->out.data, builder->out.size);
}

/* Opens the finished archive, reads all of its records, and expects a status and words. */
static void expect(struct byte_source source, dcp_status expected, const char *words)
{
    struct zip_archive archive;
    dcp_status status = zip_open(source, &archive);
    for (size_t i = 0; status == DCP_OK && i < archive.count; i++) {
        void *bytes = NULL;
        status = zip_read(&archive, &archive.records[i], 1 << 20, &bytes);
        memory_release(bytes);
    }
    zip_close(&archive);
    assert_int_equal(status, expected);
    if (words != NULL && strstr(dcp_error_message(), words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());
}

static void expect_built(struct zip_builder *builder, dcp_status expected, const char *words)
{
    zip_builder_finish(builder);
    expect(source_of(builder), expected, words);
    zip_builder_free(builder);
}

static void begin(struct zip_builder *builder)
{
    zip_builder_init(builder);
    zip_builder_add_container(builder, pickle, sizeof pickle);
}

static void test_archives_of_pytorch(void **state)
{
    (void)state;
    static const char *files[] = {"pt_plain_zip",   "pt_big_endian",   "pt_no_crc",
                                  "pt_objects",     "pt_protocol4",    "pt_state_dict",
                                  "torch_2.0.1_pt", "torch_2.15.0_pt", "torch_2.2.2_pt"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/ckpt.pt", files[i]);
        struct bytes file = fixture_file(path);
        struct byte_source source = byte_source_memory(file.data, file.size);
        expect(source, DCP_OK, NULL);
        struct zip_archive archive;
        assert_int_equal(zip_open(source, &archive), DCP_OK);
        assert_non_null(zip_find(&archive, "data.pkl"));
        assert_non_null(zip_find(&archive, "data/0"));
        assert_int_equal(archive.big_endian, strcmp(files[i], "pt_big_endian") == 0);
        zip_close(&archive);
        bytes_free(&file);
    }
}

static void test_finds_and_reads(void **state)
{
    (void)state;
    struct zip_builder builder;
    struct zip_archive archive;
    void *bytes = NULL;
    begin(&builder);
    zip_builder_add_deflated(&builder, "ARCHIVE/Data/0", pickle, sizeof pickle);
    zip_builder_add(&builder, "elsewhere/data/1", "x", 1);
    zip_builder_finish(&builder);
    buffer_append(&builder.out, "trailing bytes", 14);
    assert_int_equal(zip_open(source_of(&builder), &archive), DCP_OK);
    assert_int_equal(archive.count, 4);
    assert_null(zip_find(&archive, "data/1"));
    assert_null(zip_find(&archive, "archive/data/0"));
    const struct zip_record *record = zip_find(&archive, "DATA/0");
    assert_non_null(record);
    assert_true(record->deflated);
    assert_string_equal(record->name, "data/0");
    assert_int_equal(zip_read(&archive, record, sizeof pickle, &bytes), DCP_OK);
    assert_memory_equal(bytes, pickle, sizeof pickle);
    memory_release(bytes);
    assert_int_equal(zip_read(&archive, record, sizeof pickle - 1, &bytes), DCP_ERR_FORMAT);
    assert_null(bytes);
    zip_close(&archive);
    zip_builder_free(&builder);
}

static void test_zip64_fields(void **state)
{
    (void)state;
    struct zip_builder builder;
    begin(&builder);
    builder.zip64 = true;
    builder.records[1].zip64 = true;
    struct zip_builder_record *record = zip_builder_add(&builder, "archive/empty", "", 0);
    record->zip64 = true;
    record->disk = UINT16_MAX;
    expect_built(&builder, DCP_OK, NULL);
}

/* A directory that is larger than what is read at first. */
static void many_records(struct zip_builder *builder, char names[40][100])
{
    begin(builder);
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof names[i], "archive/%060d", i);
        zip_builder_add(builder, names[i], pickle, sizeof pickle);
    }
    zip_builder_finish(builder);
}

static void test_many_records(void **state)
{
    (void)state;
    struct zip_builder builder;
    struct zip_archive archive;
    char names[40][100];
    many_records(&builder, names);
    expect(source_of(&builder), DCP_OK, NULL);
    assert_int_equal(zip_open(source_of(&builder), &archive), DCP_OK);
    assert_int_equal(archive.count, 43);
    assert_ptr_equal(zip_find(&archive, names[39] + 8), &archive.records[42]);
    char too_long[ZIP_NAME_MAX + 2];
    memset(too_long, 'x', sizeof too_long);
    too_long[sizeof too_long - 1] = '\0';
    assert_null(zip_find(&archive, too_long));
    zip_close(&archive);
    zip_builder_free(&builder);
}

static dcp_status read_end_of_zeros(void *context, uint64_t offset, void *bytes, size_t size)
{
    memset(bytes, 0, size);
    if (offset == 0)
        memcpy(bytes, "PK\3\4", 4);
    else
        memcpy((char *)bytes + size - 22, context, 22);
    return DCP_OK;
}

static void test_huge_directory(void **state)
{
    (void)state;
    unsigned char end[22] = "PK\5\6\0\0\0\0\1\0\1\0";
    store_u32(end + 12, 0x40000000);
    struct byte_source source = {
        .read = read_end_of_zeros, .context = end, .size = 0x40000000 + sizeof end};
    expect(source, DCP_ERR_UNSUPPORTED, "directory of 1073741824 bytes");
}

static void test_lies_of_the_directory(void **state)
{
    (void)state;
    static const struct {
        size_t field;
        size_t width;
        uint64_t value;
        dcp_status status;
        const char *words;
    } cases[] = {
#define FIELD(name)                                                                                \
    offsetof(struct zip_builder_record, name), sizeof(((struct zip_builder_record *)NULL)->name)
        {FIELD(flags), 1, DCP_ERR_UNSUPPORTED, "encrypted"},
        {FIELD(flags), 0x2000, DCP_ERR_UNSUPPORTED, "flags 0x2000"},
        {FIELD(method), 93, DCP_ERR_UNSUPPORTED, "method 93"},
        {FIELD(method), 8, DCP_ERR_FORMAT, "method 0"},
        {FIELD(disk), 1, DCP_ERR_UNSUPPORTED, "several disks"},
        {FIELD(crc), 0xdeadbeef, DCP_ERR_CHECKSUM, "expected 0xdeadbeef"},
        {FIELD(crc), 0, DCP_OK, NULL},
        {FIELD(stored_size), 3, DCP_ERR_FORMAT, "bytes as 3"},
        {FIELD(size), 3, DCP_ERR_FORMAT, "3 bytes as 6"},
        {FIELD(header_offset), 5, DCP_ERR_FORMAT, "overlap"},
        {FIELD(header_offset), 1u << 30, DCP_ERR_FORMAT, "at 1073741824 are not inside"},
        {FIELD(header_offset), UINT32_MAX, DCP_ERR_FORMAT, "zip64"},
        {FIELD(name_length), 40000, DCP_ERR_FORMAT, "ends too early"},
        {FIELD(name_length), 3, DCP_ERR_FORMAT, "zip record 3 of 3"},
#undef FIELD
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct zip_builder builder;
        begin(&builder);
        memcpy((char *)&builder.records[1] + cases[i].field, &cases[i].value, cases[i].width);
        expect_built(&builder, cases[i].status, cases[i].words);
    }
}

static void test_zip64_lies(void **state)
{
    (void)state;
    static const struct {
        size_t field; /* of the record, whose sizes and position are in a zip64 field */
        uint64_t value;
    } cases[] = {{offsetof(struct zip_builder_record, header_offset), UINT64_MAX},
                 {offsetof(struct zip_builder_record, header_offset), UINT64_MAX - 40},
                 {offsetof(struct zip_builder_record, size), UINT64_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct zip_builder builder;
        begin(&builder);
        builder.records[1].zip64 = true;
        memcpy((char *)&builder.records[1] + cases[i].field, &cases[i].value, 8);
        expect_built(&builder, DCP_ERR_FORMAT, NULL);
    }
    struct zip_builder builder;
    begin(&builder);
    builder.records[1].zip64 = true;
    builder.records[1].stored_size = UINT64_MAX;
    builder.records[1].size = UINT64_MAX;
    expect_built(&builder, DCP_ERR_FORMAT, "are not inside");
}

/* Changes bytes of the end records: offset counts from the zip64 one, or from the plain one. */
static void test_lies_of_the_end(void **state)
{
    (void)state;
    static const struct {
        bool zip64;
        size_t offset;
        uint32_t value;
        dcp_status status;
        const char *words;
    } cases[] = {
        {false, 0, 0, DCP_ERR_FORMAT, "no end record"},
        {false, 4, 1, DCP_ERR_UNSUPPORTED, "several disks"},
        {false, 8, 0xea60ea60, DCP_ERR_FORMAT, "claims 60000 records"},
        {false, 8, 0x00020002, DCP_ERR_FORMAT, "behind the last of its 2 records"},
        {false, 8, 0x00040004, DCP_ERR_FORMAT, NULL},
        {false, 8, 0, DCP_ERR_FORMAT, "claims 0 records"},
        {false, 8, 0x00030002, DCP_ERR_UNSUPPORTED, "several disks"},
        {false, 12, 0x10000000, DCP_ERR_FORMAT, "runs into its end record"},
        {false, 16, 0x10000000, DCP_ERR_FORMAT, "runs into its end record"},
        {false, 16, 0, DCP_ERR_FORMAT, "zip record 1 of 3"},
        {true, 0, 0, DCP_ERR_FORMAT, "no zip64 end record"},
        {true, 16, 1, DCP_ERR_UNSUPPORTED, "several disks"},
        {true, 28, 1, DCP_ERR_UNSUPPORTED, "several disks"},
        {true, 36, 1, DCP_ERR_UNSUPPORTED, "several disks"},
        {true, 44, 1, DCP_ERR_FORMAT, "runs into its end record"},
        {true, 52, 1, DCP_ERR_FORMAT, "runs into its end record"},
        {true, 56 + 12, 1, DCP_ERR_FORMAT, "behind its locator"},
        {true, 56 + 16, 2, DCP_ERR_UNSUPPORTED, "several disks"},
        {true, 56 + 20 + 8, 0x00040003, DCP_ERR_FORMAT, "contradict"},
        {true, 56 + 20 + 12, 7, DCP_ERR_FORMAT, "contradict"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct zip_builder builder;
        begin(&builder);
        builder.zip64 = cases[i].zip64;
        zip_builder_finish(&builder);
        size_t end = cases[i].zip64 ? builder.end64_offset : builder.out.size - 22;
        store_u32(builder.out.data + end + cases[i].offset, cases[i].value);
        expect(source_of(&builder), cases[i].status, cases[i].words);
        zip_builder_free(&builder);
    }
}

static void test_names(void **state)
{
    (void)state;
    struct zip_builder builder;
    begin(&builder);
    zip_builder_add(&builder, "archive/VERSION", "3\n", 2);
    expect_built(&builder, DCP_ERR_FORMAT, "two records \"version\"");

    zip_builder_init(&builder);
    zip_builder_add(&builder, "data.pkl", pickle, sizeof pickle);
    expect_built(&builder, DCP_ERR_FORMAT, "is not in a directory");

    zip_builder_init(&builder);
    zip_builder_add(&builder, "/data.pkl", pickle, sizeof pickle);
    expect_built(&builder, DCP_ERR_FORMAT, "is not in a directory");

    begin(&builder);
    zip_builder_finish(&builder);
    builder.out.data[builder.directory_offset + 46 + 9] = '\0';
    expect(source_of(&builder), DCP_ERR_FORMAT, "NUL");
    zip_builder_free(&builder);
}

static void test_container(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *text;
        dcp_status status;
        const char *words;
    } cases[] = {
        {"a/version", "1", DCP_OK, NULL},
        {"a/version", "10\n", DCP_OK, NULL},
        {"a/version", "0", DCP_ERR_FORMAT, "is not a number"},
        {"a/version", "11\n", DCP_ERR_UNSUPPORTED, "container version 11"},
        {"a/version", "three", DCP_ERR_FORMAT, "is not a number"},
        {"a/version", "", DCP_ERR_FORMAT, "is not a number"},
        {"a/version", "3\n3", DCP_ERR_FORMAT, "is not a number"},
        {"a/version", "99999999999999999999", DCP_ERR_FORMAT, "is not a number"},
        {"a/version", "3                                ", DCP_ERR_FORMAT, "at most 31"},
        {"a/.data/version", "3", DCP_OK, NULL},
        {"a/other", "3", DCP_ERR_FORMAT, "no record \"version\""},
    };
    static const struct {
        const char *name;
        const char *text;
        dcp_status status;
        const char *words;
    } extras[] = {
        {"a/byteorder", "little", DCP_OK, NULL},
        {"a/byteorder", "big", DCP_OK, NULL},
        {"a/byteorder", "middle", DCP_ERR_FORMAT, "byteorder"},
        {"a/.storage_alignment", "4096", DCP_OK, NULL},
        {"a/.storage_alignment", "wide", DCP_ERR_FORMAT, ".storage_alignment"},
        {"a/constants.pkl", "x", DCP_ERR_UNSUPPORTED, "TorchScript"},
    };
    struct zip_builder builder;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        zip_builder_init(&builder);
        zip_builder_add(&builder, cases[i].name, cases[i].text, strlen(cases[i].text));
        expect_built(&builder, cases[i].status, cases[i].words);
    }
    for (size_t i = 0; i < sizeof extras / sizeof extras[0]; i++) {
        zip_builder_init(&builder);
        zip_builder_add(&builder, "a/version", "3", 1);
        zip_builder_add(&builder, extras[i].name, extras[i].text, strlen(extras[i].text));
        expect_built(&builder, extras[i].status, extras[i].words);
    }
}

static void test_local_headers(void **state)
{
    (void)state;
    static const struct {
        size_t offset;
        uint16_t value;
        const char *words;
    } cases[] = {
        {0, 0x4b51, "no local header"},
        {6, 1, "flags 0x0001"},
        {8, 8, "method 8"},
        {26, 60000, "runs into the central directory"},
        {28, 60000, "runs into the central directory"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct zip_builder builder;
        begin(&builder);
        zip_builder_finish(&builder);
        store_u16(builder.out.data + builder.records[1].header_offset + cases[i].offset,
                  cases[i].value);
        expect(source_of(&builder), DCP_ERR_FORMAT, cases[i].words);
        zip_builder_free(&builder);
    }
}

static void test_inflate(void **state)
{
    (void)state;
    struct zip_builder builder;
    zip_builder_init(&builder);
    const struct zip_builder_record *record =
        zip_builder_add_deflated(&builder, "", pickle, sizeof pickle);
    size_t size = (size_t)record->stored_size;
    unsigned char *stored = builder.out.data + builder.out.size - size;
    char bytes[sizeof pickle + 1];
    assert_int_equal(zip_inflate(stored, size, bytes, sizeof pickle), DCP_OK);
    assert_memory_equal(bytes, pickle, sizeof pickle);
    assert_int_equal(zip_inflate(stored, size, bytes, sizeof pickle - 1), DCP_ERR_FORMAT);
    assert_int_equal(zip_inflate(stored, size, bytes, sizeof pickle + 1), DCP_ERR_FORMAT);
    assert_int_equal(zip_inflate(stored, size - 1, bytes, sizeof pickle), DCP_ERR_FORMAT);
    buffer_append(&builder.out, "more", 4);
    stored = builder.out.data + builder.out.size - size - 4;
    assert_int_equal(zip_inflate(stored, size + 4, bytes, sizeof pickle), DCP_ERR_FORMAT);
    stored[0] |= 6; /* a block type that does not exist */
    assert_int_equal(zip_inflate(stored, size, bytes, sizeof pickle), DCP_ERR_FORMAT);
    zip_builder_free(&builder);

    assert_int_equal(zip_check_crc("r", 1, 1), DCP_OK);
    assert_int_equal(zip_check_crc("r", 0, 1), DCP_OK);
    assert_int_equal(zip_check_crc("r", 1, 0), DCP_ERR_CHECKSUM);
}

/* No prefix of an archive is one, and no changed bit makes reading go astray. */
static void test_cut_and_flipped(void **state)
{
    (void)state;
    struct zip_builder builder;
    begin(&builder);
    zip_builder_add_deflated(&builder, "archive/data/0", pickle, sizeof pickle);
    builder.records[1].zip64 = true;
    builder.zip64 = true;
    zip_builder_finish(&builder);
    for (size_t size = 0; size < builder.out.size; size++) {
        struct zip_archive archive;
        unsigned char *copy = malloc(size + 1);
        assert_non_null(copy);
        memcpy(copy, builder.out.data, size);
        assert_int_equal(zip_open(byte_source_memory(copy, size), &archive), DCP_ERR_FORMAT);
        free(copy);
    }
    for (size_t bit = 0; bit < builder.out.size * 8; bit++) {
        struct zip_archive archive;
        builder.out.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (zip_open(source_of(&builder), &archive) == DCP_OK) {
            for (size_t i = 0; i < archive.count; i++) {
                void *bytes = NULL;
                (void)zip_read(&archive, &archive.records[i], 4096, &bytes);
                memory_release(bytes);
            }
            zip_close(&archive);
        }
        builder.out.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    zip_builder_free(&builder);
}

/* Opens and reads one record with every allocation failing in turn; returns how many there are. */
static size_t fail_allocations(const struct zip_builder *builder, const char *name)
{
    for (size_t failed = 0;; failed++) {
        failing_allocator_install(failed);
        struct zip_archive archive;
        void *bytes = NULL;
        dcp_status status = zip_open(source_of(builder), &archive);
        if (status == DCP_OK)
            status = zip_read(&archive, zip_find(&archive, name), 4096, &bytes);
        memory_release(bytes);
        zip_close(&archive);
        failing_allocator_remove();
        if (status == DCP_OK)
            return failed;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    struct zip_builder builder;
    begin(&builder);
    zip_builder_add_deflated(&builder, "archive/data/0", pickle, sizeof pickle);
    zip_builder_add(&builder, "archive/data/1", pickle, sizeof pickle);
    zip_builder_finish(&builder);
    assert_true(fail_allocations(&builder, "data/0") >= 5);
    zip_builder_free(&builder);

    char names[40][100];
    many_records(&builder, names);
    assert_true(fail_allocations(&builder, "data.pkl") >= 5);
    zip_builder_free(&builder);
}

/* A record that says it holds more than its bytes can become takes no memory for it. */
static void test_deflated_lies(void **state)
{
    (void)state;
    struct zip_builder builder;
    struct zip_archive archive;
    void *bytes = NULL;
    begin(&builder);
    zip_builder_add_deflated(&builder, "archive/data/0", pickle, sizeof pickle)->size = 1 << 30;
    zip_builder_finish(&builder);
    assert_int_equal(zip_open(source_of(&builder), &archive), DCP_OK);
    const struct zip_record *record = zip_find(&archive, "data/0");
    failing_allocator_install(SIZE_MAX);
    assert_int_equal(zip_read(&archive, record, UINT64_MAX, &bytes), DCP_ERR_FORMAT);
    assert_int_equal(failing_allocator_remove(), 0);
    zip_close(&archive);
    zip_builder_free(&builder);
}

/* Bytes that are in memory are not copied; what has to be made of them is. */
static void test_look(void **state)
{
    (void)state;
    static const char *names[] = {"data.pkl", "data/0"};
    struct zip_builder builder;
    struct zip_archive archive;
    begin(&builder);
    zip_builder_add_deflated(&builder, "archive/data/0", pickle, sizeof pickle);
    zip_builder_finish(&builder);
    assert_int_equal(zip_open(source_of(&builder), &archive), DCP_OK);
    for (size_t i = 0; i < 2; i++) {
        const struct zip_record *record = zip_find(&archive, names[i]);
        const void *bytes = NULL;
        void *memory = NULL;
        uint64_t offset = 0;
        assert_non_null(record);
        assert_int_equal(zip_look(&archive, record, sizeof pickle, &bytes, &memory), DCP_OK);
        assert_memory_equal(bytes, pickle, sizeof pickle);
        assert_int_equal(zip_data_offset(&archive, record, &offset), DCP_OK);
        assert_ptr_equal(bytes, memory != NULL ? memory : builder.out.data + offset);
        assert_int_equal(memory != NULL, record->deflated);
        memory_release(memory);
        assert_int_equal(zip_look(&archive, record, sizeof pickle - 1, &bytes, &memory),
                         DCP_ERR_FORMAT);
        assert_null(memory);
    }
    const struct zip_record *record = zip_find(&archive, "data.pkl");
    const void *bytes = NULL;
    void *memory = NULL;
    assert_int_equal(zip_look(&archive, record, sizeof pickle, &bytes, &memory), DCP_OK);
    builder.out.data[(const unsigned char *)bytes - builder.out.data] ^= 1;
    assert_int_equal(zip_look(&archive, record, sizeof pickle, &bytes, &memory), DCP_ERR_CHECKSUM);
    assert_null(memory);
    zip_close(&archive);
    zip_builder_free(&builder);
}

struct counting {
    struct byte_source source;
    size_t reads;
};

static dcp_status count_read(void *context, uint64_t offset, void *bytes, size_t size)
{
    struct counting *counting = context;
    counting->reads++;
    return byte_source_read(&counting->source, offset, bytes, size);
}

static size_t reads_to_open(size_t data_size, const char *comment)
{
    struct zip_builder builder;
    struct zip_archive archive;
    uint64_t offset = 0;
    void *bytes = NULL;
    void *data = calloc(1, data_size + 1);
    assert_non_null(data);
    begin(&builder);
    zip_builder_add(&builder, "archive/data/0", data, data_size);
    zip_builder_finish(&builder);
    for (size_t i = 0; comment != NULL && i < 300; i++)
        buffer_append(&builder.out, comment, strlen(comment));
    struct counting counting = {.source = source_of(&builder)};
    struct byte_source source = {
        .read = count_read, .context = &counting, .size = builder.out.size};
    assert_int_equal(zip_open(source, &archive), DCP_OK);
    assert_int_equal(zip_read(&archive, zip_find(&archive, "data.pkl"), 4096, &bytes), DCP_OK);
    memory_release(bytes);
    /* The local header of the data lies behind the small records at the head. */
    assert_int_equal(zip_data_offset(&archive, zip_find(&archive, "data/0"), &offset), DCP_OK);
    zip_close(&archive);
    zip_builder_free(&builder);
    free(data);
    return counting.reads;
}

static void test_few_reads(void **state)
{
    (void)state;
    assert_int_equal(reads_to_open(10, NULL), 1);
    assert_int_equal(reads_to_open(3000, NULL), 1);
    assert_int_equal(reads_to_open(100000, NULL), 2);
    assert_int_equal(reads_to_open(100000, "trailing bytes"), 3);
}

static dcp_status read_descriptor(void *context, uint64_t offset, void *bytes, size_t size)
{
    assert_int_equal(pread(*(int *)context, bytes, size, (off_t)offset), size);
    return DCP_OK;
}

/* A stream of more than 4 GiB, in a file that has a hole for the data. */
static void test_large_stream(void **state)
{
    (void)state;
    char path[] = "large_stream_XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    unlink(path);
    const int64_t size = 0x100000001;
    struct stream_layout layout;
    struct buffer part;
    buffer_init(&part, 0);
    assert_int_equal(stream_tensor_layout(DCP_U8, 1, &size, &layout), DCP_OK);
    assert_int_equal(stream_part_head(&part, DCP_U8, 1, &size), DCP_OK);
    assert_int_equal(pwrite(descriptor, part.data, part.size, 0), part.size);
    buffer_clear(&part);
    assert_int_equal(stream_part_tail(&part, DCP_U8, 1, &size, 0x41d912ff), DCP_OK);
    assert_int_equal(
        pwrite(descriptor, part.data, part.size, (off_t)(layout.data_offset + layout.data_length)),
        part.size);
    buffer_free(&part);

    struct byte_source source = {
        .read = read_descriptor, .context = &descriptor, .size = layout.length};
    struct zip_archive archive;
    uint64_t offset = 0;
    assert_int_equal(zip_open(source, &archive), DCP_OK);
    const struct zip_record *record = zip_find(&archive, "data/0");
    assert_non_null(record);
    assert_int_equal(record->size, size);
    assert_int_equal(record->stored_size, size);
    assert_int_equal(record->crc, 0x41d912ff);
    assert_int_equal(zip_data_offset(&archive, record, &offset), DCP_OK);
    assert_int_equal(offset, layout.data_offset);
    record = zip_find(&archive, ".data/serialization_id");
    assert_non_null(record);
    assert_true(record->header_offset > UINT32_MAX);
    zip_close(&archive);
    close(descriptor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_archives_of_pytorch),
        cmocka_unit_test(test_finds_and_reads),
        cmocka_unit_test(test_zip64_fields),
        cmocka_unit_test(test_many_records),
        cmocka_unit_test(test_huge_directory),
        cmocka_unit_test(test_lies_of_the_directory),
        cmocka_unit_test(test_zip64_lies),
        cmocka_unit_test(test_lies_of_the_end),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_container),
        cmocka_unit_test(test_local_headers),
        cmocka_unit_test(test_inflate),
        cmocka_unit_test(test_cut_and_flipped),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_deflated_lies),
        cmocka_unit_test(test_look),
        cmocka_unit_test(test_few_reads),
        cmocka_unit_test(test_large_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
