/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>

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

int command_verify(int argc, char **argv)
{
    uint64_t faults = 0;

    if (argc < 2)
        return EXIT_USAGE;
    dcp_open_options options = {.storage = command_storage()};
    if (argc > 2) {
        options.members = (const char *const *)argv + 1;
        options.member_count = (size_t)argc - 1;
    }
    dcp_set_log(print_note, NULL, DCP_LOG_INFO);
    dcp_status status = dcp_verify(argc == 2 ? argv[1] : ".", &options, print_fault, NULL, &faults);
    if (status != DCP_OK) {
        command_fail("verify");
        return status == DCP_ERR_NO_MEMORY || status == DCP_ERR_FILE_LIMIT || status == DCP_ERR_BUSY
                   ? EXIT_UNABLE
                   : EXIT_FAULT;
    }
    printf("%" PRIu64 " fault%s\n", faults, faults == 1 ? "" : "s");
    return faults == 0 ? EXIT_FINE : EXIT_FAULT;
}
