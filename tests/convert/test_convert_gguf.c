/* SPDX-License-Identifier: BSD-3-Clause */
/* GGUF files: byte for byte those of the gguf package; blocks across what is written at once; what
 * is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"
#include "state/small_float.h"

static void same_file(const char *path, const char *expected)
{
    size_t size, other;
    char *bytes = scene_read(path, &size), *others = scene_read(expected, &other);
    assert_int_equal(size, other);
    assert_memory_equal(bytes, others, size);
    free(bytes);
    free(others);
}

static void files_are_those_of_the_package(void **state)
{
    static const struct {
        const char *model, *type;
        dcp_gguf_type given;
    } cases[] = {
        {"gguf_llama", "f32", DCP_GGUF_F32},     {"gguf_llama", "f32", DCP_GGUF_AUTO},
        {"gguf_llama", "f16", DCP_GGUF_F16},     {"gguf_llama", "bf16", DCP_GGUF_BF16},
        {"gguf_llama", "q8_0", DCP_GGUF_Q8_0},   {"gguf_mixtral", "f16", DCP_GGUF_F16},
        {"gguf_mixtral", "q8_0", DCP_GGUF_Q8_0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[4096], expected[4096], name[64];
        snprintf(from, sizeof from, "%s/%s/hf", MODELS, cases[i].model);
        snprintf(expected, sizeof expected, "%s/%s/model-%s.gguf", MODELS, cases[i].model,
                 cases[i].type);
        snprintf(name, sizeof name, "%zu.gguf", i);
        const char *to = path_in(state, name);
        dcp_convert_report report;
        must(dcp_convert(from, to,
                         &(dcp_convert_options){.gguf_type = cases[i].given, .skip_sync = true},
                         &report));
        assert_int_equal(report.target, DCP_FORM_GGUF);
        assert_int_equal(report.files, 1);
        same_file(to, expected);
    }
}

/* From a DCP directory, with a config.json that is given. */
static void other_sources_bring_a_config(void **state)
{
    char from[4096], config[4096], expected[4096];
    char *middle = strdup(path_in(state, "dcp"));
    const char *to = path_in(state, "to.gguf"), *no = path_in(state, "no.gguf");
    snprintf(from, sizeof from, "%s/gguf_llama/hf", MODELS);
    snprintf(config, sizeof config, "%s/gguf_llama/hf/config.json", MODELS);
    snprintf(expected, sizeof expected, "%s/gguf_llama/model-f32.gguf", MODELS);
    must(dcp_convert(from, middle, &(dcp_convert_options){.form = DCP_FORM_DCP}, NULL));
    must_fail(dcp_convert(middle, no, NULL, NULL), DCP_ERR_ARGUMENT, "config.json");
    must(dcp_convert(middle, to, &(dcp_convert_options){.transform_config = config}, NULL));
    size_t size, other;
    char *bytes = scene_read(to, &size), *others = scene_read(expected, &other);
    assert_int_equal(size % 32, 0);
    assert_int_equal(memcmp(bytes, others, 24), 0); /* as many tensors, as much said of them */
    free(bytes);
    free(others);
    free(middle);
}

/* ---- models made here ---- */

enum { ROWS = 4200, COLUMNS = 1024, BLOCK = 34 };

static void add(dcp_state *root, const char *name, dcp_dtype dtype, int32_t ndim,
                const int64_t *shape, void *data)
{
    dcp_tensor tensor = {.dtype = dtype, .ndim = ndim, .data = data};
    memcpy(tensor.global_shape, shape, (size_t)ndim * sizeof *shape);
    assert_non_null(dcp_state_tensor(root, name, &tensor));
}

/* A model of one layer, whose embedding is large; more: a name that is added. */
static char *save_model(void **state, float *numbers, dcp_dtype dtype, const char *more)
{
    static const char *const matrices[] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                           "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                                           "mlp.gate_proj.weight",    "mlp.up_proj.weight",
                                           "mlp.down_proj.weight"};
    dcp_state *root = dcp_state_new();
    char *path = strdup(path_in(state, more ? more : "model"));
    add(root, "model.embed_tokens.weight", dtype, 2, (int64_t[]){ROWS, COLUMNS}, numbers);
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        char name[128];
        snprintf(name, sizeof name, "model.layers.0.%s", matrices[i]);
        add(root, name, DCP_F32, 2, (int64_t[]){8, 32}, numbers);
    }
    add(root, "model.layers.0.input_layernorm.weight", DCP_F32, 1, (int64_t[]){32}, numbers);
    add(root, "model.layers.0.post_attention_layernorm.weight", DCP_F32, 1, (int64_t[]){32},
        numbers);
    add(root, "model.norm.weight", DCP_F32, 1, (int64_t[]){32}, numbers);
    if (more)
        add(root, more, DCP_F32, 1, (int64_t[]){32}, numbers);
    must(dcp_save(root, path, &(dcp_save_options){.skip_sync = true}));
    dcp_state_free(root);
    return path;
}

