/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread-local story of a failure. Whoever decides that something is an error calls
 * dcp_error_set() once and returns its status; everybody above returns that status untouched. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "dcp/status.h"

#define ERROR_TEXT_MAX 1024

/* A story set aside: over a cleanup that may fail as well, or on its way to another rank. */
struct error_story {
    dcp_status status;
    char text[ERROR_TEXT_MAX];
};

void error_clear(void);
/* Copies the calling thread's story; its status is the one of the last dcp_error_set(). */
void error_save(struct error_story *story);
/* Makes a saved story the thread's own again; returns its status. */
dcp_status error_restore(const struct error_story *story);
/* Puts "text: " in front of the current story: only for context that the failing function cannot
 * know. */
dcp_status error_prefix(dcp_status status, const char *format, ...) DCP_PRINTF(2, 3);
/* Whether a value from outside (a callback, another rank) is a status at all. */
bool error_is_status(dcp_status status);
/* What a function of the caller's returned; what: which one, for the message: "hook finish". A
 * value that is no status becomes DCP_ERR_CALLBACK. Everything that calls such a function goes
 * through here. */
dcp_status error_checked(dcp_status returned, const char *what);
/* DCP_ERR_NO_MEMORY with its story. */
dcp_status(error_no_memory)(size_t bytes, const char *what);

/* Shows the compiler and the analyzers, which cannot look into the calls, that these fail: else
 * they take "returned an error" for "may have succeeded", and see values used that were never set.
 */
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
