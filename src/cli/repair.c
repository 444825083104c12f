/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "command.h"

struct repair {
    dcp_rebuild_options options;
    bool dry;
    const char *directory;
};

static bool take_arguments(int argc, char **argv, struct repair *repair)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--allow-gaps") == 0)
            repair->options.allow_gaps = true;
        else if (strcmp(argv[i], "--dry-run") == 0)
            repair->dry = true;
        else if (strcmp(argv[i], "--save") == 0 && i + 1 < argc)
            repair->options.save_id = argv[++i];
        else if (argv[i][0] == '-' || repair->directory)
            return false;
        else
            repair->directory = argv[i];
    }
    return repair->directory != NULL;
}

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

static dcp_status rebuild(const struct repair *repair, const dcp_shard_list *list)
{
    const dcp_publish_options options = {.storage = command_storage()};
    dcp_checkpoint *checkpoint;
    dcp_storage_meta meta;
    dcp_status status = dcp_shard_list_rebuild(list, &repair->options, &checkpoint);
    if (status != DCP_OK)
        return status;
    if (!repair->dry)
        status = dcp_checkpoint_publish(checkpoint, repair->directory, &options);
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

int command_repair(int argc, char **argv)
{
    struct repair repair = {.options = {.report = print_fault}};
    dcp_shard_list *list;

    if (!take_arguments(argc, argv, &repair))
        return EXIT_USAGE;
    dcp_status status = dcp_shard_list_read(
        repair.directory, &(dcp_shard_list_options){.storage = command_storage()}, &list);
    if (status == DCP_OK) {
        print_files(list);
        status = rebuild(&repair, list);
        dcp_shard_list_free(list);
    }
    return status == DCP_OK ? EXIT_FINE : command_fail("repair");
}
