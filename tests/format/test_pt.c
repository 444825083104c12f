/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/metadata/metadata_codec.h"
#include "format/pickle/pickle.h"
#include "format/zip/zip.h"
#include "state/copy.h"
#include "state/node.h"
#include "tagged.h"
#include "zip_builder.h"

/* ---- what PyTorch wrote ---- */

static void assert_path(const struct metadata_entry *entry, const cJSON *path)
{
    assert_int_equal(entry->path_length, cJSON_GetArraySize(path));
    for (size_t i = 0; i < entry->path_length; i++) {
        const cJSON *part = cJSON_GetArrayItem(path, (int)i);
        if (cJSON_IsString(part)) {
            assert_string_equal(entry->path[i].key, part->valuestring);
        } else {
            assert_null(entry->path[i].key);
            assert_int_equal(entry->path[i].position, part->valueint);
        }
    }
}

/* Conjugates complex64: the only flagged tensors that the fixtures have. */
static void conjugate(const struct tensor_view *view, float *elements, size_t size)
{
    assert_int_equal(view->dtype, DCP_C64);
    for (size_t i = 1; i < size / sizeof *elements; i += 2)
        elements[i] = -elements[i];
}

static void assert_tensor(const struct metadata_entry *entry, const struct bytes *file,
                          const struct bytes *expected)
{
    const struct tensor_view *view = entry->pieces->view;
    size_t element_size = dcp_dtype_size(view->dtype);
    unsigned char *storage = malloc((size_t)view->storage_bytes + 1);
    unsigned char *elements = malloc(expected->size + 1);
    assert_non_null(storage);
    assert_non_null(elements);
    assert_true(view->data_offset + view->data_length <= file->size);
    if (view->deflated)
        assert_int_equal(zip_inflate(file->data + view->data_offset, (size_t)view->data_length,
                                     storage, (size_t)view->storage_bytes),
                         DCP_OK);
    else
        memcpy(storage, file->data + view->data_offset, (size_t)view->storage_bytes);
    if (view->has_crc)
        assert_int_equal(crc32_update(0, storage, (size_t)view->storage_bytes), view->crc);
    int64_t strides[DCP_MAX_DIMS];
    shape_strides(view->ndim, view->sizes, strides);
    copy_strided(view->ndim, view->sizes, element_size,
                 storage + (size_t)view->storage_offset * element_size, view->strides, elements,
                 strides);
    if (view->swapped)
        copy_swap_bytes(view->dtype, elements, expected->size / element_size);
    if (view->conjugate)
        conjugate(view, (float *)(void *)elements, expected->size);
    assert_memory_equal(elements, expected->data, expected->size);
    free(storage);
    free(elements);
}

static void assert_object(const struct metadata *metadata, const struct metadata_entry *entry,
                          const cJSON *value, const char *case_name)
{
    dcp_state *root = dcp_state_new(), *object;
    struct state_pool *pool = state_pool_new(root->root);
    if (pt_read_object(metadata, entry->pieces, pool, &object) != DCP_OK)
        fail_msg("%s: %s", entry->name, dcp_error_message());
    assert_tagged(object, value, case_name, entry->name);
    state_pool_free(pool);
    dcp_state_free(root);
}

static void check_case(const char *name)
{
    struct fixture fixture;
    struct metadata metadata;
    char path[256];
    fixture_open(&fixture, name);
    snprintf(path, sizeof path, "%s/ckpt.pt", name);
    struct bytes file = fixture_file(path);
    if (pt_decode(byte_source_memory(file.data, file.size), "ckpt.pt", &metadata) != DCP_OK)
        fail_msg("%s: %s", name, dcp_error_message());
    assert_int_equal(metadata.file_count, 1);
    assert_string_equal(metadata.files[0], "ckpt.pt");
    assert_true(metadata.has_paths);
    const cJSON *entries = cJSON_GetObjectItem(fixture.expected, "entries");
    assert_int_equal(metadata.count, cJSON_GetArraySize(entries));
    for (const cJSON *expected = entries->child; expected != NULL; expected = expected->next) {
        const char *fqn = cJSON_GetObjectItem(expected, "fqn")->valuestring;
        const struct metadata_entry *entry = metadata_find(&metadata, fqn);
        if (entry == NULL)
            fail_msg("%s: no %s", name, fqn);
        assert_path(entry, cJSON_GetObjectItem(expected, "path"));
        assert_int_equal(metadata_check_entry(entry), DCP_OK);
        assert_int_equal(entry->pieces->encoding, PIECE_VIEW);
        assert_true(entry->pieces->offset + entry->pieces->length <= file.size);
        if (!entry->is_tensor) {
            assert_object(&metadata, entry, cJSON_GetObjectItem(expected, "value"), name);
            continue;
        }
        assert_string_equal(dcp_dtype_name(entry->dtype),
                            cJSON_GetObjectItem(expected, "dtype")->valuestring);
        snprintf(path, sizeof path, "%s/%s", name,
                 cJSON_GetObjectItem(expected, "file")->valuestring);
        struct bytes bytes = fixture_file(path);
        assert_tensor(entry, &file, &bytes);
        bytes_free(&bytes);
    }
    metadata_free(&metadata);
    bytes_free(&file);
    fixture_close(&fixture);
}

