/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "expected_metadata.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/metadata/metadata_codec.h"
#include "metadata_variant.h"
#include "pickle_assembler.h"

/* ---- what PyTorch wrote ---- */

static void check_fixture(const char *name)
{
    struct fixture fixture;
    struct metadata metadata;
    char path[512];
    fixture_open(&fixture, name);
    snprintf(path, sizeof path, "%s/%s/.metadata", name,
             cJSON_GetObjectItem(fixture.expected, "checkpoint")->valuestring);
    struct bytes bytes = fixture_file(path);
    dcp_status status = metadata_decode(bytes.data, bytes.size, &metadata);
    if (status != DCP_OK)
        fail_msg("%s: %s", name, dcp_error_message());
    bytes_free(&bytes); /* nothing may point there any more */
    check_expected_metadata(&metadata, fixture.expected);
    metadata_free(&metadata);
    fixture_close(&fixture);
}

static void decodes_all_reference_checkpoints(void **state)
{
    (void)state;
    size_t count = 0;
    struct bytes bytes = fixture_file("index.json");
    cJSON *index = cJSON_ParseWithLength((const char *)bytes.data, bytes.size);
    assert_non_null(index);
    const cJSON *cases = cJSON_IsArray(index) ? index : cJSON_GetObjectItem(index, "cases");
    for (const cJSON *item = cases->child; item != NULL; item = item->next) {
        if (strcmp(cJSON_GetObjectItem(item, "kind")->valuestring, "dcp") != 0)
            continue;
        check_fixture(cJSON_GetObjectItem(item, "case")->valuestring);
        count++;
    }
    assert_true(count > 35);
    cJSON_Delete(index);
    bytes_free(&bytes);
}

/* The hostile ones whose fault is in the metadata; the others must decode, for their fault to be
 * found later. */
static bool is_decidable(const char *name)
{
    static const char *const beginnings[] = {"meta_", "size_",   "many_dims", "chunk_",    "dtype_",
                                             "path_", "offset_", "length_",   "transform_"};
    static const char *const others[] = {
        "chunk_bigger_than_item", "dtype_disagrees", "length_huge",         "offset_past_end",
        "transform_not_applied",  "meta_doubling",   "meta_foreign_object", "meta_self_reference"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i]) == 0)
            return false;
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

static void refuses_hostile_checkpoints(void **state)
{
    (void)state;
    size_t refused = 0;
    struct bytes index_bytes = fixture_file("hostile/index.json");
    cJSON *index = cJSON_ParseWithLength((const char *)index_bytes.data, index_bytes.size);
    assert_non_null(index);
    const cJSON *cases = cJSON_IsArray(index) ? index : cJSON_GetObjectItem(index, "cases");
    for (const cJSON *item = cases->child; item != NULL; item = item->next) {
        const char *name = cJSON_GetObjectItem(item, "case")->valuestring;
        struct metadata metadata;
        char path[512];
        if (strcmp(cJSON_GetObjectItem(item, "kind")->valuestring, "dcp") != 0 ||
            strcmp(name, "meta_missing") == 0)
            continue;
        snprintf(path, sizeof path, "hostile/%s/ckpt/.metadata", name);
        struct bytes bytes = fixture_file(path);
        dcp_status status = metadata_decode(bytes.data, bytes.size, &metadata);
        if ((status == DCP_OK) == is_decidable(name))
            fail_msg("%s: status %d", name, status);
        if (status == DCP_OK)
            metadata_free(&metadata);
        refused += status != DCP_OK;
        bytes_free(&bytes);
    }
    assert_true(refused >= 55);
    cJSON_Delete(index);
    bytes_free(&index_bytes);
}

/* ---- variants ---- */

static void decode_variant(const struct metadata_variant *variant, struct metadata *metadata)
{
    struct buffer pickle;
    metadata_variant_assemble(&pickle, variant);
    dcp_status status = metadata_decode(pickle.data, pickle.size, metadata);
    if (status != DCP_OK)
        fail_msg("%s", dcp_error_message());
    buffer_free(&pickle);
}

