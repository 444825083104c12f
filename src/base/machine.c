/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/machine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void machine_boot(char text[MACHINE_TEXT])
{
    int descriptor = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    memset(text, 0, MACHINE_TEXT);
    if (descriptor < 0)
        return;
    if (read(descriptor, text, MACHINE_TEXT - 1) < 0)
        text[0] = '\0';
    close(descriptor);
    text[strcspn(text, "\n")] = '\0';
}

void machine_namespace(const char *kind, char text[MACHINE_TEXT])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    memset(text, 0, MACHINE_TEXT);
    if (readlink(path, text, MACHINE_TEXT - 1) < 0)
        text[0] = '\0';
}
