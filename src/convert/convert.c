/* SPDX-License-Identifier: BSD-3-Clause */
/* A conversion: options, source, target, report. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/sized.h"
#include "convert/convert_target.h"
#include "convert/dequantize.h"
#include "convert/source_training.h"
#include "convert/transform.h"

static const struct {
    dcp_form form;
    const char *name;
    const char *suffix; /* of files; NULL: none says so */
    dcp_status (*write)(struct convert_source *source, const struct convert_target *target);
} forms[] = {
    {DCP_FORM_DCP, "dcp", NULL, convert_to_dcp},
    {DCP_FORM_PT, "pt", ".pt", convert_to_pt},
    {DCP_FORM_PT, "pt", ".pth", convert_to_pt},
    {DCP_FORM_PT, "pt", ".bin", convert_to_pt},
    {DCP_FORM_PT, "pt", ".ckpt", convert_to_pt},
    {DCP_FORM_SAFETENSORS, "safetensors", ".safetensors", convert_to_safetensors},
    {DCP_FORM_HF, "hf", NULL, convert_to_model},
    {DCP_FORM_GGUF, "gguf", ".gguf", convert_to_gguf},
    {DCP_FORM_DEEPSPEED, "deepspeed", NULL, NULL},
    {DCP_FORM_MEGATRON, "megatron", NULL, NULL},
    {DCP_FORM_TORCH_CHECKPOINTING, "torch_checkpointing", NULL, NULL},
};
enum { FORMS = sizeof forms / sizeof *forms };

const char *dcp_form_name(dcp_form form)
{
    for (size_t i = 0; i < FORMS; i++)
        if (forms[i].form == form)
            return forms[i].name;
    return NULL;
}

dcp_form dcp_form_from_name(const char *name)
{
    for (size_t i = 0; i < FORMS && name; i++)
        if (strcmp(forms[i].name, name) == 0)
            return forms[i].form;
    return DCP_FORM_UNKNOWN;
}

dcp_form dcp_form_from_path(const char *path)
{
    size_t length = path ? strlen(path) : 0;
    for (size_t i = 0; i < FORMS; i++) {
        size_t suffix = forms[i].suffix ? strlen(forms[i].suffix) : length;
        if (length > suffix && strcmp(path + length - suffix, forms[i].suffix) == 0)
            return forms[i].form;
    }
    return DCP_FORM_UNKNOWN;
}

static bool is_written(dcp_form form)
{
    for (size_t i = 0; i < FORMS; i++)
        if (forms[i].form == form)
            return forms[i].write != NULL;
    return false;
}

static dcp_status find_form(const char *target, dcp_form *form)
{
    if (*form != DCP_FORM_UNKNOWN)
        return is_written(*form)
                   ? DCP_OK
                   : dcp_error_set(DCP_ERR_ARGUMENT,
                                   "%d is no form that checkpoints are written in", (int)*form);
    *form = dcp_form_from_path(target);
    if (*form != DCP_FORM_UNKNOWN)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_ARGUMENT,
                         "%s: its name does not say which form it shall have: give one of dcp, pt, "
                         "safetensors, hf and gguf",
                         target);
}

static dcp_status check_options(const dcp_convert_options *options)
{
    if (options->dtype != DCP_DTYPE_NONE && options->dtype != DCP_F64 &&
        options->dtype != DCP_F32 && options->dtype != DCP_F16 && options->dtype != DCP_BF16)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "tensors are converted to float64, float32, float16 or bfloat16 only");
    if (options->dequantize != DCP_DTYPE_NONE && options->dequantize != DCP_BF16 &&
        options->dequantize != DCP_F32)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "weights are dequantized to bfloat16 or float32 only");
    if (options->dequantize != DCP_DTYPE_NONE && options->dtype != DCP_DTYPE_NONE &&
        options->dtype != options->dequantize)
        return dcp_error_set(DCP_ERR_ARGUMENT, "weights cannot be dequantized to %s, and all be %s",
                             dcp_dtype_name(options->dequantize), dcp_dtype_name(options->dtype));
    bool gguf = options->form == DCP_FORM_GGUF;
    if (!options->transform && (options->transform_inverse || (options->transform_config && !gguf)))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "no transform is given that an inverse or a config.json would be for");
    if (options->gguf_type < DCP_GGUF_AUTO || options->gguf_type > DCP_GGUF_Q8_0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%d is no type of a GGUF file",
                             (int)options->gguf_type);
    if (options->gguf_type != DCP_GGUF_AUTO && !gguf)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the type of matrices is for GGUF files alone");
    if (options->ranks < 0 || options->ranks > DCP_CONVERT_RANKS_MAX)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%d ranks; there can be 1 to %d",
                             (int)options->ranks, DCP_CONVERT_RANKS_MAX);
    RETURN_IF_ERROR(training_check_take(options->take));
    if (options->thread_count < 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%d threads", (int)options->thread_count);
    if (options->tied != DCP_TIED_AUTO && options->tied != DCP_TIED_KEEP &&
        options->tied != DCP_TIED_DROP)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%d says nothing of tied tensors",
                             (int)options->tied);
    if (options->form != DCP_FORM_DCP &&
        (options->ranks > 1 || options->compression != DCP_COMPRESSION_NONE ||
         options->target_storage))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "ranks, compression and a storage are for DCP directories alone");
    if (options->form != DCP_FORM_HF && options->shard_size > 0)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "the size of shards is for Hugging Face directories alone");
    if (options->resume && options->form == DCP_FORM_DCP && options->ranks < 2)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "a DCP directory of one rank is one file, whose conversion cannot be "
                             "resumed: only that to several ranks can, rank by rank");
    if (options->resume && (options->storage || options->target_storage))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "only a conversion of files can be resumed, not one with a storage");
    return DCP_OK;
}

