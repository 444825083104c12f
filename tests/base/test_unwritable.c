/* SPDX-License-Identifier: BSD-3-Clause */
/* Which memory cannot be written, from the system's list of mappings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/unwritable.h"

#define PAGE ((size_t)4096)

static bool cannot_write(const char *path, const void *memory, size_t size)
{
    struct text_lines list;
    struct unwritable unwritable;
    bool found = false;
    uint64_t start = (uintptr_t)memory;
    assert_true(text_lines_open(&list, path));
    while (unwritable_read(&list, &unwritable))
        found = found || unwritable_has(&unwritable, start, start + size);
    text_lines_close(&list);
    return found;
}

/* More ranges than a portion has, each between writable ones. */
static void protected_pages_are_found(void **state)
{
    enum { PAIRS = 2 * UNWRITABLE_MOST + 5 };
    static const char *const list = "/proc/self/maps";
    (void)state;
    unsigned char *memory =
        mmap(NULL, 2 * PAIRS * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_false(cannot_write(list, memory, 2 * PAIRS * PAGE));
    for (size_t i = 0; i < PAIRS; i++)
        assert_int_equal(mprotect(memory + (2 * i + 1) * PAGE, PAGE, i % 2 ? PROT_READ : PROT_NONE),
                         0);
    for (size_t i = 0; i < PAIRS; i++) {
        unsigned char *writable = memory + 2 * i * PAGE;
        assert_false(cannot_write(list, writable, PAGE));
        assert_true(cannot_write(list, writable, PAGE + 1));
        assert_true(cannot_write(list, writable + PAGE + 17, 1));
        assert_true(i == 0 || cannot_write(list, writable - 1, 2));
    }
    munmap(memory, 2 * PAIRS * PAGE);
    assert_true(cannot_write(list, "text", 1));
}

static void one_byte_is_tried(void **state)
{
    (void)state;
    unsigned char *memory =
        mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(mprotect(memory + PAGE, PAGE, PROT_READ), 0);
    assert_int_equal(mprotect(memory + 2 * PAGE, PAGE, PROT_NONE), 0);
    assert_false(unwritable_byte((uintptr_t)memory));
    assert_false(unwritable_byte((uintptr_t)memory + PAGE - 1));
    assert_true(unwritable_byte((uintptr_t)memory + PAGE));
    assert_true(unwritable_byte((uintptr_t)memory + 2 * PAGE - 1));
    assert_true(unwritable_byte((uintptr_t)memory + 2 * PAGE));
    assert_true(unwritable_byte((uintptr_t) "text"));
    munmap(memory, 3 * PAGE);
}

static void a_list_is_read_however_it_ends(void **state)
{
    static const struct {
        const char *text;
        uintptr_t start;
        bool found;
    } cases[] = {
        {"1000-2000 r--p 0 00:00 0", 0x1fff, true},
        {"1000-2000 r--p 0 00:00 0\n", 0x2000, false},
        {"1000-2000 r--p 0 00:00 0\n2000-3000 r-xp 0 00:00 0\n", 0x2000, true},
        {"1000-2000 rw-p 0 00:00 0\n", 0x1000, false},
        {"1000-2000", 0x1000, false},
        {"1000-2000 r", 0x1000, false},
        {"1000-2000 ", 0x1000, false},
        {"1000-", 0x1000, false},
        {"-2000 r--p\n\nx\n", 0x1000, false},
        {"", 0x1000, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[] = "unwritable.XXXXXX";
        int file = mkstemp(path);
        size_t length = strlen(cases[i].text);
        assert_true(file >= 0);
        assert_int_equal(write(file, cases[i].text, length), length);
        close(file);
        assert_int_equal(cannot_write(path, (const void *)cases[i].start, 1), cases[i].found);
        unlink(path);
    }
    struct text_lines list;
    assert_false(text_lines_open(&list, "unwritable.missing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(protected_pages_are_found),
        cmocka_unit_test(one_byte_is_tried),
        cmocka_unit_test(a_list_is_read_however_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