static char *write_config(void **state, const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "{\"num_hidden_layers\": 1, \"max_position_embeddings\": 64, \"hidden_size\": 32, "
             "\"intermediate_size\": 8, \"num_attention_heads\": 2, \"vocab_size\": 4200, %s}",
             more);
    scene_write(*state, "config.json", text);
    return strdup(path_in(state, "config.json"));
}

static void blocks_reach_across_what_is_written(void **state)
{
    size_t count = (size_t)ROWS * COLUMNS, size;
    float *numbers = malloc(count * sizeof *numbers);
    assert_non_null(numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)((int)(i * 2654435761u >> 12 & 0xfff) - 2048) * 0.01f;
    char *from = save_model(state, numbers, DCP_F32, NULL);
    char *config = write_config(state, "\"model_type\": \"llama\"");
    const char *to = path_in(state, "to.gguf");
    must(dcp_convert(from, to,
                     &(dcp_convert_options){
                         .transform_config = config, .gguf_type = DCP_GGUF_Q8_0, .skip_sync = true},
                     NULL));
    char *bytes = scene_read(to, &size);
    /* Data begins where the embedding does, and what follows is as long as it is. */
    size_t rest = 7 * 8 * BLOCK + 7 * 16 + 3 * 128, begin = size - count / 32 * BLOCK - rest;
    while (begin % 32 != 0)
        begin++;
    for (size_t i = 0; i < count / 32; i++) {
        const unsigned char *block = (unsigned char *)bytes + begin + i * BLOCK;
        float most = 0;
        for (size_t k = 0; k < 32; k++)
            most = numbers[i * 32 + k] * numbers[i * 32 + k] > most * most
                       ? (numbers[i * 32 + k] < 0 ? -numbers[i * 32 + k] : numbers[i * 32 + k])
                       : most;
        uint16_t scale;
        memcpy(&scale, block, sizeof scale);
        assert_int_equal(scale, f16_from_f32(most / 127));
        for (size_t k = 0; k < 32; k++) {
            float difference = (float)(int8_t)block[2 + k] * (most / 127) - numbers[i * 32 + k];
            if (difference > most / 250 || -difference > most / 250)
                fail_msg("block %zu, element %zu", i, k);
        }
    }
    free(bytes);
    free(from);
    free(config);
    free(numbers);
}

/* Where a text is in a file first. */
static size_t find(const char *bytes, size_t size, const char *text)
{
    const char *found = memmem(bytes, size, text, strlen(text));
    if (!found)
        fail_msg("there is no %s", text);
    return (size_t)(found - bytes);
}

/* Factors as llama.cpp's converter computes them, before all other tensors; biases are named. */
static void scaled_rotary_embeddings(void **state)
{
    static const uint32_t factors[] = {0x3f800000, 0x3fa5a100, 0x40f55b38, 0x41000000,
                                       0x41000000, 0x41000000, 0x41000000, 0x41000000};
    float *numbers = calloc((size_t)ROWS * COLUMNS, sizeof *numbers);
    const char *to = path_in(state, "to.gguf"), *linear = path_in(state, "linear.gguf");
    size_t size;
    assert_non_null(numbers);
    char *from = save_model(state, numbers, DCP_F32, "model.layers.0.mlp.down_proj.bias");
    char *config = write_config(
        state, "\"model_type\": \"llama\", \"rope_theta\": 10000.0, \"rope_scaling\": "
               "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
               "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}");
    must(dcp_convert(from, to, &(dcp_convert_options){.transform_config = config}, NULL));
    char *bytes = scene_read(to, &size);
    const char *data = memmem(bytes, size, factors, sizeof factors);
    assert_non_null(data);
    assert_int_equal((data - bytes) % 32, 0);
    assert_true(find(bytes, size, "rope_freqs.weight") < find(bytes, size, "token_embd.weight"));
    find(bytes, size, "blk.0.ffn_down.bias");
    free(bytes);
    free(config);
    config = write_config(state, "\"model_type\": \"llama\", \"rope_scaling\": {\"type\": "
                                 "\"linear\", \"factor\": 2.0}");
    must(dcp_convert(from, linear, &(dcp_convert_options){.transform_config = config}, NULL));
    bytes = scene_read(linear, &size);
    assert_true(find(bytes, size, "llama.attention.head_count_kv") <
                find(bytes, size, "llama.rope.scaling.type"));
    assert_true(find(bytes, size, "llama.rope.scaling.factor") <
                find(bytes, size, "llama.rope.freq_base"));
    assert_null(memmem(bytes, size, "rope_freqs", strlen("rope_freqs")));
    free(bytes);
    free(config);
    free(from);
    free(numbers);
}

