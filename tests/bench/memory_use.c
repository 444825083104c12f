/* SPDX-License-Identifier: BSD-3-Clause */
#include "memory_use.h"

#include <err.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned long long memory_peak(void)
{
    static const char field[] = "VmHWM:";
    unsigned long long kibibytes = 0;
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");

    while (status && kibibytes == 0 && fgets(line, sizeof line, status))
        if (strncmp(line, field, sizeof field - 1) == 0)
            kibibytes = strtoull(line + sizeof field - 1, NULL, 10);
    if (!status || kibibytes == 0)
        errx(1, "/proc/self/status does not have the memory in use");
    fclose(status);
    return kibibytes << 10;
}

void memory_trim(void)
{
    malloc_trim(0);
}

unsigned long long memory_restart(void)
{
    FILE *references = fopen("/proc/self/clear_refs", "w");

    if (!references || fputs("5", references) < 0 || fclose(references) != 0)
        err(1, "/proc/self/clear_refs");
    return memory_peak();
}