static void test_files_of_pytorch(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "pt_state_dict",   "pt_objects",      "pt_big_endian",  "pt_no_crc",      "pt_plain_zip",
        "pt_protocol4",    "torch_2.0.1_pt",  "torch_2.2.2_pt", "torch_2.4.1_pt", "torch_2.7.1_pt",
        "torch_2.14.1_pt", "torch_2.15.0_pt", "pt_legacy"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(cases[i]);
}

/* ---- other files ---- */

static void expect_refused(const void *bytes, size_t size, dcp_status expected, const char *words)
{
    struct metadata metadata;
    dcp_status status = pt_decode(byte_source_memory(bytes, size), "x.pt", &metadata);
    metadata_free(&metadata);
    if (status != expected || strstr(dcp_error_message(), words) == NULL)
        fail_msg("status %d, \"%s\", expected %d, \"%s\"", (int)status, dcp_error_message(),
                 (int)expected, words);
}

static void test_other_forms_are_refused_by_name(void **state)
{
    (void)state;
    unsigned char tar[512] = "a/";
    memcpy(tar + 257, "ustar", 5);
    struct bytes other = fixture_file("hostile/pt_tar/ckpt.pt");
    struct bytes safetensors = fixture_file("hf_single/ckpt/model-00001-of-00003.safetensors");
    expect_refused(tar, sizeof tar, DCP_ERR_UNSUPPORTED, "a tar file");
    expect_refused(other.data, other.size, DCP_ERR_FORMAT, "not a torch.save file");
    expect_refused("PYTORCH1....", 12, DCP_ERR_UNSUPPORTED, "preview form");
    expect_refused(safetensors.data, safetensors.size, DCP_ERR_UNSUPPORTED, "safetensors");
    expect_refused("\x80\4N.", 4, DCP_ERR_UNSUPPORTED, "plain pickle");
    expect_refused("not a file of tensors", 21, DCP_ERR_FORMAT, "not a torch.save file");
    expect_refused("", 0, DCP_ERR_FORMAT, "not a torch.save file");
    bytes_free(&other);
    bytes_free(&safetensors);
}

/* ---- files from before PyTorch 1.6 ---- */

#define LEGACY_MAGIC "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
/* Of protocol 4 or 5. */
#define LEGACY_MAGIC_FRAMED                                                                        \
    "\x80\x05\x95\x0d\0\0\0\0\0\0\0\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
#define LEGACY_VERSION "\x80\x02M\xe9\x03."
#define LEGACY_SYSTEM  "\x80\x02}."
/* {"w": two floats of the storage "0", a view of it of the size that follows} */
#define LEGACY_VALUE(count, view)                                                                  \
    "\x80\x02}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\n"         \
    "FloatStorage\nX\x01\0\0\0"                                                                    \
    "0X\x03\0\0\0"                                                                                 \
    "cpuK" count view "tQK\0K\x02\x85K\x01\x85\x89"                                                \
    "ccollections\nOrderedDict\n)RtRs."
#define LEGACY_KEYS                                                                                \
    "\x80\x02]X\x01\0\0\0"                                                                         \
    "0a."
#define LEGACY_DATA                                                                                \
    "\x02\0\0\0\0\0\0\0"                                                                           \
    "\0\0\x80\x3f\0\0\0\x40"

