/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversions whose every allocation fails in turn: they end with a status, and leave nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"
#include "fault/failing_allocator.h"

static void save_small(const char *path)
{
    float data[6] = {1, 2, 3, 4, 5, 6};
    dcp_state *root = dcp_state_new();
    dcp_state *list = dcp_state_list(dcp_state_dict(root, "model"), "blocks");
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {3, 2}, .data = data};
    assert_non_null(dcp_state_tensor(list, NULL, &tensor));
    assert_non_null(dcp_state_tensor(root, "lm_head.weight", &tensor));
    assert_non_null(dcp_state_tensor(root, "model.embed_tokens.weight", &tensor));
    must(dcp_state_int(root, "step", 3));
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
}

static void fail_each(void **state, const char *from, const char *name,
                      const dcp_convert_options *options);

static void fail_each_allocation(void **state, const char *from, const char *name, dcp_form form)
{
    static const dcp_convert_rename rename[] = {{DCP_RENAME_GLOB, "model.blocks.*", "b.*"}};
    static const char *const exclude[] = {"step"};
    const dcp_convert_options options = {.form = form,
                                         .exclude = exclude,
                                         .exclude_count = 1,
                                         .renames = rename,
                                         .rename_count = 1,
                                         .thread_count = 1,
                                         .tied = DCP_TIED_DROP,
                                         .skip_sync = true};
    fail_each(state, from, name, &options);
}

static void fail_each(void **state, const char *from, const char *name,
                      const dcp_convert_options *options)
{
    for (long n = 1;; n++) {
        char unique[64];
        snprintf(unique, sizeof unique, "%ld-%s", n, name);
        const char *to = path_in(state, unique);
        failing_allocator_install(n, false);
        dcp_status status = dcp_convert(from, to, options, NULL);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (status != DCP_OK) {
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
            scene_expect_size(to, -1);
        }
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
    }
}

static void every_allocation_may_fail(void **state)
{
    /* The strings of path_in() are used again. */
    char *from = strdup(path_in(state, "source")), *file = strdup(path_in(state, "source.pt"));
    save_small(from);
    must(dcp_convert(from, file, NULL, NULL));
    fail_each_allocation(state, from, "file.pt", DCP_FORM_PT);
    fail_each_allocation(state, file, "again.pt", DCP_FORM_PT);
    fail_each_allocation(state, file, "file.safetensors", DCP_FORM_SAFETENSORS);
    fail_each_allocation(state, from, "model", DCP_FORM_HF);
    free(from);
    free(file);
}

/* A model of one packed weight, dequantized, and transformed. */
static void computing_may_fail(void **state)
{
    static const char config[] =
        "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
        "\"pack-quantized\", \"config_groups\": {\"g\": {\"targets\": [\"re:.*l\"], "
        "\"weights\": {\"num_bits\": 4, \"group_size\": 4, \"strategy\": \"group\"}}}}}";
    static const char rules[] =
        "{\"rules\": [{\"transpose\": \"l.weight\", \"dims\": [0, 1]}, {\"split\": \"l.weight\", "
        "\"to\": [\"a.0\", \"a.1\"], \"dim\": 0}, {\"stack\": \"a.#\", \"to\": \"b\", \"dim\": 1}, "
        "{\"cast\": \"b\", \"dtype\": \"float16\"}, {\"pad\": \"b\", \"dim\": 0, \"multiple\": "
        "3}]}";
    int32_t packed[2] = {0x12345678, 0x1a2b3c4d}, zeros[2] = {0x11, 0x22};
    float scales[4] = {1, 2, 3, 4};
    int64_t shape[2] = {2, 8};
    char *from = strdup(path_in(state, "source")), *model = strdup(path_in(state, "model"));
    dcp_state *root = dcp_state_new();
    const dcp_tensor parts[] = {
        {.dtype = DCP_I32, .ndim = 2, .global_shape = {2, 1}, .data = packed},
        {.dtype = DCP_F32, .ndim = 2, .global_shape = {2, 2}, .data = scales},
        {.dtype = DCP_I64, .ndim = 1, .global_shape = {2}, .data = shape},
        {.dtype = DCP_I32, .ndim = 2, .global_shape = {1, 2}, .data = zeros},
    };
    static const char *const names[] = {"l.weight_packed", "l.weight_scale", "l.weight_shape",
                                        "l.weight_zero_point"};
    for (size_t i = 0; i < 4; i++)
        assert_non_null(dcp_state_tensor(root, names[i], &parts[i]));
    must(dcp_save(root, from, NULL));
    dcp_state_free(root);
    must(dcp_convert(from, model, &(dcp_convert_options){.form = DCP_FORM_HF}, NULL));
    scene_write(model, "config.json", config);
    scene_write(*state, "rules.json", rules);
    char *file = strdup(path_in(state, "rules.json"));
    fail_each(state, model, "to.safetensors",
              &(dcp_convert_options){
                  .dequantize = DCP_F32, .transform = file, .thread_count = 1, .skip_sync = true});
    free(from);
    free(model);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_allocation_may_fail, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(computing_may_fail, directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
