/* SPDX-License-Identifier: BSD-3-Clause */
/* dcp convert: one form of checkpoint into another. */
#include <string.h>

#include "convert_page.h"
#include "convert_print.h"

enum { SOURCES_MAX = 4096 };

/* "FROM=TO": a pattern if FROM has a star, else a whole name or what is below it. */
static bool take_rename(struct command_line *line, const struct option *option, const char *text)
{
    struct convert_given *given = line->options;
    const char *equals = strchr(text, '=');
    (void)option;
    if (!equals)
        return false;
    size_t length = (size_t)(equals - text);
    char *from = option_keep(line, length + 1);
    if (!given->renames)
        given->renames = option_keep(line, (size_t)line->argc * sizeof *given->renames);
    if (!from || !given->renames)
        return false;
    memcpy(from, text, length);
    given->renames[given->rename_count++] = (dcp_convert_rename){
        strpbrk(from, "*?[") ? DCP_RENAME_GLOB : DCP_RENAME_EXACT, from, equals + 1};
    return true;
}

/* Options of the library, from what was given. */
static void complete_options(struct convert_given *given, char **paths, int count)
{
    dcp_convert_options *options = &given->options;
    options->include = given->include.items;
    options->include_count = given->include.count;
    options->exclude = given->exclude.items;
    options->exclude_count = given->exclude.count;
    options->renames = given->renames;
    options->rename_count = given->rename_count;
    if (given->masters || given->all)
        options->take = given->all ? DCP_TAKE_ALL : DCP_TAKE_MASTERS;
    if (given->zstd)
        options->compression = DCP_COMPRESSION_ZSTD;
    if (count > 2) {
        options->members = (const char *const *)paths;
        options->member_count = (size_t)count - 1;
    }
    options->told = convert_print_item;
    options->told_context = given;
    options->storage = command_storage();
    if (options->form == DCP_FORM_DCP)
        options->target_storage = command_storage();
}

static int run_convert(struct command_line *line)
{
    struct convert_given *given = line->options;
    struct progress_line progress = {.hidden = given->quiet};
    int count = line->path_count;
    const char *source = count == 2 ? line->paths[0] : ".", *target = line->paths[count - 1];
    dcp_convert_options *options = &given->options;
    dcp_convert_report report;
    if (options->form == DCP_FORM_UNKNOWN && dcp_form_from_path(target) == DCP_FORM_UNKNOWN)
        return option_usage(line, "the name of DST does not say its form: give --to");
    complete_options(given, line->paths, count);
    command_catch_signals(true);
    dcp_status status = dcp_convert_recognize(source, options, &report);
    if (status != DCP_OK)
        return command_fail_with("convert", status);
    if (!given->quiet)
        convert_print_source(line->paths, count, &report);
    progress_begin(&progress);
    options->progress = progress_draw;
    options->progress_context = &progress;
    status = dcp_convert(source, target, options, &report);
    progress_end(&progress);
    if (status == DCP_ERR_CANCELLED && command_interrupted() && options->resume) {
        fputs("dcp convert: interrupted; the same command continues\n", stderr);
        return EXIT_INTERRUPTED;
    }
    if (status != DCP_OK)
        return command_fail_with("convert", status);
    convert_print_report(given, &report);
    return EXIT_FINE;
}

static const struct option_word forms[] = {
    {"dcp", DCP_FORM_DCP}, {"pt", DCP_FORM_PT},     {"safetensors", DCP_FORM_SAFETENSORS},
    {"hf", DCP_FORM_HF},   {"gguf", DCP_FORM_GGUF}, {NULL, 0}};
static const struct option_word ties[] = {
    {"keep", DCP_TIED_KEEP}, {"drop", DCP_TIED_DROP}, {NULL, 0}};

static const struct option_word gguf_types[] = {{"f32", DCP_GGUF_F32},
                                                {"f16", DCP_GGUF_F16},
                                                {"bf16", DCP_GGUF_BF16},
                                                {"q8_0", DCP_GGUF_Q8_0},
                                                {NULL, 0}};

