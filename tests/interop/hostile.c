/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens, reads, loads and verifies damaged and malicious checkpoints, each in a process of its own:
 * hostile DIRECTORY. Each must end as its case.json says; none may crash, hang, take more than
 * 256 MiB, or open a file outside its directory. Exit status 0 if all did. */
#include <err.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/limited_allocator.h"
#include "manifest.h"

enum { MOST_MEMORY = 256 << 20, MOST_SECONDS = 20 };

/* ---- files: the library's calls of open come here, because the program comes before the C library
 * ---- */

static char allowed[4096];

int open(const char *path, int flags, ...)
{
    char *real = realpath(path, NULL);

    if (*allowed && ((flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) ||
                     (real && strncmp(real, allowed, strlen(allowed)) != 0))) {
        printf("    opened %s\n", path);
        fflush(stdout);
        abort();
    }
    free(real);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
}

/* ---- one case ---- */

static dcp_status read_target(dcp_checkpoint *checkpoint, const char *name)
{
    dcp_entry entry;
    size_t index;
    dcp_status status = dcp_checkpoint_find(checkpoint, name, &index);

    if (status == DCP_OK)
        status = dcp_checkpoint_entry(checkpoint, index, &entry);
    if (status != DCP_OK)
        return status;
    if (!entry.is_tensor) {
        dcp_state *root = dcp_state_new();
        char *json = NULL;
        status = dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL);
        /* A small object may be large as text; the limit holds. */
        if (status == DCP_OK && dcp_state_to_json(root, 1 << 20, &json) == DCP_OK &&
            strlen(json) > 1 << 20)
            status = dcp_error_set(DCP_ERR_INTERNAL, "more text than asked for");
        dcp_text_free(json);
        dcp_state_free(root);
        return status;
    }
    if (entry.bytes > MOST_MEMORY)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "%s: more than there is memory for", name);
    dcp_tensor whole = {.dtype = entry.dtype, .ndim = entry.ndim};
    memcpy(whole.global_shape, entry.global_shape, (size_t)entry.ndim * sizeof(int64_t));
    whole.data = malloc(entry.bytes + 1);
    if (!whole.data)
        err(1, "no memory");
    status = dcp_checkpoint_read_tensor(checkpoint, index, &whole, NULL);
    free(whole.data);
    return status;
}

/* Asks for the target alone, into memory of the library's. */
static dcp_status load_target(const char *path, dcp_checkpoint *checkpoint, const char *name)
{
    dcp_state *state = dcp_state_new();
    dcp_entry entry;
    size_t index;
    dcp_status status = dcp_checkpoint_find(checkpoint, name, &index);

    if (status == DCP_OK)
        status = dcp_checkpoint_entry(checkpoint, index, &entry);
    if (status == DCP_OK && entry.is_tensor) {
        dcp_tensor whole = {.dtype = entry.dtype, .ndim = entry.ndim};
        memcpy(whole.global_shape, entry.global_shape, (size_t)entry.ndim * sizeof(int64_t));
        dcp_state_tensor(state, name, &whole);
    } else if (status == DCP_OK) {
        dcp_state_none(state, name);
    }
    if (status == DCP_OK)
        status = dcp_load(state, path, NULL, NULL);
    dcp_state_free(state);
    return status;
}

static void ignore_fault(void *context, const char *file, uint64_t offset, const char *name,
                         const char *fault)
{
    (void)context, (void)file, (void)offset, (void)name, (void)fault;
}

static bool ends_well(const char *what, dcp_status status, bool must_fail)
{
    if (status == DCP_OK && must_fail)
        printf("    %s: succeeded\n", what);
    else if (status == DCP_ERR_INTERNAL || (status != DCP_OK && !*dcp_error_message()))
        printf("    %s: %s without a message\n", what, dcp_status_string(status));
    else
        return true;
    return false;
}

static bool run_case(const char *path, const char *target, bool must_fail)
{
    dcp_checkpoint *checkpoint = NULL;
    uint64_t faults;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    bool good = ends_well("open", status, must_fail && !target);

    if (status == DCP_OK && target) {
        good = ends_well("read", read_target(checkpoint, target), must_fail) && good;
        good = ends_well("load", load_target(path, checkpoint, target), must_fail) && good;
    }
    dcp_checkpoint_close(checkpoint);
    good = ends_well("verify", dcp_verify(path, NULL, ignore_fault, NULL, &faults), false) && good;
    if (limited_allocator_held() != 0)
        printf("    leaked %zu bytes\n", limited_allocator_held());
    return good && limited_allocator_held() == 0;
}

static const char *text(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static void run_child(const char *directory)
{
    char *description = path_of(directory, "case.json");
    char *contents = file_contents(description, NULL);
    cJSON *document = cJSON_Parse(contents);
    char *path = path_of(directory, text(document, "checkpoint"));
    char *real = realpath(directory, NULL);

    snprintf(allowed, sizeof allowed, "%s/%s", real, text(document, "checkpoint"));
    limited_allocator_install(MOST_MEMORY);
    alarm(MOST_SECONDS);
    bool good =
        run_case(path, text(document, "target"), strcmp(text(document, "expect"), "error") == 0);
    free(real);
    free(path);
    cJSON_Delete(document);
    free(contents);
    free(description);
    /* Without what runs at exit: the parent's memory is not this process's to free. */
    fflush(stdout);
    _exit(good ? 0 : 1);
}

static bool run_apart(const char *directory)
{
    int status;

    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        err(1, "fork");
    if (child == 0)
        run_child(directory);
    if (waitpid(child, &status, 0) < 0)
        err(1, "waitpid");
    if (WIFSIGNALED(status))
        printf("    %s\n", strsignal(WTERMSIG(status)));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    int count = 0, failed = 0;

    if (argc != 2)
        errx(2, "usage: hostile DIRECTORY");
    char *path = path_of(argv[1], "index.json");
    char *contents = file_contents(path, NULL);
    cJSON *index = cJSON_Parse(contents);
    const cJSON *row;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(index, "cases"))
    {
        char *directory = path_of(argv[1], text(row, "case"));
        count++;
        if (!run_apart(directory)) {
            failed++;
            printf("FAIL %s: %s\n", text(row, "case"), text(row, "why"));
        }
        free(directory);
    }
    printf("%d cases, %d failed\n", count, failed);
    cJSON_Delete(index);
    free(contents);
    free(path);
    return failed || count == 0;
}
