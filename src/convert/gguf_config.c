/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/gguf_config.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/json/json_reader.h"

enum { NUMBER_TEXT = 64 };

/* What is read of the outermost object, or of rope_parameters. */
static const struct {
    const char *key;
    size_t offset;
} numbers[] =
    {
        {"num_hidden_layers", offsetof(struct gguf_config, layers)},
        {"max_position_embeddings", offsetof(struct gguf_config, context)},
        {"hidden_size", offsetof(struct gguf_config, hidden)},
        {"intermediate_size", offsetof(struct gguf_config, intermediate)},
        {"num_attention_heads", offsetof(struct gguf_config, heads)},
        {"num_key_value_heads", offsetof(struct gguf_config, key_value_heads)},
        {"head_dim", offsetof(struct gguf_config, head_dim)},
        {"vocab_size", offsetof(struct gguf_config, vocabulary)},
        {"num_local_experts", offsetof(struct gguf_config, experts)},
        {"num_experts_per_tok", offsetof(struct gguf_config, experts_used)},
},
  reals[] =
      {
          {"rope_theta", offsetof(struct gguf_config, rope_theta)},
          {"rms_norm_eps", offsetof(struct gguf_config, rms_epsilon)},
          {"factor", offsetof(struct gguf_config, rope_factor)},
          {"low_freq_factor", offsetof(struct gguf_config, rope_low)},
          {"high_freq_factor", offsetof(struct gguf_config, rope_high)},
          {"original_max_position_embeddings", offsetof(struct gguf_config, rope_context)},
},
  texts[] = {
      {"model_type", offsetof(struct gguf_config, model_type)},
      {"rope_type", offsetof(struct gguf_config, rope_type)},
      {"type", offsetof(struct gguf_config, rope_type)},
};

/* strtod() wants the decimal point of the locale. */
static dcp_status read_real(struct json_reader *json, double *value)
{
    struct json_text text;
    char copy[NUMBER_TEXT], *end;
    bool whole;
    RETURN_IF_ERROR(json_number(json, &text, &whole));
    const char *point = memchr(text.bytes, '.', text.length);
    size_t before = point ? (size_t)(point - text.bytes) : text.length;
    if (text.length >= NUMBER_TEXT / 2)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: a number of %zu digits", json->what, text.length);
    snprintf(copy, sizeof copy, "%.*s%s%.*s", (int)before, text.bytes,
             point ? localeconv()->decimal_point : "", (int)(point ? text.length - before - 1 : 0),
             point ? point + 1 : "");
    *value = strtod(copy, &end);
    return *end == '\0' ? DCP_OK
                        : dcp_error_set(DCP_ERR_FORMAT, "%s: %s is no number", json->what, copy);
}

/* Reads a value that is one of those above; *known: it was. */
static dcp_status read_known(struct json_reader *json, struct json_text key, bool nested,
                             struct gguf_config *config, bool *known)
{
    enum json_kind kind = json_peek(json);
    char *base = (char *)config;
    struct json_text text;
    *known = true;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && kind == JSON_NUMBER && !nested; i++)
        if (json_text_is(key, numbers[i].key))
            return json_u64(json, (uint64_t *)(void *)(base + numbers[i].offset));
    for (size_t i = 0; i < sizeof reals / sizeof *reals && kind == JSON_NUMBER; i++)
        if (json_text_is(key, reals[i].key))
            return read_real(json, (double *)(void *)(base + reals[i].offset));
    for (size_t i = 0; i < sizeof texts / sizeof *texts && kind == JSON_STRING; i++)
        if (json_text_is(key, texts[i].key) && nested == (i > 0)) {
            RETURN_IF_ERROR(json_string(json, &text));
            const char *copy = arena_copy_text(json->arena, text.bytes, text.length);
            memcpy(base + texts[i].offset, &copy, sizeof copy);
            return copy ? DCP_OK : error_no_memory(text.length, json->what);
        }
    *known = false;
    return DCP_OK;
}

static dcp_status read_members(struct json_reader *json, bool nested, struct gguf_config *config)
{
    struct json_text key;
    bool more, known;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return DCP_OK;
        bool rope = json_text_is(key, "rope_parameters") || json_text_is(key, "rope_scaling");
        RETURN_IF_ERROR(read_known(json, key, nested, config, &known));
        if (!known && rope && !nested && json_peek(json) == JSON_OBJECT)
            RETURN_IF_ERROR(read_members(json, true, config));
        else if (!known)
            RETURN_IF_ERROR(json_skip(json));
    }
}

static bool scales_as(const struct gguf_config *config, const char *type)
{
    return config->rope_type && strcmp(config->rope_type, type) == 0;
}

/* Older files leave out what is the default of the model's class. */
static void set_defaults(struct gguf_config *config)
{
    bool mixtral = strcmp(config->model_type, "mixtral") == 0;
    if (config->key_value_heads == 0)
        config->key_value_heads = mixtral ? 8 : config->heads;
    if (config->rms_epsilon == 0)
        config->rms_epsilon = mixtral ? 1e-5 : 1e-6;
    if (config->rope_theta == 0)
        config->rope_theta = mixtral ? 1e6 : 1e4;
    if (config->rope_low == 0)
        config->rope_low = 1;
    if (config->rope_high == 0)
        config->rope_high = 4;
    if (config->rope_context == 0)
        config->rope_context = 8192;
    if (config->rope_factor == 0 && scales_as(config, "llama3"))
        config->rope_factor = 8;
    config->has_head_dim = config->head_dim > 0;
    if (!config->has_head_dim && config->heads > 0)
        config->head_dim = config->hidden / config->heads;
}

static dcp_status check(const char *path, const struct gguf_config *config)
{
    static const char *const types[] = {"llama", "mistral", "mixtral"};
    bool known = false;
    for (size_t i = 0; i < sizeof types / sizeof *types && config->model_type; i++)
        known |= strcmp(config->model_type, types[i]) == 0;
    if (!known)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: config.json is of a model of type \"%s\": GGUF files are written "
                             "of llama, mistral and mixtral",
                             path, config->model_type ? config->model_type : "");
    if (config->rope_type && !scales_as(config, "default") && !scales_as(config, "linear") &&
        !scales_as(config, "llama3"))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: rotary embeddings scaled as \"%s\" are not written to GGUF files",
                             path, config->rope_type);
    const uint64_t needed[] = {config->layers,       config->context, config->hidden,
                               config->intermediate, config->heads,   config->vocabulary};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i] == 0 || needed[i] > UINT32_MAX)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: config.json does not say how large the model is", path);
    return DCP_OK;
}

dcp_status gguf_config_read(const char *path, const char *text, size_t size, struct arena *arena,
                            struct gguf_config *config)
{
    struct json_reader json;
    *config = (struct gguf_config){0};
    json_init(&json, "config.json", text, size, arena);
    json.python = true;
    RETURN_IF_ERROR(read_members(&json, false, config));
    RETURN_IF_ERROR(json_end(&json));
    RETURN_IF_ERROR(check(path, config));
    set_defaults(config);
    return DCP_OK;
}
