/* SPDX-License-Identifier: BSD-3-Clause */
/* Damaged and malicious checkpoints end in an error where one is expected, in the verification as
 * well, and never in anything worse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "fixtures.h"
#include "layout.h"
#include "scratch.h"
#include "storage/shard/shard_reader.h"
#include "storage/verify/verify.h"

/* A piece that claims more than its file holds must fail before anyone allocates for it. */
#define SENSIBLE_BYTES ((uint64_t)64 << 20)

static dcp_status read_pieces(struct shard_reader *reader, const struct metadata_entry *entry)
{
    uint64_t bytes;
    int64_t strides[DCP_MAX_DIMS];
    struct box_storage whole = {{0}, {0}};
    dcp_status status = metadata_check_entry(entry);
    if (!shape_bytes(entry->ndim, entry->global_shape, entry->dtype, &bytes))
        return DCP_ERR_FORMAT;
    unsigned char *memory = malloc(bytes < SENSIBLE_BYTES ? (size_t)bytes + 1 : 1);
    memcpy(whole.sizes, entry->global_shape, (size_t)entry->ndim * sizeof *whole.sizes);
    shape_strides(entry->ndim, whole.sizes, strides);
    for (size_t i = 0; i < entry->piece_count && status == DCP_OK; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        struct box region = {entry->ndim, piece->offsets, piece->sizes};
        int64_t none[DCP_MAX_DIMS] = {0};
        struct box first = {entry->ndim, piece->offsets, none};
        if (bytes >= SENSIBLE_BYTES) {
            for (int32_t d = 0; d < entry->ndim; d++)
                none[d] = 1;
            region = first;
        }
        struct state_chunk target = layout_target(
            bytes < SENSIBLE_BYTES ? box_of(entry->ndim, &whole) : first, strides, memory);
        status =
            shard_read_tensor(reader, entry, piece, region, entry->dtype, &target, DCP_VERIFY_ALL);
    }
    free(memory);
    return status;
}

static dcp_status read_object(struct shard_reader *reader, const struct metadata_entry *entry)
{
    dcp_state *root = dcp_state_new(), *object;
    struct state_pool *pool = state_pool_new(root->root);
    dcp_status status =
        shard_read_object(reader, entry, &entry->pieces[0], DCP_VERIFY_ALL, pool, &object);
    state_pool_free(pool);
    dcp_state_free(root);
    return status;
}

static dcp_status read_target(const char *path, const char *target)
{
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    dcp_status status =
        storage_read_metadata(dcp_storage_files(), storage_at(path), &form, &metadata, &reader);
    const struct metadata_entry *entry =
        status == DCP_OK && target ? metadata_find(&metadata, target) : NULL;
    if (status == DCP_OK && target && !entry)
        status = DCP_ERR_NOT_FOUND;
    if (entry)
        status = entry->is_tensor ? read_pieces(reader, entry) : read_object(reader, entry);
    shard_reader_free(reader);
    metadata_free(&metadata);
    return status;
}

static void check_case(const cJSON *hostile)
{
    const char *name = fixture_text(hostile, "case");
    const char *target = fixture_text(hostile, "target");
    bool error = strcmp(fixture_text(hostile, "expect"), "error") == 0;
    uint64_t faults = 0;
    char *directory = scratch_path("hostile", name), *file = scratch_path(directory, "case.json");
    cJSON *details = fixture_json(file);
    char *path = fixture_path(directory, fixture_text(details, "checkpoint"));
    if (error && read_target(path, target) == DCP_OK)
        fail_msg("%s was read", name);
    if (!error)
        read_target(path, target);
    dcp_status status =
        storage_verify(dcp_storage_files(), storage_at(path), NULL, NULL, NULL, &faults);
    if (error && status == DCP_OK && faults == 0)
        fail_msg("%s is without fault", name);
    cJSON_Delete(details);
    free(path);
    free(file);
    free(directory);
}

static void hostile_checkpoints_end_in_errors(void **state)
{
    (void)state;
    cJSON *index = fixture_json("hostile/index.json"), *hostile;
    const cJSON *cases = cJSON_IsArray(index) ? index : cJSON_GetObjectItem(index, "cases");
    int count = 0;
    cJSON_ArrayForEach(hostile, cases)
    {
        check_case(hostile);
        count++;
    }
    assert_true(count > 100);
    cJSON_Delete(index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hostile_checkpoints_end_in_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
