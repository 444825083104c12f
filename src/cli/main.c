/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <string.h>

#include "command.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
    const char *purpose;
    const char *help;
} commands[] = {
    {"ls", command_ls, "ls [--json] CHECKPOINT...",
     "list names, dtypes, shapes, bytes, chunks, values, and which save made them",
     "  --json            everything, as JSON: paths, chunks, files and whole values too\n"},
    {"cat", command_cat, "cat CHECKPOINT... NAME",
     "write a tensor's bytes, an object as JSON, or an extra file",
     "NAME is one that dcp ls shows. The bytes of a tensor are row-major and little-endian; an "
     "extra\nfile is written as it is.\n"},
    {"convert", command_convert, "convert [OPTION...] CHECKPOINT... DST",
     "write a checkpoint in another form: DCP, .pt, safetensors, Hugging Face",
     "DST must not be there. Its form is what its suffix says (.pt, .pth, .bin, .ckpt, "
     ".safetensors)\nor:\n"
     "  --to FORM         dcp, pt, safetensors or hf (a Hugging Face directory)\n"
     "What is taken of the checkpoint, under which names:\n"
     "  --include GLOB    only such names                --exclude GLOB     but no such ones\n"
     "  --rename FROM=TO  a name, what is below it, or a pattern whose stars TO takes over\n"
     "  --model-only      what is below \"model\" or the like, without objects where they have no "
     "place\n"
     "  --masters         the optimizer's fp32 weights of a training checkpoint\n"
     "  --all             everything of one: model, optimizer, the rest\n"
     "  --dtype DTYPE     of all floating-point tensors: float32, bfloat16 ...\n"
     "  --dequantize bf16 weights in FP8, MXFP4 or of compressed-tensors, as bf16 or fp32\n"
     "  --tied keep|drop  lm_head.weight where it equals the embedding\n"
     "How it is written:\n"
     "  --shard-size 50GB of files of a Hugging Face directory\n"
     "  --ranks N         a DCP directory as N ranks write it\n"
     "  --zstd            compressed (DCP directories)   --no-sync          does not wait for the "
     "disk\n"
     "  --threads N       that read and write            --quiet            prints nothing but "
     "errors\n"
     "  --json            what was done, as JSON\n"
     "A Hugging Face directory is a CHECKPOINT, too. For example:\n"
     "  dcp convert run/step_1000 model.safetensors --model-only --dtype bfloat16\n"
     "  dcp convert Llama-3-8B checkpoint --to dcp --ranks 8\n"},
    {"list", command_list, "list [OPTION...] RUN", "list the checkpoints of a training run",
     "RUN is the directory that holds the steps of a training job, or the one above it. Each\n"
     "checkpoint is checked without reading its data: whole, or why not. The last line says which\n"
     "is the latest. Pinned ones, and those that were copied to a mirror, are marked.\n"
     "  --best METRIC     marks the one with the least    --higher          or the most, of this\n"
     "                    number in metadata.json\n"
     "  --json            an array of objects: path, step, kind, complete, why, latest, marked,\n"
     "                    best, pinned, mirrored\n"},
    {"latest", command_latest, "latest [--json] RUN", "find the latest whole checkpoint of a run",
     "Prints its path, and on standard error why it is this one. Marks of frameworks are hints;\n"
     "what counts is what is there. Exits with 1 if there is none, or two of one step.\n"
     "  --json            an object, as dcp list prints it\n"},
    {"bench", command_bench, "bench [OPTION...] DIRECTORY",
     "measure saving and loading in a directory",
     "Saves and loads a state of its own, and removes it. In a storage it is saved under an id\n"
     "below DIRECTORY. The options, with their defaults:\n"
     "  --bytes 1G        of all tensors together        --io auto          ring, pool, direct,\n"
     "  --tensors 100                                                       buffered; or two: "
     "ring,direct\n"
     "  --ranks 1         each a thread                  --compression none zstd, zstd:LEVEL\n"
     "  --threads N       of each rank                   --no-sync          does not wait for the "
     "disk\n"
     "  --repeat 3        medians are shown              --json             all figures, as JSON\n"
     "To leave the machine to other work, as saving beside training does:\n"
     "  --write-rate N    bytes a second of each rank    --io-threads N     that write a file\n"
     "  --memory-limit N  bytes of each rank             --io-priority kept low, idle\n"
     "  --page-cache any  what stays of saved files there: kept, dropped, or auto: kept if memory "
     "is "
     "plenty\n"
     "To see what comparing replicas costs:\n"
     "  --check-replicas  off, sampled or all; every rank has all tensors then\n"
     "Bytes may be given as 64K, 64M or 64G.\n"},
    {"mirror", command_mirror, "mirror [OPTION...] RUN DEST",
     "copy the checkpoints of a run that another place lacks",
     "Copies whole checkpoints of a run that dcp/run.h keeps to the directory DEST, each verified\n"
     "before and after. What an interrupted copy has left whole there is not copied again.\n"
     "  --dry-run         writes nothing, and prints what would be copied\n"
     "  --rate N          bytes a second, such as 64M    --identity NAME  of the run, if the\n"
     "  --json            an array of objects                             directory holds "
     "several\n"},
    {"pin", command_pin, "pin [--remove] CHECKPOINT",
     "keep a checkpoint of a run from being pruned",
     "CHECKPOINT is a directory of a run that dcp/run.h keeps, as RUN/step_1000.\n"
     "  --remove          it may be pruned again\n"},
    {"prune", command_prune, "prune [OPTION...] RUN", "remove old checkpoints of a run",
     "Removes whole checkpoints of a run that dcp/run.h keeps and none of these rules does, and\n"
     "what its dead saves have left. The newest whole one and those that are pinned stay, and so\n"
     "does everything that is not this run's.\n"
     "  --last N          the newest N                   --every N          multiples of N steps\n"
     "  --best N          the best N by --metric         --younger SECONDS  saved less long ago\n"
     "  --metric NAME     a number in metadata.json      --higher           more of it is better\n"
     "  --identity NAME   of the run, if the directory holds several\n"
     "  --dry-run         removes nothing, and prints what would go\n"},
    {"repair", command_repair, "repair [OPTION...] DIRECTORY", "rebuild a lost .metadata",
     "Rebuilds .metadata from what the footers of the shard files say, and publishes it if there\n"
     "is none and every tensor is complete.\n"
     "  --save ID         the save that is wanted        --allow-gaps       file numbers may be\n"
     "  --dry-run         publishes nothing                                 missing\n"},
    {"verify", command_verify, "verify CHECKPOINT...", "check every file, checksum and chunk",
     "Exits with 0 if there is no fault, with 1 if there is one or no checkpoint, and with 3 if\n"
     "it could not check for lack of memory or open files.\n"},
};