/* A quantized weight without its scale is another number: none is cast. */
static dcp_status check_quantized(struct convert_source *source)
{
    if (source->options->dequantize != DCP_DTYPE_NONE)
        return convert_dequantize(source);
    bool gguf = source->options->form == DCP_FORM_GGUF;
    if (source->options->dtype == DCP_DTYPE_NONE && !gguf)
        return DCP_OK;
    const char *wanted = gguf ? "a GGUF file" : dcp_dtype_name(source->options->dtype);
    RETURN_IF_ERROR(convert_refuse_foreign(source, gguf ? "written to GGUF files" : "converted"));
    if (source->quantized)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: tensors of a model quantized by \"%s\" are copied, or "
                             "dequantized, not converted to %s",
                             source->path, source->quantized, wanted);
    for (size_t i = 0; i < source->count; i++) {
        dcp_dtype dtype = source->items[i].stored;
        if (source->items[i].is_tensor && dtype >= DCP_F8_E4M3FN && dtype <= DCP_F4_E2M1FN_X2)
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "%s: \"%s\" is of dtype %s: with such weights nothing can be "
                                 "converted to %s, as their scales are not applied",
                                 source->path, source->items[i].name, dcp_dtype_name(dtype),
                                 wanted);
    }
    return DCP_OK;
}

/* Only training checkpoints of other frameworks have weights twice. */
static dcp_status check_take(const struct convert_source *source)
{
    return source->options->take != DCP_TAKE_MASTERS || source->training
               ? DCP_OK
               : dcp_error_set(DCP_ERR_UNSUPPORTED,
                               "%s: is %s, which has no fp32 weights beside the model's",
                               source->path, source->text);
}

static dcp_status write_target(struct convert_source *source, const struct convert_target *target)
{
    uint64_t bytes = 0, kept = target->journal ? target->journal->kept : 0;
    for (size_t i = 0; i < source->count; i++)
        bytes += source->items[i].is_tensor ? source->items[i].bytes : 0;
    RETURN_IF_ERROR(
        progress_enter(target->progress, DCP_PHASE_WRITING, bytes > kept ? bytes - kept : 0));
    size_t form = 0;
    while (forms[form].form != source->options->form)
        form++;
    return forms[form].write(source, target);
}

void convert_tell(const struct convert_source *source, const struct convert_item *item,
                  const char *type, int32_t ndim, const int64_t *shape)
{
    const dcp_convert_options *options = source->options;
    const dcp_convert_item told = {.name = item->name,
                                   .is_tensor = item->is_tensor,
                                   .type = type,
                                   .ndim = ndim,
                                   .shape = shape,
                                   .bytes = item->is_tensor ? item->bytes : 0};
    if (options->told)
        options->told(options->told_context, &told);
}

/* A GGUF file's tensors were told of when they got their types. */
static void tell_items(const struct convert_source *source)
{
    for (size_t i = 0; i < source->count && source->options->form != DCP_FORM_GGUF; i++) {
        const struct convert_item *item = &source->items[i];
        if (item->is_tensor)
            convert_tell(source, item, dcp_dtype_name(item->dtype), item->ndim, item->shape);
        else
            convert_tell(source, item, "", 0, NULL);
    }
}

