/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_mark.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define FIRST_LINE "dcp save 1\n"
#define LAST_LINE  "end\n"

void save_mark_init(struct save_mark *mark, const char *save_id)
{
    *mark = (struct save_mark){.since = clock_wall_ns() / 1000000000};
    snprintf(mark->save_id, sizeof mark->save_id, "%s", save_id);
    save_process_find(&mark->process);
}

size_t save_mark_print(const struct save_mark *mark, char text[SAVE_MARK_SIZE])
{
    const struct save_process *process = &mark->process;
    int length =
        snprintf(text, SAVE_MARK_SIZE,
                 FIRST_LINE "save %s\nhost %s\nboot %s\nspace %s\npid %" PRIu64 "\nstarted %" PRIu64
                            "\nlibrary %" PRIu64 "\nsince %" PRId64 "\n" LAST_LINE,
                 mark->save_id, process->host, process->boot, process->space, process->pid,
                 process->started, process->library, mark->since);
    return (size_t)length;
}

/* Values are used in messages, so other bytes than printable ASCII are replaced. */
static void take_text(char *text, size_t size, const char *value)
{
    size_t length = 0;
    for (; value[length] && length + 1 < size; length++)
        text[length] = value[length] > ' ' && value[length] < 127 ? value[length] : '?';
    text[length] = '\0';
}

static void take_line(struct save_mark *mark, const char *key, const char *value)
{
    struct save_process *process = &mark->process;
    if (strcmp(key, "save") == 0)
        take_text(mark->save_id, sizeof mark->save_id, value);
    else if (strcmp(key, "host") == 0)
        take_text(process->host, sizeof process->host, value);
    else if (strcmp(key, "boot") == 0)
        take_text(process->boot, sizeof process->boot, value);
    else if (strcmp(key, "space") == 0)
        take_text(process->space, sizeof process->space, value);
    else if (strcmp(key, "pid") == 0)
        process->pid = strtoull(value, NULL, 10);
    else if (strcmp(key, "started") == 0)
        process->started = strtoull(value, NULL, 10);
    else if (strcmp(key, "library") == 0)
        process->library = strtoull(value, NULL, 10);
    else if (strcmp(key, "since") == 0)
        mark->since = strtoll(value, NULL, 10);
}

bool save_mark_parse(const void *bytes, size_t size, struct save_mark *mark)
{
    char text[SAVE_MARK_SIZE];
    *mark = (struct save_mark){0};
    if (size == 0 || size >= sizeof text)
        return false;
    memcpy(text, bytes, size);
    text[size] = '\0';
    if (strlen(text) != size || size < strlen(FIRST_LINE LAST_LINE) ||
        strncmp(text, FIRST_LINE, strlen(FIRST_LINE)) != 0 ||
        strcmp(&text[size - strlen(LAST_LINE)], LAST_LINE) != 0)
        return false;
    for (char *line = text + strlen(FIRST_LINE); *line;) {
        char *end = strchr(line, '\n'), *space;
        if (!end)
            return false;
        *end = '\0';
        space = strchr(line, ' ');
        if (space) {
            *space = '\0';
            take_line(mark, line, space + 1);
        }
        line = end + 1;
    }
    return mark->save_id[0] != '\0';
}

double save_mark_age(const struct save_mark *mark)
{
    return (double)clock_wall_ns() / 1e9 - (double)mark->since;
}

void save_mark_time(const struct save_mark *mark, char text[SAVE_MARK_TIME])
{
    struct tm parts;
    time_t seconds = (time_t)mark->since;
    if (!gmtime_r(&seconds, &parts) ||
        !strftime(text, SAVE_MARK_TIME, "%Y-%m-%dT%H:%M:%SZ", &parts))
        snprintf(text, SAVE_MARK_TIME, "an unknown time");
}