#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static void print_checkpoint_forms(FILE *out)
{
    fputs(
        "\nCHECKPOINT is a directory of PyTorch Distributed Checkpoint or of safetensors files, "
        "or\n"
        "a .pt file of torch.save. Several directories are taken for parts of one checkpoint, as\n"
        "are the directories pp0, pp1 and so on of one.\n",
        out);
}

static int print_usage(FILE *out, int status)
{
    fputs("usage: dcp [--storage MODULE[,ARGUMENT]] COMMAND ...\n\n", out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  dcp %-29s %s\n", commands[i].usage, commands[i].purpose);
    print_checkpoint_forms(out);
    fputs("\n--storage loads MODULE, a shared object that brings a storage (dcp/storage.h), and "
          "gives\nit ARGUMENT: the command then works there.\n",
          out);
    fputs("\n  dcp COMMAND --help prints the options of a command.\n"
          "  dcp --help         prints this.\n"
          "  dcp --version      prints the version.\n",
          out);
    return status;
}

static int print_help(const struct command *command)
{
    printf("usage: dcp %s\n\n%s", command->usage, command->help);
    if (strstr(command->usage, "CHECKPOINT"))
        print_checkpoint_forms(stdout);
    return EXIT_FINE;
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
        if (argc == 3 && strcmp(argv[2], "--help") == 0)
            return command_finish(argv[1], print_help(&commands[i]));
        int status = commands[i].run(argc - 1, argv + 1);
        if (status == EXIT_USAGE)
            fprintf(stderr, "usage: dcp %s\n", commands[i].usage);
        return command_finish(argv[1], status);
    }
    fprintf(stderr, "dcp: no such command: %s\n", argv[1]);
    return print_usage(stderr, EXIT_USAGE);
}
