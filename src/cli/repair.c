/* SPDX-License-Identifier: BSD-3-Clause */
#include "repair.h"

#include <inttypes.h>

#include "ls.h"

/* Where faults are printed while a checkpoint is rebuilt. */
struct fault_printer {
    bool json;
    size_t told; /* so far */
};

static void print_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    struct fault_printer *printer = context;
    if (printer->json) {
        fputs(printer->told > 0 ? ",\n  " : "\n  ", stdout);
        print_json_fault(stdout, file, offset, name, fault);
    } else {
        print_plain(stdout, fault);
        putchar('\n');
    }
    printer->told++;
}

/* ---- files ---- */

/* like: its streams get names of another checkpoint. */
static void print_file(const dcp_shard_info *info, bool like)
{
    print_plain(stdout, info->file);
    if (info->status == DCP_OK)
        printf(": %zu item%s of save ", info->item_count, plural(info->item_count));
    else
        fputs(like ? ": " : ": not used: ", stdout);
    print_plain(stdout, info->status == DCP_OK ? info->save_id : info->problem);
    putchar('\n');
}

static void print_file_json(const dcp_shard_info *info, bool first)
{
    fputs(first ? "\n  {\"file\": " : ",\n  {\"file\": ", stdout);
    print_json_string(stdout, info->file);
    printf(", \"size\": %" PRIu64, info->size);
    if (info->status == DCP_OK) {
        fputs(", \"save\": ", stdout);
        print_json_string(stdout, info->save_id);
        printf(", \"items\": %zu}", info->item_count);
    } else {
        fputs(", \"problem\": ", stdout);
        print_json_string(stdout, info->problem);
        putchar('}');
    }
}

static void print_files(const dcp_shard_list *list, bool json, bool like)
{
    dcp_shard_info info;
    bool first = true;
    for (size_t i = 0; i < dcp_shard_list_count(list); i++) {
        if (dcp_shard_list_file(list, i, &info) != DCP_OK)
            continue;
        if (json)
            print_file_json(&info, first);
        else
            print_file(&info, like);
        first = false;
    }
}

/* ---- streams, of files without footers ---- */

static void print_stream(const char *file, const dcp_shard_stream *stream)
{
    print_plain(stdout, file);
    printf(":%" PRIu64 ": %" PRIu64 " bytes: ", stream->offset, stream->length);
    if (*stream->problem)
        print_plain(stdout, stream->problem);
    else if (stream->is_tensor)
        printf("%s ", dcp_dtype_name(stream->dtype));
    else
        fputs("an object", stdout);
    if (stream->is_tensor)
        ls_print_numbers(stream->sizes, stream->ndim);
    puts(stream->compressed ? ", compressed" : "");
}

static void print_stream_json(const char *file, const dcp_shard_stream *stream)
{
    fputs("{\"file\": ", stdout);
    print_json_string(stdout, file);
    printf(", \"offset\": %" PRIu64 ", \"length\": %" PRIu64, stream->offset, stream->length);
    if (*stream->problem) {
        fputs(", \"problem\": ", stdout);
        print_json_string(stdout, stream->problem);
    } else {
        printf(", \"compressed\": %s, \"type\": \"%s\"", stream->compressed ? "true" : "false",
               stream->is_tensor ? "tensor" : "object");
    }
    if (stream->is_tensor) {
        printf(", \"dtype\": \"%s\", \"shape\": ", dcp_dtype_name(stream->dtype));
        ls_print_numbers(stream->sizes, stream->ndim);
        fputs(", \"strides\": ", stdout);
        ls_print_numbers(stream->strides, stream->ndim);
    }
    putchar('}');
}

static void print_streams(const dcp_shard_list *list, bool json)
{
    dcp_shard_info info;
    dcp_shard_stream stream;
    bool first = true;
    if (json)
        fputs("], \"streams\": [", stdout);
    for (size_t i = 0; i < dcp_shard_list_count(list); i++) {
        if (dcp_shard_list_file(list, i, &info) != DCP_OK)
            continue;
        for (size_t k = 0; k < info.stream_count; k++) {
            if (dcp_shard_list_stream(list, i, k, &stream) != DCP_OK)
                continue;
            if (json)
                fputs(first ? "\n  " : ",\n  ", stdout);
            if (json)
                print_stream_json(info.file, &stream);
            else
                print_stream(info.file, &stream);
            first = false;
        }
    }
}

/* ---- the result ---- */

static void print_result(const struct repair *repair, const dcp_checkpoint *checkpoint,
                         const char *save_id)
{
    size_t names = dcp_checkpoint_count(checkpoint);
    if (repair->json) {
        printf(", \"published\": %s, \"save\": ", repair->dry ? "false" : "true");
        print_json_string(stdout, save_id);
        printf(", \"names\": %zu", names);
        return;
    }
    puts("not recovered: what only .metadata had: extra files, and data of custom planners");
    printf("%zu name%s of ", names, plural(names));
    fputs(repair->like ? "" : "save ", stdout);
    print_plain(stdout, repair->like ? repair->like : save_id);
    if (repair->left_out > 0)
        printf(", %zu fault%s", repair->left_out, plural(repair->left_out));
    if (repair->dry)
        puts(repair->left_out > 0 ? ": not published" : ": complete, not published");
    else
        puts(": published");
}

/* Nothing is written until all is known; from there on a signal waits, so that no mark or temporary
 * file stays behind. */
static dcp_status publish(const struct repair *repair, const char *directory,
                          const dcp_checkpoint *checkpoint)
{
    const dcp_publish_options options = {.storage = command_storage(),
                                         .overwrite = repair->replace ? DCP_OVERWRITE_REPLACE
                                                                      : DCP_OVERWRITE_REFUSE};
    if (repair->dry)
        return DCP_OK;
    command_catch_signals(true);
    return dcp_checkpoint_publish(checkpoint, directory, &options);
}