static void check_plain(const struct metadata *metadata)
{
    assert_int_equal(metadata->count, 2);
    assert_int_equal(metadata->file_count, 1);
    assert_string_equal(metadata->files[0], "__0_0.distcp");
    const struct metadata_entry *w = metadata_find(metadata, "w");
    assert_non_null(w);
    assert_true(w->is_tensor);
    assert_int_equal(w->dtype, DCP_F32);
    assert_int_equal(w->ndim, 1);
    assert_int_equal(w->global_shape[0], 4);
    assert_int_equal(w->piece_count, 1);
    assert_int_equal(w->pieces[0].offsets[0], 0);
    assert_int_equal(w->pieces[0].sizes[0], 4);
    assert_int_equal(w->pieces[0].offset, 1000);
    assert_int_equal(w->pieces[0].length, 1577);
    const struct metadata_entry *step = metadata_find(metadata, "step");
    assert_non_null(step);
    assert_false(step->is_tensor);
    assert_int_equal(step->pieces[0].length, 1000);
}

static void check_same_as_plain(const struct metadata_variant *variant)
{
    struct metadata metadata;
    decode_variant(variant, &metadata);
    check_plain(&metadata);
    metadata_free(&metadata);
}

#define OLD_MODULE "torch.distributed._shard.checkpoint.metadata"

static void reads_the_variants_of_all_versions(void **state)
{
    (void)state;
    static const struct metadata_variant variants[] = {
        {0},
        /* 2.15's sixth value, and one more */
        {.properties = PROPERTIES(FLOAT32 "NONE NEWTRUE NONE NEWFALSE NONE ")},
        {.properties = PROPERTIES(FLOAT32 "NONE NEWTRUE NONE NEWFALSE " TUPLE(INT(1)) "NONE ")},
        /* TensorProperties of 2.0 to 2.2 */
        {.properties = NEW("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties")
             TUPLE(FLOAT32 "NONE NEWTRUE NONE NEWFALSE ") "BUILD "},
        /* tuples and lists in place of torch.Size */
        {.size = TUPLE(INT(4)), .chunks = LIST(CHUNK(LIST(INT(0)), TUPLE(INT(4))))},
        {.chunks = TUPLE(CHUNK(SIZE(INT(0)), SIZE("LONG1 '\\x04' ")))},
        /* a subclass, and one made by a call */
        {.root = NEW("megatron", "MCoreMetadata"), .more_fields = KEY("mcore_data") DICT()},
        {.root = "GLOBAL 'other' 'make' EMPTY_TUPLE REDUCE "},
        /* an index without a hint, with a wrong one, with an odd one */
        {.index = INDEX(KEY("fqn") KEY("w") KEY("offset") SIZE(INT(0)))},
        {.index = INDEX(KEY("fqn") KEY("w") KEY("index") INT(7) KEY("offset") SIZE(INT(0)))},
        {.index = INDEX(KEY("fqn") KEY("w") KEY("index") INT(-1) KEY("offset") SIZE(INT(0)))},
        {.index = INDEX(KEY("fqn") KEY("w") KEY("index") KEY("0") KEY("offset") TUPLE(INT(0)))},
        {.index = INDEX(KEY("fqn") KEY("w") KEY("index") "NONE " KEY("more") "NONE " KEY("offset")
                            LIST(INT(0)))},
        /* transforms that are none */
        {.storage = STORAGE(KEY("relative_path") KEY("__0_0.distcp") KEY("offset") INT(1000)
                                KEY("length") INT(1577) KEY("transform_descriptors") LIST())},
        {.storage = STORAGE(KEY("transform_descriptors") "NONE " KEY("length") INT(1577)
                                KEY("offset") INT(1000) KEY("relative_path") KEY("__0_0.distcp"))},
        /* the later of two equal keys, as in a dict */
        {.more_entries = KEY("w") TENSOR(PROPERTIES(FLOAT32 "NONE NEWTRUE NONE NEWFALSE "),
                                         SIZE(INT(4)), LIST(CHUNK(SIZE(INT(0)), SIZE(INT(4))))),
         .tensor = NEW(METADATA_MODULE, "BytesStorageMetadata")},
        {.storage = PLACE("elsewhere", 5, 1600),
         .more_data = INDEX(KEY("fqn") KEY("w") KEY("index") INT(3) KEY("offset") SIZE(INT(0)))
             PLACE("__0_0.distcp", 1000, 1577)},
        /* fields of no interest, whatever they hold */
        {.more_fields = KEY("storage_meta") "GLOBAL 'os' 'system' " KEY("id") "TUPLE1 REDUCE "},
        {.more_fields =
             KEY("storage_meta") NEW(METADATA_MODULE, "StorageMeta") KEY("version") INT(7)},
        {.more_fields = KEY("storage_meta") NEW(METADATA_MODULE, "ChunkStorageMetadata")
             FIELDS(KEY("offsets") "NONE ")},
    };
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        struct metadata metadata;
        decode_variant(&variants[i], &metadata);
        if (i != 16) /* the first of the two places is a file as well */
            check_plain(&metadata);
        assert_int_equal(metadata_find(&metadata, "w")->pieces[0].offset, 1000);
        assert_true(metadata_find(&metadata, "w")->requires_grad);
        assert_string_equal(metadata.save_id, "");
        metadata_free(&metadata);
    }
}

