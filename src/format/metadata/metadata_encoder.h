/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to metadata_encode(): a pickle that writes each text, global and constant once, and
 * fetches it from the memo afterwards, as most sizes that occurred not long before. The same
 * metadata always gives the same bytes. */
#ifndef FORMAT_METADATA_METADATA_ENCODER_H
#define FORMAT_METADATA_METADATA_ENCODER_H

#include "base/buffer.h"
#include "base/name_table.h"
#include "dcp/tensor.h"
#include "format/pickle/pickle.h"
#include "state/metadata.h"

/* Texts and globals that a pickle uses repeatedly. */
enum metadata_shared {
    MODULE_METADATA,
    MODULE_FILESYSTEM,
    MODULE_TORCH,
    MODULE_SERIALIZATION,
    CLASS_TENSOR,
    CLASS_BYTES,
    CLASS_CHUNK,
    CLASS_INDEX,
    CLASS_PROPERTIES,
    CLASS_MEMORY_FORMAT,
    CLASS_STORAGE,
    CLASS_SIZE,
    CLASS_LAYOUT,
    KEY_PROPERTIES,
    KEY_SIZE,
    KEY_CHUNKS,
    KEY_OFFSETS,
    KEY_SIZES,
    KEY_FQN,
    KEY_INDEX,
    KEY_OFFSET,
    KEY_PATH,
    KEY_LENGTH,
    KEY_TRANSFORMS,
    TEXT_ZSTD,
    TEXT_STRIDED,
    VALUE_STRIDED,    /* the layout */
    VALUE_CONTIGUOUS, /* the memory format */
    SHARED_DTYPES,    /* and one for each dtype */
    SHARED_COUNT = SHARED_DTYPES + DCP_BITS4X2 + 1
};

/* A torch.Size in the memo. Nobody can change one, so objects can share it. */
struct shared_size {
    const int64_t *numbers; /* NULL: none */
    int32_t ndim;
    uint32_t memo_number;
};

struct metadata_encoder {
    struct buffer *out;
    uint32_t memo_count;
    uint32_t shared[SHARED_COUNT]; /* memo numbers + 1; 0: not yet written */
    struct name_table names;       /* memo numbers of names, path parts and files */
    struct shared_size *sizes;     /* the last of each hash; NULL: sizes are not shared */
    size_t size_slots;             /* a power of two */
};

/* The field of Metadata that says which extra files there are. */
#define METADATA_EXTRA_FILES "dcp_extra_files"
/* Key and value of the field, if there are any. */
void metadata_put_extra_files(struct metadata_encoder *encoder, const struct metadata *metadata);

void metadata_encoder_init(struct metadata_encoder *encoder, struct buffer *out);
void metadata_encoder_free(struct metadata_encoder *encoder);
/* Has sizes shared, of which about so many follow each other before they repeat. */
dcp_status encoder_share_sizes(struct metadata_encoder *encoder, size_t count);

void encoder_put_shared(struct metadata_encoder *encoder, enum metadata_shared which);
/* A name, path part or file; it can be fetched as *memo_number afterwards. DCP_ERR_ARGUMENT if it
 * is not UTF-8. */
dcp_status encoder_put_name(struct metadata_encoder *encoder, const char *text,
                            uint32_t *memo_number);
/* A text that is used once. */
void encoder_put_text(struct metadata_encoder *encoder, const char *text);
/* An object without fields yet, of a shared class or of one that is used once. */
void encoder_put_object(struct metadata_encoder *encoder, enum metadata_shared class);
void encoder_put_object_once(struct metadata_encoder *encoder, const char *class);
void encoder_begin_fields(struct metadata_encoder *encoder);
void encoder_end_fields(struct metadata_encoder *encoder);
void encoder_begin_tuple(struct metadata_encoder *encoder, size_t count);
void encoder_end_tuple(struct metadata_encoder *encoder, size_t count);
/* A torch.Size; the numbers must stay where they are. */
void encoder_put_size(struct metadata_encoder *encoder, int32_t ndim, const int64_t *numbers);
/* Long dicts and lists are written in batches, so that readers' stacks stay small. Call in front of
 * each element, counted from 0, and once after the last of count. */
void encoder_batch_next(struct metadata_encoder *encoder, size_t position, uint8_t opcode);
void encoder_batch_end(struct metadata_encoder *encoder, size_t count, uint8_t opcode);

#endif
