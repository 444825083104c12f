/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of footer: what encoding and decoding must agree on. README.md shows the whole. */
#ifndef FORMAT_FOOTER_FOOTER_LAYOUT_H
#define FORMAT_FOOTER_FOOTER_LAYOUT_H

#include "format/footer/footer.h"

#define FOOTER_VERSION        2u
#define FOOTER_SIZE_MAX       (64u << 20) /* of body and trailer */
#define FOOTER_MAGIC          "\211DCPEND\n"
#define FOOTER_MAGIC_SIZE     8u
#define FOOTER_TRAILER_SIZE   40u
#define FOOTER_TRAILER_HASHED 24u /* its first bytes, which the checksum covers with the body */

/* Of the body. */
#define FOOTER_HAS_PATHS 1u

/* Of an entry. */
#define FOOTER_TENSOR        1u
#define FOOTER_REQUIRES_GRAD 2u

/* Of a piece. */
#define FOOTER_ZSTD 1u

/* What a step of a path begins with. */
enum footer_step { FOOTER_STEP_KEY = 0, FOOTER_STEP_POSITION = 1 };

/* Decodes what lies between the sums and the trailer into a footer that knows its blocks. */
dcp_status footer_decode_body(const unsigned char *body, size_t size, struct footer *footer);

#endif
