/* SPDX-License-Identifier: BSD-3-Clause */
#include "save_load.h"

int main(int argc, char **argv)
{
    return argc == 2 ? save_and_load(argv[1], NULL) : 2;
}
