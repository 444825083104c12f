/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "command.h"

enum bench_option {
    OPTION_JSON,
    OPTION_BYTES,
    OPTION_TENSORS,
    OPTION_RANKS,
    OPTION_THREADS,
    OPTION_IO,
    OPTION_COMPRESSION,
    OPTION_NO_SYNC,
    OPTION_REPEAT,
    OPTION_WRITE_RATE,
    OPTION_IO_THREADS,
    OPTION_IO_PRIORITY,
    OPTION_MEMORY_LIMIT,
    OPTION_PAGE_CACHE,
    OPTION_CHECK_REPLICAS
};

static const struct option options_known[] = {
    {"json", no_argument, NULL, OPTION_JSON},
    {"bytes", required_argument, NULL, OPTION_BYTES},
    {"tensors", required_argument, NULL, OPTION_TENSORS},
    {"ranks", required_argument, NULL, OPTION_RANKS},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"io", required_argument, NULL, OPTION_IO},
    {"compression", required_argument, NULL, OPTION_COMPRESSION},
    {"no-sync", no_argument, NULL, OPTION_NO_SYNC},
    {"repeat", required_argument, NULL, OPTION_REPEAT},
    {"write-rate", required_argument, NULL, OPTION_WRITE_RATE},
    {"io-threads", required_argument, NULL, OPTION_IO_THREADS},
    {"io-priority", required_argument, NULL, OPTION_IO_PRIORITY},
    {"memory-limit", required_argument, NULL, OPTION_MEMORY_LIMIT},
    {"page-cache", required_argument, NULL, OPTION_PAGE_CACHE},
    {"check-replicas", required_argument, NULL, OPTION_CHECK_REPLICAS},
    {NULL, 0, NULL, 0},
};

static bool read_number(const char *text, long long least, long long most, long long *number)
{
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *number >= least && *number <= most;
}

static bool read_int(const char *text, int least, int most, int *number)
{
    long long value;
    bool good = read_number(text, least, most, &value);
    *number = good ? (int)value : *number;
    return good;
}

/* "256M"; K, M and G are powers of 1024. */
static bool read_bytes(const char *text, uint64_t *bytes)
{
    static const char units[] = "KMG";
    char digits[32];
    long long number;
    size_t length = strlen(text);
    const char *unit = length > 1 ? strchr(units, text[length - 1]) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (length == 0 || length >= sizeof digits)
        return false;
    memcpy(digits, text, length + 1);
    digits[unit ? length - 1 : length] = '\0';
    if (!read_number(digits, 1, (LLONG_MAX >> 8) >> shift, &number))
        return false;
    *bytes = (uint64_t)number << shift;
    return true;
}

/* "ring,direct" */
static bool read_io(const char *text, uint32_t *io)
{
    static const struct {
        const char *name;
        uint32_t flag;
    } ways[] = {{"ring", DCP_IO_RING},
                {"pool", DCP_IO_POOL},
                {"direct", DCP_IO_DIRECT},
                {"buffered", DCP_IO_BUFFERED},
                {"auto", DCP_IO_AUTO}};
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
static bool read_compression(const char *text, dcp_save_options *save)
{
    save->compression = DCP_COMPRESSION_NONE;
    save->compression_level = 0;
    if (strcmp(text, "none") == 0)
        return true;
    save->compression = DCP_COMPRESSION_ZSTD;
    if (strcmp(text, "zstd") == 0)
        return true;
    return strncmp(text, "zstd:", 5) == 0 &&
           read_int(text + 5, INT_MIN, INT_MAX, &save->compression_level);
}

static bool read_priority(const char *text, dcp_io_priority *priority)
{
    static const char *const names[] = {[DCP_IO_PRIORITY_KEPT] = "kept",
                                        [DCP_IO_PRIORITY_LOW] = "low",
                                        [DCP_IO_PRIORITY_IDLE] = "idle"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) != 0)
            continue;
        *priority = (dcp_io_priority)i;
        return true;
    }
    return false;
}

static bool read_page_cache(const char *text, dcp_page_cache *page_cache)
{
    static const struct {
        const char *name;
        dcp_page_cache value;
    } known[] = {{"any", DCP_PAGE_CACHE_ANY},
                 {"kept", DCP_PAGE_CACHE_KEPT},
                 {"dropped", DCP_PAGE_CACHE_DROPPED},
                 {"auto", DCP_PAGE_CACHE_AUTO}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(text, known[i].name) != 0)
            continue;
        *page_cache = known[i].value;
        return true;
    }
    return false;
}

