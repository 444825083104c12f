/* SPDX-License-Identifier: BSD-3-Clause */
/* How a check is divided among threads: the data of large tensors into parts, each byte into one of
 * them; all of a file into ranges without gaps; and never into too many jobs, whatever sizes are
 * claimed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "dcp.h"
#include "fault/limited_allocator.h"
#include "format/streams/stream.h"
#include "storage/verify/verify_jobs.h"

enum { PIECES = 300, JOBS_MOST = 20000 };
static const uint64_t mebibyte = 1048576;

/* Metadata whose entries have one piece each, of bytes. */
struct scene {
    struct metadata metadata;
    struct metadata_entry entries[PIECES];
    struct metadata_piece pieces[PIECES];
    struct tensor_view views[PIECES];
    int64_t sizes[PIECES];
};

static void add(struct scene *scene, uint32_t file, uint64_t offset, int64_t bytes)
{
    static const int64_t zero[1] = {0};
    size_t i = scene->metadata.count++;
    struct stream_layout layout;
    scene->sizes[i] = bytes;
    assert_int_equal(stream_tensor_layout(DCP_U8, 1, &scene->sizes[i], &layout), DCP_OK);
    scene->pieces[i] = (struct metadata_piece){.offsets = zero,
                                               .sizes = &scene->sizes[i],
                                               .file = file,
                                               .offset = offset,
                                               .length = layout.length};
    scene->entries[i] = (struct metadata_entry){.name = "w",
                                                .is_tensor = true,
                                                .dtype = DCP_U8,
                                                .ndim = 1,
                                                .global_shape = &scene->sizes[i],
                                                .pieces = &scene->pieces[i],
                                                .piece_count = 1};
    scene->metadata.entries = scene->entries;
    scene->metadata.file_count = file + 1;
}

/* As a view of `bytes` in a record of a .pt file. */
static void add_view(struct scene *scene, uint64_t record, uint64_t length, int64_t bytes)
{
    size_t i = scene->metadata.count;
    add(scene, 0, record, bytes);
    scene->views[i] =
        (struct tensor_view){.has_crc = true, .data_offset = record, .data_length = length};
    scene->pieces[i].encoding = PIECE_VIEW;
    scene->pieces[i].length = length;
    scene->pieces[i].view = &scene->views[i];
}

/* As a range of a stream that another piece is a range of, too. */
static void add_range(struct scene *scene, uint64_t offset, int64_t bytes, int64_t *there)
{
    static struct stream_range range;
    size_t i = scene->metadata.count;
    struct stream_layout layout;
    range = (struct stream_range){1, there, 0};
    assert_int_equal(stream_tensor_layout(DCP_U8, 1, there, &layout), DCP_OK);
    add(scene, 0, offset, bytes);
    scene->pieces[i].encoding = PIECE_RANGE;
    scene->pieces[i].length = layout.length;
    scene->pieces[i].range = &range;
}

/* Jobs that are parts of one run of data, a span each. */
static void check_parts(const struct file_jobs *jobs, size_t first, size_t count, uint64_t offset,
                        uint64_t length)
{
    assert_true(count > 2);
    for (const struct file_job *part = &jobs->list[first]; count > 0; part++, count--) {
        const struct verify_span *span = &jobs->spans[part->first_span];
        assert_true(part->is_part);
        assert_int_equal(part->file, jobs->list[first].file);
        assert_int_equal(part->span_count, 1);
        assert_int_equal(span->offset, offset);
        assert_true(span->length <= length);
        offset += span->length;
        length -= span->length;
    }
    assert_int_equal(length, 0);
}

static void test_a_large_tensor_is_divided(void **state)
{
    (void)state;
    static struct scene scene;
    struct file_jobs jobs;
    scene = (struct scene){0};
    add(&scene, 0, 0, 1000);
    add(&scene, 0, 8192, (int64_t)(200 * mebibyte));
    add(&scene, 0, 300 * mebibyte, 1000);
    add(&scene, 1, 0, (int64_t)(40 * mebibyte));
    assert_int_equal(verify_jobs_make(&scene.metadata, STORAGE_DCP, &jobs), DCP_OK);
    uint64_t reached = 0, bytes = 0, stored = 0;
    size_t divided = 0, pieces = 0, first = 0;
    for (size_t i = 0; i < jobs.count; i++) {
        const struct file_job *job = &jobs.list[i];
        assert_int_equal(job->from, job->first ? 0 : reached);
        reached = job->end;
        first += job->first;
        assert_int_equal(job->accounts, job->first);
        assert_true(job->bytes <= 33 * mebibyte);
        bytes += job->bytes;
        pieces += job->count;
        if (job->parts == 0)
            continue;
        struct verify_span data;
        divided++;
        verify_expect_data(&jobs.placed[job->piece], &data);
        check_parts(&jobs, i - job->parts, job->parts, data.offset, data.length);
    }
    for (size_t i = 0; i < scene.metadata.count; i++)
        stored += scene.pieces[i].length;
    assert_int_equal(bytes, stored);
    assert_int_equal(pieces, scene.metadata.count);
    assert_int_equal(first, 2);
    assert_int_equal(divided, 2);
    verify_jobs_free(&jobs);
}

