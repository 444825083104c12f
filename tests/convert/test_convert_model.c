/* SPDX-License-Identifier: BSD-3-Clause */
/* Hugging Face directories: written byte for byte as transformers does, read strictly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"

static void files_equal(const char *left, const char *right)
{
    size_t size, other;
    char *one = scene_read(left, &size), *two = scene_read(right, &other);
    assert_int_equal(size, other);
    assert_memory_equal(one, two, size);
    free(one);
    free(two);
}

/* A model of the fixtures through another form and back, at the limit that it was written with. */
static void check_model(void **state, const char *model, uint64_t shard_size, size_t names,
                        const char *const *files)
{
    char from[4096], path[8192];
    const char *to = path_in(state, model);
    snprintf(from, sizeof from, "%s/%s", MODELS, model);
    must(dcp_convert(from, to,
                     &(dcp_convert_options){.form = DCP_FORM_HF, .shard_size = shard_size}, NULL));
    scene_expect_names(to, names);
    for (size_t i = 0; files[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", from, files[i]);
        char *name = strdup(files[i]), result[4096];
        snprintf(result, sizeof result, "%s/%s", to, name);
        files_equal(path, result);
        free(name);
    }
}

static void shards_are_those_of_transformers(void **state)
{
    static const char *const llama[] = {"config.json",
                                        "generation_config.json",
                                        "model.safetensors.index.json",
                                        "model-00001-of-00011.safetensors",
                                        "model-00002-of-00011.safetensors",
                                        "model-00003-of-00011.safetensors",
                                        "model-00004-of-00011.safetensors",
                                        "model-00005-of-00011.safetensors",
                                        "model-00006-of-00011.safetensors",
                                        "model-00007-of-00011.safetensors",
                                        "model-00008-of-00011.safetensors",
                                        "model-00009-of-00011.safetensors",
                                        "model-00010-of-00011.safetensors",
                                        "model-00011-of-00011.safetensors",
                                        NULL};
    static const char *const mixtral[] = {"config.json",
                                          "generation_config.json",
                                          "model.safetensors.index.json",
                                          "model-00001-of-00003.safetensors",
                                          "model-00002-of-00003.safetensors",
                                          "model-00003-of-00003.safetensors",
                                          NULL};
    check_model(state, "llama", 13000, 14, llama);
    check_model(state, "mixtral", 30000, 6, mixtral);
}

/* Python writes numbers into config.json that are none in JSON. */
static void numbers_of_python_are_carried(void **state)
{
    static const char config[] = "{\"time_step_limit\": [0.0, Infinity], \"a\": NaN, \"b\": "
                                 "-Infinity, \"quantization_config\": {\"x\": NaN}, \"dtype\": "
                                 "\"float32\"}";
    const char *to = path_in(state, "to");
    size_t size;
    must(dcp_convert(MODELS "/llama", to, &(dcp_convert_options){.form = DCP_FORM_HF}, NULL));
    scene_write(to, "config.json", config);
    must(dcp_convert(to, path_in(state, "again"),
                     &(dcp_convert_options){.form = DCP_FORM_HF, .dtype = DCP_F16}, NULL));
    char *text = scene_read(path_in(state, "again/config.json"), &size);
    assert_non_null(strstr(text, "[0.0, Infinity], \"a\": NaN, \"b\": -Infinity, "));
    assert_non_null(strstr(text, "\"dtype\": \"float16\"}"));
    free(text);
    scene_write(to, "config.json", "{\"a\": Nan}");
    must_fail(dcp_convert(to, path_in(state, "no.pt"), NULL, NULL), DCP_ERR_FORMAT, "'N'");
}

static void a_dtype_is_reported_in_config(void **state)
{
    const char *to = path_in(state, "to");
    size_t size;
    must(dcp_convert(MODELS "/llama", to,
                     &(dcp_convert_options){.form = DCP_FORM_HF, .dtype = DCP_F32}, NULL));
    scene_expect_names(to, 3);
    char *config = scene_read(path_in(state, "to/config.json"), &size);
    assert_non_null(strstr(config, "\n  \"dtype\": \"float32\",\n"));
    assert_non_null(strstr(config, "\"vocab_size\": 97\n}"));
    free(config);
}

/* A model of two tensors, of which the head is the embedding if tied. */
static void save_tied(const char *path, bool tied)
{
    float embedding[6] = {1, 2, 3, 4, 5, 6}, head[6] = {1, 2, 3, 4, 5, tied ? 6 : 7};
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {3, 2}, .data = embedding};
    assert_non_null(dcp_state_tensor(root, "model.embed_tokens.weight", &tensor));
    tensor.data = head;
    assert_non_null(dcp_state_tensor(root, "lm_head.weight", &tensor));
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
}

