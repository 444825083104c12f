/* SPDX-License-Identifier: BSD-3-Clause */
/* A GGUF file of a model of the architecture "llama": what is said of it first, then the tensors.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "convert/convert_copy.h"
#include "convert/convert_target.h"
#include "convert/gguf_config.h"
#include "convert/gguf_rope.h"
#include "convert/gguf_tensors.h"
#include "state/small_float.h"

enum { VERSION = 3, VALUE_U32 = 4, VALUE_F32 = 6, VALUE_TEXT = 8, NAME_SIZE = 256 };

/* A file that is written. */
struct gguf_file {
    struct convert_source *source;
    const struct convert_target *target;
    struct gguf_config config;
    dcp_gguf_type type;
    struct gguf_tensor *tensors;
    struct buffer header;
    uint64_t value_count;
    struct convert_output output;
    struct convert_run *runs;
};

/* ---- what is said ---- */

static void put_text(struct gguf_file *file, const char *text)
{
    buffer_append_u64(&file->header, strlen(text));
    buffer_append(&file->header, text, strlen(text));
}

static void say_text(struct gguf_file *file, const char *key, const char *text)
{
    put_text(file, key);
    buffer_append_u32(&file->header, VALUE_TEXT);
    put_text(file, text);
    file->value_count++;
}

static void say_number(struct gguf_file *file, const char *key, uint64_t number)
{
    put_text(file, key);
    buffer_append_u32(&file->header, VALUE_U32);
    buffer_append_u32(&file->header, (uint32_t)number);
    file->value_count++;
}

static void say_real(struct gguf_file *file, const char *key, double value)
{
    put_text(file, key);
    buffer_append_u32(&file->header, VALUE_F32);
    buffer_append_u32(&file->header, f32_bits((float)value));
    file->value_count++;
}

/* The last part of the source's path, its words with capitals, as llama.cpp's converter has it. */
static void make_name(const char *path, char name[NAME_SIZE])
{
    size_t length = strlen(path), begin, at = 0;
    while (length > 1 && path[length - 1] == '/')
        length--;
    for (begin = length; begin > 0 && path[begin - 1] != '/'; begin--)
        ;
    for (size_t i = begin, word; i < length && at + 1 < NAME_SIZE; i = word) {
        bool lower = false, upper = false, letter = false;
        for (word = i; word < length && path[word] != '-' && path[word] != ' '; word++) {
            lower |= path[word] >= 'a' && path[word] <= 'z';
            upper |= path[word] >= 'A' && path[word] <= 'Z';
        }
        bool version = (path[i] >= '0' && path[i] <= '9') ||
                       (path[i] == 'v' && word - i > 1 && path[i + 1] >= '0' && path[i + 1] <= '9');
        for (; i < word && at + 2 < NAME_SIZE; i++) {
            bool small = path[i] >= 'a' && path[i] <= 'z';
            name[at++] =
                (char)(small && lower && !upper && !version && !letter ? path[i] - 32 : path[i]);
            letter = small;
        }
        while (word < length && (path[word] == '-' || path[word] == ' '))
            word++;
        if (word < length)
            name[at++] = ' ';
    }
    name[at] = '\0';
}

/* Parameters in thousands, millions and so on, of two digits at least. */
static void make_size(double parameters, char *text, size_t size)
{
    static const struct {
        double most, unit;
        char name;
    } units[] = {{1e12, 1e-12, 'T'}, {1e9, 1e-9, 'B'}, {1e6, 1e-6, 'M'}, {0, 1e-3, 'K'}};
    char rounded[32];
    size_t i = 0;
    while (i < 3 && parameters <= units[i].most)
        i++;
    double scaled = parameters * units[i].unit;
    snprintf(rounded, sizeof rounded, "%.0f", scaled);
    int digits = strcmp(rounded, "0") == 0 ? 0 : (int)strlen(rounded);
    snprintf(text, size, "%.*f%c", digits < 2 ? 2 - digits : 0, scaled, units[i].name);
    for (char *point = text; *point; point++) /* which the locale may write otherwise */
        if (*point == ',')
            *point = '.';
}

static bool is_expert(const char *name)
{
    return strstr(name, "_exps.") != NULL;
}