#define FIELD(member) offsetof(struct convert_given, member)

static const struct option convert_table[] = {
    {.name = "to",
     .letter = 't',
     .argument = "FORM",
     .set = option_choice,
     .field = FIELD(options.form),
     .words = forms,
     .help = "dcp, pt, safetensors, hf (a Hugging Face directory) or gguf. Without it the "
             "suffix of DST decides: .pt, .pth, .bin, .ckpt, .safetensors or .gguf."},
    {.name = "include",
     .letter = 'i',
     .argument = "GLOB",
     .set = option_list,
     .field = FIELD(include),
     .help = "Take only such names, and what is below them. May be given several times."},
    {.name = "exclude",
     .letter = 'x',
     .argument = "GLOB",
     .set = option_list,
     .field = FIELD(exclude),
     .help = "Leave such names out, and what is below them. May be given several times."},
    {.name = "rename",
     .argument = "FROM=TO",
     .set = take_rename,
     .expected = "FROM=TO",
     .help = "Give a name, or all names below it, another one. With stars FROM is a pattern, and "
             "the stars of TO stand for what those matched. May be given several times; the first "
             "that matches counts."},
    {.name = "model-only",
     .letter = 'm',
     .set = option_flag,
     .field = FIELD(options.model_only),
     .help = "Take what is below model, module, state_dict, model_state_dict or network, without "
             "that key, and leave out objects where the form has no place for them."},
    {.name = "masters",
     .set = option_flag,
     .field = FIELD(masters),
     .help = "Take the optimizer's fp32 weights of a training checkpoint, under the names of the "
             "model's."},
    {.name = "all",
     .letter = 'a',
     .set = option_flag,
     .field = FIELD(all),
     .help = "Take all of a training checkpoint: the model below \"model\", the optimizer's state, "
             "and the rest."},
    {.name = "unstack",
     .set = option_flag,
     .field = FIELD(options.unstack),
     .help = "Give each layer of the model a tensor of its own, where Megatron-Core stacks them in "
             "one."},
    {.name = "dtype",
     .argument = "DTYPE",
     .set = option_dtype,
     .field = FIELD(options.dtype),
     .expected = "a dtype, such as float32 or bf16",
     .help = "Convert floating-point tensors to float64, float32, float16 or bfloat16, as PyTorch "
             "does."},
    {.name = "dequantize",
     .argument = "DTYPE",
     .set = option_dtype,
     .field = FIELD(options.dequantize),
     .expected = "bf16 or fp32",
     .help = "Compute quantized weights as bf16 or fp32, bit for bit as their reference does. "
             "Without it they are copied as they are stored."},
    {.name = "transform",
     .argument = "FILE",
     .set = option_text,
     .field = FIELD(options.transform),
     .help = "Rename, join, split, stack, transpose, cast, drop and tie tensors by the rules in "
             "FILE."},
    {.name = "inverse",
     .set = option_flag,
     .field = FIELD(options.transform_inverse),
     .help = "Apply the inverse of the rules."},
    {.name = "config",
     .argument = "FILE",
     .set = option_text,
     .field = FIELD(options.transform_config),
     .help = "The config.json whose numbers the rules name, and by which a GGUF file is written. "
             "Without it, that of a Hugging Face "
             "directory which is converted."},
    {.name = "tied",
     .argument = "WHAT",
     .set = option_choice,
     .field = FIELD(options.tied),
     .words = ties,
     .help = "What becomes of lm_head.weight where it equals the embedding bit for bit: keep or "
             "drop. Without it, a Hugging Face directory is written without it if config.json says "
             "that both are tied."},
    {.name = "shard-size",
     .argument = "SIZE",
     .set = option_bytes,
     .field = FIELD(options.shard_size),
     .expected = "a number of bytes, such as 5GB",
     .help = "Most bytes in a file of a Hugging Face directory, as 5GB; 50GB by default."},
    {.name = "gguf-type",
     .argument = "TYPE",
     .set = option_choice,
     .field = FIELD(options.gguf_type),
     .words = gguf_types,
     .help = "Of the matrices of a GGUF file: f32, f16, bf16 or q8_0. Without it, that of the "
             "first one."},
    {.name = "ranks",
     .argument = "N",
     .set = option_int,
     .field = FIELD(options.ranks),
     .least = 1,
     .most = DCP_CONVERT_RANKS_MAX,
     .help = "Write a DCP directory as N ranks do."},
    {.name = "zstd",
     .set = option_flag,
     .field = FIELD(zstd),
     .help = "Compress a DCP directory; takes some 5 MiB more for each thread."},
    {.name = "no-sync",
     .set = option_flag,
     .field = FIELD(options.skip_sync),
     .help = "Do not wait until the data is durable."},
    {.name = "dry-run",
     .letter = 'n',
     .set = option_flag,
     .field = FIELD(options.dry_run),
     .help = "Write nothing, and print the names, dtypes and shapes that would be written."},
    {.name = "resume",
     .set = option_flag,
     .field = FIELD(options.resume),
     .help =
         "If it is interrupted or fails, keep what is done in DST.partial; and continue what an "
         "earlier call with the same arguments has left there. DCP directories need several ranks: "
         "the files of finished ranks are kept."},
    {.name = "threads",
     .argument = "N",
     .set = option_int,
     .field = FIELD(options.thread_count),
     .least = 1,
     .most = 64,
     .help = "Threads that read and write."},
    {.name = "quiet",
     .letter = 'q',
     .set = option_flag,
     .field = FIELD(quiet),
     .help = "Print nothing but errors."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = FIELD(json),
     .help = "What was done, as JSON."},
    {.name = NULL}};

