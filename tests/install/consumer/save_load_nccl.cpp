/* SPDX-License-Identifier: BSD-3-Clause */
#include "save_load_nccl.c"
