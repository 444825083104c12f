/* SPDX-License-Identifier: BSD-3-Clause */
/* What a conversion reads: a list of tensors and objects, chosen and named as the options say, and
 * ranges of their elements.
 *
 * Everything that can be opened as a dcp_checkpoint is a source, and so are the parts that training
 * checkpoints of other frameworks are made of; targets see nothing else of them. */
#ifndef CONVERT_CONVERT_SOURCE_H
#define CONVERT_CONVERT_SOURCE_H

#include "base/arena.h"
#include "dcp/checkpoint.h"
#include "dcp/convert.h"

struct convert_item;
struct convert_source;
struct convert_tiles;

/* How elements come about that no entry has as they are. It begins the struct of each kind, which
 * lives in the source's arena. */
struct convert_recipe {
    dcp_status (*read)(const struct convert_source *source, const struct convert_item *item,
                       int64_t first, int64_t count, void *elements); /* as convert_read() */
    /* What the first element is read from: about this element of it. NULL: it is not known. */
    const struct convert_item *input;
    int64_t first;
};

/* A tensor or object of the destination. */
struct convert_item {
    const char *name;
    const dcp_path_part *path;
    size_t path_length;
    size_t entry; /* of the checkpoint, or the parts */
    bool is_tensor;
    bool requires_grad;
    dcp_dtype stored; /* tensors, as what follows */
    dcp_dtype dtype;  /* in the destination */
    int32_t ndim;
    const int64_t *shape;
    uint64_t bytes;                      /* in the destination */
    const struct convert_recipe *recipe; /* NULL: the elements are the entry's */
};

struct convert_source {
    const dcp_convert_options *options;
    const char *path;
    const char *opened; /* what the checkpoint is: the path, or something below it */
    dcp_form form;
    char text[sizeof((dcp_convert_report *)NULL)->source_text];
    const char *quantized;      /* its quant_method, or what names say; NULL: it is not */
    const char *quantized_name; /* of a tensor that only a quantized model has; NULL: not known */
    uint64_t dequantized;       /* weights */
    bool says_tied;             /* config.json: tie_word_embeddings */
    dcp_checkpoint *checkpoint; /* NULL: it is gathered from the parts of another framework's */
    struct source_parts *parts; /* of a training checkpoint */
    const char *training;       /* its directory; NULL: it is none */
    dcp_status (*open_training)(struct convert_source *source);
    struct convert_tiles *tiles; /* of tensors that are costly to read */
    struct convert_item *items;  /* in the checkpoint's order */
    size_t count;
    uint64_t left_out;
    struct arena arena;
};

/* Finds out what is at a path, and opens it. Texts are borrowed. convert_source_close() also after
 * a failure. */
dcp_status convert_source_open(struct convert_source *source, const char *path,
                               const dcp_convert_options *options);
void convert_source_close(struct convert_source *source);
/* After all has been read, and before the destination is there: that what was read of records with
 * one checksum, in parts, is right. */
dcp_status convert_source_check(const struct convert_source *source);
/* What is in the files of a directory, as far as names and small files tell: fills in form, text,
 * quantized and says_tied, and the path to open (in the arena). */
dcp_status convert_recognize(struct convert_source *source, const char **open_path);
/* Fills in items: what the options choose, under its names. */
dcp_status convert_select(struct convert_source *source);
/* Takes one item out. */
void convert_leave_out(struct convert_source *source, size_t item);

/* The names of the source, before any are chosen. */
size_t convert_entry_count(const struct convert_source *source);
dcp_status convert_entry(const struct convert_source *source, size_t index, dcp_entry *entry);
/* An object, as a value or as its stream. */
dcp_status convert_read_object(const struct convert_source *source, const struct convert_item *item,
                               dcp_state *parent, const char *key);
dcp_status convert_read_stream(const struct convert_source *source, const struct convert_item *item,
                               dcp_sink sink, void *context);
/* Reads elements from first on, row-major, as the destination has them. Any thread. */
dcp_status convert_read(const struct convert_source *source, const struct convert_item *item,
                        int64_t first, int64_t count, void *elements);
/* Whether an item is an entry as it is, so that it can be read with others. */
bool convert_is_plain(const struct convert_source *source, const struct convert_item *item);
/* A plain item, and where its elements go. */
struct convert_whole {
    const struct convert_item *item;
    void *elements;
};
/* Reads all of plain items, of different entries: neighbours in a file at once. Any thread. */
dcp_status convert_read_wholes(const struct convert_source *source,
                               const struct convert_whole *wholes, size_t count);
/* Whether two tensors have the same dtype, shape and bytes. */
dcp_status convert_equal(const struct convert_source *source, const struct convert_item *a,
                         const struct convert_item *b, bool *equal);
/* A small file of a directory, NUL-terminated; *text is NULL if there is none. In the arena. */
dcp_status convert_read_text(struct convert_source *source, const char *name, const char **text,
                             size_t *size);
/* The same of a path. */
dcp_status convert_read_path(struct convert_source *source, const char *path, const char **text,
                             size_t *size);

#endif
