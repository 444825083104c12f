/* SPDX-License-Identifier: BSD-3-Clause */
/* Quantized models: every value of the fixtures, whose expected ones the references computed; ends
 * of pieces; what is missing, does not fit or is another method. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"
#include "convert/expected_tensors.h"
#include "convert/quantized_weight.h"
#include "state/small_float.h"

static const char *const models[] = {"fp8_block",  "mxfp4",    "ct_fp8",   "ct_int4_packed",
                                     "ct_int_odd", "ct_nvfp4", "ct_mxfp4", "ct_g_idx"};
enum { MODEL_COUNT = sizeof models / sizeof *models };

static const char *model_path(const char *name, const char *file)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s%s", MODELS, name, file);
    return path;
}

static void every_value_is_the_references(void **state)
{
    static const struct {
        dcp_dtype dtype;
        const char *kind;
    } wanted[] = {{DCP_DTYPE_NONE, "stored"}, {DCP_BF16, "bf16"}, {DCP_F32, "fp32"}};
    for (size_t i = 0; i < MODEL_COUNT; i++)
        for (size_t k = 0; k < sizeof wanted / sizeof *wanted; k++) {
            char name[64], to[4096];
            dcp_convert_report report;
            dcp_convert_options options = {.dequantize = wanted[k].dtype, .skip_sync = true};
            snprintf(name, sizeof name, "%s-%s.safetensors", models[i], wanted[k].kind);
            snprintf(to, sizeof to, "%s", path_in(state, name));
            must(dcp_convert(model_path(models[i], ""), to, &options, &report));
            assert_int_equal(report.dequantized > 0, k > 0);
            expect_tensors(to, model_path(models[i], "/expected.txt"), wanted[k].kind);
        }
}

/* Parts of tensors are those of the whole. */
static void ranks_and_directories_hold_the_same(void **state)
{
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        char name[64], to[4096];
        size_t size;
        snprintf(name, sizeof name, "%s-dcp", models[i]);
        snprintf(to, sizeof to, "%s", path_in(state, name));
        must(dcp_convert(
            model_path(models[i], ""), to,
            &(dcp_convert_options){
                .form = DCP_FORM_DCP, .dequantize = DCP_F32, .ranks = 3, .skip_sync = true},
            NULL));
        expect_tensors(to, model_path(models[i], "/expected.txt"), "fp32");
        snprintf(name, sizeof name, "%s-hf", models[i]);
        snprintf(to, sizeof to, "%s", path_in(state, name));
        must(dcp_convert(model_path(models[i], ""), to,
                         &(dcp_convert_options){.form = DCP_FORM_HF,
                                                .dequantize = DCP_BF16,
                                                .shard_size = 20000,
                                                .skip_sync = true},
                         NULL));
        expect_tensors(to, model_path(models[i], "/expected.txt"), "bf16");
        snprintf(to + strlen(to), 16, "/config.json");
        char *config = scene_read(to, &size);
        assert_null(strstr(config, "quantization_config"));
        assert_non_null(strstr(config, "\"dtype\": \"bfloat16\""));
        free(config);
    }
}

/* ---- models made here ---- */

static void add(dcp_state *root, const char *name, dcp_dtype dtype, int32_t ndim,
                const int64_t *shape, const void *data)
{
    dcp_tensor tensor = {.dtype = dtype, .ndim = ndim, .data = (void *)data};
    memcpy(tensor.global_shape, shape, (size_t)ndim * sizeof *shape);
    assert_non_null(dcp_state_tensor(root, name, &tensor));
}

/* Saves the tensors as a Hugging Face directory with a config.json. */
static const char *save_model(void **state, dcp_state *root, const char *config)
{
    static char path[4096];
    char from[4096];
    static int count;
    snprintf(from, sizeof from, "%s-%d", path_in(state, "from"), count);
    snprintf(path, sizeof path, "%s-%d", path_in(state, "model"), count++);
    must(dcp_save(root, from, &(dcp_save_options){.skip_sync = true}));
    dcp_state_free(root);
    must(dcp_convert(from, path, &(dcp_convert_options){.form = DCP_FORM_HF, .skip_sync = true},
                     NULL));
    scene_write(path, "config.json", config);
    return path;
}

