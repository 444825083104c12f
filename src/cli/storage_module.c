/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

/* The storage of --storage; NULL: the file system. */
static const dcp_storage *storage;

const dcp_storage *command_storage(void)
{
    return storage;
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

bool command_use_storage(const char *text)
{
    const char *comma = strchr(text, ',');
    char *file = strdup(text);
    bool used = false;
    if (file) {
        if (comma)
            file[comma - text] = '\0';
        used = use_module(file, comma ? comma + 1 : "");
    } else {
        fputs("dcp: --storage: not enough memory\n", stderr);
    }
    free(file);
    return used;
}