static void expect_legacy(const char *bytes, size_t size, const char *words)
{
    expect_refused(bytes, size, DCP_ERR_FORMAT, words);
    expect_refused(bytes, size, DCP_ERR_FORMAT, "legacy torch.save");
}

static void test_legacy_files_are_checked(void **state)
{
    (void)state;
#define HEAD LEGACY_MAGIC LEGACY_VERSION LEGACY_SYSTEM
#define EXPECT(text, words)                                                                        \
    do {                                                                                           \
        static const char bytes[] = text;                                                          \
        expect_legacy(bytes, sizeof bytes - 1, words);                                             \
    } while (0)
    static const char good[] = HEAD LEGACY_VALUE("\x02", "N") LEGACY_KEYS LEGACY_DATA;
    struct metadata metadata;
    assert_int_equal(pt_decode(byte_source_memory(good, sizeof good - 1), "x.pt", &metadata),
                     DCP_OK);
    assert_int_equal(metadata.count, 1);
    assert_int_equal(metadata.entries[0].pieces->view->data_offset, sizeof good - 1 - 8);
    assert_int_equal(metadata.entries[0].pieces->view->storage_bytes, 8);
    assert_false(metadata.entries[0].pieces->view->has_crc);
    metadata_free(&metadata);
    for (size_t size = 15; size < sizeof good - 1; size++)
        expect_legacy(good, size, "");
    static const char framed[] =
        LEGACY_MAGIC_FRAMED LEGACY_VERSION LEGACY_SYSTEM LEGACY_VALUE("\x02", "N")
            LEGACY_KEYS LEGACY_DATA;
    assert_int_equal(pt_decode(byte_source_memory(framed, sizeof framed - 1), "x.pt", &metadata),
                     DCP_OK);
    assert_int_equal(metadata.count, 1);
    assert_int_equal(metadata.entries[0].pieces->view->data_offset, sizeof framed - 1 - 8);
    metadata_free(&metadata);
    expect_refused(LEGACY_MAGIC "\x80\x02K\x05.", 20, DCP_ERR_UNSUPPORTED, "another version");
    EXPECT(HEAD LEGACY_VALUE("\x03", "N") LEGACY_KEYS LEGACY_DATA, "reaches beyond the file");
    EXPECT(HEAD LEGACY_VALUE("\x02", "N") LEGACY_KEYS "\x03\0\0\0\0\0\0\0"
                                                      "12345678",
           "has 3 elements, expected 2");
    EXPECT(HEAD LEGACY_VALUE("\x02", "N") "\x80\x02]X\x01\0\0\0"
                                          "1a." LEGACY_DATA,
           "no value refers to");
    static const char unlisted[] = HEAD LEGACY_VALUE("\x02", "N") "\x80\x02]." LEGACY_DATA;
    expect_refused(unlisted, sizeof unlisted - 1, DCP_ERR_FORMAT, "no record of its storage");
    EXPECT(HEAD LEGACY_VALUE("\x02", "N") "\x80\x02](X\x01\0\0\0"
                                          "0X\x01\0\0\0"
                                          "0e." LEGACY_DATA LEGACY_DATA,
           "two storages");
    EXPECT(HEAD LEGACY_VALUE("\x02", "N") "\x80\x02}.", "not a list");
    EXPECT(HEAD LEGACY_VALUE("\x02", "K\x01") LEGACY_KEYS LEGACY_DATA, "a view of another");
    struct bytes cut = fixture_file("hostile/pt_legacy_truncated/ckpt.pt");
    expect_legacy((const char *)cut.data, cut.size, "");
    bytes_free(&cut);
#undef EXPECT
#undef HEAD
}

/* The pickles end behind what is read at first. */
static void test_long_legacy_pickles(void **state)
{
    (void)state;
    enum { TEXT = 3 << 20 };
    static const char begin[] = LEGACY_MAGIC LEGACY_VERSION LEGACY_SYSTEM "\x80\x02}X\x01\0\0\0kX",
                      end[] = "s.\x80\x02].";
    struct metadata metadata;
    struct buffer file;
    buffer_init(&file, 0);
    buffer_append(&file, begin, sizeof begin - 1);
    buffer_append_u32(&file, TEXT);
    for (int i = 0; i < TEXT; i++)
        buffer_append_u8(&file, 'x');
    buffer_append(&file, end, sizeof end - 1);
    assert_int_equal(buffer_status(&file), DCP_OK);
    assert_int_equal(pt_decode(byte_source_memory(file.data, file.size), "x.pt", &metadata),
                     DCP_OK);
    assert_int_equal(metadata.count, 1);
    assert_false(metadata.entries[0].is_tensor);
    assert_int_equal(metadata.entries[0].pieces->offset, 15 + 6 + 4);
    metadata_free(&metadata);
    buffer_free(&file);
}

