/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that are ranges of one compressed stream are read as they lie in it, and what is written
 * is the same in any order, at once or in steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_order.h"
#include "convert/convert_scene.h"
#include "convert/transform.h"
#include "fault/failing_allocator.h"

enum { PARTS = 16, WIDTH = 5000 };

/* "w" becomes p15 to p00, and one of these another dtype: by their names they lie from the end on.
 */
static char *write_rules(void **state)
{
    char rules[1024] = "{\"rules\": [{\"split\": \"w\", \"dim\": 0, \"to\": [";
    for (int i = PARTS; i-- > 0;)
        snprintf(rules + strlen(rules), sizeof rules - strlen(rules), "\"p%02d\"%s", i,
                 i > 0 ? ", " : "");
    strcat(rules, "]}, {\"cast\": \"p05\", \"dtype\": \"float64\"}]}");
    scene_write(*state, "rules.json", rules);
    return strdup(path_in(state, "rules.json"));
}

static char *save(void **state, const char *name, dcp_compression compression)
{
    static float elements[PARTS * WIDTH];
    const dcp_save_options options = {.compression = compression, .skip_sync = true};
    dcp_tensor tensor = {
        .dtype = DCP_F32, .ndim = 2, .global_shape = {PARTS, WIDTH}, .data = elements};
    dcp_state *root = dcp_state_new();
    uint32_t noise = 1;
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
        noise = noise * 1664525 + 1013904223;
        elements[i] = (float)(noise >> 8);
    }
    tensor.global_shape[0] = 1;
    assert_non_null(dcp_state_tensor(root, "other", &tensor));
    tensor.global_shape[0] = PARTS;
    assert_non_null(dcp_state_tensor(root, "w", &tensor));
    must(dcp_save(root, path_in(state, name), &options));
    dcp_state_free(root);
    return strdup(path_in(state, name));
}

struct ordered {
    struct convert_source source;
    struct convert_run runs[PARTS + 1];
    struct convert_run *order[PARTS + 1];
};

static int compare_names(const void *one, const void *other)
{
    const struct convert_run *a = one, *b = other;
    return strcmp(a->item->name, b->item->name);
}

static void open_runs(struct ordered *ordered, const char *path, const dcp_convert_options *options)
{
    must(convert_source_open(&ordered->source, path, options));
    must(convert_select(&ordered->source));
    must(convert_transform(&ordered->source));
    assert_int_equal(ordered->source.count, PARTS + 1);
    for (size_t i = 0; i < PARTS + 1; i++)
        ordered->runs[i] = (struct convert_run){.item = &ordered->source.items[i]};
    qsort(ordered->runs, PARTS + 1, sizeof *ordered->runs, compare_names);
}

static void streams_are_read_in_order(void **state)
{
    char *rules = write_rules(state);
    const dcp_convert_options options = {.transform = rules};
    for (int compressed = 0; compressed <= DCP_HAVE_ZSTD; compressed++) {
        static struct ordered ordered;
        char *from = save(state, compressed ? "zstd" : "plain",
                          compressed ? DCP_COMPRESSION_ZSTD : DCP_COMPRESSION_NONE);
        open_runs(&ordered, from, &options);
        must(convert_order(&ordered.source, ordered.runs, PARTS + 1, ordered.order));
        for (int i = 0; i <= PARTS; i++) {
            char name[16] = "other";
            if (i > 0)
                snprintf(name, sizeof name, "p%02d", PARTS - i);
            assert_string_equal(ordered.order[i]->item->name,
                                compressed ? name : ordered.runs[i].item->name);
        }
        failing_allocator_install(1, false);
        dcp_status status = convert_order(&ordered.source, ordered.runs, PARTS + 1, ordered.order);
        failing_allocator_remove();
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
        convert_source_close(&ordered.source);
        free(from);
    }
    free(rules);
}

static void what_is_written_is_the_same(void **state)
{
    static const char *const names[] = {"file.pt", "file.safetensors"};
    char *rules = write_rules(state), *plain = save(state, "plain", DCP_COMPRESSION_NONE);
    char *packed =
        save(state, "packed", DCP_HAVE_ZSTD ? DCP_COMPRESSION_ZSTD : DCP_COMPRESSION_NONE);
    for (int i = 0; i < 2; i++) {
        char expected[4096], found[4096];
        dcp_convert_options options = {.form = i == 0 ? DCP_FORM_PT : DCP_FORM_SAFETENSORS,
                                       .transform = rules,
                                       .skip_sync = true,
                                       .thread_count = 3};
        snprintf(expected, sizeof expected, "%s", path_in(state, names[i]));
        snprintf(found, sizeof found, "%s/of-packed-%s", (const char *)*state, names[i]);
        must(dcp_convert(plain, expected, &options, NULL));
        must(dcp_convert(packed, found, &options, NULL));
        scene_same_file(expected, found);
        assert_int_equal(unlink(found), 0);
        options.resume = true;
        options.thread_count = 1;
        options.progress = scene_end_at_first;
        int calls = 1;
        for (; dcp_convert(packed, found, &options, NULL) == DCP_ERR_CANCELLED; calls++)
            assert_true(calls < 1000);
        assert_true(calls > 3);
        scene_same_file(expected, found);
    }
    free(rules);
    free(plain);
    free(packed);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(streams_are_read_in_order),
        TEST(what_is_written_is_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
