/* SPDX-License-Identifier: BSD-3-Clause */
#include "newest_checkpoint.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

#include <dcp.h>

static bool is_whole(const char *directory, const char *name)
{
    dcp_checkpoint *checkpoint = NULL;
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    dcp_status status = dcp_open(path, &checkpoint);
    if (status != DCP_OK)
        printf("%s is not a checkpoint: %s\n", path, dcp_error_message());
    dcp_close(checkpoint);
    return status == DCP_OK;
}

int64_t newest_checkpoint(const char *directory)
{
    DIR *listing = opendir(directory);
    const struct dirent *entry;
    int64_t newest = -1;

    while (listing && (entry = readdir(listing))) {
        int64_t step = -1;
        int end = 0;
        bool named =
            sscanf(entry->d_name, "step_%" SCNd64 "%n", &step, &end) == 1 && !entry->d_name[end];
        if (named && step > newest && is_whole(directory, entry->d_name))
            newest = step;
    }
    if (listing)
        closedir(listing);
    return newest;
}