/* The checkpoint that has the names; NULL if none was given. */
static dcp_status open_like(const struct repair *repair, dcp_checkpoint **like)
{
    const dcp_open_options options = {.storage = command_storage()};
    *like = NULL;
    return repair->like ? dcp_checkpoint_open(repair->like, &options, like) : DCP_OK;
}

static dcp_status rebuild(struct repair *repair, const char *directory, const dcp_shard_list *list)
{
    struct fault_printer printer = {.json = repair->json};
    dcp_rebuild_options options = repair->options;
    dcp_checkpoint *checkpoint = NULL, *like;
    dcp_storage_meta meta;
    options.report = print_fault;
    options.report_context = &printer;
    options.leave_out = true;
    dcp_status status = open_like(repair, &like);
    options.like = like;
    if (status == DCP_OK)
        status = dcp_shard_list_rebuild(list, &options, &checkpoint);
    dcp_checkpoint_close(like);
    if (repair->json)
        fputs(printer.told > 0 ? "\n ]" : "]", stdout);
    if (status != DCP_OK)
        return status;
    repair->left_out = repair->like ? printer.told : 0;
    status = publish(repair, directory, checkpoint);
    if (status == DCP_OK)
        status = dcp_checkpoint_storage_meta(checkpoint, &meta);
    if (status == DCP_OK)
        print_result(repair, checkpoint, meta.save_id ? meta.save_id : "");
    dcp_checkpoint_close(checkpoint);
    return status;
}

dcp_status repair_directory(struct repair *repair, const char *directory)
{
    dcp_shard_list *list = NULL;
    dcp_status status = dcp_shard_list_read(
        directory, &(dcp_shard_list_options){.storage = command_storage(), .streams = true}, &list);
    if (repair->json)
        fputs("{\"files\": [", stdout);
    if (status == DCP_OK) {
        print_files(list, repair->json, repair->like != NULL);
        print_streams(list, repair->json);
    }
    if (repair->json)
        fputs("], \"faults\": [", stdout);
    if (status == DCP_OK)
        status = rebuild(repair, directory, list);
    else if (repair->json)
        putchar(']');
    if (repair->json && status != DCP_OK) {
        fputs(", \"published\": false, \"error\": ", stdout);
        print_json_string(stdout, dcp_error_message());
    }
    if (repair->json)
        putchar('}');
    dcp_shard_list_free(list);
    return status;
}

/* ---- the command ---- */

static int run_repair(struct command_line *line)
{
    struct repair *repair = line->options;
    dcp_status status = repair_directory(repair, line->paths[0]);
    if (repair->json)
        putchar('\n');
    if (status != DCP_OK)
        return command_fail("repair");
    return repair->left_out == 0 ? EXIT_FINE : EXIT_FAULT;
}

static const struct option repair_table[] = {
    {.name = "like",
     .argument = "OTHER",
     .set = option_text,
     .field = offsetof(struct repair, like),
     .help = REPAIR_LIKE_HELP},
    {.name = "save",
     .argument = "ID",
     .set = option_text,
     .field = offsetof(struct repair, options.save_id),
     .help = "The save that is wanted, if the directory holds files of several."},
    {.name = "allow-gaps",
     .set = option_flag,
     .field = offsetof(struct repair, options.allow_gaps),
     .help = "File numbers may be missing, as where ranks had nothing to write."},
    {.name = "dry-run",
     .letter = 'n',
     .set = option_flag,
     .field = offsetof(struct repair, dry),
     .help = "Publish nothing, and print what would be."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = offsetof(struct repair, json),
     .help = "What was found and done, as JSON."},
    {.name = NULL}};

const struct command command_repair = {
    .name = "repair",
    .operands = "DIRECTORY",
    .least = 1,
    .most = 1,
    .purpose = "rebuild a lost .metadata",
    .description = "Rebuilds .metadata from what the footers of the shard files say, and publishes "
                   "it if there is none and every tensor is complete. Nothing else is changed. "
                   "What .metadata alone had is lost: the list of extra files, and the data of "
                   "custom planners.\n"
                   "\n"
                   "Files without a footer, as PyTorch writes them, say dtypes, shapes and places, "
                   "but no names: each stream is listed, and --like OTHER takes the names of "
                   "another checkpoint of the same job. Tensors that are alike and have changed "
                   "places since cannot be told apart.\n"
                   "\n"
                   "dcp verify --repair also replaces a .metadata that is damaged.\n",
    .options = repair_table,
    .size = sizeof(struct repair),
    .json = "An object:\n"
            "  files      an array: file, size, and save and items, or the problem of a file that "
            "has no footer\n"
            "  streams    an array, of files without a footer: file, offset, length, and problem "
            "of what is none, or compressed, type, and of tensors dtype, shape and strides\n"
            "  faults     an array: file, offset, name and fault; why a save is not complete, or "
            "what is not as in OTHER\n"
            "  published  true or false\n"
            "  save       its id, \"\" with --like, and\n"
            "  names      how many tensors and objects it has; both only if it is complete\n"
            "  error      why there is no result\n",
    .examples = "  dcp repair --dry-run run/step_1000\n"
                "      What is there, and whether it is complete.\n"
                "  dcp repair run/step_1000 && dcp verify run/step_1000\n"
                "      Rebuilds it, and checks the result.\n"
                "  dcp repair --like run/step_900 run/step_1000\n"
                "      The same of a checkpoint that PyTorch wrote.\n",
    .see_also = "verify",
    .run = run_repair};
