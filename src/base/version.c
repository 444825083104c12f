/* SPDX-License-Identifier: BSD-3-Clause */
#include "dcp/version.h"

int dcp_version_number(void)
{
    return DCP_VERSION_NUMBER;
}

const char *dcp_version_string(void)
{
    return DCP_VERSION_STRING;
}
