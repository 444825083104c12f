/* SPDX-License-Identifier: BSD-3-Clause */
/* The C library's syscall(), for tests that define one in its place. */
#ifndef FAULT_REAL_SYSCALL_H
#define FAULT_REAL_SYSCALL_H

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>

/* The arguments of a system call, of which there are six at most. */
struct syscall_arguments {
    long values[6];
};

static inline struct syscall_arguments syscall_arguments(va_list list)
{
    struct syscall_arguments arguments;
    for (int i = 0; i < 6; i++)
        arguments.values[i] = va_arg(list, long);
    return arguments;
}

static inline long real_syscall(long number, const struct syscall_arguments *arguments)
{
    long (*real)(long, ...) = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
    const long *values = arguments->values;
    return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

#endif
