/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread-local error: a status and a message. The function that detects an error calls
 * dcp_error_set() once and returns its status; all callers return that status unchanged. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "dcp/status.h"

#define ERROR_TEXT_MAX 1024

/* A saved error: kept during a cleanup that may fail too, or sent to another rank. */
struct saved_error {
    dcp_status status;
    char text[ERROR_TEXT_MAX];
};

void error_clear(void);
/* Copies the calling thread's error, with the status of the last dcp_error_set(). */
void error_save(struct saved_error *error);
/* The status of the last dcp_error_set(), for a failure that is returned as NULL. */
dcp_status error_status(void);
/* Makes a saved error the thread's current one again; returns its status. */
dcp_status error_restore(const struct saved_error *error);
/* Puts "text: " in front of the current message. Only for context that the failing function cannot
 * know. */
dcp_status error_prefix(dcp_status status, const char *format, ...) DCP_PRINTF(2, 3);
/* Whether a value from outside (a callback, another rank) is a valid dcp_status. */
bool error_is_status(dcp_status status);
/* Checks what a callback returned. what: names the callback for the message, as in "hook finish". A
 * value that is not a dcp_status becomes DCP_ERR_CALLBACK. All callbacks are called through
 * here. */
dcp_status error_checked(dcp_status returned, const char *what);
/* DCP_ERR_NO_MEMORY with its message. bytes: 0 if the size is not known. */
dcp_status(error_no_memory)(size_t bytes, const char *what);

/* Tells the compiler and the analyzers, which cannot see into the calls, that these always return a
 * failure. Otherwise they warn about values that are unset only after a failure. */
static inline dcp_status error_known(dcp_status set, dcp_status status)
{
    (void)set;
    return status;
}
#define dcp_error_set(status, ...) error_known(dcp_error_set((status), __VA_ARGS__), (status))
#define error_no_memory(...)       error_known(error_no_memory(__VA_ARGS__), DCP_ERR_NO_MEMORY)

/* Returns from the enclosing function unless the call succeeds; only where nothing needs cleaning
 * up. */
#define RETURN_IF_ERROR(call)                                                                      \
    do {                                                                                           \
        dcp_status return_if_error_ = (call);                                                      \
        if (return_if_error_ != DCP_OK)                                                            \
            return return_if_error_;                                                               \
    } while (0)

#endif
