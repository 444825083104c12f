/* SPDX-License-Identifier: BSD-3-Clause */
/* What commands that take long do meanwhile: show how far they are, and listen for signals. */
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "command.h"

static volatile sig_atomic_t interrupted; /* the signal's number */

static void interrupt(int number)
{
    interrupted = number;
}

void command_catch_signals(bool writes)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    int flags = SA_RESTART | (writes ? 0 : (int)SA_RESETHAND);
    const struct sigaction action = {.sa_handler = interrupt, .sa_flags = flags};
    struct sigaction before;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
}

bool command_interrupted(void)
{
    return interrupted != 0;
}

bool command_stopped(void *context)
{
    (void)context;
    return command_interrupted();
}

void command_die(void)
{
    const struct sigaction action = {.sa_handler = SIG_DFL};
    int number = interrupted;
    if (number != 0 && sigaction(number, &action, NULL) == 0)
        raise(number);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void progress_begin(struct progress_line *progress)
{
    progress->shown = !progress->hidden && isatty(STDERR_FILENO);
    progress->drawn = false;
    progress->begin = now();
    progress->last = progress->begin;
}

/* "12 s", "3 min 05 s", "2 h 07 min" */
static void print_duration(FILE *out, double seconds)
{
    long whole = (long)(seconds + 0.5);
    if (seconds > 1e7)
        fputs("?", out);
    else if (whole < 60)
        fprintf(out, "%ld s", whole);
    else if (whole < 3600)
        fprintf(out, "%ld min %02ld s", whole / 60, whole % 60);
    else
        fprintf(out, "%ld h %02ld min", whole / 3600, whole / 60 % 60);
}

void line_draw(FILE *out, const char *text)
{
    struct winsize size;
    int columns = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
    size_t length;
    fputs("\r\033[K", out);
    for (; *text && --columns > 0; text += length) { /* the last column may begin another line */
        is_visible(text, &length);
        fwrite(text, 1, length, out);
    }
    fflush(out);
}

static void draw(const struct progress_line *progress, const dcp_progress *told, double seconds)
{
    double done = (double)told->bytes_done, total = (double)told->bytes_total;
    char text[512];
    FILE *out = fmemopen(text, sizeof text, "w");
    if (!out)
        return;
    if (progress->label)
        fprintf(out, "%s: ", progress->label);
    fprintf(out, "%5.1f %%  ", 100 * done / total);
    print_size(out, told->bytes_done, 0);
    fputs(" of ", out);
    print_size(out, told->bytes_total, 0);
    if (told->bytes_done > 0) {
        fputs("  ", out);
        print_size(out, (uint64_t)(done / seconds), 0);
        fputs("/s  ", out);
        print_duration(out, (total - done) * seconds / done);
        fputs(" left", out);
    }
    fclose(out);
    line_draw(stderr, text);
}

bool progress_draw(void *context, const dcp_progress *told)
{
    struct progress_line *progress = context;
    double time = now(), seconds = time - progress->begin;
    /* Of the first tenth of a second nothing can be told. */
    if (progress->shown && told->bytes_total > 0 && time - progress->last >= 0.1) {
        draw(progress, told, seconds);
        progress->last = time;
        progress->drawn = true;
    }
    return !interrupted;
}

void progress_end(struct progress_line *progress)
{
    if (progress->drawn)
        fputs("\r\033[K", stderr);
    progress->drawn = false;
}
