/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"

int command_fail(const char *command)
{
    print_color(stderr, COLOR_RED);
    fprintf(stderr, "dcp %s: ", command);
    print_color(stderr, COLOR_PLAIN);
    print_plain(stderr, dcp_error_message());
    fputc('\n', stderr);
    return EXIT_FAULT;
}

int command_fail_with(const char *command, dcp_status status)
{
    if (status == DCP_ERR_CANCELLED && command_interrupted()) {
        fprintf(stderr, "dcp %s: interrupted\n", command);
        return EXIT_INTERRUPTED;
    }
    command_fail(command);
    return status == DCP_ERR_NO_MEMORY || status == DCP_ERR_FILE_LIMIT ? EXIT_UNABLE : EXIT_FAULT;
}

/* Whoever read what is printed has gone. */
static bool reader_is_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

int command_finish(const char *command, int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    int error = errno;
    if (error != EPIPE && !reader_is_gone())
        fprintf(stderr, "dcp %s: cannot write to standard output%s%s\n", command, error ? ": " : "",
                error ? strerror(error) : "");
    return EXIT_FAULT;
}

size_t utf8_sequence(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    size_t length = *c < 0x80                  ? 1
                    : *c >= 0xc2 && *c <= 0xdf ? 2
                    : *c >= 0xe0 && *c <= 0xef ? 3
                    : *c >= 0xf0 && *c <= 0xf4 ? 4
                                               : 0;
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    bool none = (*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f) ||
                (*c == 0xf0 && c[1] < 0x90) || (*c == 0xf4 && c[1] > 0x8f);
    return none ? 0 : length;
}

void print_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (size_t length; *text; text += length > 0 ? length : 1) {
        unsigned char c = (unsigned char)*text;
        length = utf8_sequence(text);
        if (length == 0)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            fprintf(out, "\\u%04x", c);
        else if (c == 0xc2 && (unsigned char)text[1] < 0xa0)
            fprintf(out, "\\u%04x", (unsigned char)text[1]);
        else
            fwrite(text, 1, length, out);
    }
    fputc('"', out);
}

void print_json_fault(FILE *out, const char *file, uint64_t offset, const char *name,
                      const char *fault)
{
    fputs("{\"file\": ", out);
    print_json_string(out, file);
    fprintf(out, ", \"offset\": %" PRIu64 ", \"name\": ", offset);
    print_json_string(out, name);
    fputs(", \"fault\": ", out);
    print_json_string(out, fault);
    fputc('}', out);
}

bool is_visible(const char *text, size_t *length)
{
    const unsigned char *c = (const unsigned char *)text;
    *length = utf8_sequence(text);
    bool control = *c < 0x20 || *c == 0x7f || (*length == 2 && *c == 0xc2 && c[1] < 0xa0);
    bool visible = *length > 0 && !control;
    *length = *length > 0 ? *length : 1;
    return visible;
}

void print_plain_part(FILE *out, const char *text, size_t size)
{
    for (size_t at = 0, length; at < size && text[at]; at += length) {
        bool visible = is_visible(text + at, &length);
        length = length < size - at ? length : size - at;
        if (visible)
            fwrite(text + at, 1, length, out);
        else
            for (size_t i = at; i < at + length; i++)
                fprintf(out, "\\x%02x", (unsigned char)text[i]);
    }
}

void print_plain(FILE *out, const char *text)
{
    print_plain_part(out, text, strlen(text));
}

int plain_columns(const char *text)
{
    int columns = 0;
    for (size_t length; *text; text += length)
        columns += is_visible(text, &length) ? 1 : 4 * (int)length;
    return columns;
}

void print_size(FILE *out, uint64_t bytes, int width)
{
    static const char units[] = "KMGTPE";
    char text[32];
    double value = (double)bytes;
    int unit = -1;
    while (value >= 1000 && units[unit + 1]) {
        value /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(text, sizeof text, "%" PRIu64 " B", bytes);
    else
        snprintf(text, sizeof text, "%.*f %ciB", value < 100 ? 1 : 0, value, units[unit]);
    fprintf(out, "%*s", width, text);
}

const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

void print_sum(uint64_t tensors, uint64_t bytes, uint64_t objects)
{
    printf("%" PRIu64 " tensor%s, ", tensors, plural(tensors));
    if (bytes >= 1000) {
        print_size(stdout, bytes, 0);
        printf(" (%" PRIu64 " bytes)", bytes);
    } else {
        printf("%" PRIu64 " byte%s", bytes, plural(bytes));
    }
    printf(", %" PRIu64 " object%s", objects, plural(objects));
}

static bool has_colors(FILE *out)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return !(no && *no) && terminal && strcmp(terminal, "dumb") != 0 && isatty(fileno(out));
}

void print_color(FILE *out, enum color color)
{
    static const char *const codes[] = {
        [COLOR_PLAIN] = "0", [COLOR_BOLD] = "1",   [COLOR_DIM] = "2",
        [COLOR_RED] = "31",  [COLOR_GREEN] = "32", [COLOR_YELLOW] = "33"};
    if (has_colors(out))
        fprintf(out, "\033[%sm", codes[color]);
}