/* All names of 1.13, which moved later. */
/* A list that the memo gives out again, as of tensors that share it in Python. */
static void reads_chunks_that_tensors_share(void **state)
{
    (void)state;
    static const struct metadata_variant shared = {
        .chunks = "EMPTY_LIST MEMOIZE MARK " CHUNK(SIZE(INT(0)), SIZE(INT(4))) "APPENDS ",
        .more_entries = KEY("v")
            TENSOR(PROPERTIES(FLOAT32 "NONE NEWFALSE NONE NEWFALSE "), SIZE(INT(4)), "BINGET 0 "),
        .more_data = INDEX(KEY("fqn") KEY("v") KEY("index") INT(0) KEY("offset") SIZE(INT(0)))
            PLACE("__0_0.distcp", 3000, 1577)};
    struct metadata metadata;
    decode_variant(&shared, &metadata);
    const struct metadata_entry *w = metadata_find(&metadata, "w"),
                                *v = metadata_find(&metadata, "v");
    assert_int_equal(w->piece_count, 1);
    assert_int_equal(v->piece_count, 1);
    assert_int_equal(w->pieces[0].offset, 1000);
    assert_int_equal(v->pieces[0].offset, 3000);
    assert_int_equal(v->pieces[0].sizes[0], 4);
    assert_true(w->requires_grad);
    assert_false(v->requires_grad);
    metadata_free(&metadata);
}

static void reads_the_modules_of_1_13(void **state)
{
    (void)state;
    struct metadata_variant variant = {
        .root = NEW(OLD_MODULE, "Metadata"),
        .tensor = NEW(OLD_MODULE, "TensorStorageMetadata") FIELDS(
            KEY("properties")
                NEW("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties")
                    TUPLE(FLOAT32 "NONE NEWFALSE NONE NEWFALSE ") "BUILD " KEY("size") SIZE(INT(4))
                        KEY("chunks") LIST(NEW(OLD_MODULE, "ChunkStorageMetadata") FIELDS(
                            KEY("offsets") SIZE(INT(0)) KEY("sizes") SIZE(INT(4))))),
        .object = NEW(OLD_MODULE, "BytesStorageMetadata"),
        .paths = KEY("planner_data") "NONE ",
        .index = NEW(OLD_MODULE, "MetadataIndex")
            FIELDS(KEY("fqn") KEY("w") KEY("offset") SIZE(INT(0)) KEY("index") INT(0)),
        .storage = NEW("torch.distributed._shard.checkpoint.filesystem", "_StorageInfo") FIELDS(KEY(
            "relative_path") KEY("__0_0.distcp") KEY("offset") INT(1000) KEY("length") INT(1577))};
    check_same_as_plain(&variant);
}

static void reads_the_id_of_the_save(void **state)
{
    (void)state;
    struct metadata metadata;
    decode_variant(&(struct metadata_variant){.more_fields = KEY("storage_meta")
                                                  NEW(METADATA_MODULE, "StorageMeta")
                                                      FIELDS(KEY("save_id") KEY("abc"))},
                   &metadata);
    assert_string_equal(metadata.save_id, "abc");
    metadata_free(&metadata);
    decode_variant(&(struct metadata_variant){.more_fields = KEY("storage_meta")
                                                  NEW(METADATA_MODULE, "StorageMeta")
                                                      FIELDS(KEY("save_id") KEY("a\\x00b"))},
                   &metadata);
    assert_string_equal(metadata.save_id, "");
    metadata_free(&metadata);
}

static void reads_what_the_storage_said(void **state)
{
    (void)state;
    struct metadata metadata;
    decode_variant(
        &(struct metadata_variant){
            .more_fields = KEY("storage_meta") NEW(METADATA_MODULE, "StorageMeta")
                FIELDS(KEY("checkpoint_id") KEY("run 7") KEY("load_id") KEY("again") KEY("modules")
                           LIST(KEY("a") INT(1) KEY("b")))},
        &metadata);
    assert_string_equal(metadata.checkpoint_id, "run 7");
    assert_string_equal(metadata.load_id, "again");
    assert_int_equal(metadata.module_count, 2);
    assert_string_equal(metadata.modules[0], "a");
    assert_string_equal(metadata.modules[1], "b");
    metadata_free(&metadata);
    decode_variant(&(struct metadata_variant){.more_fields = KEY("storage_meta")
                                                  NEW(METADATA_MODULE, "StorageMeta")
                                                      FIELDS(KEY("checkpoint_id") INT(3)
                                                                 KEY("modules") KEY("none"))},
                   &metadata);
    assert_null(metadata.checkpoint_id);
    assert_null(metadata.load_id);
    assert_int_equal(metadata.module_count, 0);
    metadata_free(&metadata);
}

