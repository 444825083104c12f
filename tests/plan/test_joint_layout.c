/* SPDX-License-Identifier: BSD-3-Clause */
/* What one rank knows of all ranks, because tensors say their mesh and placements, is what all
 * ranks together would tell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/mesh.h"
#include "fault/failing_allocator.h"
#include "samples.h"
#include "state/flatten.h"

/* A job whose ranks are divided in two dimensions. */
struct job {
    int rows, columns;
};

/* A rank's tree and plan. */
struct member {
    dcp_state *root;
    struct flat_state flat;
    struct save_plan plan;
};

static float memory[4096];

static void add(dcp_state *root, const char *name, const dcp_mesh *mesh, int64_t height,
                int64_t width, dcp_placement first, dcp_placement second)
{
    const dcp_placement placements[] = {first, second};
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {height, width}, .data = memory};
    assert_int_equal(dcp_mesh_shard(mesh, &tensor, placements), DCP_OK);
    assert_non_null(dcp_state_tensor(root, name, &tensor));
}

static dcp_state *make_tree(const struct job *job, int rank)
{
    dcp_state *root = dcp_state_new();
    dcp_mesh mesh = {.ndim = 2, .shape = {job->rows, job->columns}, .rank = rank};
    dcp_tensor plain = {.dtype = DCP_BF16, .ndim = 1, .global_shape = {5}, .data = memory};
    add(root, "grid", &mesh, 12, 18, dcp_shard(0), dcp_shard(1));
    add(root, "hybrid", &mesh, 12, 18, dcp_replicate(), dcp_shard(0));
    add(root, "same.shape", &mesh, 12, 18, dcp_shard(0), dcp_shard(1));
    add(root, "twice", &mesh, 13, 3, dcp_shard(0), dcp_shard(0));
    add(root, "uneven", &mesh, 7, 1, dcp_shard(-2), dcp_replicate());
    add(root, "nothing", &mesh, 0, 4, dcp_shard(0), dcp_shard(1));
    dcp_state_tensor(root, "plain", &plain);
    plain.ndim = 0;
    plain.global_shape[0] = 0;
    dcp_state_tensor(root, "scalar", &plain);
    dcp_state_int(root, "step", 3);
    assert_int_equal(dcp_state_status(root), DCP_OK);
    return root;
}

static void member_of(dcp_state *root, struct member *member)
{
    uint64_t lengths[16];
    for (size_t i = 0; i < 16; i++)
        lengths[i] = 1000 + i;
    member->root = root;
    assert_int_equal(flatten_state(root, &member->flat), DCP_OK);
    assert_true(member->flat.count <= 16);
    assert_int_equal(save_plan_local(&member->flat, lengths, &member->plan), DCP_OK);
}

static void member_free(struct member *member)
{
    save_plan_free(&member->plan);
    flatten_free(&member->flat);
    dcp_state_free(member->root);
}

static bool implies(const struct member *member, int rank, int ranks, uint64_t *digest)
{
    bool implies_all;
    uint64_t lengths;
    assert_int_equal(save_plan_implies_all(&member->plan, (uint32_t)rank, (uint32_t)ranks,
                                           &implies_all, digest, &lengths),
                     DCP_OK);
    return implies_all;
}

static dcp_status encode_order(void *context, uint32_t rank, const struct write_orders *orders)
{
    return write_orders_encode(orders, (struct buffer *)context + rank);
}

/* Each rank's orders are the same, whether the coordinator makes all or the rank its own. */
static void compare_orders(const struct joint_plan *joint)
{
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    struct buffer all[SAMPLE_RANKS_MAX], own[SAMPLE_RANKS_MAX];
    struct order_sink sink = {.take = encode_order, .context = all};
    struct metadata metadata;
    struct merge *merge;
    for (int rank = 0; rank < SAMPLE_RANKS_MAX; rank++) {
        buffer_init(&all[rank], 0);
        buffer_init(&own[rank], 0);
    }
    assert_int_equal(joint_plan_merge(joint, &options, &metadata, &merge), DCP_OK);
    assert_int_equal(merge_order_all(merge, 0, &sink), DCP_OK);
    merge_free(merge);
    assert_int_equal(joint_plan_merge(joint, &options, NULL, &merge), DCP_OK);
    sink.context = own;
    for (uint32_t rank = 0; rank < joint->rank_count; rank++) {
        assert_int_equal(merge_order_rank(merge, rank, &sink), DCP_OK);
        assert_int_equal(own[rank].size, all[rank].size);
        assert_memory_equal(own[rank].data, all[rank].data, all[rank].size);
    }
    merge_free(merge);
    for (int rank = 0; rank < SAMPLE_RANKS_MAX; rank++) {
        buffer_free(&all[rank]);
        buffer_free(&own[rank]);
    }
    metadata_free(&metadata);
}

