/* SPDX-License-Identifier: BSD-3-Clause */
/* What a run is doing, from its files alone. */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "saves.h"

/* A directory that a save owns. */
struct saving {
    char name[256]; /* "": none */
    uint64_t bytes; /* of its shard files */
    int64_t begun, changed;
};

struct view {
    struct saving saving;
    double rate; /* bytes a second */
    char good[256];
    bool has_last, has_next;
    double last_seconds, last_stall;
    int64_t next_step, next_time;
    size_t lines, failures;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---- what is being saved ---- */

static void measure(const char *directory, struct saving *saving)
{
    char path[4608];
    const struct dirent *entry;
    struct stat found;
    DIR *listing = opendir(directory);
    while (listing && (entry = readdir(listing))) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (!strstr(entry->d_name, ".distcp") || stat(path, &found) != 0)
            continue;
        saving->bytes += (uint64_t)found.st_size;
        if (found.st_mtime > saving->changed)
            saving->changed = found.st_mtime;
    }
    if (listing)
        closedir(listing);
}

/* The one that was begun last. */
static void find_saving(const char *run, struct saving *saving)
{
    char path[4352], owner[4400];
    const struct dirent *entry;
    struct stat found;
    *saving = (struct saving){0};
    DIR *listing = opendir(run);
    while (listing && (entry = readdir(listing))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", run, entry->d_name);
        snprintf(owner, sizeof owner, "%s/.dcp_owner", path);
        if (stat(owner, &found) != 0 || found.st_mtime < saving->begun)
            continue;
        *saving = (struct saving){.begun = found.st_mtime, .changed = found.st_mtime};
        snprintf(saving->name, sizeof saving->name, "%s", entry->d_name);
        measure(path, saving);
    }
    if (listing)
        closedir(listing);
}

/* ---- what was saved ---- */

static void take_lines(const char *run, struct view *view)
{
    struct saves saves;
    const struct save_line *last = NULL, *before = NULL;
    saves_read(run, &saves);
    view->lines = saves.count;
    for (size_t i = 0; i < saves.count; i++) {
        const struct save_line *line = &saves.lines[i];
        view->failures += !line->saved;
        if (line->saved) {
            before = last && strcmp(last->run, line->run) == 0 ? last : NULL;
            last = line;
        }
    }
    view->has_last = last != NULL;
    if (last) {
        view->last_seconds = last->seconds;
        view->last_stall = last->stall;
    }
    view->has_next = before && last->step > before->step;
    if (view->has_next) {
        double begun = (double)last->unix_time - last->seconds;
        double earlier = (double)before->unix_time - before->seconds;
        view->next_step = 2 * last->step - before->step;
        view->next_time = (int64_t)(2 * begun - earlier);
    }
    saves_free(&saves);
}

static dcp_status find_good(const char *run, char good[256])
{
    const dcp_run_list_options options = {.latest_only = true};
    dcp_run_checkpoint checkpoint;
    dcp_run_list *list;
    size_t index;
    good[0] = '\0';
    dcp_status status = dcp_run_list_read(run, &options, &list);
    if (status != DCP_OK)
        return status;
    if (dcp_run_list_latest(list, &index) == DCP_OK &&
        dcp_run_list_checkpoint(list, index, &checkpoint) == DCP_OK)
        snprintf(good, 256, "%s", checkpoint.path);
    dcp_run_list_free(list);
    return DCP_OK;
}

/* The last good one is looked for only when something has been saved since. */
static dcp_status look(const char *run, const struct view *before, double seconds,
                       struct view *view)
{
    *view = (struct view){0};
    find_saving(run, &view->saving);
    take_lines(run, view);
    bool is_same = before && strcmp(before->saving.name, view->saving.name) == 0;
    if (*view->saving.name && is_same && seconds > 0 && view->saving.bytes >= before->saving.bytes)
        view->rate = (double)(view->saving.bytes - before->saving.bytes) / seconds;
    else if (*view->saving.name && now() > (double)view->saving.begun)
        view->rate = (double)view->saving.bytes / (now() - (double)view->saving.begun);
    if (!before || !is_same || before->lines != view->lines)
        return find_good(run, view->good);
    memcpy(view->good, before->good, sizeof view->good);
    return DCP_OK;
}

/* ---- for programs ---- */

static void print_text(const char *key, const char *text)
{
    printf("\"%s\": ", key);
    if (*text)
        print_json_string(stdout, text);
    else
        fputs("null", stdout);
}

static void print_json(const struct view *view)
{
    const struct saving *saving = &view->saving;
    putchar('{');
    print_text("saving", saving->name);
    if (*saving->name)
        printf(", \"bytes\": %" PRIu64 ", \"bytes_per_second\": %.0f, \"begun\": %" PRId64
               ", \"changed\": %" PRId64,
               saving->bytes, view->rate, saving->begun, saving->changed);
    fputs(", ", stdout);
    print_text("last_good", view->good);
    if (view->has_last)
        printf(", \"last_seconds\": %.3f, \"last_stall\": %.3f", view->last_seconds,
               view->last_stall);
    printf(", \"saves\": %zu, \"failed\": %zu", view->lines, view->failures);
    if (view->has_next)
        printf(", \"next_step\": %" PRId64 ", \"next_time\": %" PRId64, view->next_step,
               view->next_time);
    fputs("}\n", stdout);
}

/* ---- for people ---- */

