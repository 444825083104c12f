/* SPDX-License-Identifier: BSD-3-Clause */
/* Which save made a checkpoint, as metadata.json tells it. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "ls.h"

/* The fields are added to root as "info", if there are any. */
static int read_save(const dcp_checkpoint *checkpoint, dcp_state *root, dcp_save_info *info)
{
    if (root && dcp_checkpoint_info(checkpoint, root, "info", info) == DCP_OK)
        return EXIT_FINE;
    return command_fail("ls");
}

/* ---- for people ---- */

static void print_time(int64_t seconds)
{
    struct tm parts;
    char text[64];
    time_t time = (time_t)seconds;
    if (seconds != 0 && gmtime_r(&time, &parts) &&
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) > 0)
        printf(" %s UTC", text);
}

static void print_summary(const dcp_save_info *info)
{
    if (info->has_step)
        printf("step %" PRId64 ", ", info->step);
    fputs("saved", stdout);
    print_time(info->unix_time);
    if (info->world_size > 0)
        printf(" by %" PRId32 " rank%s", info->world_size, info->world_size == 1 ? "" : "s");
    putchar('\n');
}

static int print_field(const dcp_state *fields, size_t index)
{
    const char *key;
    char *text = NULL;
    size_t length;
    if (dcp_state_as_text(dcp_state_key_at(fields, index), &key, &length) != DCP_OK ||
        dcp_state_to_json(dcp_state_at(fields, index), VALUE_LIMIT, &text) != DCP_OK)
        return command_fail("ls");
    fputs("  ", stdout);
    print_plain(stdout, key);
    print_value(text);
    putchar('\n');
    dcp_text_free(text);
    return EXIT_FINE;
}

static void print_form(const struct ls_form *form, const dcp_save_info *info)
{
    if (*form->text)
        print_plain(stdout, form->text);
    else
        fputs(strcmp(form->name, "dcp") == 0  ? "DCP checkpoint"
              : strcmp(form->name, "pt") == 0 ? "file of torch.save"
                                              : "safetensors",
              stdout);
    puts(info->found ? ", written by libdcp" : "");
}

int print_save(dcp_checkpoint *checkpoint, const struct ls_form *form)
{
    dcp_save_info info = {0};
    dcp_state *root = dcp_state_new();
    int status = read_save(checkpoint, root, &info);
    print_form(form, &info);
    if (info.stale)
        puts("metadata.json is of another save");
    if (info.found)
        print_summary(&info);
    const dcp_state *fields = info.has_info ? dcp_state_find(root, "info") : NULL;
    for (size_t i = 0; fields && i < dcp_state_count(fields); i++)
        if (print_field(fields, i) != EXIT_FINE)
            status = EXIT_FAULT;
    dcp_state_free(root);
    return status;
}

/* ---- for programs ---- */

static int print_info_json(const dcp_state *fields)
{
    char *text = NULL;
    if (dcp_state_to_json(fields, VALUE_LIMIT, &text) != DCP_OK)
        return command_fail("ls");
    printf(", \"info\": %s", text);
    dcp_text_free(text);
    return EXIT_FINE;
}

int print_save_json(const dcp_checkpoint *checkpoint)
{
    dcp_save_info info = {0};
    dcp_state *root = dcp_state_new();
    int status = read_save(checkpoint, root, &info);
    fputs(", \"save\": {\"id\": ", stdout);
    if (info.save_id)
        print_json_string(stdout, info.save_id);
    else
        fputs("null", stdout);
    if (info.found)
        fputs(", \"writer\": \"libdcp\"", stdout);
    if (info.has_step)
        printf(", \"step\": %" PRId64, info.step);
    if (info.unix_time != 0)
        printf(", \"unix_time\": %" PRId64, info.unix_time);
    if (info.world_size != 0)
        printf(", \"world_size\": %" PRId32, info.world_size);
    if (info.has_info && print_info_json(dcp_state_find(root, "info")) != EXIT_FINE)
        status = EXIT_FAULT;
    putchar('}');
    dcp_state_free(root);
    return status;
}
