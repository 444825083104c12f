/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of dcp cat. */
#ifndef CLI_CAT_H
#define CLI_CAT_H

#include "walk.h"

enum cat_format { CAT_RAW, CAT_TEXT, CAT_NPY, CAT_JSON };

/* What is wanted of a tensor. */
struct slice {
    struct walk walk;
    bool dropped[DCP_MAX_DIMS]; /* by an index in the place of a range */
};

/* "0:4,:,2", as in Python; what is not named is whole. False: it is none of this tensor's. The walk
 * is to be divided again. */
bool slice_take(struct slice *slice, const char *text);

/* Prints the head of an .npy file of the slice. False: NumPy has no such dtype. */
bool npy_print_head(const struct slice *slice);
/* Prints a block as text; `before` elements of the slice have been printed. A line for each row of
 * the last dimension, and an empty one between those of the others. */
void text_print(const struct slice *slice, const dcp_tensor *block, int64_t before);

/* ---- JSON: an object for whatever is written; see dcp cat --help ---- */

/* What comes in front of the value, and behind it; error: why it is not complete, or NULL. */
void json_begin(const char *name, const char *type);
void json_end(const char *error);
/* The beginning of a tensor's values. */
void json_print_head(const struct slice *slice, dcp_dtype stored);
/* The elements of a block, in nested arrays; `before` elements of the slice have been printed. */
void json_print(const struct slice *slice, dcp_dtype stored, const dcp_tensor *block,
                int64_t before);
/* Ends the arrays that are open after so many elements. */
void json_print_tail(const struct slice *slice, int64_t before);
/* A file: its size, and its text or, if it is none, its bytes in base64. bytes[size] is 0. */
void json_print_file(const char *bytes, size_t size);

#endif
