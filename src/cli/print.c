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

void print_plain(FILE *out, const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c < 0x20 || *c == 0x7f)
            fprintf(out, "\\x%02x", *c);
        else
            fputc(*c, out);
    }
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
