/* SPDX-License-Identifier: BSD-3-Clause */
/* The pickle reader. A digester that takes half of all calls and objects must leave everything
 * else as it is read without one. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "format/pickle/pickle.h"
#include "fuzz_target.h"

/* Compares at most this many values: input may nest and share them without bound. */
enum { PAIR_LIMIT = 4096 };

struct pair {
    const struct pickle_value *plain;
    const struct pickle_value *digested;
};

struct comparison {
    struct pair pairs[PAIR_LIMIT];
    size_t count;
};

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void compare(struct comparison *comparison, const struct pickle_value *plain,
                    const struct pickle_value *digested)
{
    require((plain == NULL) == (digested == NULL));
    if (plain != NULL && comparison->count < PAIR_LIMIT)
        comparison->pairs[comparison->count++] = (struct pair){plain, digested};
}

static void compare_sequences(struct comparison *comparison, const struct pickle_sequence *plain,
                              const struct pickle_sequence *digested)
{
    require(plain->count == digested->count);
    for (uint32_t i = 0; i < plain->count && comparison->count < PAIR_LIMIT; i++)
        compare(comparison, plain->items[i], digested->items[i]);
}

static void compare_calls(struct comparison *comparison, const struct pickle_call *plain,
                          const struct pickle_call *digested)
{
    compare(comparison, plain->callable, digested->callable);
    compare(comparison, plain->arguments, digested->arguments);
    compare(comparison, plain->state, digested->state);
    compare_sequences(comparison, &plain->items, &digested->items);
    compare_sequences(comparison, &plain->pairs, &digested->pairs);
}

static void compare_bytes(const char *plain, size_t plain_length, const char *digested,
                          size_t digested_length)
{
    require(plain_length == digested_length && memcmp(plain, digested, plain_length) == 0);
}

static void compare_pair(struct comparison *comparison, const struct pickle_value *plain,
                         const struct pickle_value *digested)
{
    bool is_call = plain->kind == PICKLE_CALL || plain->kind == PICKLE_OBJECT;
    if (digested->kind == PICKLE_DIGEST) {
        require(is_call && digested->as.digest != NULL);
        return;
    }
    require(plain->kind == digested->kind);
    switch ((enum pickle_kind)plain->kind) {
    case PICKLE_BOOL:
        require(plain->as.boolean == digested->as.boolean);
        break;
    case PICKLE_INT:
    case PICKLE_FLOAT:
        require(plain->as.integer == digested->as.integer);
        break;
    case PICKLE_STRING:
    case PICKLE_BYTES:
    case PICKLE_BYTEARRAY:
    case PICKLE_LONG:
        compare_bytes(plain->as.text.bytes, plain->as.text.length, digested->as.text.bytes,
                      digested->as.text.length);
        break;
    case PICKLE_GLOBAL:
        compare_bytes(plain->as.global.module, plain->as.global.module_length,
                      digested->as.global.module, digested->as.global.module_length);
        compare_bytes(plain->as.global.name, plain->as.global.name_length, digested->as.global.name,
                      digested->as.global.name_length);
        break;
    case PICKLE_TUPLE:
    case PICKLE_LIST:
    case PICKLE_DICT:
    case PICKLE_SET:
    case PICKLE_FROZENSET:
        compare_sequences(comparison, &plain->as.sequence, &digested->as.sequence);
        break;
    case PICKLE_CALL:
    case PICKLE_OBJECT:
        compare_calls(comparison, plain->as.call, digested->as.call);
        break;
    case PICKLE_NONE:
    case PICKLE_PERSISTENT:
    case PICKLE_DIGEST:
        break;
    }
}

static void compare_documents(const struct pickle_document *plain,
                              const struct pickle_document *digested)
{
    static struct comparison comparison;
    comparison.count = 0;
    compare(&comparison, plain->root, digested->root);
    for (size_t i = 0; i < comparison.count; i++) {
        struct pair pair = comparison.pairs[i];
        require(pair.plain->serial < plain->value_count);
        require(pair.digested->serial < digested->value_count);
        compare_pair(&comparison, pair.plain, pair.digested);
    }
}

static dcp_status take_half(void *context, const struct pickle_value *value, uint16_t *tag,
                            const void **digest, bool *taken)
{
    unsigned *count = context;
    *taken = ++*count % 2 == 0 && value->as.call->arguments != NULL;
    *tag = 1;
    *digest = count;
    return DCP_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pickle_document plain, digested;
    if (pickle_read(data, size, true, &plain) == DCP_OK)
        pickle_free(&plain);

    unsigned count = 0;
    struct pickle_digester digester = {.digest = take_half, .context = &count};
    dcp_status status = pickle_read(data, size, false, &plain);
    if (pickle_read_digested(data, size, &digester, &digested) == DCP_OK) {
        require(status == DCP_OK);
        compare_documents(&plain, &digested);
        pickle_free(&digested);
    }
    if (status == DCP_OK)
        pickle_free(&plain);
    return 0;
}
