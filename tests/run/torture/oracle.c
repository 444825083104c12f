/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/torture/oracle.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the directory ---- */

static bool step_of(const char *name, int64_t *step)
{
    char *end;
    if (strncmp(name, "step_", 5) != 0)
        return false;
    *step = strtoll(name + 5, &end, 10);
    return name[5] && !*end;
}

static void look_into(const char *run, struct sight *sight)
{
    char path[4096];
    const struct dirent *entry;
    snprintf(path, sizeof path, "%s/step_%" PRId64, run, sight->newest);
    DIR *listing = opendir(path);
    while (listing && (entry = readdir(listing))) {
        sight->has_data = sight->has_data || strstr(entry->d_name, ".distcp");
        sight->commits = sight->commits || strncmp(entry->d_name, ".metadata.", 10) == 0;
    }
    if (listing)
        closedir(listing);
}

void sight_take(const char *run, struct sight *sight)
{
    char path[4096], target[256];
    const struct dirent *entry;
    int64_t step;
    *sight = (struct sight){.newest = -1, .committed = -1, .marked = -1};
    DIR *listing = opendir(run);
    while (listing && (entry = readdir(listing))) {
        /* What was about to be such a note goes after an hour only. */
        sight->removes = sight->removes || (strncmp(entry->d_name, ".dcp_removing.", 14) == 0 &&
                                            !strstr(entry->d_name, ".tmp"));
        if (!step_of(entry->d_name, &step))
            continue;
        sight->steps++;
        sight->newest = step > sight->newest ? step : sight->newest;
        snprintf(path, sizeof path, "%s/%s/.metadata", run, entry->d_name);
        if (step > sight->committed && access(path, F_OK) == 0)
            sight->committed = step;
    }
    if (listing)
        closedir(listing);
    if (sight->newest > sight->committed)
        look_into(run, sight);
    snprintf(path, sizeof path, "%s/latest", run);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length > 0) {
        target[length] = '\0';
        if (step_of(target, &step))
            sight->marked = step;
    }
}

/* ---- what was printed ---- */

static void take_loss(struct oracle *oracle, int64_t step, const char *loss, bool learn,
                      struct life *life)
{
    life->first = life->first < 0 ? step : life->first;
    life->last = step;
    if (step < 0 || step >= ORACLE_STEPS_MAX)
        return;
    char **known = &oracle->losses[step];
    if (learn && !*known)
        *known = strdup(loss);
    else if (!*known || strcmp(*known, loss) != 0)
        snprintf(life->wrong, sizeof life->wrong,
                 "step %" PRId64 " has the loss %.100s, not %.100s", step, loss,
                 *known ? *known : "known");
    else
        oracle->compared++;
}

/* Whether the line begins so; then *number follows, and *rest. */
static bool begins(const char *line, const char *words, int64_t *number, const char **rest)
{
    size_t length = strlen(words);
    char *end;
    if (strncmp(line, words, length) != 0)
        return false;
    *number = strtoll(line + length, &end, 10);
    *rest = end;
    return end > line + length;
}

static void take_line(struct oracle *oracle, const char *line, bool learn, struct life *life)
{
    static const char loss[] = " loss ";
    const char *saved = strncmp(line, "saved ", 6) == 0 ? strstr(line, "/step_") : NULL, *rest;
    int64_t step;
    if (begins(line, "RESUMED step=", &step, &rest))
        life->resumed = step;
    if (begins(line, "step ", &step, &rest) && strncmp(rest, loss, sizeof loss - 1) == 0)
        take_loss(oracle, step, rest + sizeof loss - 1, learn, life);
    if (saved && begins(saved, "/step_", &step, &rest))
        life->saved = step;
}

void oracle_read(struct oracle *oracle, const char *log, bool learn, struct life *life)
{
    char line[8192];
    *life = (struct life){.resumed = -1, .first = -1, .last = -1, .saved = -1};
    FILE *file = fopen(log, "r");
    while (file && fgets(line, sizeof line, file)) {
        size_t length = strlen(line);
        if (length == 0 || line[length - 1] != '\n')
            continue;
        line[length - 1] = '\0';
        take_line(oracle, line, learn, life);
    }
    if (file)
        fclose(file);
    if (!*life->wrong && life->first >= 0 &&
        life->first != (life->resumed < 0 ? 1 : life->resumed + 1))
        snprintf(life->wrong, sizeof life->wrong,
                 "it goes on with step %" PRId64 " after a resume from %" PRId64, life->first,
                 life->resumed);
}

void oracle_free(struct oracle *oracle)
{
    for (size_t i = 0; i < ORACLE_STEPS_MAX; i++)
        free(oracle->losses[i]);
}
