/* SPDX-License-Identifier: BSD-3-Clause */
/* A closed pickle interpreter for protocols 2 to 5. It never looks up or runs code.
 *
 * Reading gives a graph of values in one arena. Strings and bytes are borrowed from the input,
 * which must outlive the document. They are UTF-8 but, as in Python, may hold lone surrogates: call
 * utf8_is_valid() before using one as a name or path. Values may be shared and may contain
 * themselves: nothing recurses over them. Every global is inert: a module and a name. REDUCE,
 * NEWOBJ and BUILD record the callable and its arguments; the decoders of metadata, tensors and
 * objects interpret them (format/README.md lists the supported ones). Memory is bounded by a small
 * multiple of the input; lengths are compared with the remaining input before memory is
 * allocated. */
#ifndef FORMAT_PICKLE_PICKLE_H
#define FORMAT_PICKLE_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/buffer.h"

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,  /* fits int64_t */
    PICKLE_LONG, /* little-endian two's complement bytes, beyond int64_t */
    PICKLE_FLOAT,
    PICKLE_STRING,
    PICKLE_BYTES,
    PICKLE_BYTEARRAY,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_SET,
    PICKLE_FROZENSET,
    PICKLE_GLOBAL,     /* module and name */
    PICKLE_CALL,       /* REDUCE: callable, arguments; possibly appended to, set or built later */
    PICKLE_OBJECT,     /* NEWOBJ: class, arguments; possibly built later */
    PICKLE_PERSISTENT, /* BINPERSID: the id */
    PICKLE_DIGEST      /* what a digester has made of a CALL or OBJECT */
};

enum pickle_flags {
    VALUE_UNHASHABLE = 1, /* cannot be a key of a dict or an element of a set */
    VALUE_RETAINED = 2    /* the memo may return it again */
};

struct pickle_value;

/* Growable sequence in the arena. */
struct pickle_sequence {
    struct pickle_value **items;
    uint32_t count;
    uint32_t capacity;
};

/* The callable and arguments of a CALL or OBJECT, and what was added to it later. */
struct pickle_call {
    struct pickle_value *callable;
    struct pickle_value *arguments; /* a tuple */
    struct pickle_value *state;     /* of BUILD; NULL if none. A second BUILD is an error */
    struct pickle_sequence items;   /* items added by APPEND, APPENDS and ADDITEMS */
    struct pickle_sequence
        pairs; /* pairs set by SETITEM and SETITEMS: key, value, key, value ... */
};

/* Only the bytes that its kind needs are allocated: copy pointers to values, never values. */
struct pickle_value {
    uint8_t kind;
    uint8_t flags;   /* enum pickle_flags */
    uint16_t tag;    /* digests: for the digester; otherwise the reader's nesting depth */
    uint32_t serial; /* number in order of creation: an index for side tables of converters */
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct {
            const char *bytes; /* not NUL-terminated */
            size_t length;
        } text; /* string, bytes, bytearray, long */
        struct {
            const char *module, *name; /* not NUL-terminated */
            uint32_t module_length, name_length;
        } global;
        struct pickle_sequence
            sequence; /* tuple, list, set, frozenset; dict: key, value, key, value ... */
        struct pickle_call *call;
        struct pickle_value *id; /* persistent */
        const void *digest;      /* for the digester */
    } as;
};

struct pickle_document {
    struct pickle_value *root;
    uint32_t value_count; /* serials are below this */
    size_t length;        /* of the pickle, with STOP: what is behind it was ignored */
    struct arena arena;
};

/* persistent_ids: whether BINPERSID is allowed (in data.pkl, not in .metadata). The error message
 * names the opcode and its byte offset. On failure the document is empty. Bytes behind STOP are
 * ignored. */
dcp_status pickle_read(const void *bytes, size_t size, bool persistent_ids,
                       struct pickle_document *document);
void pickle_free(struct pickle_document *document);

/* Converts calls and objects into something smaller as soon as they are read, so that a pickle of
 * millions of them need not keep their parts. */
struct pickle_digester {
    /* Called with each CALL after REDUCE, and each CALL or OBJECT after BUILD. With *taken, the
     * value becomes a PICKLE_DIGEST with *tag and *digest, and its parts are discarded: the
     * digester must keep no pointers to them, but may keep text of the input. Otherwise the value
     * stays. */
    dcp_status (*digest)(void *context, const struct pickle_value *value, uint16_t *tag,
                         const void **digest, bool *taken);
    void *context;
};

/* The deepest nesting of containers and calls that pickle_read_digested() accepts. */
#define PICKLE_NESTING_MAX 100

/* As pickle_read(), without persistent ids and deep nesting, through a digester. */
dcp_status pickle_read_digested(const void *bytes, size_t size,
                                const struct pickle_digester *digester,
                                struct pickle_document *document);