static void test_torchscript_is_refused_by_name(void **state)
{
    (void)state;
    struct zip_builder builder;
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, "\x80\x02}.", 4);
    zip_builder_add(&builder, "archive/constants.pkl", "\x80\x02).", 4);
    zip_builder_finish(&builder);
    expect_refused(builder.out.data, builder.out.size, DCP_ERR_UNSUPPORTED, "TorchScript");
    zip_builder_free(&builder);
}

static void test_zip_of_something_else(void **state)
{
    (void)state;
    struct zip_builder builder;
    zip_builder_init(&builder);
    zip_builder_add(&builder, "archive/version", "3\n", 2);
    zip_builder_add(&builder, "archive/readme", "hello", 5);
    zip_builder_finish(&builder);
    expect_refused(builder.out.data, builder.out.size, DCP_ERR_FORMAT, "data.pkl");
    zip_builder_free(&builder);
}

/* ---- pickles made for the purpose ---- */

struct pt {
    struct zip_builder builder;
    struct metadata metadata;
};

static const float floats[] = {1, 2, 3, 4, 5, 6};

static dcp_status pt_open(struct pt *pt, const void *pickle, size_t size)
{
    zip_builder_init(&pt->builder);
    zip_builder_add_container(&pt->builder, pickle, size);
    zip_builder_add(&pt->builder, "archive/data/0", floats, sizeof floats);
    zip_builder_finish(&pt->builder);
    return pt_decode(byte_source_memory(pt->builder.out.data, pt->builder.out.size), "x.pt",
                     &pt->metadata);
}

static void pt_close(struct pt *pt)
{
    metadata_free(&pt->metadata);
    zip_builder_free(&pt->builder);
}

#define OPEN(pt, text) pt_open(pt, text, sizeof(text) - 1)

#define TENSOR(rest)                                                                               \
    "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0"         \
    "0X\3\0\0\0cpuK\6tQ" rest "\x89"                                                               \
    "ccollections\nOrderedDict\n)RtR"
#define ROW         TENSOR("K\0K\6\x85K\1\x85")
#define KEY(letter) "X\1\0\0\0" letter

static void assert_names(const struct pt *pt, const char *const *names, size_t count)
{
    assert_int_equal(pt->metadata.count, count);
    for (size_t i = 0; i < count; i++)
        assert_string_equal(pt->metadata.entries[i].name, names[i]);
}