static void reads_transforms(void **state)
{
    (void)state;
    static const struct {
        const char *transforms;
        bool known;
    } cases[] = {{LIST(KEY("stream.zstd/1")), true},
                 {LIST(KEY("stream.zstd/1.5.2")), true},
                 {LIST(KEY("stream.zstd@example.org/1")), true},
                 {LIST(KEY("stream.zstd/2")), false},
                 {LIST(KEY("stream.zstd/10")), false},
                 {LIST(KEY("stream.zstd/")), false},
                 {LIST(KEY("stream.zstd")), false},
                 {LIST(KEY("stream.zstdx/1")), false},
                 {LIST(KEY("stream.rot13/1")), false},
                 {LIST(KEY("")), false},
                 {LIST(KEY("stream.zstd/1") KEY("stream.zstd/1")), false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char storage[1024];
        struct buffer pickle;
        struct metadata metadata;
        snprintf(storage, sizeof storage,
                 STORAGE(KEY("relative_path") KEY("f") KEY("offset") INT(0) KEY("length") INT(9)
                             KEY("transform_descriptors") "%s"),
                 cases[i].transforms);
        metadata_variant_assemble(&pickle, &(struct metadata_variant){.storage = storage});
        dcp_status status = metadata_decode(pickle.data, pickle.size, &metadata);
        assert_int_equal(status, cases[i].known ? DCP_OK : DCP_ERR_UNSUPPORTED);
        if (status == DCP_OK) {
            assert_true(metadata_find(&metadata, "w")->pieces[0].zstd);
            assert_false(metadata_find(&metadata, "step")->pieces[0].zstd);
            metadata_free(&metadata);
        }
        buffer_free(&pickle);
    }
}

static void keeps_offset_none_apart_from_no_dimensions(void **state)
{
    (void)state;
    struct metadata_variant variant = {
        .size = SIZE(),
        .chunks = LIST(CHUNK(SIZE(), SIZE())),
        .index = INDEX(KEY("fqn") KEY("w") KEY("index") INT(0) KEY("offset") SIZE())};
    struct metadata metadata;
    decode_variant(&variant, &metadata);
    assert_int_equal(metadata_find(&metadata, "w")->ndim, 0);
    assert_int_equal(metadata_find(&metadata, "w")->pieces[0].offset, 1000);
    metadata_free(&metadata);

    struct buffer pickle;
    variant.index = INDEX(KEY("fqn") KEY("w") KEY("index") INT(0) KEY("offset") "NONE ");
    metadata_variant_assemble(&pickle, &variant);
    assert_int_equal(metadata_decode(pickle.data, pickle.size, &metadata), DCP_ERR_FORMAT);
    buffer_free(&pickle);
}

/* ---- paths ---- */

static void check_path(const char *paths, const char *expected, bool has_paths)
{
    struct metadata metadata;
    char text[256] = "";
    decode_variant(&(struct metadata_variant){.paths = paths,
                                              .more_entries = KEY("model.l.0")
                                                  NEW(METADATA_MODULE, "BytesStorageMetadata"),
                                              .more_data = INDEX(KEY("fqn") KEY("model.l.0"))
                                                  PLACE("__0_0.distcp", 0, 1000)},
                   &metadata);
    const struct metadata_entry *entry = metadata_find(&metadata, "model.l.0");
    for (size_t i = 0; i < entry->path_length; i++) {
        size_t used = strlen(text);
        if (entry->path[i].key != NULL)
            snprintf(text + used, sizeof text - used, "/%s", entry->path[i].key);
        else
            snprintf(text + used, sizeof text - used, "/%lld", (long long)entry->path[i].position);
    }
    assert_string_equal(text, expected);
    assert_int_equal(metadata.has_paths, has_paths);
    metadata_free(&metadata);
}

static void reads_paths_where_they_are_paths(void **state)
{
    (void)state;
#define PATHS(path) KEY("planner_data") DICT(KEY("model.l.0") path)
    check_path("", "/model.l.0", false);
    check_path(KEY("planner_data") "NONE ", "/model.l.0", false);
    check_path(KEY("planner_data") LIST(KEY("model.l.0")), "/model.l.0", false);
    check_path(KEY("planner_data") DICT(), "/model.l.0", false);
    check_path(KEY("planner_data") DICT("NONE NONE "), "/model.l.0", false);
    check_path(PATHS(TUPLE(KEY("model") KEY("l") INT(0))), "/model/l/0", true);
    check_path(PATHS(LIST(KEY("model") KEY("l.0"))), "/model/l.0", true);
    check_path(PATHS(TUPLE(KEY("old"))) PATHS(TUPLE(KEY("model.l") INT(0))), "/model.l/0", true);
    check_path(PATHS("NONE "), "/model.l.0", false);
    check_path(PATHS(TUPLE()), "/model.l.0", false);
    check_path(PATHS(TUPLE(KEY("model") "NEWTRUE ")), "/model.l.0", false);
    check_path(PATHS(TUPLE(KEY("model") INT(-1))), "/model.l.0", false);
    check_path(PATHS(TUPLE(KEY("model") KEY("l\\x00"))), "/model.l.0", false);
    check_path(PATHS(TUPLE(KEY("model") KEY("\\xed\\xa0\\x80"))), "/model.l.0", false);
    /* longer than the name that it should give */
    check_path(PATHS(TUPLE(KEY("model") KEY("l") INT(0) INT(0))), "/model.l.0", false);
    check_path(PATHS(TUPLE(KEY("model") KEY("layer"))), "/model.l.0", false);
}

/* ---- what planners stored ---- */

/* text: planner_data as JSON; NULL: none is kept. */
static void check_planner_data(const char *paths, const char *text)
{
    struct metadata_variant variant = {.paths = paths};
    struct metadata metadata;
    struct buffer bytes;
    metadata_variant_assemble(&bytes, &variant);
    if (metadata_decode(bytes.data, bytes.size, &metadata) != DCP_OK)
        fail_msg("%s: %s", paths, dcp_error_message());
    buffer_free(&bytes);
    if (text != NULL) {
        char *found = NULL;
        assert_non_null(metadata.planner_data);
        assert_int_equal(dcp_state_to_json(metadata.planner_data, 0, &found), DCP_OK);
        assert_string_equal(found, text);
        dcp_text_free(found);
    } else {
        assert_null(metadata.planner_data);
    }
    metadata_free(&metadata);
}

static void planner_data_of_planners_is_kept(void **state)
{
    (void)state;
    check_planner_data(NULL, NULL);
    check_planner_data("", NULL);
    check_planner_data(KEY("planner_data") "NONE ", NULL);
    check_planner_data(KEY("planner_data") DICT(), NULL);
    check_planner_data(KEY("planner_data") LIST(KEY("rank 0") KEY("rank 1")),
                       "[\"rank 0\", \"rank 1\"]");
    check_planner_data(KEY("planner_data") DICT(KEY("w") TUPLE(KEY("w")) KEY("extra") INT(7)),
                       "{\"w\": [\"w\"], \"extra\": 7}");
    check_planner_data(KEY("planner_data") DICT(KEY("w") INT(7)), "{\"w\": 7}");
    check_planner_data(KEY("planner_data") NEW("mine", "Plan"), "{\"$opaque\": \"mine.Plan\"}");
    /* What has no form here does not keep the rest from being loaded. */
    check_planner_data(KEY("planner_data") LIST(CHUNK(SIZE(INT(0)), SIZE(INT(4)))), NULL);
}

static void reads_an_empty_checkpoint(void **state)
{
    (void)state;
    struct buffer pickle;
    struct metadata metadata;
    pickle_assemble(&pickle, "PROTO 4 " NEW(METADATA_MODULE, "Metadata") FIELDS(KEY(
                                 "state_dict_metadata") DICT() KEY("storage_data") DICT()) "STOP");
    assert_int_equal(metadata_decode(pickle.data, pickle.size, &metadata), DCP_OK);
    assert_int_equal(metadata.count, 0);
    assert_null(metadata_find(&metadata, "w"));
    metadata_free(&metadata);
    buffer_free(&pickle);
}

/* One list of chunks that many tensors share must not be multiplied. */
static void does_not_expand_shared_chunks(void **state)
{
    (void)state;
    struct buffer script, pickle;
    struct metadata metadata;
    buffer_init(&script, 0);
    buffer_append_format(
        &script, "PROTO 4 " NEW(METADATA_MODULE, "Metadata") "EMPTY_DICT MARK " KEY(
                     "state_dict_metadata") "EMPTY_DICT MARK " KEY("w")
                     NEW(METADATA_MODULE, "TensorStorageMetadata") "MEMOIZE EMPTY_DICT MARK " KEY(
                         "properties") PROPERTIES(FLOAT32 "NONE NEWTRUE NONE NEWFALSE ") KEY("size")
                         SIZE(INT(4)) KEY("chunks") "EMPTY_LIST MARK ");
    for (int i = 0; i < 500; i++)
        buffer_append_format(&script, "%s", CHUNK(TUPLE(INT(0)), TUPLE(INT(4))));
    buffer_append_format(&script, "APPENDS SETITEMS BUILD ");
    for (int i = 0; i < 500; i++)
        buffer_append_format(&script, "SHORT_BINUNICODE '%d' BINGET 0 ", i);
    buffer_append_format(&script, "SETITEMS " KEY("storage_data") "EMPTY_DICT MARK ");
    for (int i = 0; i < 500; i++)
        buffer_append_format(&script,
                             INDEX(KEY("fqn") "SHORT_BINUNICODE '%d' " KEY("offset") TUPLE(INT(0)))
                                 PLACE("f", 0, 99),
                             i);
    buffer_append_format(&script, "SETITEMS SETITEMS BUILD STOP");
    buffer_append_u8(&script, 0);
    pickle_assemble(&pickle, (const char *)script.data);
    assert_int_equal(metadata_decode_part(pickle.data, pickle.size, &metadata), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "but storage_data has only 0 more"));
    buffer_free(&pickle);
    buffer_free(&script);
}