static uint64_t tied_of(const char *from, const char *to, dcp_tied tied)
{
    dcp_convert_report report;
    must(dcp_convert(from, to, &(dcp_convert_options){.form = DCP_FORM_HF, .tied = tied}, &report));
    assert_int_equal(report.tensors + report.tied, 2);
    return report.tied;
}

static void tied_weights_go_by_what_they_are(void **state)
{
    const char *same = path_in(state, "same"), *differ = path_in(state, "differ");
    save_tied(same, true);
    save_tied(differ, false);
    assert_int_equal(tied_of(same, path_in(state, "a"), DCP_TIED_AUTO), 0); /* no config says so */
    assert_int_equal(tied_of(same, path_in(state, "b"), DCP_TIED_DROP), 1);
    assert_int_equal(tied_of(differ, path_in(state, "c"), DCP_TIED_DROP), 0);
    scene_write(path_in(state, "a"), "config.json", "{\"tie_word_embeddings\": true}");
    assert_int_equal(tied_of(path_in(state, "a"), path_in(state, "d"), DCP_TIED_AUTO), 1);
    assert_int_equal(tied_of(path_in(state, "a"), path_in(state, "e"), DCP_TIED_KEEP), 0);
    scene_write(path_in(state, "c"), "config.json", "{\"tie_word_embeddings\": true}");
    assert_int_equal(tied_of(path_in(state, "c"), path_in(state, "f"), DCP_TIED_AUTO), 0);
}

/* Names and bytes of tensors of one dimension, in the order of shards. */
static void save_vectors(const char *path, const char *const *names, const int64_t *sizes,
                         size_t count)
{
    static const unsigned char bytes[64] = {1, 2, 3};
    dcp_state *root = dcp_state_new();
    for (size_t i = 0; i < count; i++) {
        dcp_tensor tensor = {
            .dtype = DCP_U8, .ndim = 1, .global_shape = {sizes[i]}, .data = (void *)bytes};
        assert_non_null(dcp_state_tensor(root, names[i], &tensor));
    }
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
}