/* Checking replicas implies that there are some. */
static bool take_check(const char *text, struct bench_options *options)
{
    static const char *const names[] = {[DCP_REPLICA_CHECK_OFF] = "off",
                                        [DCP_REPLICA_CHECK_SAMPLED] = "sampled",
                                        [DCP_REPLICA_CHECK_ALL] = "all"};
    options->replicated = true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) != 0)
            continue;
        options->save.check_replicas = (dcp_replica_check)i;
        return true;
    }
    return false;
}

/* Options that limit the load on the machine. */
static bool take_manners(enum bench_option option, const char *value, struct bench_options *options)
{
    if (option == OPTION_WRITE_RATE)
        return read_bytes(value, &options->save.write_rate);
    if (option == OPTION_IO_THREADS)
        return read_int(value, 1, DCP_MAX_THREADS, &options->save.io_threads);
    if (option == OPTION_PAGE_CACHE)
        return read_page_cache(value, &options->save.page_cache);
    if (option == OPTION_IO_PRIORITY) {
        bool good = read_priority(value, &options->save.io_priority);
        options->load.io_priority = options->save.io_priority;
        return good;
    }
    bool good = read_bytes(value, &options->save.memory_limit);
    options->load.memory_limit = options->save.memory_limit;
    return good;
}

static bool take_option(int option, const char *value, struct bench_options *options)
{
    long long number;
    switch ((enum bench_option)option) {
    case OPTION_JSON:
        options->json = true;
        return true;
    case OPTION_BYTES:
        return read_bytes(value, &options->bytes);
    case OPTION_TENSORS:
        if (!read_number(value, 1, 10000000, &number))
            return false;
        options->tensor_count = number;
        return true;
    case OPTION_RANKS:
        return read_int(value, 1, BENCH_RANKS_MAX, &options->rank_count);
    case OPTION_THREADS:
        if (!read_int(value, 1, DCP_MAX_LOAD_THREADS, &options->save.thread_count))
            return false;
        options->load.thread_count = options->save.thread_count;
        return true;
    case OPTION_IO:
        if (!read_io(value, &options->save.io))
            return false;
        options->load.io = options->save.io;
        return true;
    case OPTION_COMPRESSION:
        return read_compression(value, &options->save);
    case OPTION_NO_SYNC:
        options->save.skip_sync = true;
        return true;
    case OPTION_REPEAT:
        return read_int(value, 1, BENCH_REPEAT_MAX, &options->repeat);
    case OPTION_WRITE_RATE:
    case OPTION_IO_THREADS:
    case OPTION_IO_PRIORITY:
    case OPTION_MEMORY_LIMIT:
    case OPTION_PAGE_CACHE:
        return take_manners((enum bench_option)option, value, options);
    case OPTION_CHECK_REPLICAS:
        return take_check(value, options);
    }
    return false;
}

static bool read_options(int argc, char **argv, struct bench_options *options)
{
    int option, which;
    optind = 0;
    opterr = 0;
    while ((option = getopt_long(argc, argv, "", options_known, &which)) != -1) {
        if (option == '?' || option == ':') {
            fprintf(stderr, "dcp bench: no such option, or its value is missing: ");
            print_plain(stderr, argv[optind - 1]);
            fputc('\n', stderr);
            return false;
        }
        if (!take_option(option, optarg, options)) {
            fprintf(stderr, "dcp bench: --%s cannot be ", options_known[which].name);
            print_plain(stderr, optarg);
            fputc('\n', stderr);
            return false;
        }
    }
    if (argc - optind != 1)
        return false;
    options->directory = argv[optind];
    return true;
}

int command_bench(int argc, char **argv)
{
    struct bench_options options = {
        .bytes = (uint64_t)1 << 30, .tensor_count = 100, .rank_count = 1, .repeat = 3};
    if (!read_options(argc, argv, &options))
        return EXIT_USAGE;
    struct bench_figures *saves = calloc((size_t)options.repeat, sizeof *saves);
    struct bench_figures *loads = calloc((size_t)options.repeat, sizeof *loads);
    int status = EXIT_FAULT;
    if (saves && loads)
        status = bench_run(&options, saves, loads);
    if (status == EXIT_FINE)
        bench_print(&options, saves, loads);
    free(loads);
    free(saves);
    return status;
}
