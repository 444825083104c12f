/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads checkpoints through the public interface in every way, and compares each value with their
 * manifests: check_manifest MANIFEST ... Exit status 0 if all is as described. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

/* With a sanitizer every third: much the same is done with all of them. */
enum { STEP = TRIAL_STEP > 1 ? 3 : 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int failures;

void check_failed(const char *name, const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&lock);
    failures++;
    printf("    %s: ", name);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    pthread_mutex_unlock(&lock);
}

int check_failures(void)
{
    return failures;
}

/* Checkpoints that this build cannot read must be refused with a message that says so. */
static void check_refused(const struct manifest *manifest)
{
    dcp_checkpoint *checkpoint = NULL;
    dcp_status status = dcp_checkpoint_open(manifest->checkpoint, NULL, &checkpoint);

    for (size_t i = 0; status == DCP_OK && i < manifest->count; i++) {
        const struct manifest_entry *entry = &manifest->entries[i];
        size_t index = 0;
        if (entry->is_tensor && dcp_checkpoint_find(checkpoint, entry->name, &index) == DCP_OK)
            status = dcp_checkpoint_read_tensor(checkpoint, index, &entry->whole, NULL);
    }
    if (status != DCP_ERR_UNSUPPORTED)
        check_failed("open", "%s instead of unsupported: %s", dcp_status_string(status),
                     dcp_error_message());
    dcp_checkpoint_close(checkpoint);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i += STEP) {
        struct manifest manifest;
        int before = failures;
        manifest_read(&manifest, argv[i]);
        if (!DCP_HAVE_ZSTD && manifest_needs(&manifest, "zstd")) {
            check_refused(&manifest);
        } else {
            check_view(&manifest);
            check_loads(&manifest);
        }
        printf("%s %s\n", failures == before ? "PASS" : "FAIL", argv[i]);
        manifest_free(&manifest);
    }
    return failures ? 1 : 0;
}
