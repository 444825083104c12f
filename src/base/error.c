/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory_account.h"

static _Thread_local struct saved_error current;

/* NULL if it is not a dcp_status. */
static const char *status_text(dcp_status status)
{
    switch (status) {
    case DCP_OK:
        return "success";
    case DCP_ERR_ARGUMENT:
        return "invalid argument";
    case DCP_ERR_UNSUPPORTED:
        return "not supported";
    case DCP_ERR_STATE:
        return "handle in the wrong state";
    case DCP_ERR_NO_MEMORY:
        return "out of memory";
    case DCP_ERR_FILE_LIMIT:
        return "too many open files";
    case DCP_ERR_IO:
        return "I/O error";
    case DCP_ERR_NO_SPACE:
        return "no space left";
    case DCP_ERR_NOT_FOUND:
        return "not found";
    case DCP_ERR_EXISTS:
        return "already exists";
    case DCP_ERR_DEVICE:
        return "device error";
    case DCP_ERR_BUSY:
        return "owned by another save";
    case DCP_ERR_FORMAT:
        return "malformed data";
    case DCP_ERR_CHECKSUM:
        return "checksum mismatch";
    case DCP_ERR_FOREIGN:
        return "file of another save";
    case DCP_ERR_MISSING_KEY:
        return "missing key";
    case DCP_ERR_UNEXPECTED_KEY:
        return "unexpected key";
    case DCP_ERR_SHAPE:
        return "shape mismatch";
    case DCP_ERR_DTYPE:
        return "dtype mismatch";
    case DCP_ERR_KIND:
        return "kind mismatch";
    case DCP_ERR_COVERAGE:
        return "incomplete coverage";
    case DCP_ERR_OVERLAP:
        return "overlapping chunks";
    case DCP_ERR_DUPLICATE:
        return "duplicate name";
    case DCP_ERR_REPLICA:
        return "replicas differ";
    case DCP_ERR_GROUP:
        return "communication failed";
    case DCP_ERR_TIMEOUT:
        return "timed out";
    case DCP_ERR_UNCONFIRMED:
        return "not confirmed by every rank";
    case DCP_ERR_CALLBACK:
        return "callback failed";
    case DCP_ERR_CANCELLED:
        return "cancelled";
    case DCP_ERR_INTERNAL:
        return "internal error";
    }
    return NULL;
}

const char *dcp_status_string(dcp_status status)
{
    const char *text = status_text(status);
    return text != NULL ? text : "unknown status";
}

bool error_is_status(dcp_status status)
{
    return status_text(status) != NULL;
}

dcp_status error_checked(dcp_status returned, const char *what)
{
    if (error_is_status(returned))
        return returned;
    return dcp_error_set(DCP_ERR_CALLBACK, "%s returned %d, which is not a dcp_status", what,
                         (int)returned);
}

const char *dcp_error_message(void)
{
    return current.text;
}

/* Takes ownership of the text, which may have been built from the current one. A text that is too
 * long is cut between characters and ends in "...". */
static void error_take(dcp_status status, char *text, size_t length)
{
    if (length >= ERROR_TEXT_MAX) {
        size_t end = ERROR_TEXT_MAX - sizeof "...";
        while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
            end--;
        memcpy(text + end, "...", sizeof "...");
        length = end + 3;
    }
    memcpy(current.text, text, length + 1);
    current.status = status;
}

dcp_status(dcp_error_set)(dcp_status status, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        text[0] = '\0';
        length = 0;
    }
    error_take(status, text, (size_t)length);
    return status;
}

void error_clear(void)
{
    current.status = DCP_OK;
    current.text[0] = '\0';
}

void error_save(struct saved_error *error)
{
    *error = current;
}

dcp_status error_status(void)
{
    return current.status;
}

dcp_status error_restore(const struct saved_error *error)
{
    current = *error;
    return error->status;
}

dcp_status error_prefix(dcp_status status, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    size_t total = length > 0 ? (size_t)length : 0;
    /* A callback may have failed without a message; then the current text belongs to an older
     * failure. */
    const char *message = current.status == status && current.text[0] != '\0'
                              ? current.text
                              : dcp_status_string(status);
    if (total < sizeof text) {
        length = snprintf(text + total, sizeof text - total, ": %s", message);
        total += length > 0 ? (size_t)length : 0;
    }
    error_take(status, text, total);
    return status;
}

dcp_status(error_no_memory)(size_t bytes, const char *what)
{
    uint64_t limit = memory_account_limit_reached();
    char size[48] = "", within[64] = "";
    if (bytes != 0)
        snprintf(size, sizeof size, "%zu bytes of ", bytes);
    if (limit != 0)
        snprintf(within, sizeof within, " within the memory limit of %" PRIu64 " bytes", limit);
    return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %s%s%s", size, what, within);
}
