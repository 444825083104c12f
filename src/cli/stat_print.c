/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "stat.h"

static void print_value(long double value, bool exact, int width)
{
    char text[64];
    snprintf(text, sizeof text, exact ? "%.0Lf" : "%.6Lg", value);
    printf(" %*s", width, text);
}

static bool is_integer(dcp_dtype dtype)
{
    return element_dtype(dtype) == DCP_I64 || dtype == DCP_U64;
}

static void print_row(const struct stat_row *row)
{
    const struct summary *summary = &row->summary;
    uint64_t finite = summary_finite(summary);
    bool exact = is_integer(row->dtype);
    const char *dtype = row->dtype == DCP_DTYPE_NONE ? "several" : dcp_dtype_name(row->dtype);
    printf("%-13s %12" PRIu64, dtype, summary->count);
    if (finite > 0) {
        print_value(summary->least, exact, 12);
        print_value(summary->most, exact, 12);
        print_value(summary->sum / (long double)finite, false, 12);
        print_value(sqrtl(summary->squares), false, 12);
    } else {
        printf(" %12s %12s %12s %12s", "-", "-", "-", "-");
    }
    if (summary->nans + summary->infinities > 0)
        print_color(stdout, COLOR_RED);
    printf(" %8" PRIu64 " %8" PRIu64, summary->nans, summary->infinities);
    print_color(stdout, COLOR_PLAIN);
    printf(" %10" PRIu64 "  ", summary->zeros);
    for (size_t i = 0; i < row->name_length; i++)
        print_plain(stdout, (const char[]){row->name[i], '\0'});
    putchar('\n');
}

static void print_json_value(const char *key, long double value, bool exact, bool known)
{
    printf(", \"%s\": ", key);
    if (!known)
        fputs("null", stdout);
    else if (exact)
        printf("%.0Lf", value);
    else
        number_print(stdout, (double)value, false, true);
}

static void print_row_json(const struct stat_row *row, bool first)
{
    const struct summary *summary = &row->summary;
    uint64_t finite = summary_finite(summary);
    bool exact = is_integer(row->dtype), known = finite > 0;
    char *name = strndup(row->name, row->name_length);
    fputs(first ? "\n {\"name\": " : ",\n {\"name\": ", stdout);
    print_json_string(stdout, name ? name : "");
    free(name);
    fputs(", \"dtype\": ", stdout);
    if (row->dtype == DCP_DTYPE_NONE)
        fputs("null", stdout);
    else
        print_json_string(stdout, dcp_dtype_name(row->dtype));
    printf(", \"tensors\": %zu, \"elements\": %" PRIu64, row->tensors, summary->count);
    print_json_value("min", summary->least, exact, known);
    print_json_value("max", summary->most, exact, known);
    print_json_value("mean", known ? summary->sum / (long double)finite : 0, false, known);
    print_json_value("norm", sqrtl(summary->squares), false, true);
    printf(", \"nan\": %" PRIu64 ", \"inf\": %" PRIu64 ", \"zero\": %" PRIu64 "}", summary->nans,
           summary->infinities, summary->zeros);
}

static int compare_rows(const void *left, const void *right)
{
    const struct stat_row *a = left, *b = right;
    size_t length = a->name_length < b->name_length ? a->name_length : b->name_length;
    int order = memcmp(a->name, b->name, length);
    return order != 0 ? order
                      : (a->name_length > b->name_length) - (a->name_length < b->name_length);
}

static void join_rows(struct stat_row *row, const struct stat_row *other)
{
    if (row->tensors > 0 && row->dtype != other->dtype)
        row->dtype = DCP_DTYPE_NONE;
    else
        row->dtype = other->dtype;
    row->tensors += other->tensors;
    summary_join(&row->summary, &other->summary);
}

/* Those of one prefix become one. Returns how many are left. */
static size_t group_rows(struct stat_row *rows, size_t count)
{
    size_t kept = 0;
    qsort(rows, count, sizeof *rows, compare_rows);
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && compare_rows(&rows[kept - 1], &rows[i]) == 0)
            join_rows(&rows[kept - 1], &rows[i]);
        else
            rows[kept++] = rows[i];
    }
    return kept;
}

void stat_print(struct stat_row *rows, size_t count, bool grouped, bool json)
{
    static const char all_text[] = "all of them";
    struct stat_row all = {.name = all_text, .name_length = sizeof all_text - 1};
    if (grouped && count > 1)
        count = group_rows(rows, count);
    summary_init(&all.summary);
    if (json)
        putchar('[');
    else
        printf("%-13s %12s %12s %12s %12s %12s %8s %8s %10s  %s\n", "dtype", "elements", "min",
               "max", "mean", "norm", "nan", "inf", "zero", "name");
    for (size_t i = 0; i < count; i++) {
        join_rows(&all, &rows[i]);
        if (json)
            print_row_json(&rows[i], i == 0);
        else
            print_row(&rows[i]);
    }
    if (json)
        fputs("\n]\n", stdout);
    else if (count > 1)
        print_row(&all);
}
