/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "command.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
    const char *purpose;
} commands[] = {
    {"ls", command_ls, "ls [--json] CHECKPOINT...",
     "list names, dtypes, shapes, bytes, chunks, values"},
    {"cat", command_cat, "cat CHECKPOINT... NAME", "write a tensor's bytes, or an object as JSON"},
    {"bench", command_bench, "bench [OPTION...] DIRECTORY",
     "measure saving and loading in a directory"},
    {"verify", command_verify, "verify CHECKPOINT...", "check every file, checksum and chunk"},
};

#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static int print_usage(FILE *out, int status)
{
    fputs("usage: dcp [--storage MODULE[,ARGUMENT]] COMMAND ...\n\n", out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  dcp %-29s %s\n", commands[i].usage, commands[i].purpose);
    fputs(
        "\nCHECKPOINT is a directory of PyTorch Distributed Checkpoint or of safetensors files, "
        "or\n"
        "a .pt file of torch.save. Several directories are taken for parts of one checkpoint, as\n"
        "are the directories pp0, pp1 and so on of one. dcp --version prints the version.\n"
        "\n"
        "--storage loads MODULE, a shared object with a storage (dcp/storage.h), and gives it "
        "ARGUMENT:\n"
        "ls, cat and verify then look there.\n"
        "\n"
        "verify exits with 0 if there is no fault, with 1 if there is one or no checkpoint, and "
        "with 3\n"
        "if it could not check for want of memory or open files, which is no fault of the\n"
        "checkpoint.\n"
        "\n"
        "bench saves and loads a state of its own, and removes it. Its options, and what they are\n"
        "if they are not given:\n"
        "  --bytes 1G        of all tensors together        --io auto          ring, pool, "
        "direct,\n"
        "  --tensors 100                                                       buffered; or two: "
        "ring,direct\n"
        "  --ranks 1         each a thread                  --compression none zstd, zstd:LEVEL\n"
        "  --threads N       of each rank                   --no-sync          does not wait for "
        "the disk\n"
        "  --repeat 3        medians are shown              --json             all figures, as "
        "JSON\n"
        "and to go easy on others, as saving beside training does:\n"
        "  --write-rate N    bytes a second of each rank    --io-threads N     that write a file\n"
        "  --memory-limit N  bytes of each rank             --io-priority kept low, idle\n"
        "  --check-replicas off, sampled, all               every rank has all tensors, compared "
        "so\n"
        "Bytes may be given as 64K, 64M or 64G.\n",
        out);
    return status;
}

dcp_status command_open(char **paths, int count, dcp_checkpoint **checkpoint)
{
    dcp_open_options options = {.storage = command_storage()};
    if (count == 1)
        return dcp_checkpoint_open(paths[0], &options, checkpoint);
    options.members = (const char *const *)paths;
    options.member_count = (size_t)count;
    return dcp_checkpoint_open(".", &options, checkpoint);
}

int command_fail(const char *command)
{
    fprintf(stderr, "dcp %s: ", command);
    print_plain(stderr, dcp_error_message());
    fputc('\n', stderr);
    return EXIT_FAULT;
}

int command_finish(const char *command, int status)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "dcp %s: cannot write to standard output: %s\n", command, strerror(errno));
        return EXIT_FAULT;
    }
    return status;
}

void print_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\u%04x", *c);
        else
            fputc(*c, out);
    }
    fputc('"', out);
}

void print_plain(FILE *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\x%02x", *c);
        else
            fputc(*c, out);
    }
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--storage") == 0) {
        if (!command_use_storage(argv[2]))
            return EXIT_USAGE;
        argc -= 2;
        argv += 2;
    }
    if (argc < 2)
        return print_usage(stderr, EXIT_USAGE);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)
        return command_finish("help", print_usage(stdout, EXIT_FINE));
    if (strcmp(argv[1], "--version") == 0) {
        printf("dcp %s\n", dcp_version_string());
        return command_finish("--version", EXIT_FINE);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        int status = commands[i].run(argc - 1, argv + 1);
        if (status == EXIT_USAGE)
            fprintf(stderr, "usage: dcp %s\n", commands[i].usage);
        return command_finish(argv[1], status);
    }
    fprintf(stderr, "dcp: no such command: %s\n", argv[1]);
    return print_usage(stderr, EXIT_USAGE);
}
