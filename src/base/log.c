/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static struct {
    dcp_log_function function;
    void *context;
    dcp_log_level most_verbose;
} log_target;
static double log_waits_seconds = 10;

void dcp_set_log(dcp_log_function function, void *context, dcp_log_level most_verbose)
{
    log_target.function = function;
    log_target.context = context;
    log_target.most_verbose = most_verbose;
}

void log_line(dcp_log_level level, const char *format, ...)
{
    if (log_target.function == NULL || level > log_target.most_verbose)
        return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    log_target.function(log_target.context, level, line);
}

void dcp_set_log_waits(double after_seconds)
{
    log_waits_seconds = after_seconds > 0 ? after_seconds : 0;
}

double log_waits_after(void)
{
    return log_waits_seconds;
}