static const char *bytes_text(double bytes, char text[16])
{
    static const char units[] = "BKMGTPE";
    int unit = 0;
    while (bytes >= 1000 && units[unit + 1]) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, 16, unit > 0 ? "%.1f%c" : "%.0f%c", bytes, units[unit]);
    return text;
}

static void print_saving(FILE *out, const struct view *view)
{
    enum { QUIET_SECONDS = 10 };
    const struct saving *saving = &view->saving;
    char bytes[16], rate[16];
    int64_t quiet = (int64_t)now() - saving->changed;
    if (!*saving->name) {
        fputs("nothing is being saved", out);
        return;
    }
    fputs("saving ", out);
    print_plain(out, saving->name);
    fprintf(out, ": %s", bytes_text((double)saving->bytes, bytes));
    if (quiet >= QUIET_SECONDS)
        fprintf(out, ", nothing for %" PRId64 " s", quiet);
    else
        fprintf(out, ", %s/s", bytes_text(view->rate, rate));
}

static void print_view(FILE *out, const struct view *view)
{
    char time_text[32];
    const time_t next = (time_t)view->next_time;
    struct tm parts;
    print_saving(out, view);
    fputs("; last good: ", out);
    print_plain(out, *view->good ? view->good : "none");
    if (view->has_last)
        fprintf(out, "; it took %.1f s and training %.2f s", view->last_seconds, view->last_stall);
    if (view->failures > 0)
        fprintf(out, "; %zu failed", view->failures);
    if (view->has_next && gmtime_r(&next, &parts) &&
        strftime(time_text, sizeof time_text, "%H:%M:%S", &parts) > 0)
        fprintf(out, "; next due: step %" PRId64 ", about %s UTC", view->next_step, time_text);
}

/* In the line that the cursor is on. */
static void draw_view(const struct view *view)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out) {
        print_view(out, view);
        fclose(out);
        line_draw(stdout, text);
    }
    free(text);
}

static bool is_change(const struct view *a, const struct view *b)
{
    return strcmp(a->saving.name, b->saving.name) != 0 || strcmp(a->good, b->good) != 0 ||
           a->lines != b->lines;
}

/* ---- the command ---- */

struct watch_options {
    bool once, json;
};

static int watch(const char *run, const struct watch_options *options)
{
    const struct timespec pause = {.tv_nsec = 500000000};
    bool screen = isatty(STDOUT_FILENO) && !options->once && !options->json;
    struct view before, view;
    double last = now();
    if (look(run, NULL, 0, &view) != DCP_OK)
        return command_fail("watch");
    for (bool first = true; !command_interrupted(); first = false) {
        bool changed = first || is_change(&before, &view);
        if (screen) {
            draw_view(&view);
        } else if (changed && options->json) {
            print_json(&view);
        } else if (changed) {
            print_view(stdout, &view);
            putchar('\n');
        }
        if (fflush(stdout) != 0 || options->once)
            return EXIT_FINE; /* a closed pipe is told of by command_finish() */
        nanosleep(&pause, NULL);
        before = view;
        double time = now(), seconds = time - last;
        last = time;
        if (look(run, &before, seconds, &view) != DCP_OK)
            return command_fail("watch");
    }
    if (screen)
        putchar('\n');
    return EXIT_FINE;
}

static int run_watch(struct command_line *line)
{
    const struct watch_options *options = line->options;
    if (command_storage())
        return option_usage(line, "a run can be watched in the file system alone");
    if (!options->once)
        command_catch_signals(false);
    return watch(line->paths[0], options);
}

static const struct option watch_table[] = {{.name = "once",
                                             .letter = '1',
                                             .set = option_flag,
                                             .field = offsetof(struct watch_options, once),
                                             .help = "Print one line, and end."},
                                            {.name = "json",
                                             .letter = 'j',
                                             .set = option_flag,
                                             .field = offsetof(struct watch_options, json),
                                             .help = "An object on each line."},
                                            {.name = NULL}};

const struct command command_watch = {
    .name = "watch",
    .operands = "RUN",
    .least = 1,
    .most = 1,
    .purpose = "see what a training run is saving, and when it will again",
    .description =
        "Shows what the job that keeps its checkpoints in the directory RUN is doing: which "
        "checkpoint is being saved, how much of it is written, and how fast; the last good "
        "checkpoint, as dcp latest finds it; how long the last save took and how long training "
        "waited for it; how many saves have failed; and which step the next save is due at, and "
        "when, if saves go on as the last two did.\n"
        "\n"
        "Only the files of the run are looked at: owners' marks, shard files and dcp_saves.jsonl. "
        "A save that nothing has been written of for ten seconds or more is shown with that time: "
        "its job may have died.\n"
        "\n"
        "On a terminal one line is kept up to date. Elsewhere a line is printed for each change. "
        "Ctrl-C ends it.\n",
    .options = watch_table,
    .size = sizeof(struct watch_options),
    .json = "An object on a line, and another one for each change:\n"
            "  saving            the checkpoint that is being saved, or null; and of it\n"
            "  bytes             of its shard files\n"
            "  bytes_per_second  since the last look, or since it began\n"
            "  begun, changed    seconds since 1970\n"
            "  last_good         the last whole checkpoint, or null\n"
            "  last_seconds, last_stall  of the last save, and of training that waited for it\n"
            "  saves, failed     how many there were\n"
            "  next_step, next_time  when the next one is due, if that can be told\n",
    .examples = "  dcp watch run\n"
                "      Until Ctrl-C.\n"
                "  dcp watch --once run\n"
                "      How it is now.\n",
    .see_also = "list report",
    .run = run_watch};