static void test_records_of_a_pt_file_are_divided_once(void **state)
{
    (void)state;
    static struct scene scene;
    struct file_jobs jobs;
    scene = (struct scene){0};
    const uint64_t length = 100 * mebibyte;
    for (size_t i = 0; i < 10; i++)
        add_view(&scene, 4096, length, (int64_t)(10 * mebibyte));
    add_view(&scene, 200 * mebibyte, 4096, 4096);
    assert_int_equal(verify_jobs_make(&scene.metadata, STORAGE_PT, &jobs), DCP_OK);
    const struct file_job *last = &jobs.list[jobs.count - 1];
    assert_true(jobs.list[0].first && !jobs.list[0].accounts && jobs.list[0].count == 0);
    assert_true(!last->first && last->accounts);
    assert_int_equal(last->count, 11);
    assert_int_equal(last->parts, jobs.count - 2);
    check_parts(&jobs, 1, last->parts - 1, 4096, length);
    assert_int_equal(jobs.spans[jobs.list[last->parts].first_span].offset, 200 * mebibyte);
    verify_jobs_free(&jobs);
}

/* Each record is in one part, which lies around it; what is far from others begins a part. */
static void test_small_records_of_a_pt_file_share_parts(void **state)
{
    (void)state;
    static struct scene scene;
    struct file_jobs jobs;
    scene = (struct scene){0};
    const uint64_t length = mebibyte, step = mebibyte + 4096;
    for (size_t i = 0; i < 100; i++)
        add_view(&scene, 4096 + i * step, length, (int64_t)length);
    for (size_t i = 0; i < 10; i++)
        add_view(&scene, 200 * mebibyte + i * step, length, (int64_t)length);
    assert_int_equal(verify_jobs_make(&scene.metadata, STORAGE_PT, &jobs), DCP_OK);
    const struct file_job *last = &jobs.list[jobs.count - 1];
    size_t next = 0;
    for (const struct file_job *part = last - last->parts; part < last; part++) {
        assert_int_equal(part->first_span, next);
        assert_true(part->span_count > 0 && part->bytes <= 17 * mebibyte);
        assert_int_equal(part->bytes, part->span_count * length);
        for (; next < part->first_span + part->span_count; next++) {
            assert_int_equal(jobs.spans[next].offset, scene.views[next].data_offset);
            assert_int_equal(jobs.spans[next].length, length);
            assert_true(part->from <= jobs.spans[next].offset);
            assert_true(jobs.spans[next].offset + length <= part->end);
        }
        assert_true(part->end <= 200 * mebibyte || part->from >= 200 * mebibyte);
    }
    assert_int_equal(next, 110);
    assert_in_range(last->parts, 8, 10);
    verify_jobs_free(&jobs);
}

static void test_a_stream_with_many_ranges_is_checked_once(void **state)
{
    (void)state;
    static struct scene scene;
    struct file_jobs jobs;
    int64_t there = (int64_t)(100 * mebibyte);
    scene = (struct scene){0};
    for (size_t i = 0; i < 10; i++)
        add_range(&scene, 8192 + i % 2 * 200 * mebibyte, (int64_t)mebibyte, &there);
    add(&scene, 0, 400 * mebibyte, 1000);
    add(&scene, 0, 400 * mebibyte, 1000); /* the same place, but not ranges */
    assert_int_equal(verify_jobs_make(&scene.metadata, STORAGE_TRAINING, &jobs), DCP_OK);
    assert_int_equal(jobs.placed_count, 4);
    struct verify_span data;
    verify_expect_data(&jobs.placed[0], &data);
    assert_int_equal(data.length, 100 * mebibyte);
    size_t divided = 0;
    for (size_t i = 0; i < jobs.count; i++)
        divided += jobs.list[i].parts > 2;
    assert_int_equal(divided, 2);
    verify_jobs_free(&jobs);
}

/* One above the other, in one file; and each in a file of its own. */
static void test_there_are_not_too_many(void **state)
{
    (void)state;
    static struct scene scene;
    limited_allocator_install(64 * mebibyte);
    for (int separate = 0; separate < 2; separate++)
        for (int shift = 40; shift <= 62; shift++) {
            struct file_jobs jobs;
            scene = (struct scene){0};
            for (uint32_t i = 0; i < PIECES; i++)
                add(&scene, separate ? i : 0, (uint64_t)i * 4096, INT64_C(1) << shift);
            assert_int_equal(verify_jobs_make(&scene.metadata, STORAGE_DCP, &jobs), DCP_OK);
            assert_true(jobs.count < JOBS_MOST);
            verify_jobs_free(&jobs);
        }
    dcp_set_allocator(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_large_tensor_is_divided),
        cmocka_unit_test(test_records_of_a_pt_file_are_divided_once),
        cmocka_unit_test(test_small_records_of_a_pt_file_share_parts),
        cmocka_unit_test(test_a_stream_with_many_ranges_is_checked_once),
        cmocka_unit_test(test_there_are_not_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
