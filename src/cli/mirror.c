/* SPDX-License-Identifier: BSD-3-Clause */
/* Copying the checkpoints of a run that another place lacks. */
#include <inttypes.h>

#include "command.h"

struct arguments {
    dcp_run_copy_options copy;
    bool json;
    bool quiet;
    size_t told; /* so far */
    struct progress_line progress;
    dcp_phase phase; /* that it shows */
    char label[320];
};

static const char *word_of(const dcp_run_copied *copied, bool dry_run)
{
    return copied->verdict == DCP_RUN_COPY_THERE    ? "there"
           : copied->verdict == DCP_RUN_COPY_LEFT   ? "left"
           : copied->verdict == DCP_RUN_COPY_FAILED ? "failed"
           : dry_run                                ? "would copy"
                                                    : "copied";
}

static void print_object(struct arguments *arguments, const dcp_run_copied *copied)
{
    fputs(arguments->told > 0 ? ",\n {\"path\": " : "\n {\"path\": ", stdout);
    print_json_string(stdout, copied->name);
    printf(", \"step\": %" PRId64 ", \"result\": \"%s\"", copied->step,
           word_of(copied, arguments->copy.dry_run));
    if (*copied->why) {
        fputs(", \"why\": ", stdout);
        print_json_string(stdout, copied->why);
    }
    printf(", \"bytes\": %" PRIu64 ", \"kept_bytes\": %" PRIu64 ", \"seconds\": %.3f}",
           copied->bytes, copied->kept_bytes, copied->seconds);
}

static void tell(void *context, const dcp_run_copied *copied)
{
    struct arguments *arguments = context;
    progress_end(&arguments->progress);
    arguments->phase = 0;
    if (arguments->json) {
        print_object(arguments, copied);
    } else {
        printf("%-11s ", word_of(copied, arguments->copy.dry_run));
        print_plain(stdout, copied->name);
        fputs(": ", stdout);
        if (*copied->why)
            print_plain(stdout, copied->why);
        else if (copied->verdict == DCP_RUN_COPY_THERE)
            printf("%" PRIu64 " bytes", copied->kept_bytes);
        else
            printf("%" PRIu64 " bytes, %" PRIu64 " were there already", copied->bytes,
                   copied->kept_bytes);
        putchar('\n');
    }
    fflush(stdout);
    arguments->told++;
}

/* Each checkpoint is verified and then copied, and each of these begins at nothing. */
static bool draw(void *context, const char *name, const dcp_progress *told)
{
    struct arguments *arguments = context;
    if (told->phase != arguments->phase) {
        arguments->phase = told->phase;
        snprintf(arguments->label, sizeof arguments->label, "%s %s",
                 told->phase == DCP_PHASE_READING ? "verifying" : "copying", name);
        arguments->progress.label = arguments->label;
        progress_begin(&arguments->progress);
    }
    return progress_draw(&arguments->progress, told);
}

static int run_mirror(struct command_line *line)
{
    struct arguments *arguments = line->options;
    arguments->copy.source = arguments->copy.destination = command_storage();
    arguments->copy.told = tell;
    arguments->copy.told_context = arguments;
    arguments->copy.stopped = command_stopped;
    arguments->copy.progress = draw;
    arguments->copy.progress_context = arguments;
    arguments->progress.hidden = arguments->quiet;
    command_catch_signals(true);
    if (arguments->json)
        putchar('[');
    dcp_status status = dcp_run_copy(line->paths[0], line->paths[1], &arguments->copy, NULL);
    progress_end(&arguments->progress);
    if (arguments->json)
        fputs("\n]\n", stdout);
    return status == DCP_OK ? EXIT_FINE : command_fail_with("mirror", status);
}

static const struct option mirror_table[] = {
    {.name = "dry-run",
     .letter = 'n',
     .set = option_flag,
     .field = offsetof(struct arguments, copy.dry_run),
     .help = "Write nothing, and print what would be copied."},
    {.name = "rate",
     .argument = "N",
     .set = option_bytes,
     .field = offsetof(struct arguments, copy.bytes_per_second),
     .expected = "a number of bytes, such as 64M",
     .help = "Move at most N bytes a second, as in 64M, those that are read back among them."},
    {.name = "identity",
     .argument = "NAME",
     .set = option_text,
     .field = offsetof(struct arguments, copy.identity),
     .help = "The run that is meant, if several share the directory."},
    {.name = "quiet",
     .letter = 'q',
     .set = option_flag,
     .field = offsetof(struct arguments, quiet),
     .help = "Show no progress."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = offsetof(struct arguments, json),
     .help = "What was done, as JSON."},
    {.name = NULL}};

static const struct exit_text exits[] = {
    {EXIT_FAULT, "Some could not be copied."},
    {EXIT_UNABLE, "They could not be copied, for want of memory or open files."},
    {0, NULL}};

const struct command command_mirror = {
    .name = "mirror",
    .operands = "RUN DEST",
    .least = 2,
    .most = 2,
    .purpose = "copy the checkpoints of a run that another place lacks",
    .description =
        "Copies whole checkpoints of RUN, a directory that a job keeps by dcp/run.h, to DEST, the "
        "newest first, with everything that lies in their directories, and then pins and the marks "
        "that say which is the latest. A checkpoint is verified before it is copied; each file is "
        "read back and compared; and what makes a checkpoint of the files, .metadata, appears "
        "last. So an interrupted copy is no checkpoint, and the next call continues it: files "
        "that are whole there are not copied again. A checkpoint that DEST has in a later save of "
        "the same step is left alone there. Nothing is removed.\n"
        "\n"
        "DEST is a run as well, and can be given to dcp list, dcp prune and to a job. Nothing "
        "should save or prune there while it is copied to.\n"
        "\n"
        "Each checkpoint gets a line: copied, there, left or failed, and why.\n",
    .options = mirror_table,
    .size = sizeof(struct arguments),
    .json =
        "An array of objects: path, step, result (\"copied\", \"there\", \"left\", \"failed\" or "
        "\"would copy\"), why, bytes, kept_bytes (of files that were there already), seconds.\n",
    .examples = "  dcp mirror run /mnt/backup/run\n"
                "      Copies what is missing there.\n"
                "  dcp mirror --dry-run --json run /mnt/backup/run\n"
                "      What would be copied.\n",
    .exits = exits,
    .see_also = "list pin prune",
    .run = run_mirror};
