/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdlib.h>

#include "repair.h"

struct verify_options {
    bool json;
    bool repair;
    bool quiet;
    const char *like; /* for repair */
};

/* What is printed of a check, as it comes. */
struct verify_printer {
    struct progress_line progress;
    bool json;
    uint64_t faults;
    FILE *notes; /* of the JSON, which come after the faults; NULL: none are kept */
    char *notes_text;
    size_t notes_size;
};

static void print_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    struct verify_printer *printer = context;
    progress_end(&printer->progress);
    if (printer->json) {
        fputs(printer->faults > 0 ? ",\n " : "\n ", stdout);
        print_json_fault(stdout, file, offset, name, fault);
    } else {
        print_plain(stdout, *file ? file : "-");
        printf(":%" PRIu64 ": ", offset);
        print_plain(stdout, *name ? name : "-");
        fputs(": ", stdout);
        print_plain(stdout, fault);
        putchar('\n');
    }
    printer->faults++;
}

static void print_note(void *context, dcp_log_level level, const char *line)
{
    struct verify_printer *printer = context;
    (void)level;
    progress_end(&printer->progress);
    if (!printer->json) {
        fputs("note: ", stdout);
        print_plain(stdout, line);
        putchar('\n');
    } else if (printer->notes) {
        fputs(ftell(printer->notes) > 0 ? ", " : "", printer->notes);
        print_json_string(printer->notes, line);
    }
}

static bool draw_progress(void *context, const dcp_progress *told)
{
    struct verify_printer *printer = context;
    return progress_draw(&printer->progress, told);
}

/* ---- repairing ---- */

/* A .metadata that cannot be read, or is not there. In any other case there is nothing to rebuild:
 * it may be newer than this program, or the storage may have failed. */
static bool is_metadata_lost(const char *directory, bool *damaged)
{
    const dcp_open_options options = {.storage = command_storage()};
    dcp_checkpoint *checkpoint = NULL;
    dcp_status status = dcp_checkpoint_open(directory, &options, &checkpoint);
    dcp_checkpoint_close(checkpoint);
    *damaged = status == DCP_ERR_FORMAT;
    return status == DCP_ERR_NOT_FOUND || *damaged;
}

/* What could be done is printed; the check that follows says what the result is. Returns how much
 * was left out of it. */
static size_t repair_metadata(const char *directory, const char *like, bool json)
{
    struct repair repair = {.json = json, .like = like};
    if (json)
        fputs("\"repair\": ", stdout);
    if (!is_metadata_lost(directory, &repair.replace)) {
        fputs(json ? "null" : "note: .metadata needs no repair\n", stdout);
    } else if (repair_directory(&repair, directory) != DCP_OK && !json) {
        fputs("not repaired: ", stdout);
        print_plain(stdout, dcp_error_message());
        putchar('\n');
    }
    if (json)
        fputs(",\n", stdout);
    return repair.left_out;
}

/* ---- checking ---- */

static dcp_status check(struct command_line *line, struct verify_printer *printer)
{
    uint64_t faults = 0;
    dcp_open_options options = {
        .storage = command_storage(),
        .progress = draw_progress,
        .progress_context = printer,
        .take = command_take(),
    };
    if (line->path_count > 1) {
        options.members = (const char *const *)line->paths;
        options.member_count = (size_t)line->path_count;
    }
    dcp_set_log(print_note, printer, DCP_LOG_INFO);
    command_catch_signals(false);
    progress_begin(&printer->progress);
    dcp_status status = dcp_verify(line->path_count == 1 ? line->paths[0] : ".", &options,
                                   print_fault, printer, &faults);
    progress_end(&printer->progress);
    dcp_set_log(NULL, NULL, DCP_LOG_INFO);
    if (line->path_count == 1)
        status = command_explain(line->paths[0], status);
    return status;
}

static void end_json(struct verify_printer *printer, dcp_status status)
{
    fputs(printer->faults > 0 ? "\n], \"notes\": [" : "], \"notes\": [", stdout);
    if (printer->notes) {
        fclose(printer->notes);
        fputs(printer->notes_text, stdout);
        free(printer->notes_text);
    }
    printf("], \"checked\": %s", status == DCP_OK ? "true" : "false");
    if (status != DCP_OK) {
        fputs(", \"error\": ", stdout);
        print_json_string(stdout, dcp_error_message());
    }
    fputs("}\n", stdout);
}

static int run_verify(struct command_line *line)
{
    const struct verify_options *given = line->options;
    struct verify_printer printer = {.json = given->json, .progress = {.hidden = given->quiet}};
    if (given->repair && line->path_count > 1)
        return option_usage(line, "--repair takes one directory");
    if (given->like && !given->repair)
        return option_usage(line, "--like is for --repair");
    size_t left_out = 0;
    if (given->json)
        printer.notes = open_memstream(&printer.notes_text, &printer.notes_size);
    if (given->json)
        putchar('{');
    if (given->repair)
        left_out = repair_metadata(line->paths[0], given->like, given->json);
    if (given->json)
        fputs("\"faults\": [", stdout);
    dcp_status status = check(line, &printer);
    if (given->json)
        end_json(&printer, status);
    if (status == DCP_ERR_BUSY) {
        command_fail("verify");
        return EXIT_UNABLE;
    }
    if (status != DCP_OK)
        return command_fail_with("verify", status);
    if (!given->json)
        printf("%" PRIu64 " fault%s\n", printer.faults, plural(printer.faults));
    return printer.faults == 0 && left_out == 0 ? EXIT_FINE : EXIT_FAULT;
}

static const struct option verify_table[] = {
    {.name = "repair",
     .set = option_flag,
     .field = offsetof(struct verify_options, repair),
     .help = "First rebuild a .metadata that is lost or damaged from the shard files, as dcp "
             "repair does. What could not be recovered is printed. Data is not changed."},
    {.name = "like",
     .argument = "OTHER",
     .set = option_text,
     .field = offsetof(struct verify_options, like),
     .help = "With --repair. " REPAIR_LIKE_HELP},
    {.name = "quiet",
     .letter = 'q',
     .set = option_flag,
     .field = offsetof(struct verify_options, quiet),
     .help = "Show no progress."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = offsetof(struct verify_options, json),
     .help = "What was found, as JSON."},
    COMMAND_TAKE_OPTION,
    {.name = NULL}};

static const struct exit_text exits[] = {
    {EXIT_FINE, "No fault was found."},
    {EXIT_FAULT, "There are faults, there is no checkpoint, or --like left something out."},
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
        "checksum is right, every tensor is covered by its chunks and no two of them overlap, and "
        "the metadata.json that this library writes is JSON. Each fault is a line: file, offset, "
        "name and what is wrong. What has no checksum is told as a note.\n",
    .options = verify_table,
    .size = sizeof(struct verify_options),
    .json = "An object:\n"
            "  repair   with --repair: what dcp repair --json prints, or null if there was nothing "
            "to rebuild\n"
            "  faults   an array: file, offset, name and fault; \"\" where there is no file or "
            "name\n"
            "  notes    an array of sentences: what could not be checked\n"
            "  checked  false if the check did not come to its end; then error says why\n",
    .examples = "  dcp verify run/step_1000 || dcp list run\n"
                "      Checks one, and looks for others if it is damaged.\n"
                "  dcp verify --repair run/step_1000\n"
                "      Rebuilds a lost .metadata, and checks everything.\n"
                "  dcp verify --json run/step_1000 | jq -r '.faults[].name' | sort -u\n"
                "      The names of what is damaged.\n",
    .exits = exits,
    .see_also = "repair list",
    .run = run_verify};