static void test_names_follow_flattening(void **state)
{
    (void)state;
    struct pt pt;
    /* {a: {b: tensor, c: {}}, d: [1, [tensor]], e: [1, [2]], f: {1: tensor, (2, "x"): 1,
     * True: 1}, g: (tensor,), h: [], i: {b"x": 1}} */
    static const char pickle[] = "\x80\x02}(" KEY("a") "}(" KEY("b")
        ROW KEY("c") "}u" KEY("d") "](K\1](" ROW "ee" KEY("e") "](K\1](K\2ee" KEY(
            "f") "}(K\1" ROW
                 "(K\2" KEY("x") "tK\1\x88K\1u" KEY("g") "(" ROW
                                                         "t" KEY("h") "]" KEY("i") "}C\1xK\1su.";
    static const char *const names[] = {"a.b",        "d.0",    "d.1.0", "e", "f.1",
                                        "f.(2, 'x')", "f.True", "g",     "h", "i"};
    static const bool tensors[] = {true,  false, true,  false, true,
                                   false, false, false, false, false};
    assert_int_equal(pt_open(&pt, pickle, sizeof pickle - 1), DCP_OK);
    assert_names(&pt, names, 10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(pt.metadata.entries[i].is_tensor, tensors[i]);
    const struct metadata_entry *nested = metadata_find(&pt.metadata, "d.1.0");
    assert_int_equal(nested->path_length, 3);
    assert_string_equal(nested->path[0].key, "d");
    assert_null(nested->path[1].key);
    assert_int_equal(nested->path[1].position, 1);
    pt_close(&pt);
}

static void test_mappings_of_other_classes_are_entered(void **state)
{
    (void)state;
    struct pt pt;
    static const char pickle[] =
        "\x80\x02"
        "ccollections\nOrderedDict\n)R(" KEY(
            "a") "ccollections\ndefaultdict\n"
                 "cbuiltins\nlist\n\x85R(" KEY("x") "K\1u" KEY("b") "ccollections\nCounter\n}(" KEY(
                     "y") "K\2u\x85R"
                          "u}X\x9\0\0\0_metadata}sb.";
    static const char *const names[] = {"a.x", "b.y"};
    assert_int_equal(pt_open(&pt, pickle, sizeof pickle - 1), DCP_OK);
    assert_names(&pt, names, 2);
    pt_close(&pt);
}

static void test_roots_that_are_no_dicts(void **state)
{
    (void)state;
    struct pt pt;
    static const char *const nameless[] = {""}, *const positions[] = {"0", "1"};
    assert_int_equal(OPEN(&pt, "\x80\x02" ROW "."), DCP_OK);
    assert_names(&pt, nameless, 1);
    assert_true(pt.metadata.entries[0].is_tensor);
    assert_int_equal(pt.metadata.entries[0].path_length, 1);
    assert_string_equal(pt.metadata.entries[0].path[0].key, "");
    pt_close(&pt);
    assert_int_equal(OPEN(&pt, "\x80\x02K\7."), DCP_OK);
    assert_names(&pt, nameless, 1);
    assert_false(pt.metadata.entries[0].is_tensor);
    pt_close(&pt);
    assert_int_equal(OPEN(&pt, "\x80\x02](" ROW "K\1e."), DCP_OK);
    assert_names(&pt, positions, 2);
    pt_close(&pt);
    assert_int_equal(OPEN(&pt, "\x80\x02}."), DCP_OK);
    assert_int_equal(pt.metadata.count, 0);
    pt_close(&pt);
}

static void test_views_share_their_storage(void **state)
{
    (void)state;
    struct pt pt;
    static const char pickle[] = "\x80\x02}(" KEY("a") TENSOR("K\0K\2K\3\x86K\3K\1\x86") KEY("b")
        TENSOR("K\1K\2\x85K\3\x85") "u.";
    assert_int_equal(pt_open(&pt, pickle, sizeof pickle - 1), DCP_OK);
    const struct tensor_view *whole = pt.metadata.entries[0].pieces->view;
    const struct tensor_view *column = pt.metadata.entries[1].pieces->view;
    assert_int_equal(whole->data_offset, column->data_offset);
    assert_int_equal(column->storage_offset, 1);
    assert_int_equal(column->strides[0], 3);
    assert_int_equal(pt.metadata.entries[1].global_shape[0], 2);
    pt_close(&pt);
}

static void test_foreign_tensors_are_objects(void **state)
{
    (void)state;
    struct pt pt;
    static const char pickle[] = "\x80\x02}(" KEY(
        "l") "](ctorch._utils\n_rebuild_meta_tensor_no_storage\n"
             "(ctorch\nfloat32\nK\2\x85K\1\x85\x89tRctorch._utils\n_rebuild_sparse_tensor\n)Re" KEY(
                 "s") "(X\7\0\0\0storagectorch\nFloatStorage\n" KEY("0") "X\3\0\0\0cpuK\6tQu.";
    static const char *const names[] = {"l.0", "l.1", "s"};
    assert_int_equal(pt_open(&pt, pickle, sizeof pickle - 1), DCP_OK);
    assert_names(&pt, names, 3);
    for (size_t i = 0; i < 3; i++)
        assert_false(pt.metadata.entries[i].is_tensor);
    pt_close(&pt);
}

static void test_containers_in_themselves_stay_objects(void **state)
{
    (void)state;
    struct pt pt;
    static const char *const names[] = {"a", "b"};
    /* {a: itself, b: 1} and a list in itself, with a dict */
    assert_int_equal(OPEN(&pt, "\x80\x02}q\1(" KEY("a") "h\1" KEY("b") "K\1u."), DCP_OK);
    assert_names(&pt, names, 2);
    pt_close(&pt);
    static const char *const positions[] = {"0", "1.b"};
    assert_int_equal(OPEN(&pt, "\x80\x02]q\1(h\1}" KEY("b") "K\1se."), DCP_OK);
    assert_names(&pt, positions, 2);
    pt_close(&pt);
    static const char *const nameless[] = {""};
    assert_int_equal(OPEN(&pt, "\x80\x02]q\1h\1a."), DCP_OK);
    assert_names(&pt, nameless, 1);
    pt_close(&pt);
}

/* Dicts that hold the one before under two keys, so often that no names could tell the ways. */
static void test_doubling_is_refused(void **state)
{
    (void)state;
    struct pt pt;
    struct buffer pickle;
    buffer_init(&pickle, 0);
    pickle_put_protocol(&pickle, 2);
    pickle_put_int(&pickle, 1);
    pickle_put_memo(&pickle, 0);
    for (uint32_t i = 1; i <= 60; i++) {
        pickle_put_op(&pickle, OP_POP);
        pickle_put_op(&pickle, OP_EMPTY_DICT);
        pickle_put_memo(&pickle, i);
        pickle_put_op(&pickle, OP_MARK);
        pickle_put_string(&pickle, "a", 1);
        pickle_get_memo(&pickle, i - 1);
        pickle_put_string(&pickle, "b", 1);
        pickle_get_memo(&pickle, i - 1);
        pickle_put_op(&pickle, OP_SETITEMS);
    }
    pickle_put_op(&pickle, OP_STOP);
    assert_int_equal(pt_open(&pt, pickle.data, pickle.size), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "shared so often"));
    pt_close(&pt);

    /* Lists of nothing but lists are looked at once each. */
    buffer_clear(&pickle);
    pickle_put_protocol(&pickle, 2);
    pickle_put_op(&pickle, OP_EMPTY_LIST);
    pickle_put_memo(&pickle, 0);
    for (uint32_t i = 1; i <= 60; i++) {
        pickle_put_op(&pickle, OP_POP);
        pickle_put_op(&pickle, OP_EMPTY_LIST);
        pickle_put_memo(&pickle, i);
        pickle_put_op(&pickle, OP_MARK);
        pickle_get_memo(&pickle, i - 1);
        pickle_get_memo(&pickle, i - 1);
        pickle_put_op(&pickle, OP_APPENDS);
    }
    pickle_put_op(&pickle, OP_STOP);
    assert_int_equal(pt_open(&pt, pickle.data, pickle.size), DCP_OK);
    assert_int_equal(pt.metadata.count, 1);
    pt_close(&pt);
    buffer_free(&pickle);
}