static dcp_status write_resumed(struct convert_source *source, const struct convert_target *target)
{
    struct convert_journal journal;
    struct convert_target resumed = *target;
    uint64_t fingerprint;
    resumed.journal = &journal;
    RETURN_IF_ERROR(convert_fingerprint(source, &fingerprint));
    dcp_status status = convert_journal_open(&journal, fingerprint, target->path);
    if (status == DCP_OK)
        status = write_target(source, &resumed);
    target->report->resumed = journal.kept;
    if (status != DCP_OK && journal.owned && convert_journal_is_kept(&journal))
        status = error_prefix(status, "%" PRIu64 " bytes are kept in %s", journal.bytes,
                              journal.directory);
    convert_journal_close(&journal);
    return status;
}

/* Whether a path leads to the other, by whatever name. */
static bool is_same(const char *one, const char *other)
{
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

/* A save would go into a directory that holds something else. */
static dcp_status check_apart(const char *from, const char *to, const dcp_convert_options *options)
{
    bool same = !options->storage && options->member_count == 0 && is_same(from, to);
    for (size_t i = 0; i < options->member_count && !same; i++)
        same = !options->storage && is_same(options->members[i], to);
    return same ? dcp_error_set(DCP_ERR_EXISTS, "%s: is the source itself", to) : DCP_OK;
}

static void fill_report(const struct convert_source *source, dcp_convert_report *report)
{
    report->source = source->form;
    report->target = source->options->form;
    memcpy(report->source_text, source->text, sizeof report->source_text);
    report->left_out = source->left_out;
    report->dequantized = source->dequantized;
    for (size_t i = 0; i < source->count; i++) {
        report->tensors += source->items[i].is_tensor;
        report->objects += !source->items[i].is_tensor;
        report->bytes += source->items[i].is_tensor ? source->items[i].bytes : 0;
    }
}

static dcp_status convert(const char *from, const char *to, const dcp_convert_options *options,
                          dcp_convert_report *report)
{
    struct convert_source source;
    struct progress progress;
    const struct convert_target target = {.path = to, .progress = &progress, .report = report};
    progress_init(&progress, options->progress, options->progress_context);
    dcp_status status = progress_enter(&progress, DCP_PHASE_PLANNING, 0);
    memset(&source, 0, sizeof source);
    if (status == DCP_OK)
        status = convert_source_open(&source, from, options);
    if (status == DCP_OK)
        status = check_apart(from, to, options);
    if (status == DCP_OK)
        status = check_take(&source);
    if (status == DCP_OK)
        status = convert_select(&source);
    if (status == DCP_OK)
        status = check_quantized(&source);
    if (status == DCP_OK)
        status = convert_transform(&source);
    if (status == DCP_OK)
        status = options->resume && !options->dry_run ? write_resumed(&source, &target)
                                                      : write_target(&source, &target);
    if (status == DCP_OK && options->dry_run)
        tell_items(&source);
    if (status == DCP_OK)
        fill_report(&source, report);
    convert_source_close(&source);
    progress_free(&progress);
    return status;
}

dcp_status dcp_convert_recognize_sized(const char *source, const dcp_convert_options *options,
                                       size_t options_size, dcp_convert_report *report,
                                       size_t report_size)
{
    struct convert_source opened;
    dcp_convert_options ours;
    dcp_convert_report found = {0};
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_convert_options"));
    if (!source || !*source || !report)
        return dcp_error_set(DCP_ERR_ARGUMENT, "recognising needs a path and a place");
    dcp_status status = convert_source_open(&opened, source, &ours);
    if (status == DCP_OK) {
        found.source = opened.form;
        memcpy(found.source_text, opened.text, sizeof found.source_text);
        sized_write(report, report_size, &found, sizeof found);
    }
    convert_source_close(&opened);
    return status;
}

dcp_status dcp_convert_sized(const char *source, const char *target,
                             const dcp_convert_options *options, size_t options_size,
                             dcp_convert_report *report, size_t report_size)
{
    dcp_convert_options ours;
    dcp_convert_report done = {0};
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_convert_options"));
    if (!source || !*source || !target || !*target)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a conversion needs a source and a destination");
    RETURN_IF_ERROR(find_form(target, &ours.form));
    RETURN_IF_ERROR(check_options(&ours));
    RETURN_IF_ERROR(convert(source, target, &ours, &done));
    if (report)
        sized_write(report, report_size, &done, sizeof done);
    return DCP_OK;
}
