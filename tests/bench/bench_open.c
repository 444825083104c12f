/* SPDX-License-Identifier: BSD-3-Clause */
/* Our side of compare open: opens a checkpoint and visits all names and chunks, or writes the
 * metadata of one anew, in our own form.
 *
 *   bench_open list DIR               prints the seconds that it took, and the chunks
 *   bench_open rewrite DIR OTHER      reads DIR/.metadata, writes OTHER/.metadata */
#include <dcp.h>
#include <err.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/path.h"
#include "format/metadata/metadata_codec.h"
#include "seconds.h"
#include "storage/files/file.h"

static void check(dcp_status status)
{
    if (status != DCP_OK)
        errx(1, "%s: %s", dcp_status_string(status), dcp_error_message());
}

static void list(const char *path)
{
    dcp_checkpoint *checkpoint;
    size_t chunks = 0, letters = 0;
    double start = seconds_now();

    check(dcp_checkpoint_open(path, NULL, &checkpoint));
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        check(dcp_checkpoint_entry(checkpoint, i, &entry));
        letters += strlen(entry.name);
        for (size_t c = 0; c < entry.chunk_count; c++, chunks++) {
            dcp_stored_chunk chunk;
            check(dcp_checkpoint_chunk(checkpoint, i, c, &chunk));
            letters += chunk.length > 0;
        }
    }
    dcp_checkpoint_close(checkpoint);
    double seconds = seconds_now() - start;
    if (letters < chunks)
        errx(1, "%s: names or chunks are empty", path);
    printf("%.6f %zu\n", seconds, chunks);
}

static void rewrite(const char *from, const char *to)
{
    struct metadata metadata;
    struct buffer read, written;
    struct file file;
    char *source = path_join(from, ".metadata"), *target = path_join(to, ".metadata");

    buffer_init(&read, 0);
    buffer_init(&written, 0);
    check(file_read_whole(FILE_PATHS(&file_ops_system), source, UINT64_MAX, &read));
    check(metadata_decode(read.data, read.size, &metadata));
    check(metadata_encode(&metadata, &written));
    check(file_write_new(&file, FILE_PATHS(&file_ops_system), target, written.data, written.size));
    check(file_close(&file));
    metadata_free(&metadata);
    buffer_free(&written);
    buffer_free(&read);
    memory_release(target);
    memory_release(source);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "list") == 0)
        list(argv[2]);
    else if (argc == 4 && strcmp(argv[1], "rewrite") == 0)
        rewrite(argv[2], argv[3]);
    else
        errx(2, "usage: bench_open list DIR | rewrite DIR OTHER");
    return 0;
}