static void decodes_parts_without_the_other_ranks(void **state)
{
    (void)state;
    struct buffer pickle;
    struct metadata metadata;
    metadata_variant_assemble(
        &pickle, &(struct metadata_variant){.chunks = LIST(CHUNK(SIZE(INT(2)), SIZE(INT(2)))),
                                            .index = INDEX(KEY("fqn") KEY("w") KEY("index") INT(0)
                                                               KEY("offset") SIZE(INT(2)))});
    assert_int_equal(metadata_decode(pickle.data, pickle.size, &metadata), DCP_ERR_COVERAGE);
    assert_int_equal(metadata_decode_part(pickle.data, pickle.size, &metadata), DCP_OK);
    assert_int_equal(metadata_check_chunks(&metadata), DCP_ERR_COVERAGE);
    metadata_free(&metadata);
    buffer_free(&pickle);
}

static void fail_every_allocation(const void *data, size_t size)
{
    dcp_status status = DCP_ERR_NO_MEMORY;
    for (size_t n = 0; status != DCP_OK; n++) {
        struct metadata metadata;
        failing_allocator_install(n);
        status = metadata_decode(data, size, &metadata);
        if (status == DCP_OK)
            metadata_free(&metadata);
        else
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
        assert_true(failing_allocator_remove() >= n);
    }
}