static float *read_floats(void **state, const char *model, const char *name, size_t *count)
{
    const char *to = path_in(state, "read.safetensors");
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    size_t index;
    remove(to);
    must(dcp_convert(model, to, &(dcp_convert_options){.dequantize = DCP_F32, .skip_sync = true},
                     NULL));
    must(dcp_checkpoint_open(to, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
    for (int32_t d = 0; d < entry.ndim; d++)
        tensor.global_shape[d] = entry.global_shape[d];
    float *values = malloc((size_t)entry.bytes);
    assert_non_null(values);
    tensor.data = values;
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL));
    dcp_checkpoint_close(checkpoint);
    *count = (size_t)entry.bytes / sizeof *values;
    return values;
}

static unsigned char *noise(size_t size, unsigned seed)
{
    unsigned char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++) {
        seed = seed * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(seed >> 24);
    }
    return bytes;
}

/* Rows that are longer than what is computed at once, in blocks that end anywhere. */
static void long_rows_of_blocks(void **state)
{
    enum { ROWS = 5, COLUMNS = 300007, HEIGHT = 3, WIDTH = 100, ACROSS = 3001 };
    unsigned char *bytes = noise((size_t)ROWS * COLUMNS, 1);
    float *scales = malloc(2 * ACROSS * sizeof *scales);
    size_t count;
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++)
        bytes[i] = (bytes[i] & 0x7f) == 0x7f ? 0 : bytes[i];
    for (int i = 0; i < 2 * ACROSS; i++)
        scales[i] = 0.001f * (float)(i + 1);
    dcp_state *root = dcp_state_new();
    add(root, "w.weight", DCP_F8_E4M3FN, 2, (int64_t[]){ROWS, COLUMNS}, bytes);
    add(root, "w.weight_scale_inv", DCP_F32, 2, (int64_t[]){2, ACROSS}, scales);
    const char *model = save_model(state, root,
                                   "{\"quantization_config\": {\"quant_method\": \"fp8\", "
                                   "\"weight_block_size\": [3, 100]}}");
    float *values = read_floats(state, model, "w.weight", &count);
    assert_int_equal(count, (size_t)ROWS * COLUMNS);
    for (size_t i = 0; i < count; i++) {
        size_t row = i / COLUMNS, column = i % COLUMNS;
        float expected = e4m3fn_to_f32(bytes[i]) * scales[row / HEIGHT * ACROSS + column / WIDTH];
        if (memcmp(&values[i], &expected, sizeof expected) != 0)
            fail_msg("element %zu", i);
    }
    free(values);
    free(bytes);
    free(scales);
}

static int bits_of(const uint32_t *words, size_t bit, unsigned bits)
{
    int value = 0;
    for (unsigned i = 0; i < bits; i++)
        value |= (int)(words[(bit + i) / 32] >> (bit + i) % 32 & 1) << i;
    return value;
}

/* Packed numbers of every width, with zero points. */
static void packed_numbers_of_every_width(void **state)
{
    enum { ROWS = 37, COLUMNS = 8200, GROUP = 41, ACROSS = 200 };
    float scales[ROWS * ACROSS];
    for (int i = 0; i < ROWS * ACROSS; i++)
        scales[i] = 0.25f * (float)(i % 97 + 1);
    for (unsigned bits = 1; bits <= 8; bits++) {
        size_t words = (COLUMNS * bits + 31) / 32, zero_words = (ROWS * bits + 31) / 32, count;
        uint32_t *packed = (uint32_t *)noise(ROWS * words * 4, bits);
        uint32_t *zeros = (uint32_t *)noise(zero_words * ACROSS * 4, 99 + bits);
        uint32_t column_words[16];
        char config[512];
        dcp_state *root = dcp_state_new();
        add(root, "m.weight_packed", DCP_I32, 2, (int64_t[]){ROWS, (int64_t)words}, packed);
        add(root, "m.weight_scale", DCP_F32, 2, (int64_t[]){ROWS, ACROSS}, scales);
        add(root, "m.weight_shape", DCP_I64, 1, (int64_t[]){2}, (int64_t[]){ROWS, COLUMNS});
        add(root, "m.weight_zero_point", DCP_I32, 2, (int64_t[]){(int64_t)zero_words, ACROSS},
            zeros);
        snprintf(config, sizeof config,
                 "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
                 "\"pack-quantized\", \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], "
                 "\"weights\": {\"num_bits\": %u, \"group_size\": 41, \"strategy\": \"group\", "
                 "\"type\": \"int\"}}}}}",
                 bits);
        float *values = read_floats(state, save_model(state, root, config), "m.weight", &count);
        assert_int_equal(count, ROWS * COLUMNS);
        for (size_t i = 0; i < count; i++) {
            size_t row = i / COLUMNS, column = i % COLUMNS, group = column / GROUP;
            for (size_t k = 0; k < zero_words; k++)
                column_words[k] = zeros[k * ACROSS + group];
            int value = bits_of(packed + row * words, column * bits, bits) -
                        bits_of(column_words, row * bits, bits);
            if (values[i] != (float)value * scales[row * ACROSS + group])
                fail_msg("%u bits, element %zu", bits, i);
        }
        free(values);
        free(packed);
        free(zeros);
    }
}