/* Where files divide a layer's experts, its stacks still stand where the last of them was. */
static void stacks_stand_together(void **state)
{
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "self_attn.q_proj.weight",
                                        "self_attn.k_proj.weight",
                                        "self_attn.v_proj.weight",
                                        "self_attn.o_proj.weight",
                                        "block_sparse_moe.experts.0.w2.weight",
                                        "block_sparse_moe.experts.1.w2.weight",
                                        "input_layernorm.weight",
                                        "block_sparse_moe.experts.1.w3.weight",
                                        "block_sparse_moe.experts.0.w3.weight",
                                        "post_attention_layernorm.weight",
                                        "block_sparse_moe.experts.1.w1.weight",
                                        "block_sparse_moe.experts.0.w1.weight",
                                        "block_sparse_moe.gate.weight",
                                        "model.norm.weight"};
    static const char *const expected[] = {
        "token_embd.weight",        "blk.0.attn_q.weight",        "blk.0.attn_norm.weight",
        "blk.0.ffn_norm.weight",    "blk.0.ffn_gate_exps.weight", "blk.0.ffn_down_exps.weight",
        "blk.0.ffn_up_exps.weight", "blk.0.ffn_gate_inp.weight",  "output_norm.weight"};
    static float numbers[32 * 32];
    const char *from = path_in(state, "from"), *to = path_in(state, "to.gguf");
    size_t size, before = 0;
    dcp_state *root = dcp_state_new();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s",
                 strncmp(names[i], "model.", strlen("model.")) == 0 ? "" : "model.layers.0.",
                 names[i]);
        add(root, name, DCP_F32, strstr(name, "norm") ? 1 : 2, (int64_t[]){32, 32}, numbers);
    }
    must(dcp_save(root, from, NULL));
    dcp_state_free(root);
    char *config = write_config(state, "\"model_type\": \"mixtral\", \"num_local_experts\": 2, "
                                       "\"num_key_value_heads\": 2, \"num_experts_per_tok\": 1");
    must(dcp_convert(from, to, &(dcp_convert_options){.transform_config = config}, NULL));
    char *bytes = scene_read(to, &size);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        size_t at = find(bytes, size, expected[i]);
        if (at <= before)
            fail_msg("%s is not behind the one before", expected[i]);
        before = at;
    }
    free(bytes);
    free(config);
}

static void refused(void **state, const char *from, const char *config, dcp_status status,
                    const char *error)
{
    char *path = write_config(state, config);
    const char *to = path_in(state, "no.gguf");
    must_fail(dcp_convert(from, to, &(dcp_convert_options){.transform_config = path}, NULL), status,
              error);
    scene_expect_size(to, -1);
    free(path);
}

static void other_models_are_refused(void **state)
{
    float *numbers = calloc((size_t)ROWS * COLUMNS, sizeof *numbers);
    assert_non_null(numbers);
    char *plain = save_model(state, numbers, DCP_F32, NULL);
    char *more = save_model(state, numbers, DCP_F32, "more.weight");
    char *coded = save_model(state, numbers, DCP_I32, "coded");
    refused(state, plain, "\"model_type\": \"qwen2\"", DCP_ERR_UNSUPPORTED, "qwen2");
    refused(state, plain, "\"none\": 0", DCP_ERR_UNSUPPORTED, "");
    refused(state, plain, "\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"yarn\"}",
            DCP_ERR_UNSUPPORTED, "yarn");
    refused(state, plain,
            "\"model_type\": \"llama\", \"rope_theta\": -1.0, \"rope_scaling\": {\"rope_type\": "
            "\"llama3\"}",
            DCP_ERR_FORMAT, "rotary");
    refused(state, plain, "\"model_type\": \"llama\", \"hidden_size\": 0", DCP_ERR_FORMAT,
            "how large");
    refused(state, plain, "\"model_type\": \"llama\", \"num_attention_heads\": 3", DCP_ERR_SHAPE,
            "heads");
    refused(state, more, "\"model_type\": \"llama\"", DCP_ERR_FORMAT, "more.weight");
    refused(state, coded, "\"model_type\": \"llama\"", DCP_ERR_FORMAT, "coded");
    must_fail(dcp_convert(plain, path_in(state, "to.pt"),
                          &(dcp_convert_options){.gguf_type = DCP_GGUF_F16}, NULL),
              DCP_ERR_ARGUMENT, "GGUF");
    free(plain);
    free(more);
    free(coded);
    free(numbers);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(files_are_those_of_the_package),
        TEST(other_sources_bring_a_config),
        TEST(blocks_reach_across_what_is_written),
        TEST(scaled_rotary_embeddings),
        TEST(stacks_stand_together),
        TEST(other_models_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
