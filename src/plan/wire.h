/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts that all messages of this room share. A message begins with a tag, so that a message of
 * another kind or version is recognized. The memory that a decoder allocates per byte of a message
 * is bounded by a constant. */
#ifndef PLAN_WIRE_H
#define PLAN_WIRE_H

#include "base/arena.h"
#include "base/buffer.h"
#include "state/box.h"

enum wire_tag {
    WIRE_SAVE_PLAN = 0x11,
    WIRE_JOINT_PLAN = 0x12,
    WIRE_WRITE_ORDERS = 0x22,
    WIRE_WRITE_RESULTS = 0x23,
    WIRE_DIFFERENCES = 0x31,
    WIRE_LOAD_WANTS = 0x41,
    WIRE_LOAD_SHARE = 0x51,
    WIRE_READ_PLAN = 0x61
};

/* DCP_ERR_FORMAT: "MESSAGE: FAULT at byte N". */
dcp_status wire_fault(const struct reader *reader, const char *message, const char *fault);
/* Checks the tag. */
dcp_status wire_begin(struct reader *reader, enum wire_tag tag, const char *message);
/* Checks that nothing failed and that the message is used up. */
dcp_status wire_end(const struct reader *reader, const char *message);

/* Numbers of either sign, small ones in few bytes. */
void wire_append_signed(struct buffer *out, int64_t value);
int64_t wire_signed(struct reader *reader);

/* Varints that must fit the result; otherwise reader->failed is set. */
int64_t wire_size(struct reader *reader);
uint32_t wire_u32(struct reader *reader);
/* A count of things that take at least one byte each. */
size_t wire_count(struct reader *reader);

/* A text that is valid UTF-8 without NUL; borrowed, not NUL-terminated. */
dcp_status wire_text(struct reader *reader, const char *message, const char **text, size_t *length);

/* A box, given by the dimensions in which it differs from an outer one. */
void wire_append_box(struct buffer *out, struct box outer, struct box box);
/* Borrows outer's numbers if there is no difference. Does not check that the box is inside. */
dcp_status wire_box(struct reader *reader, struct arena *arena, const char *message,
                    struct box outer, struct box *box);

#endif
