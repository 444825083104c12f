/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files beside a checkpoint that PyTorch loads:
 *
 *   extra_files save PATH TEXT
 *       a tensor, saved by two ranks over what is there, of which the first gives config.yaml
 * (TEXT) and each rank_R.bin extra_files print PATH the names and texts of a checkpoint's extra
 * files
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"

enum { RANKS = 2, ROWS = 4, COLUMNS = 8 };

static void must(dcp_status status, const char *what)
{
    if (status == DCP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, dcp_error_message());
    exit(1);
}

struct saver {
    dcp_group *group;
    int rank;
    const char *path, *text;
};

static void *save(void *argument)
{
    const struct saver *saver = argument;
    float elements[ROWS / RANKS * COLUMNS];
    char name[32];
    dcp_extra_file files[2] = {{sizeof *files, name, elements, sizeof elements},
                               {sizeof *files, "config.yaml", saver->text, strlen(saver->text)}};
    dcp_save_options options = {.group = saver->group,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .has_step = true,
                                .step = 1000,
                                .extra_files = files,
                                .extra_file_count = saver->rank == 0 ? 2 : 1};
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .sharded = true,
                         .global_shape = {ROWS, COLUMNS},
                         .offsets = {saver->rank * (ROWS / RANKS), 0},
                         .sizes = {ROWS / RANKS, COLUMNS},
                         .data = elements};
    int first = saver->rank * (ROWS / RANKS * COLUMNS);
    dcp_state *root = dcp_state_new(), *info = dcp_state_new();
    for (int i = 0; i < ROWS / RANKS * COLUMNS; i++)
        elements[i] = (float)(first + i);
    snprintf(name, sizeof name, "rank_%d.bin", saver->rank);
    dcp_state_tensor(root, "w", &tensor);
    dcp_state_string(info, "model", "two\nlines");
    dcp_state_float(info, "loss", 0.5);
    options.info = info;
    must(dcp_save(root, saver->path, &options), "saving");
    dcp_state_free(info);
    dcp_state_free(root);
    return NULL;
}

static void save_all(const char *path, const char *text)
{
    dcp_group *groups[RANKS];
    struct saver savers[RANKS];
    pthread_t threads[RANKS];
    must(dcp_group_new_threads(RANKS, groups), "a group");
    for (int r = 0; r < RANKS; r++) {
        savers[r] = (struct saver){groups[r], r, path, text};
        if (pthread_create(&threads[r], NULL, save, &savers[r]) != 0)
            exit(1);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        dcp_group_free(groups[r]);
    }
}

static void print_all(const char *path)
{
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path, NULL, &checkpoint), "opening");
    for (size_t i = 0; i < dcp_checkpoint_extra_file_count(checkpoint); i++) {
        dcp_extra_file_info info;
        must(dcp_checkpoint_extra_file(checkpoint, i, &info), "an extra file");
        char *bytes = calloc((size_t)info.size + 1, 1);
        if (!bytes)
            exit(1);
        must(dcp_checkpoint_read_extra_file(checkpoint, i, bytes, (size_t)info.size, NULL),
             "reading");
        printf("%s %s %zu\n", info.name, info.file, (size_t)info.size);
        free(bytes);
    }
    dcp_checkpoint_close(checkpoint);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "save") == 0)
        save_all(argv[2], argv[3]);
    else if (argc == 3 && strcmp(argv[1], "print") == 0)
        print_all(argv[2]);
    else
        return 2;
    return 0;
}
