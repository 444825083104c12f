/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "plan/load/load_plan.h"
#include "samples.h"
#include "state/flatten.h"

/* A checkpoint of some ranks' plans, and a tree that wants something of it. */
struct scene {
    struct samples samples;
    struct merged merged;
    dcp_state *root;
    struct flat_state flat;
    struct load_plan plan;
    struct load_differences differences;
};

static void scene_save(struct scene *scene, int ranks)
{
    *scene = (struct scene){.root = dcp_state_new()};
    samples_init(&scene->samples, ranks);
}

static void scene_merge(struct scene *scene)
{
    struct save_plan_options options = sample_options(DCP_REPLICAS_WHOLE);
    assert_int_equal(samples_merge(&scene->samples, &options, &scene->merged), DCP_OK);
}

static dcp_status scene_plan(struct scene *scene, bool convert)
{
    assert_int_equal(dcp_state_status(scene->root), DCP_OK);
    assert_int_equal(flatten_state(scene->root, &scene->flat), DCP_OK);
    return load_plan_make(&scene->flat, &scene->merged.metadata, NULL, convert, &scene->plan,
                          &scene->differences);
}

static void scene_free(struct scene *scene)
{
    load_plan_free(&scene->plan);
    load_differences_free(&scene->differences);
    flatten_free(&scene->flat);
    dcp_state_free(scene->root);
    merged_free(&scene->merged);
    samples_free(&scene->samples);
}

static dcp_state *want(dcp_state *parent, const char *key, dcp_dtype dtype, struct box box,
                       const int64_t *shape)
{
    dcp_tensor tensor = {.dtype = dtype, .ndim = box.ndim, .sharded = true};
    for (int32_t dim = 0; dim < box.ndim; dim++) {
        tensor.global_shape[dim] = shape[dim];
        tensor.offsets[dim] = box.offsets[dim];
        tensor.sizes[dim] = box.sizes[dim];
    }
    return dcp_state_tensor(parent, key, &tensor);
}

static void expect_line(const struct scene *scene, size_t line, dcp_difference difference,
                        const char *name, const char *detail)
{
    assert_true(line < scene->differences.count);
    assert_int_equal(scene->differences.lines[line].difference, difference);
    assert_string_equal(scene->differences.lines[line].name, name);
    assert_string_equal(scene->differences.lines[line].detail, detail);
}

static void shard_rows(struct samples *samples, const char *name, int64_t rows)
{
    int64_t share = (rows + samples->count - 1) / samples->count;
    for (int rank = 0; rank < samples->count; rank++) {
        int64_t begin = rank * share < rows ? rank * share : rows;
        int64_t end = begin + share < rows ? begin + share : rows;
        sample_tensor(samples, rank, name, DCP_F32, BOX(2, DIMS(begin, 0), DIMS(end - begin, 2)),
                      DIMS(rows, 2));
    }
}

/* PyTorch's TestLoadPlan: rows saved by some ranks, loaded by others; the regions follow from the
 * cuts of both. */
static void check_world(int savers, int loaders, int64_t rows)
{
    int64_t share = (rows + loaders - 1) / loaders;
    int64_t stored_share = (rows + savers - 1) / savers;
    for (int rank = 0; rank < loaders; rank++) {
        struct scene scene;
        int64_t begin = rank * share < rows ? rank * share : rows;
        int64_t end = begin + share < rows ? begin + share : rows;
        scene_save(&scene, savers);
        shard_rows(&scene.samples, "w", rows);
        scene_merge(&scene);
        want(scene.root, "w", DCP_F32, BOX(2, DIMS(begin, 0), DIMS(end - begin, 2)), DIMS(rows, 2));
        assert_int_equal(scene_plan(&scene, false), DCP_OK);
        int64_t position = begin;
        for (size_t i = 0; i < scene.plan.count; i++) {
            const struct read_item *item = &scene.plan.items[i];
            int64_t stored_end = ((int64_t)item->piece + 1) * stored_share;
            assert_int_equal(item->piece, position / stored_share);
            assert_int_equal(item->region.offsets[0], position);
            position += item->region.sizes[0];
            assert_int_equal(position, stored_end < end ? stored_end : end);
            assert_int_equal(item->region.sizes[1], 2);
        }
        assert_int_equal(position, end);
        assert_int_equal(scene.plan.bytes_wanted, 8 * (end - begin));
        assert_int_equal(scene.differences.count, 0);
        scene_free(&scene);
    }
}

static void rows_go_to_other_worlds(void **state)
{
    (void)state;
    check_world(4, 8, 64);
    check_world(8, 4, 64);
    check_world(4, 3, 12);
    check_world(4, 3, 1000);
    check_world(3, 7, 5);
    check_world(1, 1, 1);
    check_world(16, 1, 16);
    check_world(1, 16, 16);
}

