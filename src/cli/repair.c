/* SPDX-License-Identifier: BSD-3-Clause */
#include "repair.h"

#include <inttypes.h>

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

static void print_file(const dcp_shard_info *info)
{
    print_plain(stdout, info->file);
    if (info->status == DCP_OK)
        printf(": %zu item%s of save ", info->item_count, plural(info->item_count));
    else
        fputs(": not used: ", stdout);
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

static void print_files(const dcp_shard_list *list, bool json)
{
    dcp_shard_info info;
    bool first = true;
    for (size_t i = 0; i < dcp_shard_list_count(list); i++) {
        if (dcp_shard_list_file(list, i, &info) != DCP_OK)
            continue;
        if (json)
            print_file_json(&info, first);
        else
            print_file(&info);
        first = false;
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
    printf("%zu name%s of save ", names, plural(names));
    print_plain(stdout, save_id);
    puts(repair->dry ? ": complete, not published" : ": published");
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

static dcp_status rebuild(const struct repair *repair, const char *directory,
                          const dcp_shard_list *list)
{
    struct fault_printer printer = {.json = repair->json};
    dcp_rebuild_options options = repair->options;
    dcp_checkpoint *checkpoint;
    dcp_storage_meta meta;
    options.report = print_fault;
    options.report_context = &printer;
    dcp_status status = dcp_shard_list_rebuild(list, &options, &checkpoint);
    if (repair->json)
        fputs(printer.told > 0 ? "\n ]" : "]", stdout);
    if (status != DCP_OK)
        return status;
    status = publish(repair, directory, checkpoint);
    if (status == DCP_OK)
        status = dcp_checkpoint_storage_meta(checkpoint, &meta);
    if (status == DCP_OK)
        print_result(repair, checkpoint, meta.save_id ? meta.save_id : "");
    dcp_checkpoint_close(checkpoint);
    return status;
}

dcp_status repair_directory(const struct repair *repair, const char *directory)
{
    dcp_shard_list *list = NULL;
    dcp_status status = dcp_shard_list_read(
        directory, &(dcp_shard_list_options){.storage = command_storage()}, &list);
    if (repair->json)
        fputs("{\"files\": [", stdout);
    if (status == DCP_OK)
        print_files(list, repair->json);
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
    const struct repair *repair = line->options;
    dcp_status status = repair_directory(repair, line->paths[0]);
    if (repair->json)
        putchar('\n');
    return status == DCP_OK ? EXIT_FINE : command_fail("repair");
}

static const struct option repair_table[] = {
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
                   "Files without a footer, as PyTorch writes them, cannot be used. What "
                   ".metadata alone had is lost: the list of extra files, and the data of custom "
                   "planners.\n"
                   "\n"
                   "dcp verify --repair also replaces a .metadata that is damaged.\n",
    .options = repair_table,
    .size = sizeof(struct repair),
    .json = "An object:\n"
            "  files      an array: file, size, and save and items, or the problem of a file that "
            "cannot be used\n"
            "  faults     an array: file, offset, name and fault; why a save is not complete\n"
            "  published  true or false\n"
            "  save       its id, and\n"
            "  names      how many tensors and objects it has; both only if it is complete\n"
            "  error      why there is no result\n",
    .examples = "  dcp repair --dry-run run/step_1000\n"
                "      What is there, and whether it is complete.\n"
                "  dcp repair run/step_1000 && dcp verify run/step_1000\n"
                "      Rebuilds it, and checks the result.\n",
    .see_also = "verify",
    .run = run_repair};
