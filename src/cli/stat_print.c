/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"
#include "stat.h"

/* What a row says, in columns; the name is behind them. */
enum { COLUMNS = 9, CELL_SIZE = 48 };

struct column {
    const char *head;
    int width; /* at least */
};

struct cells {
    char texts[COLUMNS][CELL_SIZE];
};

static void set_value(char *cell, long double value, bool exact)
{
    snprintf(cell, CELL_SIZE, exact ? "%.0Lf" : "%.6Lg", value);
}

static void set_count(char *cell, uint64_t count)
{
    snprintf(cell, CELL_SIZE, "%" PRIu64, count);
}

static bool is_integer(dcp_dtype dtype)
{
    return element_dtype(dtype) == DCP_I64 || dtype == DCP_U64;
}

static void fill_cells(const struct stat_row *row, struct cells *cells)
{
    const struct summary *summary = &row->summary;
    uint64_t finite = summary_finite(summary);
    bool exact = is_integer(row->dtype);
    const char *dtype = row->dtype == DCP_DTYPE_NONE ? "several" : dcp_dtype_name(row->dtype);
    snprintf(cells->texts[0], CELL_SIZE, "%s", dtype);
    set_count(cells->texts[1], summary->count);
    for (int i = 2; i < 6; i++)
        snprintf(cells->texts[i], CELL_SIZE, "-");
    if (finite > 0) {
        set_value(cells->texts[2], summary->least, exact);
        set_value(cells->texts[3], summary->most, exact);
        set_value(cells->texts[4], summary->sum / (long double)finite, false);
        set_value(cells->texts[5], sqrtl(summary->squares), false);
    }
    set_count(cells->texts[6], summary->nans);
    set_count(cells->texts[7], summary->infinities);
    set_count(cells->texts[8], summary->zeros);
}

static void widen_columns(const struct stat_row *row, struct column columns[COLUMNS])
{
    struct cells cells = {0};
    fill_cells(row, &cells);
    for (int i = 0; i < COLUMNS; i++) {
        int length = (int)strlen(cells.texts[i]);
        columns[i].width = length > columns[i].width ? length : columns[i].width;
    }
}

static void print_head(const struct column columns[COLUMNS])
{
    printf("%-*s", columns[0].width, columns[0].head);
    for (int i = 1; i < COLUMNS; i++)
        printf(" %*s", columns[i].width, columns[i].head);
    puts("  name");
}

static void print_row(const struct stat_row *row, const struct column columns[COLUMNS])
{
    struct cells cells = {0};
    fill_cells(row, &cells);
    printf("%-*s", columns[0].width, cells.texts[0]);
    for (int i = 1; i < COLUMNS; i++) {
        bool strange = (i == 6 || i == 7) && strcmp(cells.texts[i], "0") != 0;
        if (strange)
            print_color(stdout, COLOR_RED);
        printf(" %*s", columns[i].width, cells.texts[i]);
        if (strange)
            print_color(stdout, COLOR_PLAIN);
    }
    fputs("  ", stdout);
    print_plain_part(stdout, row->name, row->name_length);
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

static void print_table(const struct stat_row *rows, size_t count, const struct stat_row *all)
{
    struct column columns[COLUMNS] = {{"dtype", 13}, {"elements", 12}, {"min", 12},
                                      {"max", 12},   {"mean", 12},     {"norm", 12},
                                      {"nan", 8},    {"inf", 8},       {"zero", 10}};
    for (size_t i = 0; i < count; i++)
        widen_columns(&rows[i], columns);
    widen_columns(all, columns);
    print_head(columns);
    for (size_t i = 0; i < count; i++)
        print_row(&rows[i], columns);
    if (count > 1)
        print_row(all, columns);
}

void stat_print(struct stat_row *rows, size_t count, bool grouped, bool json)
{
    static const char all_text[] = "all of them";
    struct stat_row all = {.name = all_text, .name_length = sizeof all_text - 1};
    if (grouped && count > 1)
        count = group_rows(rows, count);
    summary_init(&all.summary);
    for (size_t i = 0; i < count; i++)
        join_rows(&all, &rows[i]);
    if (!json) {
        print_table(rows, count, &all);
        return;
    }
    putchar('[');
    for (size_t i = 0; i < count; i++)
        print_row_json(&rows[i], i == 0);
    fputs("\n]\n", stdout);
}
