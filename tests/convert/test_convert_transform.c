/* SPDX-License-Identifier: BSD-3-Clause */
/* Transform files: the examples against Megatron's tensors, both ways; every operation and its
 * inverse; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"

static const char *const forms[] = {"llama", "mixtral"};

static char *fixture(const char *model, const char *rest)
{
    static char paths[4][4096];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, 4096, "%s/megatron_names/%s%s", MODELS, model, rest);
    return path;
}

static char *keep(const char *path)
{
    char *copy = strdup(path);
    assert_non_null(copy);
    return copy;
}

/* Converts by rules; options but for the file. */
static void transform(const char *from, const char *to, const char *rules,
                      dcp_convert_options options)
{
    options.transform = rules;
    options.skip_sync = true;
    must(dcp_convert(from, to, &options, NULL));
}

/* The models of the fixtures, whose vocabulary is padded to a multiple of 16. */
static const char *write_config(void **state, const char *model)
{
    int heads = strcmp(model, "llama") == 0 ? 4 : 6;
    char text[256];
    snprintf(text, sizeof text,
             "{\"text_config\": {\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
             "\"vocab_size\": 37}, \"make_vocab_size_divisible_by\": 16, "
             "\"rms_norm_eps\": 1e-5}",
             heads, heads / 2);
    scene_write(*state, "config.json", text);
    return path_in(state, "config.json");
}

static void examples_give_megatrons_tensors(void **state)
{
    for (size_t i = 0; i < 2; i++) {
        char rules[4096], name[64];
        snprintf(rules, sizeof rules, "%s/%s_megatron.json", TRANSFORMS, forms[i]);
        char *config = keep(write_config(state, forms[i]));
        snprintf(name, sizeof name, "%s-te", forms[i]);
        char *to = keep(path_in(state, name));
        snprintf(name, sizeof name, "%s-back.safetensors", forms[i]);
        char *back = keep(path_in(state, name));
        transform(
            fixture(forms[i], "_hf"), to, rules,
            (dcp_convert_options){.form = DCP_FORM_DCP, .ranks = 3, .transform_config = config});
        scene_equal(to, fixture(forms[i], "_megatron_te.safetensors"));
        transform(to, back, rules,
                  (dcp_convert_options){.transform_config = config, .transform_inverse = true});
        scene_equal(back, fixture(forms[i], "_hf/model.safetensors"));
        free(config);
        free(to);
        free(back);
    }
}

/* What a distributed checkpoint of Megatron-Core has: experts stacked, then layers. */
static void stacks_are_those_of_torch_dist(void **state)
{
    scene_write(*state, "dist.json",
                "{\"rules\": ["
                "{\"stack\": \"decoder.layers.*.mlp.experts.linear_fc1.weight#\", \"to\": "
                "\"decoder.layers.*.mlp.experts.experts.linear_fc1.weight\", \"dim\": 0},"
                "{\"stack\": \"decoder.layers.*.mlp.experts.linear_fc2.weight#\", \"to\": "
                "\"decoder.layers.*.mlp.experts.experts.linear_fc2.weight\", \"dim\": 0},"
                "{\"rename\": \"decoder.layers.*.pre_mlp_layernorm.weight\", \"to\": "
                "\"decoder.layers.*.mlp.linear_fc1.layer_norm_weight\"},"
                "{\"stack\": \"decoder.layers.#.**\", \"to\": \"decoder.layers.**\", \"dim\": "
                "0}]}");
    char *rules = keep(path_in(state, "dist.json")), *to = keep(path_in(state, "to.safetensors"));
    const char *back = path_in(state, "back.safetensors");
    transform(fixture("mixtral", "_megatron_te.safetensors"), to, rules, (dcp_convert_options){0});
    scene_equal(to, fixture("mixtral", "_megatron_torch_dist.safetensors"));
    transform(to, back, rules, (dcp_convert_options){.transform_inverse = true});
    scene_equal(back, fixture("mixtral", "_megatron_te.safetensors"));
    free(rules);
    free(to);
}

/* ---- every operation ---- */

enum { ROWS = 1030, COLUMNS = 1100 };

static void add(dcp_state *root, const char *name, dcp_dtype dtype, int32_t ndim,
                const int64_t *shape, void *data)
{
    dcp_tensor tensor = {.dtype = dtype, .ndim = ndim, .data = data};
    memcpy(tensor.global_shape, shape, (size_t)ndim * sizeof *shape);
    assert_non_null(dcp_state_tensor(root, name, &tensor));
}