/* Before 0.18, 10 numbers of 3 bits had a word: 80 of them as many as now. */
static void packing_of_old_versions(void **state)
{
    static const struct {
        const char *version;
        int bits;
        bool refused;
    } cases[] = {{"0.17.1", 3, true},  {"0.9", 3, true},  {"0.17.1", 4, false},
                 {"0.18.0", 3, false}, {"1.0", 3, false}, {"of mine", 3, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t words = (80 * cases[i].bits + 31) / 32;
        uint32_t packed[10] = {1};
        float scale = 1;
        char config[512];
        size_t count;
        dcp_state *root = dcp_state_new();
        add(root, "m.weight_packed", DCP_I32, 2, (int64_t[]){1, words}, packed);
        add(root, "m.weight_scale", DCP_F32, 2, (int64_t[]){1, 1}, &scale);
        add(root, "m.weight_shape", DCP_I64, 1, (int64_t[]){2}, (int64_t[]){1, 80});
        snprintf(config, sizeof config,
                 "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
                 "\"pack-quantized\", \"version\": \"%s\", \"config_groups\": {\"g\": "
                 "{\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": %d, "
                 "\"strategy\": \"channel\", \"type\": \"int\"}}}}}",
                 cases[i].version, cases[i].bits);
        const char *model = save_model(state, root, config);
        if (cases[i].refused)
            must_fail(dcp_convert(model, path_in(state, "refused.safetensors"),
                                  &(dcp_convert_options){.dequantize = DCP_F32}, NULL),
                      DCP_ERR_UNSUPPORTED, "save the model again with version 0.18");
        else
            free(read_floats(state, model, "m.weight", &count));
    }
}

/* An order of columns that does not fit the scales, and one that was never set. */
static void orders_of_columns(void **state)
{
    enum { COLUMNS = 16 };
    static const char config[] =
        "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
        "\"pack-quantized\", \"config_groups\": {\"g\": {\"targets\": [\"Linear\"], \"weights\": "
        "{\"num_bits\": 4, \"group_size\": 8, \"strategy\": \"group\", \"type\": \"int\"}}}}}";
    static const struct {
        int32_t first, last;
        dcp_dtype dtype;
        int64_t count;
        const char *words; /* NULL: it is read */
    } orders[] = {{0, 1, DCP_I32, COLUMNS, NULL},
                  {-1, 1, DCP_I32, COLUMNS, NULL},
                  {1, 1, DCP_I32, COLUMNS, "7 columns of group 0, expected 8"},
                  {0, 2, DCP_I32, COLUMNS, "has the group 2, of 2"},
                  {0, -2, DCP_I32, COLUMNS, "has the group -2, of 2"},
                  {0, 1, DCP_F32, COLUMNS, "is not 16 int32"},
                  {0, 1, DCP_I32, COLUMNS - 1, "is not 16 int32"}};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
        uint32_t packed[2] = {0x76543210, 0xfedcba98};
        float scales[2] = {1, 4};
        int32_t order[COLUMNS];
        size_t count;
        for (int k = 0; k < COLUMNS; k++)
            order[k] = k % 2;
        order[0] = orders[i].first;
        order[COLUMNS - 1] = orders[i].last;
        dcp_state *root = dcp_state_new();
        add(root, "m.weight_packed", DCP_I32, 2, (int64_t[]){1, 2}, packed);
        add(root, "m.weight_scale", DCP_F32, 2, (int64_t[]){1, 2}, scales);
        add(root, "m.weight_shape", DCP_I64, 1, (int64_t[]){2}, (int64_t[]){1, COLUMNS});
        add(root, "m.weight_g_idx", orders[i].dtype, 1, &orders[i].count, order);
        const char *model = save_model(state, root, config);
        if (orders[i].words) {
            must_fail(dcp_convert(model, path_in(state, "refused.safetensors"),
                                  &(dcp_convert_options){.dequantize = DCP_F32}, NULL),
                      DCP_ERR_FORMAT, orders[i].words);
            continue;
        }
        float *values = read_floats(state, model, "m.weight", &count);
        assert_int_equal(count, COLUMNS);
        for (int k = 0; k < COLUMNS; k++)
            assert_true(values[k] == (float)(k - 8) * scales[orders[i].first == 0 ? k % 2 : k / 8]);
        free(values);
    }
}

