/* SPDX-License-Identifier: BSD-3-Clause */
/* A device whose memory is the host's, and whose copies come late: what was started is done only
 * when an event is waited for. */
#ifndef DEVICE_LATE_DEVICE_H
#define DEVICE_LATE_DEVICE_H

#include "dcp/device.h"

dcp_device late_device(void);
/* Copies that were started and are not done yet. */
long late_device_pending(void);
/* These are never done: nobody could wait for them. */
void late_device_forget(void);
/* The next so many waits fail, and do nothing. */
void late_device_fail_waits(int count);

#endif
