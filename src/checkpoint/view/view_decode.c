/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata and objects of bytes that the caller has. */
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/sized.h"
#include "checkpoint/view/view.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/item.h"

/* The memory of one call, if it is limited. */
struct decoding {
    struct memory_account *account; /* NULL: no limit */
    struct memory_account *before;
};

static dcp_status begin(struct decoding *decoding, const dcp_decode_options *options,
                        size_t options_size)
{
    dcp_decode_options ours;
    *decoding = (struct decoding){.account = NULL};
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, options, options_size, "dcp_decode_options"));
    if (ours.memory_limit == 0)
        return DCP_OK;
    decoding->account = memory_account_open(ours.memory_limit);
    if (!decoding->account)
        return error_no_memory(0, "a memory limit");
    decoding->before = memory_account_enter(decoding->account);
    return DCP_OK;
}

/* What was decoded outlives the call, and may grow then. */
static void end(const struct decoding *decoding)
{
    if (!decoding->account)
        return;
    memory_account_enter(decoding->before);
    memory_account_set_limit(decoding->account, 0);
    memory_account_close(decoding->account);
}

static dcp_status decode_metadata(const void *bytes, size_t size, dcp_checkpoint **checkpoint)
{
    dcp_checkpoint *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "checkpoint");
    made->metadata = &made->own;
    dcp_status status = metadata_decode(bytes, size, &made->own);
    if (status == DCP_OK)
        *checkpoint = made;
    else
        memory_release(made);
    return status;
}

dcp_status dcp_checkpoint_decode_sized(const void *bytes, size_t size,
                                       const dcp_decode_options *options, size_t options_size,
                                       dcp_checkpoint **checkpoint)
{
    struct decoding decoding;
    if (!bytes || !checkpoint)
        return dcp_error_set(DCP_ERR_ARGUMENT, "decoding metadata needs bytes and a place for it");
    *checkpoint = NULL;
    RETURN_IF_ERROR(begin(&decoding, options, options_size));
    dcp_status status = decode_metadata(bytes, size, checkpoint);
    end(&decoding);
    return status;
}

static dcp_status decode_object(const void *bytes, size_t size, dcp_state *parent, const char *key)
{
    struct state_pool *pool = state_pool_new(parent->root);
    dcp_state *object = NULL;
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = item_read_object(byte_source_memory(bytes, size), pool, &object);
    return node_add_object(status, parent, key, pool, object);
}

dcp_status dcp_object_decode_sized(const void *bytes, size_t size, dcp_state *parent,
                                   const char *key, const dcp_decode_options *options,
                                   size_t options_size)
{
    struct decoding decoding;
    if (!bytes || !parent)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the bytes or the parent of an object are NULL");
    RETURN_IF_ERROR(begin(&decoding, options, options_size));
    dcp_status status = decode_object(bytes, size, parent, key);
    end(&decoding);
    return status;
}
