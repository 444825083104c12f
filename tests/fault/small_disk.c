/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/small_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static bool write_text(const char *path, const char *text)
{
    int descriptor = open(path, O_WRONLY | O_CLOEXEC);
    bool written =
        descriptor >= 0 && write(descriptor, text, strlen(text)) == (ssize_t)strlen(text);
    if (descriptor >= 0)
        close(descriptor);
    return written;
}

/* A mount namespace of our own: as root, or as root of a user namespace of our own. */
static bool enter_namespace(void)
{
    char map[64];
    unsigned user = getuid(), group = getgid();
    if (unshare(CLONE_NEWNS) == 0)
        return true;
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return false;
    snprintf(map, sizeof map, "0 %u 1", user);
    if (!write_text("/proc/self/setgroups", "deny") || !write_text("/proc/self/uid_map", map))
        return false;
    snprintf(map, sizeof map, "0 %u 1", group);
    return write_text("/proc/self/gid_map", map);
}

bool small_disk_mount(const char *directory, const char *options, char why_not[SMALL_DISK_WHY])
{
    if (enter_namespace() && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("none", directory, "tmpfs", 0, options) == 0)
        return true;
    snprintf(why_not, SMALL_DISK_WHY, "cannot mount a tmpfs: %s", strerror(errno));
    return false;
}

bool small_disk_read_only(const char *directory, bool read_only)
{
    return mount("none", directory, NULL, MS_REMOUNT | (read_only ? MS_RDONLY : 0), NULL) == 0;
}
