/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <string.h>

#include "command.h"

/* The storage of --storage; NULL: the file system. */
static const dcp_storage *storage;

const dcp_storage *command_storage(void)
{
    return storage;
}

/* What --take says. */
static dcp_take taken = DCP_TAKE_MODEL;

const struct option_word command_take_words[] = {
    {"model", DCP_TAKE_MODEL}, {"masters", DCP_TAKE_MASTERS}, {"all", DCP_TAKE_ALL}, {NULL, 0}};

bool command_set_take(struct command_line *line, const struct option *option, const char *value)
{
    (void)line;
    for (const struct option_word *word = option->words; word->text; word++)
        if (strcmp(word->text, value) == 0) {
            taken = (dcp_take)word->value;
            return true;
        }
    return false;
}

dcp_take command_take(void)
{
    return taken;
}

static const dcp_storage *storage_of(void *module, const char *argument)
{
    dcp_storage_module_function function = NULL;
    void *symbol = dlsym(module, DCP_STORAGE_MODULE);
    if (!symbol)
        return NULL;
    memcpy(&function, &symbol,
           sizeof function); /* ISO C cannot cast an object pointer to a function pointer */
    return function(argument);
}

/* The module stays loaded until the process ends: its table is in use. */
static bool use_module(const char *file, const char *argument)
{
    dcp_error_set(DCP_ERR_NOT_FOUND, "no such function: %s", DCP_STORAGE_MODULE);
    void *module = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        fprintf(stderr, "dcp: --storage: %s\n", dlerror());
        return false;
    }
    storage = storage_of(module, argument);
    if (!storage)
        fprintf(stderr, "dcp: --storage: %s gives no storage: %s\n", file, dcp_error_message());
    return storage != NULL;
}

bool command_use_storage(struct command_line *line, const struct option *option, const char *value)
{
    const char *comma = strchr(value, ',');
    size_t length = comma ? (size_t)(comma - value) : strlen(value);
    char *file = option_keep(line, length + 1);
    (void)option;
    if (!file)
        return false;
    memcpy(file, value, length);
    line->told = true;
    return use_module(file, comma ? comma + 1 : "");
}

dcp_status command_explain(const char *path, dcp_status status)
{
    const dcp_run_list_options options = {.storage = command_storage(), .latest_only = true};
    dcp_run_checkpoint checkpoint;
    dcp_run_list *list = NULL;
    char said[1024];
    size_t index;
    if (status != DCP_ERR_NOT_FOUND)
        return status;
    snprintf(said, sizeof said, "%s", dcp_error_message());
    bool is_run = dcp_run_list_read(path, &options, &list) == DCP_OK &&
                  dcp_run_list_latest(list, &index) == DCP_OK &&
                  dcp_run_list_checkpoint(list, index, &checkpoint) == DCP_OK;
    if (is_run)
        dcp_error_set(status, "%s; it is a run, the latest checkpoint of which is %s/%s", said,
                      path, checkpoint.path);
    else
        dcp_error_set(status, "%s", said);
    dcp_run_list_free(list);
    return status;
}

dcp_status command_open(char **paths, int count, bool in_order, dcp_checkpoint **checkpoint)
{
    dcp_open_options options = {
        .storage = command_storage(), .take = taken, .check_last = in_order};
    if (count == 1)
        return command_explain(paths[0], dcp_checkpoint_open(paths[0], &options, checkpoint));
    options.members = (const char *const *)paths;
    options.member_count = (size_t)count;
    dcp_status status = dcp_checkpoint_open(".", &options, checkpoint);
    if (status != DCP_ERR_NOT_FOUND)
        return status;
    char said[1024];
    snprintf(said, sizeof said, "%s", dcp_error_message());
    return dcp_error_set(status, "%s; several paths are taken for parts of one checkpoint", said);
}