/* Small tests that all decoders need. Names that Python 2 and 3 spell differently (__builtin__ and
 * builtins) need two calls. Inline, so that comparisons with literals take a few instructions: some
 * run millions of times. */
static inline bool pickle_is_global(const struct pickle_value *value, const char *module,
                                    const char *name)
{
    return value != NULL && value->kind == PICKLE_GLOBAL &&
           value->as.global.name_length == strlen(name) &&
           value->as.global.module_length == strlen(module) &&
           memcmp(value->as.global.name, name, strlen(name)) == 0 &&
           memcmp(value->as.global.module, module, strlen(module)) == 0;
}

/* A CALL (or OBJECT) of that global. */
static inline bool pickle_is_call(const struct pickle_value *value, const char *module,
                                  const char *name)
{
    return value != NULL && (value->kind == PICKLE_CALL || value->kind == PICKLE_OBJECT) &&
           pickle_is_global(value->as.call->callable, module, name);
}

static inline bool pickle_text_is(const struct pickle_value *value, const char *text)
{
    return value != NULL && value->kind == PICKLE_STRING && value->as.text.length == strlen(text) &&
           memcmp(value->as.text.bytes, text, strlen(text)) == 0;
}

/* The value under a string key of a dict; NULL if none. If the key occurs several times, the last
 * value, as in Python. */
static inline struct pickle_value *pickle_dict_get(const struct pickle_value *dict, const char *key)
{
    if (dict == NULL || dict->kind != PICKLE_DICT)
        return NULL;
    struct pickle_value **items = dict->as.sequence.items;
    for (uint32_t i = dict->as.sequence.count; i >= 2; i -= 2)
        if (pickle_text_is(items[i - 2], key))
            return items[i - 1];
    return NULL;
}

/* "a string", for messages; "nothing" for NULL. */
const char *pickle_kind_name(const struct pickle_value *value);

/* ---- writing: protocol-2 opcodes unless said otherwise; callers choose memo indices ---- */

void pickle_put_protocol(struct buffer *out, int protocol);
static inline void pickle_put_op(struct buffer *out, uint8_t opcode)
{
    buffer_append_u8(out, opcode);
}
void pickle_put_none(struct buffer *out);
void pickle_put_bool(struct buffer *out, bool value);
void pickle_put_int(struct buffer *out, int64_t value);
void pickle_put_uint(struct buffer *out, uint64_t value);
void pickle_put_long(struct buffer *out, const void *twos_complement, size_t size);
void pickle_put_float(struct buffer *out, double value);
void pickle_put_string(struct buffer *out, const char *text, size_t length); /* BINUNICODE */
void pickle_put_short_string(struct buffer *out, const char *text,
                             size_t length); /* protocol 4 where it fits */
void pickle_put_global(struct buffer *out, const char *module, const char *name);
void pickle_put_memo(struct buffer *out, uint32_t index); /* BINPUT or LONG_BINPUT */
void pickle_get_memo(struct buffer *out, uint32_t index); /* BINGET or LONG_BINGET */

enum pickle_opcode {
    OP_MARK = 0x28,
    OP_EMPTY_TUPLE = 0x29,
    OP_STOP = 0x2e,
    OP_POP = 0x30,
    OP_BINBYTES = 0x42,
    OP_SHORT_BINBYTES = 0x43,
    OP_BINFLOAT = 0x47,
    OP_BININT = 0x4a,
    OP_BININT1 = 0x4b,
    OP_BININT2 = 0x4d,
    OP_NONE = 0x4e,
    OP_BINPERSID = 0x51,
    OP_REDUCE = 0x52,
    OP_BINSTRING = 0x54,
    OP_SHORT_BINSTRING = 0x55,
    OP_BINUNICODE = 0x58,
    OP_EMPTY_LIST = 0x5d,
    OP_APPEND = 0x61,
    OP_BUILD = 0x62,
    OP_GLOBAL = 0x63,
    OP_APPENDS = 0x65,
    OP_BINGET = 0x68,
    OP_LONG_BINGET = 0x6a,
    OP_BINPUT = 0x71,
    OP_LONG_BINPUT = 0x72,
    OP_SETITEM = 0x73,
    OP_TUPLE = 0x74,
    OP_SETITEMS = 0x75,
    OP_EMPTY_DICT = 0x7d,
    OP_PROTO = 0x80,
    OP_NEWOBJ = 0x81,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_LONG4 = 0x8b,
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d,
    OP_BINBYTES8 = 0x8e,
    OP_EMPTY_SET = 0x8f,
    OP_ADDITEMS = 0x90,
    OP_FROZENSET = 0x91,
    OP_NEWOBJ_EX = 0x92,
    OP_STACK_GLOBAL = 0x93,
    OP_MEMOIZE = 0x94,
    OP_FRAME = 0x95,
    OP_BYTEARRAY8 = 0x96
};

#endif