static void grids_meet_grids(void **state)
{
    (void)state;
    struct scene scene;
    scene_save(&scene, 4);
    for (int rank = 0; rank < 4; rank++)
        sample_tensor(&scene.samples, rank, "w", DCP_F32,
                      BOX(2, DIMS(3 * (rank / 2), 3 * (rank % 2)), DIMS(rank / 2 ? 2 : 3, 3)),
                      DIMS(5, 6));
    scene_merge(&scene);
    dcp_state *node = want(scene.root, "w", DCP_F32, BOX(2, DIMS(2, 2), DIMS(2, 2)), DIMS(5, 6));
    dcp_tensor corner = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .global_shape = {5, 6},
                         .offsets = {4, 5},
                         .sizes = {1, 1}};
    assert_int_equal(dcp_state_add_chunk(node, &corner), DCP_OK);
    assert_int_equal(scene_plan(&scene, false), DCP_OK);
    assert_int_equal(scene.plan.count, 5);
    int64_t elements = 0;
    for (size_t i = 0; i < 5; i++)
        elements += box_volume(scene.plan.items[i].region);
    assert_int_equal(elements, 5);
    assert_int_equal(scene.plan.items[4].piece, 3);
    scene_free(&scene);
}

static void scalars_objects_and_nothing(void **state)
{
    (void)state;
    struct scene scene;
    scene_save(&scene, 2);
    sample_tensor(&scene.samples, 0, "step", DCP_I64, BOX(0, DIMS(0), DIMS(0)), DIMS(0));
    sample_tensor(&scene.samples, 0, "none", DCP_I64, BOX(1, DIMS(0), DIMS(0)), DIMS(0));
    sample_object(&scene.samples, 1, "lr", 1261);
    scene_merge(&scene);
    want(scene.root, "step", DCP_I64, BOX(0, DIMS(0), DIMS(0)), DIMS(0));
    want(scene.root, "none", DCP_I64, BOX(1, DIMS(0), DIMS(0)), DIMS(0));
    dcp_state_none(scene.root, "lr");
    assert_int_equal(scene_plan(&scene, false), DCP_OK);
    assert_int_equal(scene.plan.count, 2);
    assert_int_equal(scene.plan.items[0].wanted, 0);
    assert_int_equal(scene.plan.items[1].wanted, 2);
    assert_int_equal(scene.plan.items[1].entry, 2);
    assert_int_equal(scene.plan.bytes_wanted, 8);
    assert_int_equal(scene.differences.entry_count, 3);
    assert_int_equal(scene.differences.wanted[0], 7);
    scene_free(&scene);
}

static void missing_names_are_differences(void **state)
{
    (void)state;
    struct scene scene;
    scene_save(&scene, 1);
    sample_object(&scene.samples, 0, "cfg", 1261);
    sample_tensor(&scene.samples, 0, "model", DCP_F32, BOX(1, DIMS(0), DIMS(1)), DIMS(1));
    scene_merge(&scene);
    dcp_state_int(dcp_state_dict(scene.root, "cfg"), "a", 1);
    dcp_state_int(dcp_state_dict(scene.root, "model"), "b", 1);
    dcp_state_int(scene.root, "c", 1);
    assert_int_equal(scene_plan(&scene, false), DCP_OK);
    assert_int_equal(scene.plan.count, 0);
    assert_int_equal(scene.differences.count, 3);
    expect_line(&scene, 0, DCP_DIFFERENCE_MISSING, "cfg.a",
                "its parent \"cfg\" is stored as one object");
    expect_line(&scene, 1, DCP_DIFFERENCE_MISSING, "model.b", "");
    expect_line(&scene, 2, DCP_DIFFERENCE_MISSING, "c", "");
    assert_int_equal(scene.differences.failure, DCP_OK);
    assert_int_equal(scene.differences.wanted[0], 0);
    scene_free(&scene);
}