/* What lies deeper than names should go stays one object. */
static void test_depth(void **state)
{
    (void)state;
    struct pt pt;
    struct buffer pickle;
    buffer_init(&pickle, 0);
    pickle_put_protocol(&pickle, 2);
    for (int i = 0; i < 20000; i++) {
        pickle_put_op(&pickle, OP_EMPTY_DICT);
        pickle_put_string(&pickle, "a", 1);
    }
    pickle_put_none(&pickle);
    for (int i = 0; i < 20000; i++)
        pickle_put_op(&pickle, OP_SETITEM);
    pickle_put_op(&pickle, OP_STOP);
    assert_int_equal(pt_open(&pt, pickle.data, pickle.size), DCP_OK);
    assert_int_equal(pt.metadata.count, 1);
    assert_int_equal(pt.metadata.entries[0].path_length, 1000);
    pt_close(&pt);
    buffer_free(&pickle);
}

static void test_malformed_contents(void **state)
{
    (void)state;
    struct pt pt;
    static const char outside[] = "\x80\x02}" KEY("a") TENSOR("K\1K\6\x85K\1\x85") "s.";
    static const char absurd[] = "\x80\x02}" KEY("a") TENSOR("K\0J\0\0\0\x7f\x85K\0\x85") "s.";
    static const char colliding[] = "\x80\x02}(X\3\0\0\0a.bK\1" KEY("a") "}" KEY("b") "K\1su.";
    assert_int_equal(pt_open(&pt, outside, sizeof outside - 1), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "a: "));
    pt_close(&pt);
    assert_int_equal(pt_open(&pt, absurd, sizeof absurd - 1), DCP_ERR_FORMAT);
    pt_close(&pt);
    assert_int_equal(pt_open(&pt, colliding, sizeof colliding - 1), DCP_ERR_DUPLICATE);
    pt_close(&pt);
    assert_int_equal(OPEN(&pt, "\x80\x02}"), DCP_ERR_FORMAT);
    pt_close(&pt);
    /* Keys that are no names make an object of the dict. */
    assert_int_equal(OPEN(&pt, "\x80\x02}(" KEY("a") "}" KEY("\0") "K\1s" KEY("b") "}NK\1su."),
                     DCP_OK);
    assert_int_equal(pt.metadata.count, 2);
    pt_close(&pt);
}

