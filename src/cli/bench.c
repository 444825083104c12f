/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "command.h"

/* "ring,direct" */
static bool take_io(struct command_line *line, const struct option *option, const char *text)
{
    static const struct {
        const char *name;
        uint32_t flag;
    } ways[] = {{"ring", DCP_IO_RING},
                {"pool", DCP_IO_POOL},
                {"direct", DCP_IO_DIRECT},
                {"buffered", DCP_IO_BUFFERED},
                {"auto", DCP_IO_AUTO}};
    uint32_t *io = &((struct bench_options *)line->options)->save.io;
    (void)option;
    *io = 0;
    for (;;) {
        size_t length = strcspn(text, ","), i = 0;
        while (i < 5 &&
               (strlen(ways[i].name) != length || strncmp(ways[i].name, text, length) != 0))
            i++;
        if (i == 5)
            return false;
        *io |= ways[i].flag;
        if (text[length] == '\0')
            return true;
        text += length + 1;
    }
}

/* "none", "zstd" or "zstd:LEVEL" */
static bool take_compression(struct command_line *line, const struct option *option,
                             const char *text)
{
    dcp_save_options *save = &((struct bench_options *)line->options)->save;
    char *end;
    (void)option;
    save->compression = DCP_COMPRESSION_NONE;
    save->compression_level = 0;
    if (strcmp(text, "none") == 0)
        return true;
    save->compression = DCP_COMPRESSION_ZSTD;
    if (strcmp(text, "zstd") == 0)
        return true;
    if (strncmp(text, "zstd:", 5) != 0 || !text[5])
        return false;
    errno = 0;
    long level = strtol(text + 5, &end, 10);
    save->compression_level = (int)level;
    return errno == 0 && !*end && level >= INT_MIN && level <= INT_MAX;
}

/* Checking replicas implies that there are some. */
static bool take_check(struct command_line *line, const struct option *option, const char *text)
{
    ((struct bench_options *)line->options)->replicated = true;
    return option_choice(line, option, text);
}

static const struct option_word priorities[] = {{"kept", DCP_IO_PRIORITY_KEPT},
                                                {"low", DCP_IO_PRIORITY_LOW},
                                                {"idle", DCP_IO_PRIORITY_IDLE},
                                                {NULL, 0}};
static const struct option_word page_caches[] = {{"any", DCP_PAGE_CACHE_ANY},
                                                 {"kept", DCP_PAGE_CACHE_KEPT},
                                                 {"dropped", DCP_PAGE_CACHE_DROPPED},
                                                 {"auto", DCP_PAGE_CACHE_AUTO},
                                                 {NULL, 0}};
static const struct option_word checks[] = {{"off", DCP_REPLICA_CHECK_OFF},
                                            {"sampled", DCP_REPLICA_CHECK_SAMPLED},
                                            {"all", DCP_REPLICA_CHECK_ALL},
                                            {NULL, 0}};

#define FIELD(member) offsetof(struct bench_options, member)
#define SIZE          "a number of bytes, such as 64K, 256M or 1.5G"