/* The strategies by which weights are computed, whose scales are for rows ("channel") or columns
 * ("block"). */
static void group_of(void **state, const char *groups, const char *const *modules,
                     const char *const *expected)
{
    const int8_t bytes[4] = {1, 1, 1, 1};
    const float scales[2] = {2, 3};
    char name[64], config[2048];
    dcp_state *root = dcp_state_new();
    for (size_t i = 0; modules[i]; i++) {
        bool channel = strcmp(expected[i], "channel") == 0;
        snprintf(name, sizeof name, "%s.weight", modules[i]);
        add(root, name, DCP_I8, 2, (int64_t[]){2, 2}, bytes);
        snprintf(name, sizeof name, "%s.weight_scale", modules[i]);
        add(root, name, DCP_F32, 2, channel ? (int64_t[]){2, 1} : (int64_t[]){1, 2}, scales);
    }
    snprintf(config, sizeof config,
             "{\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
             "\"int-quantized\", \"config_groups\": {%s}}}",
             groups);
    const char *model = save_model(state, root, config);
    for (size_t i = 0; modules[i]; i++) {
        size_t count;
        bool channel = strcmp(expected[i], "channel") == 0;
        snprintf(name, sizeof name, "%s.weight", modules[i]);
        float *values = read_floats(state, model, name, &count);
        assert_int_equal(count, 4);
        assert_true(values[1] == (channel ? 2 : 3) && values[2] == (channel ? 3 : 2));
        free(values);
    }
}

/* Names come before expressions, these before classes, as compressed-tensors has it. */
static void the_closest_group_counts(void **state)
{
#define CHANNEL ", \"weights\": {\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"channel\"}}"
#define BLOCK                                                                                      \
    ", \"weights\": {\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"block\", "                \
    "\"block_structure\": [2, 1]}}"
    static const char *const modules[] = {"mlp.up_proj", "mlp.down_proj", "embed_tokens", NULL};
    group_of(state,
             "\"a\": {\"targets\": [\"Linear\", \"Embedding\"]" CHANNEL
             ", \"b\": {\"targets\": [\"re:.*down_proj\"]" BLOCK,
             modules, (const char *const[]){"channel", "block", "channel"});
    group_of(state,
             "\"a\": {\"targets\": [\"re:.*\"]" CHANNEL
             ", \"b\": {\"targets\": [\"mlp.up_proj\", \"embed_tokens\"]" BLOCK,
             modules, (const char *const[]){"block", "channel", "block"});
    group_of(state,
             "\"a\": {\"targets\": [\"re:.*_proj\", \"Module\"]" CHANNEL
             ", \"b\": {\"targets\": [\"re:.*down_proj\", \"Embedding\"]" BLOCK,
             modules, (const char *const[]){"channel", "channel", "block"});
    /* a group for activations, and one whose expression need not be understood */
    group_of(state,
             "\"a\": {\"targets\": [\"Linear\"], \"weights\": null}, "
             "\"b\": {\"targets\": [\"re:(?!x).*\"]" BLOCK,
             modules, (const char *const[]){"block", "block", "block"});
#undef CHANNEL
#undef BLOCK
}