static void one_rank_implies_what_all_hold(void **state)
{
    (void)state;
    for (int shape = 0; shape < 16; shape++) {
        const struct job job = {1 + shape / 4, 1 + shape % 4};
        int ranks = job.rows * job.columns;
        struct member members[SAMPLE_RANKS_MAX];
        struct joint_plan gathered, alone;
        uint64_t first;
        joint_plan_init(&gathered, (uint32_t)ranks);
        for (int rank = 0; rank < ranks; rank++) {
            member_of(make_tree(&job, rank), &members[rank]);
            assert_int_equal(joint_plan_add(&gathered, &members[rank].plan, (uint32_t)rank),
                             DCP_OK);
        }
        assert_true(implies(&members[0], 0, ranks, &first));
        for (int rank = 0; rank < ranks; rank++) {
            uint64_t digest;
            assert_true(implies(&members[rank], rank, ranks, &digest));
            assert_int_equal(digest, first);
            joint_plan_init(&alone, (uint32_t)ranks);
            assert_int_equal(joint_plan_add_all(&alone, &members[rank].plan), DCP_OK);
            sample_same_joint_plan(&gathered, &alone);
            joint_plan_free(&alone);
        }
        compare_orders(&gathered);
        joint_plan_free(&gathered);
        for (int rank = 0; rank < ranks; rank++)
            member_free(&members[rank]);
    }
}

/* What a change to rank 1 of 4 does: it tells nothing, or something else than rank 0. */
static void expect_difference(const dcp_tensor *tensor, bool implies_all)
{
    const struct job job = {2, 2};
    struct member odd, even;
    uint64_t first, second;
    dcp_state *root = make_tree(&job, 1);
    dcp_state_tensor(root, "odd", tensor);
    member_of(root, &odd);
    member_of(make_tree(&job, 0), &even);
    assert_int_equal(implies(&odd, 1, 4, &first), implies_all);
    assert_true(implies(&even, 0, 4, &second));
    if (implies_all)
        assert_int_not_equal(first, second);
    member_free(&odd);
    member_free(&even);
}

static void what_one_rank_cannot_know_is_not_implied(void **state)
{
    (void)state;
    const dcp_placement rows = dcp_shard(0), both[] = {dcp_shard(0), dcp_shard(0)};
    dcp_mesh mesh = {.ndim = 2, .shape = {2, 2}, .rank = 1};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {8}, .data = memory};
    expect_difference(&tensor, true); /* which rank 0 does not have */

    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, both), DCP_OK);
    expect_difference(&tensor, true);
    tensor.offsets[0]++; /* not what the layout says */
    expect_difference(&tensor, false);
    tensor.offsets[0]--;
    tensor.layout = (dcp_layout){0}; /* a chunk that says nothing */
    expect_difference(&tensor, false);

    mesh = (dcp_mesh){.ndim = 1, .shape = {2}, .rank = 1}; /* half of the ranks */
    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, &rows), DCP_OK);
    expect_difference(&tensor, false);
    mesh = (dcp_mesh){.ndim = 1, .shape = {4}, .rank = 2}; /* in another order */
    assert_int_equal(dcp_mesh_shard(&mesh, &tensor, &rows), DCP_OK);
    expect_difference(&tensor, false);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    const struct job job = {2, 2};
    struct member member;
    member_of(make_tree(&job, 3), &member);
    for (long n = 1;; n++) {
        struct joint_plan joint;
        bool implies_all;
        uint64_t digest, lengths;
        failing_allocator_install(n, false);
        joint_plan_init(&joint, 4);
        dcp_status status =
            save_plan_implies_all(&member.plan, 3, 4, &implies_all, &digest, &lengths);
        if (status == DCP_OK)
            status = joint_plan_add_all(&joint, &member.plan);
        joint_plan_free(&joint);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    member_free(&member);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_implies_what_all_hold),
        cmocka_unit_test(what_one_rank_cannot_know_is_not_implied),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