static const char small_pickle[] =
    "\x80\x02}(" KEY("a") ROW KEY("b") "](K\1" ROW "e" KEY("c") "(K\1" ROW "tu.";

static dcp_status read_everything(struct byte_source source)
{
    struct metadata metadata;
    dcp_status status = pt_decode(source, "x.pt", &metadata);
    for (size_t i = 0; status == DCP_OK && i < metadata.count; i++) {
        dcp_state *root = dcp_state_new(), *object;
        struct state_pool *pool = root != NULL ? state_pool_new(root->root) : NULL;
        if (pool == NULL)
            status = DCP_ERR_NO_MEMORY;
        else if (!metadata.entries[i].is_tensor)
            status = pt_read_object(&metadata, metadata.entries[i].pieces, pool, &object);
        state_pool_free(pool);
        dcp_state_free(root);
    }
    metadata_free(&metadata);
    return status;
}

/* Every bit and every length; the bytes are changed meanwhile. */
static void damage_everywhere(unsigned char *bytes, size_t size)
{
    assert_int_equal(read_everything(byte_source_memory(bytes, size)), DCP_OK);
    for (size_t i = 0; i < size * 8; i++) {
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
        read_everything(byte_source_memory(bytes, size));
        bytes[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    for (size_t cut = 0; cut < size; cut++)
        assert_int_not_equal(read_everything(byte_source_memory(bytes, cut)), DCP_OK);
}

static void test_damage_everywhere(void **state)
{
    (void)state;
    struct pt pt;
    assert_int_equal(pt_open(&pt, small_pickle, sizeof small_pickle - 1), DCP_OK);
    damage_everywhere(pt.builder.out.data, pt.builder.out.size);
    pt_close(&pt);
    struct bytes legacy = fixture_file("pt_legacy/ckpt.pt");
    damage_everywhere(legacy.data, legacy.size);
    bytes_free(&legacy);
}

static void fail_every_allocation(const void *bytes, size_t size)
{
    size_t failed = 0;
    for (;; failed++) {
        failing_allocator_install(failed);
        dcp_status status = read_everything(byte_source_memory(bytes, size));
        failing_allocator_remove();
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    assert_true(failed > 30);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct pt pt;
    assert_int_equal(pt_open(&pt, small_pickle, sizeof small_pickle - 1), DCP_OK);
    fail_every_allocation(pt.builder.out.data, pt.builder.out.size);
    pt_close(&pt);
    struct bytes legacy = fixture_file("pt_legacy/ckpt.pt");
    fail_every_allocation(legacy.data, legacy.size);
    bytes_free(&legacy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_of_pytorch),
        cmocka_unit_test(test_other_forms_are_refused_by_name),
        cmocka_unit_test(test_legacy_files_are_checked),
        cmocka_unit_test(test_long_legacy_pickles),
        cmocka_unit_test(test_torchscript_is_refused_by_name),
        cmocka_unit_test(test_zip_of_something_else),
        cmocka_unit_test(test_names_follow_flattening),
        cmocka_unit_test(test_mappings_of_other_classes_are_entered),
        cmocka_unit_test(test_roots_that_are_no_dicts),
        cmocka_unit_test(test_views_share_their_storage),
        cmocka_unit_test(test_foreign_tensors_are_objects),
        cmocka_unit_test(test_containers_in_themselves_stay_objects),
        cmocka_unit_test(test_doubling_is_refused),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_malformed_contents),
        cmocka_unit_test(test_damage_everywhere),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
