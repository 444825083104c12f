/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of dicts and elements of sets in a form that is equal exactly if the keys are equal in
 * Python (== and hash()): 1, True and 1.0; 0.0 and -0.0; a tuple and a torch.Size; frozensets in
 * any order. "a" and b"a" differ. NaNs and objects of other Python classes are equal only if they
 * are the same object. */
#ifndef STATE_NODE_KEY_H
#define STATE_NODE_KEY_H

#include "base/buffer.h"
#include "state/node.h"

/* Keys of different classes are never the same. */
enum key_class {
    KEY_TEXT,
    KEY_BYTES,
    KEY_NAME,    /* a class or function */
    KEY_DEVICE,  /* a torch.device */
    KEY_INTEGER, /* an int beyond what digits are kept of, in two's complement */
    KEY_SCALAR,  /* other values without parts: numbers by value */
    KEY_COMPOUND /* tuples, frozensets: their form is key_write()'s */
};

/* How many classes have a form without parts. */
#define KEY_CLASS_COUNT KEY_COMPOUND

/* The largest finite float has 309 digits. */
#define KEY_INSIDE_MAX 320

/* Of a key without parts: its class and bytes, borrowed from the key, or made inside.
 * Not to be copied. */
struct key_form {
    enum key_class class;
    const char *bytes;
    size_t length;
    bool is_made; /* inside: to be copied to outlive the form */
    char inside[KEY_INSIDE_MAX];
};

/* Whether Python gives a hash to values of the kind, so that they can be keys. Tuples have one if
 * what is in them has. */
bool key_is_hashable(const dcp_state *node);
/* Whether a key has parts, which may still be added to. */
bool key_is_compound(const dcp_state *key);
/* Makes the form of a key; of a compound one the class alone. */
void key_form(const dcp_state *key, struct key_form *form);
bool key_form_equal(const struct key_form *left, const struct key_form *right);
/* Appends a form of any key, with all its parts, which may be shared so that the form is large: the
 * buffer's maximum limits it. no_hash: the status if a part has no hash. */
dcp_status key_write(const dcp_state *key, dcp_status no_hash, struct buffer *out);

#endif
