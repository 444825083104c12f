/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert_print.h"

#include <inttypes.h>

#include "ls.h"

static void print_item_json(const dcp_convert_item *item)
{
    fputs("{\"name\": ", stdout);
    print_json_string(stdout, item->name);
    if (!item->is_tensor) {
        fputs(", \"type\": \"object\"}", stdout);
        return;
    }
    printf(", \"type\": \"tensor\", \"dtype\": \"%s\", \"shape\": ", item->type);
    ls_print_numbers(item->shape, item->ndim);
    printf(", \"bytes\": %" PRIu64 "}", item->bytes);
}

void convert_print_item(void *context, const dcp_convert_item *item)
{
    struct convert_given *given = context;
    if (given->json) {
        fputs(given->told > 0 ? ",\n " : "{\"items\": [\n ", stdout);
        print_item_json(item);
    } else if (!given->quiet) {
        print_size(stdout, item->bytes, 10);
        printf("  %-8s  ", item->is_tensor ? item->type : "object");
        print_plain(stdout, item->name);
        if (item->is_tensor) {
            putchar(' ');
            ls_print_numbers(item->shape, item->ndim);
        }
        putchar('\n');
    }
    given->told++;
}

void convert_print_report(const struct convert_given *given, const dcp_convert_report *report)
{
    if (given->json) {
        fputs(given->options.dry_run ? given->told > 0 ? "\n], " : "{\"items\": [], " : "{",
              stdout);
        printf("\"source\": \"%s\", \"source_text\": ", dcp_form_name(report->source));
        print_json_string(stdout, report->source_text);
        printf(", \"target\": \"%s\", \"tensors\": %" PRIu64 ", \"objects\": %" PRIu64
               ", \"bytes\": %" PRIu64 ", \"files\": %" PRIu64 ", \"left_out\": %" PRIu64
               ", \"tied\": %" PRIu64 ", \"dequantized\": %" PRIu64 ", \"resumed\": %" PRIu64 "}\n",
               dcp_form_name(report->target), report->tensors, report->objects, report->bytes,
               report->files, report->left_out, report->tied, report->dequantized, report->resumed);
        return;
    }
    if (given->quiet)
        return;
    print_sum(report->tensors, report->bytes, report->objects);
    if (report->left_out > 0)
        printf(", %" PRIu64 " left out", report->left_out);
    if (report->tied > 0)
        printf(", %" PRIu64 " tied", report->tied);
    if (report->dequantized > 0)
        printf(", %" PRIu64 " dequantized", report->dequantized);
    if (report->resumed > 0) {
        fputs("; ", stdout);
        print_size(stdout, report->resumed, 0);
        fputs(" were there from an earlier call", stdout);
    }
    puts(given->options.dry_run ? "; nothing was written" : "");
    if (report->target == DCP_FORM_GGUF)
        fputs("dcp convert: the file has no vocabulary (tokenizer.ggml.model is none): programs "
              "that generate text need one from elsewhere\n",
              stderr);
}

void convert_print_source(char **paths, int count, const dcp_convert_report *report)
{
    fputs("dcp convert: ", stderr);
    print_plain(stderr, paths[0]);
    fprintf(stderr, "%s is taken for ", count > 2 ? " ..." : "");
    print_plain(stderr, report->source_text);
    fputc('\n', stderr);
}
