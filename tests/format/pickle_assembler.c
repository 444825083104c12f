/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "format/pickle/pickle.h"
#include "format/pickle/pickle_opcodes.h"
#include "pickle_assembler.h"

static const char *skip_spaces(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

static uint8_t hexadecimal(const char *at)
{
    char digits[3] = {at[0], at[1], '\0'};
    assert_true(isxdigit((unsigned char)at[0]) && isxdigit((unsigned char)at[1]));
    return (uint8_t)strtoul(digits, NULL, 16);
}

/* Appends the bytes of a quoted text; returns what follows. */
static const char *put_quoted(struct buffer *out, const char *at)
{
    at = skip_spaces(at);
    if (*at++ != '\'')
        fail_msg("expected a text in quotes at %.40s", at - 1);
    while (*at != '\'') {
        assert_int_not_equal(*at, '\0');
        if (at[0] == '\\' && at[1] == 'x') {
            buffer_append_u8(out, hexadecimal(at + 2));
            at += 4;
        } else {
            buffer_append_u8(out, (uint8_t)*at++);
        }
    }
    return at + 1;
}

static void put_number(struct buffer *out, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++, number >>= 8)
        buffer_append_u8(out, (uint8_t)number);
}

static const char *put_argument(struct buffer *out, uint8_t opcode, const char *at)
{
    const struct pickle_opcode_form *form = &pickle_opcode_forms[opcode];
    if (opcode == OP_BINFLOAT) {
        char *end;
        double value = strtod(skip_spaces(at), &end);
        uint64_t bits;
        memcpy(&bits, &value, sizeof bits);
        put_number(out, __builtin_bswap64(bits), 8);
        return end;
    }
    if (form->size > 1) {
        char *end;
        long long number = strtoll(at, &end, 0);
        if (end == at)
            fail_msg("%s needs a number at %.40s", form->name, at);
        put_number(out, (uint64_t)number, (size_t)form->size - 1);
        return end;
    }
    if (form->prefix != 0) {
        struct buffer text;
        buffer_init(&text, 0);
        at = put_quoted(&text, at);
        put_number(out, text.size, form->prefix);
        buffer_append(out, text.data, text.size);
        buffer_free(&text);
    }
    for (int line = 0; line < form->lines; line++) {
        at = put_quoted(out, at);
        buffer_append_u8(out, '\n');
    }
    return at;
}

static uint8_t find_opcode(const char *word, size_t length)
{
    for (int opcode = 0; opcode < 256; opcode++) {
        const char *name = pickle_opcode_forms[opcode].name;
        if (name != NULL && strlen(name) == length && memcmp(name, word, length) == 0)
            return (uint8_t)opcode;
    }
    fail_msg("no opcode at %.40s", word);
    return 0;
}

void pickle_assemble(struct buffer *out, const char *script)
{
    buffer_init(out, 0);
    for (const char *at = skip_spaces(script); *at != '\0'; at = skip_spaces(at)) {
        if (*at == '#') {
            for (at++; isxdigit((unsigned char)*at); at += 2)
                buffer_append_u8(out, hexadecimal(at));
            continue;
        }
        size_t length = strcspn(at, " \n\t");
        uint8_t opcode = find_opcode(at, length);
        buffer_append_u8(out, opcode);
        at = put_argument(out, opcode, at + length);
    }
    assert_int_equal(buffer_status(out), DCP_OK);
}
