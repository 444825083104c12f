/* SPDX-License-Identifier: BSD-3-Clause */
/* When a part of a record is wanted that has one checksum for all of it (what PyTorch writes):
 * whether the rest is read as well, so that the checksum holds for the part. */
#ifndef STATE_RECORD_REST_H
#define STATE_RECORD_REST_H

#include <stdint.h>

#include "dcp/types.h"

/* Records up to here are read as a whole. */
#define RECORD_REST_SMALL ((uint64_t)1 << 20)
/* Larger records are read whole if the rest is at most 1/RECORD_REST_SHARE of the wanted part. */
#define RECORD_REST_SHARE 8

static inline bool record_rest_pays(dcp_verification verification, uint64_t wanted, uint64_t record)
{
    if (verification != DCP_VERIFY_ALL)
        return verification == DCP_VERIFY_RECORDS;
    return record <= RECORD_REST_SMALL || record <= wanted ||
           record - wanted <= wanted / RECORD_REST_SHARE;
}

#endif