/* Numbers that say where they are: a large matrix, three small ones, heads, a vector. */
static char *save_numbers(void **state)
{
    float *numbers = malloc((size_t)ROWS * COLUMNS * sizeof *numbers);
    uint16_t halves[36];
    assert_non_null(numbers);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++)
        numbers[i] = (float)i;
    for (size_t i = 0; i < 36; i++)
        halves[i] = (uint16_t)(0x3c00 + i);
    dcp_state *root = dcp_state_new();
    add(root, "large", DCP_F32, 2, (int64_t[]){ROWS, COLUMNS}, numbers);
    add(root, "block", DCP_F32, 3, (int64_t[]){2, 3, 5}, numbers);
    add(root, "l.0.q", DCP_BF16, 2, (int64_t[]){4, 6}, halves);
    add(root, "l.10.q", DCP_BF16, 2, (int64_t[]){4, 6}, halves);
    add(root, "l.0.k", DCP_BF16, 2, (int64_t[]){4, 3}, halves);
    add(root, "l.10.k", DCP_BF16, 2, (int64_t[]){4, 3}, halves + 2);
    add(root, "heads", DCP_BF16, 2, (int64_t[]){12, 3}, halves);
    add(root, "empty", DCP_BF16, 2, (int64_t[]){0, 3}, halves);
    add(root, "head", DCP_BF16, 1, (int64_t[]){5}, halves);
    add(root, "embedding", DCP_BF16, 1, (int64_t[]){5}, halves);
    char *path = keep(path_in(state, "numbers"));
    must(dcp_save(root, path, &(dcp_save_options){.skip_sync = true}));
    dcp_state_free(root);
    free(numbers);
    return path;
}

/* Its shape is valid until the next is read. */
static void *read_tensor(const char *path, const char *name, dcp_entry *entry)
{
    static int64_t shape[DCP_MAX_DIMS];
    dcp_checkpoint *checkpoint;
    size_t index;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, name, &index));
    must(dcp_checkpoint_entry(checkpoint, index, entry));
    dcp_tensor tensor = {.dtype = entry->dtype, .ndim = entry->ndim};
    for (int32_t d = 0; d < entry->ndim; d++)
        shape[d] = tensor.global_shape[d] = entry->global_shape[d];
    tensor.data = malloc((size_t)entry->bytes + 1);
    assert_non_null(tensor.data);
    must(dcp_checkpoint_read_tensor(checkpoint, index, &tensor, NULL));
    *entry = (dcp_entry){.dtype = tensor.dtype, .ndim = tensor.ndim, .global_shape = shape};
    dcp_checkpoint_close(checkpoint);
    return tensor.data;
}

static const char every_rule[] =
    "{\"values\": {\"parts\": 2}, \"comment\": \"of a test\", \"rules\": ["
    "{\"transpose\": \"large\", \"dims\": [0, 1]},"
    "{\"transpose\": \"block\", \"dims\": [2, 1]},"
    "{\"permute_heads\": \"heads\", \"heads\": 2},"
    "{\"pad\": \"heads\", \"dim\": 1, \"multiple\": 4, \"size\": 3},"
    "{\"pad\": \"empty\", \"dim\": 0, \"multiple\": 8, \"size\": 0, \"only\": \"forward\"},"
    "{\"cast\": \"heads\", \"from\": \"bfloat16\", \"dtype\": \"float32\"},"
    "{\"join\": [\"l.*.q\", \"l.*.k\"], \"to\": \"l.*.both\", \"dim\": 1, \"groups\": 3, "
    "\"parts\": [\"parts\", 1]},"
    "{\"rename\": \"l.*.both\", \"to\": \"both.*\"},"
    "{\"tie\": \"head\", \"with\": \"embedding\"},"
    "{\"split\": \"embedding\", \"to\": [\"e.a\", \"e.b\"], \"dim\": 0, \"parts\": [2, 3]}]}";

static void every_operation_is_turned_around(void **state)
{
    char *from = save_numbers(state), *to = keep(path_in(state, "to")), *rules;
    const char *back = path_in(state, "back.safetensors");
    dcp_entry entry;
    scene_write(*state, "rules.json", every_rule);
    rules = keep(path_in(state, "rules.json"));
    transform(from, to, rules, (dcp_convert_options){.form = DCP_FORM_DCP, .ranks = 2});
    float *numbers = read_tensor(to, "large", &entry);
    for (size_t i = 0; i < (size_t)ROWS * COLUMNS; i++)
        if (numbers[i] != (float)(i % ROWS * COLUMNS + i / ROWS))
            fail_msg("element %zu", i);
    free(numbers);
    numbers = read_tensor(to, "heads", &entry); /* rows 0 3 1 4 2 5 of each head, and a zero */
    assert_int_equal(entry.dtype, DCP_F32);
    for (size_t row = 0; row < 12; row++)
        for (size_t column = 0; column < 4; column++) {
            static const size_t order[6] = {0, 3, 1, 4, 2, 5};
            uint32_t bits = 0x3c00 + (uint32_t)((row / 6 * 6 + order[row % 6]) * 3 + column);
            float expected;
            bits = column < 3 ? bits << 16 : 0;
            memcpy(&expected, &bits, sizeof expected);
            assert_true(numbers[row * 4 + column] == expected);
        }
    free(numbers);
    uint16_t *both = read_tensor(to, "both.10", &entry);
    assert_int_equal(entry.global_shape[1], 9);
    for (size_t i = 0; i < 36; i++) {
        size_t row = i / 9, group = i % 9 / 3, within = i % 3;
        size_t place = within < 2 ? row * 6 + group * 2 + within : 2 + row * 3 + group;
        assert_int_equal(both[i], 0x3c00 + place);
    }
    free(both);
    transform(to, back, rules, (dcp_convert_options){.transform_inverse = true});
    scene_equal(from, back);
    free(from);
    free(to);
    free(rules);
}