/* MXFP4 by arithmetic of exponents, also of more rows than are computed at once. */
static void swapped_blocks_of_every_exponent(void **state)
{
    enum { EXPERTS = 2, ROWS = 66000, BLOCKS = 2, COLUMNS = 64 };
    size_t blocks = (size_t)EXPERTS * ROWS * BLOCKS, count;
    unsigned char *bytes = noise(blocks * 16, 5), *exponents = noise(blocks, 6);
    dcp_state *root = dcp_state_new();
    add(root, "x_blocks", DCP_U8, 4, (int64_t[]){EXPERTS, ROWS, BLOCKS, 16}, bytes);
    add(root, "x_scales", DCP_U8, 3, (int64_t[]){EXPERTS, ROWS, BLOCKS}, exponents);
    const char *model =
        save_model(state, root, "{\"quantization_config\": {\"quant_method\": \"mxfp4\"}}");
    static const float codes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    float *values = read_floats(state, model, "x", &count);
    assert_int_equal(count, EXPERTS * COLUMNS * ROWS);
    for (size_t i = 0; i < count; i++) {
        size_t expert = i / (COLUMNS * ROWS), column = i / ROWS % COLUMNS, row = i % ROWS;
        size_t block = (expert * ROWS + row) * BLOCKS + column / 32;
        int code = bytes[block * 16 + column % 32 / 2] >> (column % 2 ? 4 : 0) & 15;
        float expected =
            ldexpf(code & 8 ? -codes[code & 7] : codes[code & 7], (int)exponents[block] - 127);
        if (memcmp(&values[i], &expected, sizeof expected) != 0)
            fail_msg("element %zu", i);
    }
    free(values);
    free(bytes);
    free(exponents);
}

/* One weight of 4 x 4, and another tensor with it; error: what is said. */
static void refused(void **state, dcp_dtype dtype, const char *other, const char *quantization,
                    dcp_status status, const char *error)
{
    unsigned char bytes[64] = {0};
    char config[1024];
    dcp_state *root = dcp_state_new();
    add(root, "m.weight", dtype, 2, (int64_t[]){4, 4}, bytes);
    if (other)
        add(root, other, DCP_F32, 2, (int64_t[]){2, 1}, bytes);
    snprintf(config, sizeof config, "{\"quantization_config\": {%s}}", quantization);
    const char *model = save_model(state, root, config), *to = path_in(state, "to.safetensors");
    must_fail(dcp_convert(model, to, &(dcp_convert_options){.dequantize = DCP_BF16}, NULL), status,
              error);
    scene_expect_size(to, -1);
    must(dcp_convert(model, to, &(dcp_convert_options){.skip_sync = true}, NULL));
    assert_int_equal(remove(to), 0);
}

static void what_is_missing_or_does_not_fit(void **state)
{
    static const char fp8[] = "\"quant_method\": \"fp8\", \"weight_block_size\": [4, 4]";
    static const char compressed[] =
        "\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
        "\"config_groups\": {\"g\": {\"targets\": [\"re:m\"], \"weights\": {\"num_bits\": 8, "
        "\"strategy\": \"channel\", \"type\": \"float\"}}}";
    /* The C library would copy what is repeated, once more for each group around it. */
    static const char repeated[] =
        "\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
        "\"config_groups\": {\"g\": {\"targets\": [\"re:(((((m)+)+)+)+)+\"], \"weights\": "
        "{\"num_bits\": 8, \"strategy\": \"channel\", \"type\": \"float\"}}, \"h\": "
        "{\"targets\": [], \"weights\": {}}}";
    static const char other[] = "\"quant_method\": \"compressed-tensors\", \"format\": "
                                "\"marlin-24\", \"config_groups\": {\"g\": {\"targets\": []}}";
    refused(state, DCP_F8_E4M3FN, NULL, fp8, DCP_ERR_FORMAT, "there is no scale for it");
    refused(state, DCP_F8_E4M3FN, "m.weight_scale_inv", fp8, DCP_ERR_FORMAT, "blocks of 4 x 4");
    refused(state, DCP_F8_E4M3FN, "n.weight_scale_inv", fp8, DCP_ERR_FORMAT, "");
    refused(state, DCP_F8_E5M2, "m.weight_scale_inv", fp8, DCP_ERR_UNSUPPORTED, "float8_e5m2");
    refused(state, DCP_BF16, "m.weight_scale_inv", fp8, DCP_ERR_FORMAT, "no weight of 8 bits");
    refused(state, DCP_BF16, NULL, fp8, DCP_ERR_ARGUMENT, "no weight there");
    refused(state, DCP_F8_E4M3FN, NULL, compressed, DCP_ERR_FORMAT, "m.weight_scale");
    refused(state, DCP_F8_E4M3FN, "m.weight_scale", compressed, DCP_ERR_FORMAT, "scale");
    refused(state, DCP_BF16, "n.weight_scale", compressed, DCP_ERR_FORMAT, "no weight for it");
    refused(state, DCP_BF16, "m.weight_scale", compressed, DCP_ERR_FORMAT, "bfloat16");
    refused(state, DCP_F8_E4M3FN, "m.weight_scale", other, DCP_ERR_UNSUPPORTED, "marlin-24");
    refused(state, DCP_BF16, "m.compressed", compressed, DCP_ERR_UNSUPPORTED, "sparse");
    refused(state, DCP_I8, NULL, fp8, DCP_ERR_FORMAT, "there is no scale for it");
    refused(state, DCP_F8_E4M3FN, "m.weight_scale", repeated, DCP_ERR_UNSUPPORTED, "expressions");
}