static void make_label(const struct gguf_file *file, char *label, size_t size)
{
    double all = 0, experts = 0, count = (double)file->config.experts;
    char text[32];
    for (size_t i = 0; i < file->source->count; i++) {
        const struct convert_item *item = &file->source->items[i];
        uint64_t elements = item->bytes / dcp_dtype_size(item->dtype);
        *(is_expert(item->name) ? &experts : &all) += (double)elements;
    }
    if (experts == 0 || count == 0) {
        make_size(all + experts, label, size);
        return;
    }
    make_size(all + experts / count, text, sizeof text);
    snprintf(label, size, "%" PRIu64 "x%s", file->config.experts, text);
}

static uint64_t file_type(dcp_gguf_type type)
{
    return type == DCP_GGUF_F32 ? 0 : type == DCP_GGUF_F16 ? 1 : type == DCP_GGUF_Q8_0 ? 7 : 32;
}

/* In the order of llama.cpp's converter. */
static void say_model(struct gguf_file *file)
{
    const struct gguf_config *config = &file->config;
    char name[NAME_SIZE], label[64];
    make_name(file->source->path, name);
    make_label(file, label, sizeof label);
    say_text(file, "general.architecture", "llama");
    say_text(file, "general.type", "model");
    say_text(file, "general.name", name);
    say_text(file, "general.size_label", label);
    say_number(file, "llama.block_count", config->layers);
    say_number(file, "llama.context_length", config->context);
    say_number(file, "llama.embedding_length", config->hidden);
    say_number(file, "llama.feed_forward_length", config->intermediate);
    say_number(file, "llama.attention.head_count", config->heads);
    say_number(file, "llama.attention.head_count_kv", config->key_value_heads);
    if (config->rope_type && strcmp(config->rope_type, "linear") == 0 && config->rope_factor > 0) {
        say_text(file, "llama.rope.scaling.type", "linear");
        say_real(file, "llama.rope.scaling.factor", config->rope_factor);
    }
    say_real(file, "llama.rope.freq_base", config->rope_theta);
    say_real(file, "llama.attention.layer_norm_rms_epsilon", config->rms_epsilon);
    if (config->experts > 0) {
        say_number(file, "llama.expert_count", config->experts);
        say_number(file, "llama.expert_used_count", config->experts_used);
    }
    if (config->has_head_dim) {
        say_number(file, "llama.attention.key_length", config->head_dim);
        say_number(file, "llama.attention.value_length", config->head_dim);
    }
    say_number(file, "general.file_type", file_type(file->type));
    say_number(file, "llama.vocab_size", config->vocabulary);
    say_number(file, "llama.rope.dimension_count", config->head_dim);
    say_number(file, "general.quantization_version", 2);
    say_text(file, "tokenizer.ggml.model", "none");
}

/* ---- the file ---- */

static void put_tensor(struct gguf_file *file, const struct gguf_tensor *tensor)
{
    put_text(file, tensor->item.name);
    buffer_append_u32(&file->header, (uint32_t)tensor->ndim);
    for (int32_t d = tensor->ndim - 1; d >= 0; d--)
        buffer_append_u64(&file->header, (uint64_t)tensor->shape[d]);
    buffer_append_u32(&file->header, (uint32_t)tensor->type);
    buffer_append_u64(&file->header, tensor->offset);
}

static dcp_status make_header(struct gguf_file *file)
{
    struct buffer begin;
    buffer_init(&begin, 0);
    say_model(file);
    for (size_t i = 0; i < file->source->count; i++)
        put_tensor(file, &file->tensors[i]);
    buffer_append(&begin, "GGUF", 4);
    buffer_append_u32(&begin, VERSION);
    buffer_append_u64(&begin, file->source->count);
    buffer_append_u64(&begin, file->value_count);
    buffer_append(&begin, file->header.data, file->header.size);
    buffer_append_zeros(&begin, (size_t)(gguf_align(begin.size) - begin.size));
    dcp_status status = buffer_status(&file->header);
    if (status == DCP_OK)
        status = buffer_status(&begin);
    buffer_free(&file->header);
    file->header = begin;
    return status;
}

