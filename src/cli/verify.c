/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "command.h"

static void print_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    (void)context;
    print_plain(stdout, *file ? file : "-");
    printf(":%" PRIu64 ": ", offset);
    print_plain(stdout, *name ? name : "-");
    fputs(": ", stdout);
    print_plain(stdout, fault);
    putchar('\n');
}

static void print_note(void *context, dcp_log_level level, const char *line)
{
    (void)context, (void)level;
    fputs("note: ", stdout);
    print_plain(stdout, line);
    putchar('\n');
}

static int run_verify(struct command_line *line)
{
    uint64_t faults = 0;
    struct progress_line progress = {0};
    dcp_open_options options = {
        .storage = command_storage(), .progress = progress_draw, .progress_context = &progress};
    if (line->path_count > 1) {
        options.members = (const char *const *)line->paths;
        options.member_count = (size_t)line->path_count;
    }
    dcp_set_log(print_note, NULL, DCP_LOG_INFO);
    progress_begin(&progress);
    dcp_status status = dcp_verify(line->path_count == 1 ? line->paths[0] : ".", &options,
                                   print_fault, NULL, &faults);
    progress_end(&progress);
    if (status == DCP_ERR_BUSY) {
        command_fail("verify");
        return EXIT_UNABLE;
    }
    if (status != DCP_OK)
        return command_fail_with("verify", status);
    printf("%" PRIu64 " fault%s\n", faults, plural(faults));
    return faults == 0 ? EXIT_FINE : EXIT_FAULT;
}

static const struct exit_text exits[] = {
    {EXIT_FINE, "No fault was found."},
    {EXIT_FAULT, "There are faults, or there is no checkpoint."},
    {EXIT_UNABLE,
     "It could not be checked: for want of memory or open files, or because a save has replaced it "
     "meanwhile."},
    {0, NULL}};

const struct command command_verify = {
    .name = "verify",
    .operands = "CHECKPOINT...",
    .least = 1,
    .purpose = "check every file, checksum and chunk",
    .description =
        "Reads the whole checkpoint: every file is there and as long as it should be, every "
        "checksum is right, every tensor is covered by its chunks and no two of them overlap. Each "
        "fault is a line: file, offset, name and what is wrong. What has no checksum is told as a "
        "note.\n",
    .examples = "  dcp verify run/step_1000 || dcp list run\n"
                "      Checks one, and looks for others if it is damaged.\n",
    .exits = exits,
    .see_also = "repair list",
    .run = run_verify};