static void other_methods_are_copied_and_named(void **state)
{
    static const char *const methods[] = {"gptq", "awq", "bitsandbytes", "modelopt", "torchao"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        char quantization[128];
        snprintf(quantization, sizeof quantization, "\"quant_method\": \"%s\"", methods[i]);
        refused(state, DCP_U8, NULL, quantization, DCP_ERR_UNSUPPORTED, methods[i]);
    }
    refused(state, DCP_U8, NULL, "\"load_in_4bit\": true", DCP_ERR_UNSUPPORTED, "bitsandbytes");
    refused(state, DCP_U8, NULL, "\"quant_algo\": \"NVFP4\"", DCP_ERR_UNSUPPORTED, "modelopt");
    refused(state, DCP_BF16, NULL, "\"quant_method\": null", DCP_ERR_ARGUMENT, "no weight there");
}

/* Where config.json says nothing, names do: nothing is cast, nor written to GGUF files. */
static void other_methods_are_known_by_names(void **state)
{
    static const struct {
        const char *name, *method;
        dcp_dtype weight;
    } seen[] = {
        {"m.qweight", "GPTQ or AWQ", DCP_BF16},       {"m.SCB", "bitsandbytes", DCP_I8},
        {"m.weight.absmax", "bitsandbytes", DCP_U8},  {"m.weight_scale_2", "ModelOpt", DCP_U8},
        {"m.scale_weight", "ComfyUI", DCP_F8_E4M3FN}, {"m.weight_scale", "ComfyUI", DCP_F8_E4M3FN},
        {"m.weight_packed", "compressed", DCP_BF16},  {"m.weight_scale", "compressed", DCP_I8},
    };
    char to[4096], gguf[4096];
    unsigned char bytes[64] = {0};
    snprintf(to, sizeof to, "%s", path_in(state, "to.safetensors"));
    snprintf(gguf, sizeof gguf, "%s", path_in(state, "to.gguf"));
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
        dcp_convert_report report;
        dcp_state *root = dcp_state_new();
        add(root, "m.weight", seen[i].weight, 2, (int64_t[]){4, 4}, bytes);
        add(root, seen[i].name, DCP_F32, 2, (int64_t[]){2, 1}, bytes);
        const char *model = save_model(state, root, "{\"model_type\": \"llama\"}");
        must_fail(dcp_convert(model, to, &(dcp_convert_options){.dequantize = DCP_BF16}, NULL),
                  DCP_ERR_UNSUPPORTED, seen[i].method);
        must_fail(dcp_convert(model, to, &(dcp_convert_options){.dtype = DCP_BF16}, NULL),
                  DCP_ERR_UNSUPPORTED, seen[i].method);
        must_fail(dcp_convert(model, gguf, NULL, NULL), DCP_ERR_UNSUPPORTED, seen[i].name);
        must(dcp_convert_recognize(model, NULL, &report));
        assert_non_null(strstr(report.source_text, seen[i].method));
        must(dcp_convert(model, to, NULL, NULL));
        must_fail(dcp_convert(to, path_in(state, "to.pt"),
                              &(dcp_convert_options){.dtype = DCP_BF16}, NULL),
                  DCP_ERR_UNSUPPORTED, seen[i].method);
        assert_int_equal(remove(to), 0);
    }
    dcp_state *root = dcp_state_new(); /* a name by itself is no method */
    add(root, "m.weight", DCP_BF16, 2, (int64_t[]){4, 4}, bytes);
    add(root, "m.weight_scale", DCP_F32, 2, (int64_t[]){2, 1}, bytes);
    must(dcp_convert(save_model(state, root, "{}"), to, &(dcp_convert_options){.dtype = DCP_F32},
                     NULL));
}