static const struct option bench_table[] = {
    {.name = "bytes",
     .letter = 'b',
     .argument = "SIZE",
     .set = option_bytes,
     .field = FIELD(bytes),
     .expected = SIZE,
     .help = "Of all tensors together; 1G by default. SIZE is a number of bytes, such as 64K, 64M "
             "or 64G."},
    {.name = "tensors",
     .argument = "N",
     .set = option_int64,
     .field = FIELD(tensor_count),
     .least = 1,
     .most = 10000000,
     .help = "How many tensors; 100 by default."},
    {.name = "ranks",
     .argument = "N",
     .set = option_int,
     .field = FIELD(rank_count),
     .least = 1,
     .most = BENCH_RANKS_MAX,
     .help = "Ranks, each of which is a thread; 1 by default."},
    {.name = "threads",
     .argument = "N",
     .set = option_int,
     .field = FIELD(save.thread_count),
     .least = 1,
     .most = DCP_MAX_LOAD_THREADS,
     .help = "Threads of each rank."},
    {.name = "repeat",
     .argument = "N",
     .set = option_int,
     .field = FIELD(repeat),
     .least = 1,
     .most = BENCH_REPEAT_MAX,
     .help = "Saves and loads; medians are shown. 3 by default."},
    {.name = "io",
     .argument = "WAY",
     .set = take_io,
     .expected = "auto, ring, pool, direct or buffered, or two of them, as ring,direct",
     .help = "How files are read and written: auto, ring or pool, direct or buffered; or two of "
             "them, as ring,direct."},
    {.name = "compression",
     .argument = "KIND",
     .set = take_compression,
     .expected = "none, zstd or zstd:LEVEL",
     .help = "none, zstd or zstd:LEVEL."},
    {.name = "no-sync",
     .set = option_flag,
     .field = FIELD(save.skip_sync),
     .help = "Do not wait for the disk."},
    {.name = "write-rate",
     .argument = "SIZE",
     .set = option_bytes,
     .field = FIELD(save.write_rate),
     .expected = SIZE,
     .help = "Most bytes a second that each rank writes."},
    {.name = "io-threads",
     .argument = "N",
     .set = option_int,
     .field = FIELD(save.io_threads),
     .least = 1,
     .most = DCP_MAX_THREADS,
     .help = "Threads that write a file."},
    {.name = "io-priority",
     .argument = "PRIORITY",
     .set = option_choice,
     .field = FIELD(save.io_priority),
     .words = priorities,
     .help = "Of reads and writes: kept, low or idle."},
    {.name = "memory-limit",
     .argument = "SIZE",
     .set = option_bytes,
     .field = FIELD(save.memory_limit),
     .expected = SIZE,
     .help = "Most extra memory of each rank."},
    {.name = "page-cache",
     .argument = "WHAT",
     .set = option_choice,
     .field = FIELD(save.page_cache),
     .words = page_caches,
     .help = "What stays of saved files in the page cache: any, kept, dropped, or auto, which is "
             "kept if memory is plenty."},
    {.name = "check-replicas",
     .argument = "HOW",
     .set = take_check,
     .field = FIELD(save.check_replicas),
     .words = checks,
     .help = "Every rank has all tensors, and they are compared: off, sampled or all."},
    {.name = "plan",
     .letter = 'p',
     .argument = "SIZE",
     .set = option_bytes,
     .field = FIELD(plan_bytes),
     .expected = SIZE,
     .help = "Estimate what a save of so many bytes costs by the same ranks, and how often to save "
             "(Daly's formula) at several mean times between failures."},
    {.name = "mtbf",
     .argument = "HOURS",
     .set = option_real,
     .field = FIELD(failure_hours),
     .expected = "a number of hours, such as 6 or 0.5",
     .help = "The mean time between failures of the whole job, for --plan; without --plan for a "
             "save of --bytes."},
    {.name = "json",
     .letter = 'j',
     .set = option_flag,
     .field = FIELD(json),
     .help = "All figures, as JSON."},
    {.name = NULL}};

static const struct bench_options defaults = {
    .bytes = (uint64_t)1 << 30, .tensor_count = 100, .rank_count = 1, .repeat = 3};

static int run_bench(struct command_line *line)
{
    struct bench_options *options = line->options;
    struct bench_figures *saves = calloc((size_t)options->repeat, sizeof *saves);
    struct bench_figures *loads = calloc((size_t)options->repeat, sizeof *loads);
    int status = EXIT_FAULT;
    options->directory = line->paths[0];
    options->plan = options->plan_bytes > 0 || options->failure_hours > 0;
    options->load.thread_count = options->save.thread_count;
    options->load.io = options->save.io;
    options->load.io_priority = options->save.io_priority;
    options->load.memory_limit = options->save.memory_limit;
    if (saves && loads)
        status = bench_run(options, saves, loads);
    if (status == EXIT_FINE)
        bench_print(options, saves, loads);
    free(loads);
    free(saves);
    return status;
}

const struct command command_bench = {
    .name = "bench",
    .operands = "DIRECTORY",
    .least = 1,
    .most = 1,
    .purpose = "measure saving and loading in a directory",
    .description =
        "Saves and loads a state of its own, and removes it, also if it is interrupted. In a "
        "storage it is saved under an id below DIRECTORY. Every rank is a thread that holds an "
        "equal part of each tensor. To leave the machine to other work, as saving beside training "
        "does, there are --write-rate, --io-threads, --io-priority, --memory-limit and "
        "--page-cache.\n"
        "\n"
        "The estimate of --plan takes what moves bytes to be in proportion to them, and the rest "
        "of "
        "a save to cost the same. Time is lost by saving, and by failures: half of what is between "
        "two saves each.\n",
    .options = bench_table,
    .size = sizeof(struct bench_options),
    .defaults = &defaults,
    .json = "An object: version, bytes, tensors, ranks, repeat, and the arrays save and load, "
            "whose elements are sorted by total_seconds:\n"
            "  total_seconds, planning_seconds, commit_seconds\n"
            "  staging_seconds, writing_seconds, syncing_seconds  of a save\n"
            "  reading_seconds                                    of a load\n"
            "  bytes_moved, bytes_read, files, peak_memory        of all ranks; memory of one\n"
            "  direct, ring                                       how files were accessed\n"
            "With --plan or --mtbf also plan: bytes, save_seconds, and intervals: failure_seconds, "
            "every_seconds, lost (a part of the time).\n",
    .examples = "  dcp bench --bytes 8G --ranks 4 checkpoints\n"
                "      What saving 8 GiB there takes.\n"
                "  dcp bench --ranks 4 --plan 1.5T --mtbf 8 checkpoints\n"
                "      How often to save 1.5 TiB if something fails every eight hours.\n",
    .see_also = "verify",
    .run = run_bench};
