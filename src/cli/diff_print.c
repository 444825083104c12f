/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <math.h>

#include "diff.h"
#include "element.h"
#include "ls.h"

static const char *const kinds[] = {
    [DIFF_NONE] = "none",     [DIFF_ONLY_A] = "only_a", [DIFF_ONLY_B] = "only_b",
    [DIFF_TYPE] = "type",     [DIFF_DTYPE] = "dtype",   [DIFF_SHAPE] = "shape",
    [DIFF_OBJECT] = "object", [DIFF_VALUES] = "values"};

/* "float32 [5, 7]" or "object" */
static void print_side(const struct selected *side)
{
    if (!side->entry.is_tensor) {
        fputs("object", stdout);
        return;
    }
    printf("%s ", dcp_dtype_name(side->entry.dtype));
    ls_print_numbers(side->entry.global_shape, side->entry.ndim);
}

static void print_number(const struct pair *pair, const long double value[2], bool json)
{
    dcp_dtype dtype = diff_dtype(pair);
    bool single = dtype != DCP_F64 && dtype != DCP_C128;
    if (dtype == DCP_I64 || dtype == DCP_U64) {
        printf("%.0Lf", value[0]);
        return;
    }
    number_print(stdout, (double)value[0], single, json);
    if (!element_is_complex(dtype) || json)
        return;
    if (!signbit(value[1]))
        putchar('+');
    number_print(stdout, (double)value[1], single, false);
    putchar('j');
}

static void print_values(const struct pair *pair)
{
    printf("%" PRIu64 " element%s differ%s", pair->different, plural(pair->different),
           pair->different == 1 ? "s" : "");
    if (!pair->placed)
        return;
    printf(", by at most %.6Lg, at ", pair->largest);
    ls_print_numbers(pair->at, pair->walk.box.ndim);
    fputs(": ", stdout);
    print_number(pair, pair->a, false);
    fputs(" | ", stdout);
    print_number(pair, pair->b, false);
}

static dcp_status print_objects(const struct diff *diff, const struct pair *pair, bool json)
{
    for (int side = 0; side < 2; side++) {
        char *text = ls_value(diff->checkpoints[side], pair->side[side]->index);
        if (!text)
            return DCP_ERR_FORMAT;
        if (json)
            printf(", \"%c\": %s", "ab"[side], text);
        else
            print_value(text);
        if (!json && side == 0)
            fputs("  |", stdout);
        dcp_text_free(text);
    }
    return DCP_OK;
}

static dcp_status print_plainly(const struct diff *diff, const struct pair *pair)
{
    bool only = pair->kind == DIFF_ONLY_A || pair->kind == DIFF_ONLY_B;
    dcp_status status = DCP_OK;
    if (only) {
        print_color(stdout, pair->kind == DIFF_ONLY_A ? COLOR_RED : COLOR_GREEN);
        fputs(pair->kind == DIFF_ONLY_A ? "only in A: " : "only in B: ", stdout);
    }
    print_plain(stdout, pair->name);
    fputs(only ? "  " : ": ", stdout);
    if (only) {
        print_side(pair->side[pair->kind == DIFF_ONLY_B]);
        print_color(stdout, COLOR_PLAIN);
    } else if (pair->kind == DIFF_VALUES) {
        print_values(pair);
    } else if (pair->kind == DIFF_OBJECT) {
        status = print_objects(diff, pair, false);
    } else {
        print_side(pair->side[0]);
        fputs(" | ", stdout);
        print_side(pair->side[1]);
    }
    putchar('\n');
    return status;
}

static void print_side_json(const char *key, const struct selected *side)
{
    printf(", \"%s\": ", key);
    if (!side->entry.is_tensor) {
        fputs("{\"type\": \"object\"}", stdout);
        return;
    }
    printf("{\"type\": \"tensor\", \"dtype\": \"%s\", \"shape\": ",
           dcp_dtype_name(side->entry.dtype));
    ls_print_numbers(side->entry.global_shape, side->entry.ndim);
    putchar('}');
}

static dcp_status print_json(const struct diff *diff, const struct pair *pair, bool first)
{
    dcp_status status = DCP_OK;
    fputs(first ? "\n {\"name\": " : ",\n {\"name\": ", stdout);
    print_json_string(stdout, pair->name);
    printf(", \"kind\": \"%s\"", kinds[pair->kind]);
    if (pair->kind == DIFF_VALUES) {
        printf(", \"different\": %" PRIu64, pair->different);
        if (pair->placed) {
            fputs(", \"largest\": ", stdout);
            number_print(stdout, (double)pair->largest, false, true);
            fputs(", \"at\": ", stdout);
            ls_print_numbers(pair->at, pair->walk.box.ndim);
            fputs(", \"a\": ", stdout);
            print_number(pair, pair->a, true);
            fputs(", \"b\": ", stdout);
            print_number(pair, pair->b, true);
        }
    } else if (pair->kind == DIFF_OBJECT) {
        status = print_objects(diff, pair, true);
    } else {
        if (pair->side[0])
            print_side_json("a", pair->side[0]);
        if (pair->side[1])
            print_side_json("b", pair->side[1]);
    }
    putchar('}');
    return status;
}

dcp_status diff_print(const struct diff *diff)
{
    bool json = diff->options->json, first = true;
    dcp_status status = DCP_OK;
    if (diff->options->quiet)
        return DCP_OK;
    if (json)
        printf("{\"names\": %zu, \"equal\": %s, \"differences\": [", diff->count,
               diff->differences == 0 ? "true" : "false");
    for (size_t i = 0; i < diff->count && status == DCP_OK; i++) {
        const struct pair *pair = &diff->pairs[i];
        if (pair->kind == DIFF_NONE)
            continue;
        status = json ? print_json(diff, pair, first) : print_plainly(diff, pair);
        first = false;
    }
    if (json)
        fputs("\n]}\n", stdout);
    else
        printf("%zu of %zu name%s differ%s\n", diff->differences, diff->count, plural(diff->count),
               diff->differences == 1 ? "s" : "");
    return status;
}