/* A weight whose scales are powers of two for blocks of so many rows and columns. */
static void scaled(void **state, const char *config, dcp_dtype dtype, int32_t ndim,
                   const int64_t *shape, const char *scale_name, dcp_dtype scale_dtype,
                   int32_t scale_ndim, const int64_t *scale_shape, int64_t rows, int64_t columns)
{
    unsigned char *codes = noise(1 << 16, 3), exponents[4096];
    bool pairs = dtype == DCP_I8;
    int64_t height = shape[ndim - 2], width = shape[ndim - 1] * (pairs ? 2 : 1);
    int64_t down = (height + rows - 1) / rows, across = (width + columns - 1) / columns;
    size_t count;
    for (size_t i = 0; i < 1 << 16; i++)
        codes[i] = (codes[i] & 0x7f) == 0x7f ? 0x80 : codes[i];
    for (size_t i = 0; i < sizeof exponents; i++)
        exponents[i] = (unsigned char)(120 + i % 13);
    dcp_state *root = dcp_state_new();
    add(root, "m.weight", dtype, ndim, shape, codes);
    add(root, scale_name, scale_dtype, scale_ndim, scale_shape, exponents);
    float *values = read_floats(state, save_model(state, root, config), "m.weight", &count);
    for (size_t i = 0; i < count; i++) {
        size_t plane = i / (size_t)(height * width);
        int64_t row = (int64_t)(i / (size_t)width) % height, column = (int64_t)i % width;
        size_t block =
            plane * (size_t)(down * across) + (size_t)(row / rows * across + column / columns);
        float code =
            pairs ? quantized_e2m1(codes[i / 2] >> (i % 2 ? 4 : 0) & 15) : e4m3fn_to_f32(codes[i]);
        float expected = code * ldexpf(1, (int)exponents[block] - 127);
        if (memcmp(&values[i], &expected, sizeof expected) != 0)
            fail_msg("%s: element %zu", scale_name, i);
    }
    free(values);
    free(codes);
}

/* Of one model some weights have scales of other shapes than config.json says. */
static void scales_of_every_shape(void **state)
{
    static const char fp8[] =
        "{\"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [7, 9]}}";
    static const char plain[] = "{\"quantization_config\": {\"quant_method\": \"fp8\"}}";
    scaled(state, fp8, DCP_I8, 2, (int64_t[]){5, 48}, "m.scale", DCP_F8_E8M0FNU, 2,
           (int64_t[]){5, 3}, 1, 32);
    scaled(state, fp8, DCP_I8, 3, (int64_t[]){2, 5, 40}, "m.weight_scale_inv", DCP_U8, 3,
           (int64_t[]){2, 5, 3}, 1, 32);
    scaled(state, fp8, DCP_F8_E4M3FN, 2, (int64_t[]){20, 20}, "m.scale", DCP_F8_E8M0FNU, 2,
           (int64_t[]){3, 3}, 7, 9);
    scaled(state, fp8, DCP_F8_E4M3FN, 2, (int64_t[]){20, 200}, "m.weight_scale_inv", DCP_U8, 2,
           (int64_t[]){20, 7}, 1, 32);
    scaled(state, fp8, DCP_F8_E4M3FN, 2, (int64_t[]){20, 20}, "m.weight_scale", DCP_U8, 2,
           (int64_t[]){20, 1}, 1, 20);
    scaled(state, plain, DCP_F8_E4M3FN, 3, (int64_t[]){3, 200, 20}, "m.weight_scale_inv", DCP_U8, 3,
           (int64_t[]){3, 1, 1}, 200, 20);
    scaled(state, plain, DCP_F8_E4M3FN, 2, (int64_t[]){200, 20}, "m.weight_scale_inv", DCP_U8, 0,
           (int64_t[]){1}, 200, 20);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_value_is_the_references),
        TEST(ranks_and_directories_hold_the_same),
        TEST(long_rows_of_blocks),
        TEST(packed_numbers_of_every_width),
        TEST(packing_of_old_versions),
        TEST(orders_of_columns),
        TEST(the_closest_group_counts),
        TEST(swapped_blocks_of_every_exponent),
        TEST(what_is_missing_or_does_not_fit),
        TEST(other_methods_are_copied_and_named),
        TEST(other_methods_are_known_by_names),
        TEST(scales_of_every_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