/* ---- what is refused ---- */

static void refused(void **state, const char *from, const char *rules, bool inverse,
                    dcp_status status, const char *error)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"rules\": [%s]}", rules);
    scene_write(*state, "refused.json", *rules == '!' ? rules + 1 : text);
    char *path = keep(path_in(state, "refused.json"));
    const char *to = path_in(state, "refused.pt");
    must_fail(dcp_convert(from, to,
                          &(dcp_convert_options){.transform = path, .transform_inverse = inverse},
                          NULL),
              status, error);
    scene_expect_size(to, -1);
    free(path);
}

static void wrong_rules_are_told(void **state)
{
    char *from = save_numbers(state);
    static const struct {
        const char *rules;
        bool inverse;
        dcp_status status;
        const char *error;
    } cases[] = {
        {"{\"rename\": \"no.*\", \"to\": \"yes.*\"}", false, DCP_ERR_ARGUMENT, "for no name"},
        {"{\"rename\": \"l.*.q\", \"to\": \"same\"}", false, DCP_ERR_ARGUMENT, "stars"},
        {"{\"rename\": \"l.**\", \"to\": \"large**\"}, {\"rename\": \"head\", \"to\": \"large\"}",
         false, DCP_ERR_DUPLICATE, "large"},
        {"{\"join\": [\"l.*.q\", \"l.*.v\"], \"to\": \"l.*\", \"dim\": 1}", false, DCP_ERR_FORMAT,
         "l.0.v"},
        {"{\"join\": [\"l.*.q\", \"l.*.k\"], \"to\": \"l.*\", \"dim\": 1}", false, DCP_ERR_SHAPE,
         "parts"},
        {"{\"stack\": \"l.#.q\", \"to\": \"l\", \"dim\": 0}", false, DCP_ERR_FORMAT, "missing"},
        {"{\"split\": \"head\", \"to\": [\"a\", \"b\"], \"dim\": 0}", false, DCP_ERR_SHAPE,
         "divided"},
        {"{\"split\": \"head\", \"to\": [\"a\", \"b\"], \"dim\": 1}", false, DCP_ERR_SHAPE,
         "dimension"},
        {"{\"cut\": \"heads\", \"dim\": 0, \"size\": 13}", false, DCP_ERR_SHAPE, "smaller"},
        {"{\"permute_heads\": \"heads\", \"heads\": 5}", false, DCP_ERR_SHAPE, "heads"},
        {"{\"permute_heads\": \"heads\", \"heads\": \"num_heads\"}", false, DCP_ERR_ARGUMENT,
         "num_heads"},
        {"{\"drop\": \"heads\"}", true, DCP_ERR_ARGUMENT, "no inverse"},
        {"{\"cast\": \"heads\", \"from\": \"float32\", \"dtype\": \"bfloat16\"}", true,
         DCP_ERR_ARGUMENT, "widens"},
        {"{\"pad\": \"heads\", \"dim\": 1, \"multiple\": 4}", true, DCP_ERR_ARGUMENT, "size"},
        {"{\"rename\": \"heads\"}", false, DCP_ERR_ARGUMENT, "number of names"},
        {"{\"turn\": \"heads\"}", false, DCP_ERR_ARGUMENT, "unknown member \"turn\""},
        {"{\"drop\": \"heads\", \"tie\": \"head\"}", false, DCP_ERR_ARGUMENT, "two operations"},
        {"!{\"others\": \"refuse\", \"rules\": [{\"rename\": \"l.**\", \"to\": \"m.**\"}]}", false,
         DCP_ERR_FORMAT, "no rule"},
        {"!{\"rules\": [", false, DCP_ERR_FORMAT, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(state, from, cases[i].rules, cases[i].inverse, cases[i].status, cases[i].error);
    must_fail(dcp_convert(from, path_in(state, "to.pt"),
                          &(dcp_convert_options){.transform = "/no/such/file.json"}, NULL),
              DCP_ERR_NOT_FOUND, "no such file");
    must_fail(dcp_convert(from, path_in(state, "to.pt"),
                          &(dcp_convert_options){.transform_inverse = true}, NULL),
              DCP_ERR_ARGUMENT, "no transform");
    free(from);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(examples_give_megatrons_tensors),
        TEST(stacks_are_those_of_torch_dist),
        TEST(every_operation_is_turned_around),
        TEST(wrong_rules_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
