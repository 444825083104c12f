/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_id.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"

/* Version 8 (whose bits are free) and the mark: the third group of digits. */
#define MARK       "8dc9"
#define MARK_PLACE 14

dcp_status save_id_make(char id[SAVE_ID_SIZE])
{
    unsigned char b[16];
    RETURN_IF_ERROR(random_bytes(b, sizeof b, "a save id"));
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(id, SAVE_ID_SIZE,
             "%02x%02x%02x%02x-%02x%02x-" MARK "-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return DCP_OK;
}

void save_id_unmark(char *id)
{
    if (save_id_promises_footers(id))
        id[MARK_PLACE] = '4';
}

bool save_id_promises_footers(const char *id)
{
    return strlen(id) == SAVE_ID_LENGTH && memcmp(id + MARK_PLACE, MARK, strlen(MARK)) == 0;
}
