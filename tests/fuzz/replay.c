/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs a fuzz target over files, or over all files of directories, without libFuzzer. */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz_target.h"

/* Inputs take milliseconds. One that takes this long ends the program. */
enum { MOST_SECONDS = 20 };

static bool replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat information;
    if (file == NULL || fstat(fileno(file), &information) != 0) {
        perror(path);
        return false;
    }
    /* A block of exactly the input's size, so that sanitizers see a read of one byte too many. */
    size_t size = (size_t)information.st_size;
    unsigned char *data = malloc(size != 0 ? size : 1);
    bool done = data != NULL && fread(data, 1, size, file) == size;
    alarm(MOST_SECONDS);
    if (done)
        LLVMFuzzerTestOneInput(data, size);
    else
        fprintf(stderr, "%s: cannot be read\n", path);
    alarm(0);
    free(data);
    fclose(file);
    return done;
}

static bool replay_directory(const char *path, DIR *directory, size_t *count)
{
    bool done = true;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char file[4096];
        if (entry->d_name[0] == '.')
            continue;
        int length = snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        done = length > 0 && (size_t)length < sizeof file && replay_file(file) && done;
        ++*count;
    }
    return done;
}

int main(int argument_count, char **arguments)
{
    bool done = true;
    size_t count = 0;
    for (int i = 1; i < argument_count; i++) {
        DIR *directory = opendir(arguments[i]);
        if (directory == NULL) {
            done = replay_file(arguments[i]) && done;
            count++;
        } else {
            done = replay_directory(arguments[i], directory, &count) && done;
            closedir(directory);
        }
    }
    printf("%zu inputs\n", count);
    return done && count != 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
