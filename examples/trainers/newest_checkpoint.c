/* SPDX-License-Identifier: BSD-3-Clause */
#include "newest_checkpoint.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dcp.h>

static bool is_whole(const char *directory, const char *name)
{
    dcp_checkpoint *checkpoint = NULL;
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    if (status != DCP_OK)
        printf("%s is not a checkpoint: %s\n", path, dcp_error_message());
    dcp_checkpoint_close(checkpoint);
    return status == DCP_OK;
}

/* Of step_1000: 1000; of other names: -1. */
static int64_t step_of(const char *name)
{
    static const char prefix[] = "step_";
    const size_t length = sizeof prefix - 1;
    char *end;
    if (strncmp(name, prefix, length) != 0 || !isdigit((unsigned char)name[length]))
        return -1;
    long long step = strtoll(name + length, &end, 10);
    return *end ? -1 : step;
}

int64_t newest_checkpoint(const char *directory)
{
    DIR *listing = opendir(directory);
    const struct dirent *entry;
    int64_t newest = -1;

    while (listing && (entry = readdir(listing))) {
        int64_t step = step_of(entry->d_name);
        if (step > newest && is_whole(directory, entry->d_name))
            newest = step;
    }
    if (listing)
        closedir(listing);
    return newest;
}