static const struct exit_text exits[] = {
    {EXIT_UNABLE, "It could not be done, for want of memory or open files."}, {0, NULL}};

const struct command command_convert = {
    .name = "convert",
    .operands = "CHECKPOINT... DST",
    .least = 2,
    .most = SOURCES_MAX + 1,
    .purpose = "write a checkpoint in another form: DCP, .pt, safetensors, Hugging Face, GGUF",
    .description = CONVERT_DESCRIPTION CONVERT_GGUF CONVERT_TRANSFORMS,
    .options = convert_table,
    .size = sizeof(struct convert_given),
    .json = "An object: source and target are forms, as --to names them, source_text says what the "
            "source was taken for; tensors, objects and bytes were written to so many files (0: "
            "not counted); left_out names were left out, and tied tensors; dequantized "
            "counts weights; resumed bytes were there from an earlier call. With "
            "--dry-run also items, an array: name, type: \"tensor\" or \"object\", and of tensors "
            "dtype, shape and bytes.\n",
    .examples = "  dcp convert run/step_1000 model.safetensors --model-only --dtype bfloat16\n"
                "      The model of a training checkpoint, to give away.\n"
                "  dcp convert Llama-3-8B checkpoint --to dcp --ranks 8\n"
                "      A Hugging Face model, to train on.\n"
                "  dcp convert run model.safetensors --masters\n"
                "      The fp32 weights of a training checkpoint.\n"
                "  dcp convert Mixtral-8x7B mcore --to dcp --transform mixtral_megatron.json\n"
                "      A model under the names of Megatron-Core.\n"
                "  dcp convert Llama-3-8B mcore --to dcp --transform llama_megatron.json -n\n"
                "      What rules come to, before it takes hours.\n"
                "  dcp convert Mistral-7B mistral.gguf --gguf-type q8_0\n"
                "      A model for llama.cpp.\n"
                "  dcp convert run/step_1000 /nfs/model.safetensors -m --resume\n"
                "      Over a slow network; after a failure the same command continues.\n"
                "  dcp convert DeepSeek-V3 bf16 --to hf --dequantize bf16\n"
                "      A quantized model, computed.\n",
    .exits = exits,
    .see_also = "ls verify",
    .run = run_convert};
