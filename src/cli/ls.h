/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of dcp ls. Those that can fail say so on standard error, and return the exit status. */
#ifndef CLI_LS_H
#define CLI_LS_H

#include "names.h"

/* Most bytes of one object's value: a small pickle can stand for more text than there is memory. */
#define VALUE_LIMIT ((size_t)64 << 20)

struct ls_options {
    struct text_list include, exclude;
    int sort; /* enum ls_sort */
    bool reverse, json, tree, files, totals;
    int32_t depth;
};
enum ls_sort { LS_STORED, LS_NAME, LS_SIZE, LS_DTYPE };

/* What a checkpoint is. */
struct ls_form {
    const char *name; /* "dcp", "pt", as dcp_form_name() */
    char text[192];   /* in words, of another framework's; "" otherwise */
};

/* ---- the ways of listing: each prints everything, and returns the exit status ---- */

int ls_table(dcp_checkpoint *checkpoint, const struct selection *selection,
             const struct ls_form *form);
int ls_json(dcp_checkpoint *checkpoint, const struct selection *selection,
            const struct ls_form *form);
/* By parts of names, with the bytes below each. Sorts the selection. */
int ls_tree(dcp_checkpoint *checkpoint, struct selection *selection, const struct ls_form *form,
            int depth);
/* By files: what lies where in them. */
int ls_files(dcp_checkpoint *checkpoint, const struct selection *selection, bool json);
/* By the first parts of names, and by dtype. */
int ls_totals(struct selection *selection, int depth, bool json);

/* ---- their parts ---- */

void ls_sort(struct selection *selection, enum ls_sort by, bool reverse);
void ls_print_numbers(const int64_t *numbers, int32_t count);
/* An object as JSON text, for dcp_text_free(); NULL, with the library's error set. */
char *ls_value(dcp_checkpoint *checkpoint, size_t index);
/* The name, and blanks up to `width` columns. */
void ls_print_name(const char *name, int width);
int ls_widest_name(const struct selection *selection);

/* Two blanks and the text, cut to a line, never inside a UTF-8 sequence. */
void print_value(char *text);

/* The form, and what metadata.json says of the save if there is one, on lines of their own. */
int print_save(dcp_checkpoint *checkpoint, const struct ls_form *form);
/* As a member "save" of an object, after a comma. */
int print_save_json(const dcp_checkpoint *checkpoint);

#endif