/* A shard of nothing but empty tensors is a shard. */
static void empty_tensors_are_in_shards(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    static const int64_t sizes[][4] = {{9, 0, 9, 0}, {0, 9, 0, 9}, {0, 0, 0, 0}, {0, 3, 9, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char from[4096], to[4096], name[16];
        snprintf(name, sizeof name, "from%zu", i);
        snprintf(from, sizeof from, "%s", path_in(state, name));
        snprintf(name, sizeof name, "to%zu", i);
        snprintf(to, sizeof to, "%s", path_in(state, name));
        save_vectors(from, names, sizes[i], 4);
        must(dcp_convert(from, to, &(dcp_convert_options){.form = DCP_FORM_HF, .shard_size = 4},
                         NULL));
        scene_equal(from, to);
    }
}

/* As Python's json.dumps() writes names. */
static void the_index_is_ascii(void **state)
{
    static const char *const names[] = {"a\x7f", "b\xc3\xa9\n", "c\xe6\x97\xa5",
                                        "d\xf0\x9f\x98\x80\""};
    static const int64_t sizes[] = {9, 9, 9, 9};
    size_t size;
    save_vectors(path_in(state, "from"), names, sizes, 4);
    must(dcp_convert(path_in(state, "from"), path_in(state, "to"),
                     &(dcp_convert_options){.form = DCP_FORM_HF, .shard_size = 4}, NULL));
    char *index = scene_read(path_in(state, "to/model.safetensors.index.json"), &size);
    assert_non_null(strstr(index, "{\n    \"a\\u007f\": \"model-00001-of-00004.safetensors\""));
    assert_non_null(strstr(index, "\"b\\u00e9\\n\": "));
    assert_non_null(strstr(index, "\"c\\u65e5\": "));
    assert_non_null(strstr(index, "\"d\\ud83d\\ude00\\\"\": "));
    free(index);
    scene_equal(path_in(state, "from"), path_in(state, "to"));
}

/* A copy of a small model of two files. */
static const char *two_files(void **state)
{
    const char *from = path_in(state, "source"), *to = path_in(state, "model");
    save_tied(from, false);
    must(
        dcp_convert(from, to, &(dcp_convert_options){.form = DCP_FORM_HF, .shard_size = 24}, NULL));
    return to;
}

/* Opened, checked and loaded as it is, it is refused as by a conversion. */
static void refuse(void **state, const char *model, const char *words)
{
    dcp_checkpoint *checkpoint;
    uint64_t faults = 0;
    dcp_state *root = dcp_state_new();
    float row[3];
    const dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {3}, .data = row};
    assert_non_null(dcp_state_tensor(root, "lm_head.weight", &tensor));
    must_fail(dcp_convert(model, path_in(state, "to.pt"), NULL, NULL), DCP_ERR_FORMAT, words);
    must_fail(dcp_checkpoint_open(model, NULL, &checkpoint), DCP_ERR_FORMAT, words);
    must(dcp_verify(model, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 1);
    must_fail(dcp_load(root, model, NULL, NULL), DCP_ERR_FORMAT, words);
    dcp_state_free(root);
}

static void index_and_headers_must_agree(void **state)
{
    char model[4096];
    snprintf(model, sizeof model, "%s", two_files(state));
    static const char lacking[] = "{\"metadata\": {}, \"weight_map\": {\"lm_head.weight\": "
                                  "\"model-00002-of-00002.safetensors\"}}";
    must(dcp_convert(model, path_in(state, "fine.pt"), NULL, NULL));
    scene_write(model, "model.safetensors.index.json",
                "{\"metadata\": {}, \"weight_map\": {\"lm_head.weight\": "
                "\"model-00002-of-00002.safetensors\", \"model.embed_tokens.weight\": "
                "\"model-00001-of-00002.safetensors\", \"more\": "
                "\"model-00001-of-00002.safetensors\"}}");
    refuse(state, model, "'more'");
    must(dcp_convert(path_in(state, "source"), path_in(state, "whole"),
                     &(dcp_convert_options){.form = DCP_FORM_HF}, NULL));
    assert_int_equal(rename(path_in(state, "whole/model.safetensors"),
                            path_in(state, "model/model-00002-of-00002.safetensors")),
                     0);
    scene_write(model, "model.safetensors.index.json", lacking);
    assert_int_equal(unlink(path_in(state, "model/model-00001-of-00002.safetensors")), 0);
    refuse(state, model, "has \"model.embed_tokens.weight\", which the index does not list");
    scene_expect_size(path_in(state, "to.pt"), -1);
}

/* Tensors of files that nobody names would be lost. */
static void all_files_are_named_and_there(void **state)
{
    char model[4096], file[8192], aside[8192];
    snprintf(model, sizeof model, "%s", two_files(state));
    snprintf(file, sizeof file, "%s/model-00002-of-00002.safetensors", model);
    snprintf(aside, sizeof aside, "%s/aside", model);
    scene_write(model, "model.safetensors.index.json",
                "{\"metadata\": {}, \"weight_map\": {\"model.embed_tokens.weight\": "
                "\"model-00001-of-00002.safetensors\"}}");
    refuse(state, model, "there is model-00002-of-00002.safetensors, which");
    scene_write(model, "model.safetensors.index.json", "{\"metadata\": {}, \"weight_map\": {}}");
    refuse(state, model, "names no file");
    assert_int_equal(unlink(path_in(state, "model/model.safetensors.index.json")), 0);
    assert_int_equal(rename(file, aside), 0);
    refuse(state, model, "there is no model-00002-of-00002.safetensors");
    scene_expect_size(path_in(state, "to.pt"), -1);
    assert_int_equal(rename(aside, file), 0);
    must(dcp_convert(model, path_in(state, "to.pt"), NULL, NULL));
    scene_equal(path_in(state, "source"), path_in(state, "to.pt"));
}

/* Weights of variants are not carried over, nor what lists them. */
static void indices_of_variants_stay_behind(void **state)
{
    const char *model = two_files(state);
    scene_write(model, "model.safetensors.index.fp16.json", "{}");
    scene_write(model, "tokenizer.json", "{}");
    must(dcp_convert(model, path_in(state, "to"), &(dcp_convert_options){.form = DCP_FORM_HF},
                     NULL));
    scene_expect_names(path_in(state, "to"), 2);
}

static void an_adapter_is_no_model(void **state)
{
    dcp_convert_report report;
    char file[4096];
    save_tied(path_in(state, "from"), false);
    scene_write(path_in(state, "adapter"), "adapter_config.json", "{}");
    snprintf(file, sizeof file, "%s", path_in(state, "adapter/adapter_model.safetensors"));
    must(dcp_convert(path_in(state, "from"), file, NULL, NULL));
    must(dcp_convert_recognize(path_in(state, "adapter"), NULL, &report));
    assert_non_null(strstr(report.source_text, "no model"));
}

static void a_stale_file_hides_no_index(void **state)
{
    const char *model = two_files(state), *to = path_in(state, "to.pt");
    must(dcp_convert(path_in(state, "source"), path_in(state, "model/model.safetensors"), NULL,
                     NULL));
    refuse(state, model, "beside an index");
    assert_int_equal(unlink(path_in(state, "model/model.safetensors.index.json")), 0);
    must(dcp_convert(model, to, NULL, NULL)); /* that file alone, as transformers reads it */
    scene_equal(path_in(state, "source"), to);
}

static void quantized_models_are_copied(void **state)
{
    unsigned char weight[4] = {1, 2, 0x80, 0xff};
    float scale = 0.5f;
    const char *from = path_in(state, "source"), *model = path_in(state, "model");
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F8_E4M3FN, .ndim = 2, .global_shape = {2, 2}, .data = weight};
    assert_non_null(dcp_state_tensor(root, "l.weight", &tensor));
    tensor = (dcp_tensor){.dtype = DCP_F32, .ndim = 2, .global_shape = {1, 1}, .data = &scale};
    assert_non_null(dcp_state_tensor(root, "l.weight_scale_inv", &tensor));
    must(dcp_save(root, from, NULL));
    dcp_state_free(root);
    must(dcp_convert(from, model, &(dcp_convert_options){.form = DCP_FORM_HF}, NULL));
    scene_write(model, "config.json", "{\"quantization_config\": {\"quant_method\": \"fp8\"}}");
    must(dcp_convert(model, path_in(state, "to.pt"), NULL, NULL));
    scene_equal(from, path_in(state, "to.pt"));
    must_fail(dcp_convert(model, path_in(state, "no.pt"), &(dcp_convert_options){.dtype = DCP_BF16},
                          NULL),
              DCP_ERR_UNSUPPORTED, "fp8");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(shards_are_those_of_transformers), TEST(a_dtype_is_reported_in_config),
        TEST(tied_weights_go_by_what_they_are), TEST(index_and_headers_must_agree),
        TEST(a_stale_file_hides_no_index),      TEST(quantized_models_are_copied),
        TEST(all_files_are_named_and_there),    TEST(indices_of_variants_stay_behind),
        TEST(an_adapter_is_no_model),           TEST(numbers_of_python_are_carried),
        TEST(empty_tensors_are_in_shards),      TEST(the_index_is_ascii),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