static void reports_every_failed_allocation(void **state)
{
    (void)state;
    struct metadata_variant variant = {.paths = KEY("planner_data") LIST(DICT(KEY("a") INT(1)))};
    struct bytes bytes = fixture_file("training_state/ckpt/.metadata");
    struct buffer planned;
    fail_every_allocation(bytes.data, bytes.size);
    metadata_variant_assemble(&planned, &variant);
    fail_every_allocation(planned.data, planned.size);
    buffer_free(&planned);
    bytes_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_all_reference_checkpoints),
        cmocka_unit_test(refuses_hostile_checkpoints),
        cmocka_unit_test(reads_the_variants_of_all_versions),
        cmocka_unit_test(reads_chunks_that_tensors_share),
        cmocka_unit_test(reads_the_modules_of_1_13),
        cmocka_unit_test(reads_the_id_of_the_save),
        cmocka_unit_test(reads_what_the_storage_said),
        cmocka_unit_test(reads_transforms),
        cmocka_unit_test(keeps_offset_none_apart_from_no_dimensions),
        cmocka_unit_test(reads_paths_where_they_are_paths),
        cmocka_unit_test(reads_an_empty_checkpoint),
        cmocka_unit_test(does_not_expand_shared_chunks),
        cmocka_unit_test(decodes_parts_without_the_other_ranks),
        cmocka_unit_test(reports_every_failed_allocation),
        cmocka_unit_test(planner_data_of_planners_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
