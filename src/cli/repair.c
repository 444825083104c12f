/* SPDX-License-Identifier: BSD-3-Clause */
#include "command.h"

struct repair {
    dcp_rebuild_options options;
    bool dry;
};

static void print_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    (void)context, (void)file, (void)offset, (void)name;
    print_plain(stdout, fault);
    putchar('\n');
}

static void print_files(const dcp_shard_list *list)
{
    dcp_shard_info info;
    for (size_t i = 0; i < dcp_shard_list_count(list); i++) {
        if (dcp_shard_list_file(list, i, &info) != DCP_OK)
            continue;
        print_plain(stdout, info.file);
        if (info.status == DCP_OK)
            printf(": %zu item%s of save ", info.item_count, info.item_count == 1 ? "" : "s");
        else
            fputs(": not used: ", stdout);
        print_plain(stdout, info.status == DCP_OK ? info.save_id : info.problem);
        putchar('\n');
    }
}

static dcp_status rebuild(const struct repair *repair, const char *directory,
                          const dcp_shard_list *list)
{
    const dcp_publish_options options = {.storage = command_storage()};
    dcp_checkpoint *checkpoint;
    dcp_storage_meta meta;
    dcp_status status = dcp_shard_list_rebuild(list, &repair->options, &checkpoint);
    if (status != DCP_OK)
        return status;
    if (!repair->dry)
        status = dcp_checkpoint_publish(checkpoint, directory, &options);
    if (status == DCP_OK)
        status = dcp_checkpoint_storage_meta(checkpoint, &meta);
    if (status == DCP_OK) {
        printf("%zu name%s of save ", dcp_checkpoint_count(checkpoint),
               dcp_checkpoint_count(checkpoint) == 1 ? "" : "s");
        print_plain(stdout, meta.save_id ? meta.save_id : "");
        puts(repair->dry ? ": complete, not published" : ": published");
    }
    dcp_checkpoint_close(checkpoint);
    return status;
}

static int run_repair(struct command_line *line)
{
    const struct repair *repair = line->options;
    const char *directory = line->paths[0];
    dcp_shard_list *list;
    dcp_status status = dcp_shard_list_read(
        directory, &(dcp_shard_list_options){.storage = command_storage()}, &list);
    if (status == DCP_OK) {
        print_files(list);
        status = rebuild(repair, directory, list);
        dcp_shard_list_free(list);
    }
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
    {.name = NULL}};

static const struct repair defaults = {.options = {.report = print_fault}};

const struct command command_repair = {
    .name = "repair",
    .operands = "DIRECTORY",
    .least = 1,
    .most = 1,
    .purpose = "rebuild a lost .metadata",
    .description = "Rebuilds .metadata from what the footers of the shard files say, and publishes "
                   "it if there is none and every tensor is complete. Nothing else is changed.\n",
    .options = repair_table,
    .size = sizeof(struct repair),
    .defaults = &defaults,
    .examples = "  dcp repair --dry-run run/step_1000\n"
                "      What is there, and whether it is complete.\n"
                "  dcp repair run/step_1000 && dcp verify run/step_1000\n"
                "      Rebuilds it, and checks the result.\n",
    .see_also = "verify",
    .run = run_repair};