/* Each tensor, and zeros behind it. */
static dcp_status write_tensors(struct gguf_file *file, size_t number)
{
    static const unsigned char zeros[32];
    size_t count = file->source->count, run = 0;
    for (size_t i = 0; i < count; i++) {
        const struct gguf_tensor *tensor = &file->tensors[i];
        uint64_t offset = file->header.size + tensor->offset, end = offset + tensor->item.bytes;
        uint64_t padding = gguf_align(tensor->item.bytes) - tensor->item.bytes;
        file->runs[run++] = (struct convert_run){
            .item = &tensor->item, .size = tensor->item.bytes, .file = number, .offset = offset};
        file->runs[run++] =
            (struct convert_run){.bytes = zeros, .size = padding, .file = number, .offset = end};
    }
    return convert_copy(file->source, &file->output, file->runs, run, NULL, file->target->progress);
}

static dcp_status write_file(struct gguf_file *file)
{
    const struct convert_source *source = file->source;
    size_t count = source->count, number = 0;
    const struct gguf_tensor *last = count > 0 ? &file->tensors[count - 1] : NULL;
    uint64_t size = last ? gguf_align(last->offset + last->item.bytes) : 0;
    file->runs = memory_allocate_array(2 * count, sizeof *file->runs);
    if (!file->runs)
        return error_no_memory(2 * count * sizeof *file->runs, "tensors to write");
    RETURN_IF_ERROR(convert_output_begin(&file->output, file->target->path, false,
                                         source->options->skip_sync, file->target->journal));
    RETURN_IF_ERROR(convert_output_add(&file->output, "", file->header.size + size, &number));
    RETURN_IF_ERROR(
        convert_output_write(&file->output, number, file->header.data, file->header.size, 0));
    RETURN_IF_ERROR(write_tensors(file, number));
    RETURN_IF_ERROR(convert_output_seal(&file->output, number));
    file->target->report->files = 1;
    return convert_output_commit(&file->output, source, file->target->progress);
}

static dcp_status read_config(struct gguf_file *file)
{
    struct convert_source *source = file->source;
    const char *path = source->options->transform_config, *text = NULL;
    size_t size;
    if (path)
        RETURN_IF_ERROR(convert_read_path(source, path, &text, &size));
    else if (source->form == DCP_FORM_HF)
        RETURN_IF_ERROR(convert_read_text(source, "config.json", &text, &size));
    if (!text)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s: there is no config.json, which a GGUF file needs: give one",
                             path ? path : source->path);
    return gguf_config_read(path ? path : source->path, text, size, &source->arena, &file->config);
}

static const char *type_name(enum gguf_tensor_type type)
{
    return type == GGUF_F32    ? "F32"
           : type == GGUF_F16  ? "F16"
           : type == GGUF_BF16 ? "BF16"
                               : "Q8_0";
}

static void tell_tensors(const struct gguf_file *file)
{
    file->target->report->files = 1;
    for (size_t i = 0; i < file->source->count; i++) {
        const struct gguf_tensor *tensor = &file->tensors[i];
        convert_tell(file->source, &tensor->item, type_name(tensor->type), tensor->ndim,
                     tensor->shape);
    }
}

/* A tensor's elements in the file are what the report counts. */
static void keep_tensors(const struct gguf_file *file)
{
    for (size_t i = 0; i < file->source->count; i++)
        file->source->items[i] = file->tensors[i].item;
}

dcp_status convert_to_gguf(struct convert_source *source, const struct convert_target *target)
{
    struct gguf_file file = {
        .source = source, .target = target, .type = source->options->gguf_type};
    buffer_init(&file.header, 0);
    dcp_status status = convert_drop_tied(source, &target->report->tied);
    if (status == DCP_OK)
        status = read_config(&file);
    if (status == DCP_OK)
        status = gguf_tensors_name(source, file.config.heads, file.config.key_value_heads);
    if (status == DCP_OK)
        status = gguf_rope_add(source, &file.config);
    if (status == DCP_OK)
        status = gguf_tensors_list(source, &file.type, &file.tensors);
    if (status == DCP_OK)
        status = make_header(&file);
    if (status == DCP_OK && source->options->dry_run)
        tell_tensors(&file);
    else if (status == DCP_OK)
        status = write_file(&file);
    if (status == DCP_OK)
        keep_tensors(&file);
    convert_output_end(&file.output);
    buffer_free(&file.header);
    memory_release(file.runs);
    return status;
}