static void mismatches_are_differences(void **state)
{
    (void)state;
    struct scene scene;
    scene_save(&scene, 1);
    sample_tensor(&scene.samples, 0, "shape", DCP_F32, BOX(2, DIMS(0, 0), DIMS(4, 3)), DIMS(4, 3));
    sample_tensor(&scene.samples, 0, "dtype", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    sample_tensor(&scene.samples, 0, "tensor", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    sample_object(&scene.samples, 0, "object", 1261);
    scene_merge(&scene);
    want(scene.root, "shape", DCP_F32, BOX(2, DIMS(0, 0), DIMS(3, 4)), DIMS(3, 4));
    want(scene.root, "dtype", DCP_BF16, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    dcp_state_int(scene.root, "tensor", 1);
    want(scene.root, "object", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    assert_int_equal(scene_plan(&scene, false), DCP_OK);
    assert_int_equal(scene.plan.count, 0);
    assert_int_equal(scene.differences.count, 4);
    expect_line(&scene, 0, DCP_DIFFERENCE_MISMATCHED, "shape", "stored [4, 3], wanted [3, 4]");
    expect_line(&scene, 1, DCP_DIFFERENCE_MISMATCHED, "dtype", "stored float32, wanted bfloat16");
    expect_line(&scene, 2, DCP_DIFFERENCE_MISMATCHED, "tensor",
                "stored a tensor, wanted an object");
    expect_line(&scene, 3, DCP_DIFFERENCE_MISMATCHED, "object",
                "stored an object, wanted a tensor");
    assert_int_equal(scene.differences.failure, DCP_ERR_SHAPE);
    assert_int_equal(scene.differences.wanted[0], 15);
    scene_free(&scene);
}

static void conversion_is_reported(void **state)
{
    (void)state;
    struct scene scene;
    scene_save(&scene, 1);
    sample_tensor(&scene.samples, 0, "a", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    sample_tensor(&scene.samples, 0, "b", DCP_C64, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    scene_merge(&scene);
    want(scene.root, "a", DCP_BF16, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    want(scene.root, "b", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    assert_int_equal(scene_plan(&scene, true), DCP_OK);
    assert_int_equal(scene.plan.count, 1);
    assert_int_equal(scene.plan.bytes_wanted, 16); /* as stored */
    expect_line(&scene, 0, DCP_DIFFERENCE_CONVERTED, "a", "float32 -> bfloat16");
    expect_line(&scene, 1, DCP_DIFFERENCE_MISMATCHED, "b", "stored complex64, wanted float32");
    assert_int_equal(scene.differences.failure, DCP_ERR_DTYPE);
    scene_free(&scene);
}

/* Metadata that was not checked, such as that of a union of checkpoints. */
static void holes_and_overlaps_are_errors(void **state)
{
    (void)state;
    static const int64_t moved[] = {5};
    struct scene scene;
    scene_save(&scene, 2);
    for (int rank = 0; rank < 2; rank++)
        sample_tensor(&scene.samples, rank, "w", DCP_F32, BOX(1, DIMS(4 * rank), DIMS(4)), DIMS(8));
    scene_merge(&scene);
    struct metadata_piece *second = &scene.merged.metadata.entries[0].pieces[1];
    second->offsets = moved;
    want(scene.root, "w", DCP_F32, BOX(1, DIMS(2), DIMS(4)), DIMS(8));
    assert_int_equal(scene_plan(&scene, false), DCP_ERR_COVERAGE);
    assert_string_equal(dcp_error_message(),
                        "\"w\": the checkpoint does not hold [4:5] of the wanted box [2:6]");
    load_plan_free(&scene.plan);
    load_differences_free(&scene.differences);
    flatten_free(&scene.flat);
    second->offsets = DIMS(3);
    assert_int_equal(scene_plan(&scene, false), DCP_ERR_OVERLAP);
    assert_non_null(strstr(dcp_error_message(), "\"w\": stored [0:4] (__0_0.g2.distcp at "));
    assert_non_null(strstr(dcp_error_message(), "overlaps [3:7] (__1_0.g2.distcp at "));
    scene_free(&scene);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct scene scene;
    scene_save(&scene, 8);
    shard_rows(&scene.samples, "w", 64);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        shard_rows(&scene.samples, name, 8);
        sample_object(&scene.samples, 0, name + 1, 1261);
        want(scene.root, name, DCP_BF16, BOX(2, DIMS(1, 0), DIMS(3, 2)), DIMS(8, 2));
    }
    scene_merge(&scene);
    dcp_state_int(scene.root, "1", 0);
    dcp_state_int(scene.root, "absent", 0);
    /* enough chunks that the pieces are sorted */
    dcp_state *node = want(scene.root, "w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(0, 2)), DIMS(64, 2));
    for (int64_t i = 0; i < 600; i++) {
        dcp_tensor chunk = {.dtype = DCP_F32, .ndim = 2, .sharded = true, .global_shape = {64, 2}};
        chunk.offsets[0] = i / 2 % 64;
        chunk.offsets[1] = i % 2;
        chunk.sizes[0] = i < 128;
        chunk.sizes[1] = 1;
        assert_int_equal(dcp_state_add_chunk(node, &chunk), DCP_OK);
    }
    assert_int_equal(flatten_state(scene.root, &scene.flat), DCP_OK);
    for (long n = 1;; n++) {
        struct load_plan plan;
        struct load_differences differences;
        failing_allocator_install(n, false);
        dcp_status status =
            load_plan_make(&scene.flat, &scene.merged.metadata, NULL, true, &plan, &differences);
        size_t count = plan.count;
        load_plan_free(&plan);
        load_differences_free(&differences);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached) {
            assert_int_equal(count, 300 + 1 + 128);
            break;
        }
    }
    scene_free(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_to_other_worlds),
        cmocka_unit_test(grids_meet_grids),
        cmocka_unit_test(scalars_objects_and_nothing),
        cmocka_unit_test(missing_names_are_differences),
        cmocka_unit_test(mismatches_are_differences),
        cmocka_unit_test(conversion_is_reported),
        cmocka_unit_test(holes_and_overlaps_are_errors),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
