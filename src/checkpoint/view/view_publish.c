/* SPDX-License-Identifier: BSD-3-Clause */
/* A checkpoint's metadata as the .metadata of a directory whose shard files are there. */
#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/view/view.h"
#include "dcp/shard_file.h"
#include "format/metadata/metadata_codec.h"
#include "storage/commit/save_owner.h"
#include "storage/open/directory.h"

/* What is there is noted first, and only that is replaced. */
static dcp_status place_metadata(const struct storage_directory *directory,
                                 const struct buffer *encoded, const dcp_save_options *options)
{
    struct storage_publication publication;
    char replaced[DCP_STORAGE_IDENTITY];
    bool visible;
    dcp_status status = storage_directory_identify(directory, METADATA_NAME, replaced);
    bool is_there = status == DCP_OK;
    if (status != DCP_OK && status != DCP_ERR_NOT_FOUND)
        return status;
    if (is_there && options->overwrite == DCP_OVERWRITE_REFUSE)
        return dcp_error_set(DCP_ERR_EXISTS,
                             "%s has a " METADATA_NAME " already, and overwriting is refused",
                             directory->id);
    RETURN_IF_ERROR(storage_publication_prepare(&publication, directory, METADATA_NAME,
                                                encoded->data, encoded->size, !options->skip_sync));
    status = is_there ? storage_publication_publish_over(&publication, replaced, &visible)
                      : storage_publication_publish(&publication, DCP_PUBLISH_IF_ABSENT, &visible);
    if (status == DCP_OK && !options->skip_sync)
        status = storage_directory_sync(directory);
    return status;
}

static dcp_status publish(const struct storage_directory *directory, const struct buffer *encoded,
                          const dcp_save_options *options)
{
    char id[SAVE_ID_SIZE];
    struct save_owner *owner;
    RETURN_IF_ERROR(save_id_make(id));
    RETURN_IF_ERROR(save_owner_take_all(directory, id, options->takeover_seconds, &owner));
    dcp_status status = place_metadata(directory, encoded, options);
    save_owner_free(owner, directory);
    return status;
}

static dcp_status open_and_publish(const char *id, const dcp_storage *given,
                                   const dcp_save_options *options, const struct buffer *encoded)
{
    struct storage_directory directory;
    const dcp_storage *chosen;
    dcp_storage storage;
    RETURN_IF_ERROR(storage_take(&storage, given));
    RETURN_IF_ERROR(storage_choose(&storage, id, &chosen));
    uint32_t flags = options->skip_sync ? 0u : (uint32_t)DCP_OPEN_DURABLE;
    RETURN_IF_ERROR(storage_directory_open(&directory, chosen, id, flags, NULL));
    dcp_status status = publish(&directory, encoded, options);
    storage_directory_close(&directory);
    return status;
}

dcp_status dcp_checkpoint_publish_sized(const dcp_checkpoint *checkpoint, const char *directory,
                                        const dcp_publish_options *options, size_t options_size)
{
    dcp_publish_options given;
    dcp_save_options checked;
    struct buffer encoded;
    if (!checkpoint || !directory || !*directory)
        return dcp_error_set(DCP_ERR_ARGUMENT, "publishing metadata needs a checkpoint and a path");
    RETURN_IF_ERROR(sized_read(&given, sizeof given, options, options_size, "dcp_publish_options"));
    const dcp_save_options as_save = {.overwrite = given.overwrite,
                                      .skip_sync = given.skip_sync,
                                      .takeover_seconds = given.takeover_seconds};
    RETURN_IF_ERROR(options_check_save(&as_save, &checked));
    buffer_init(&encoded, 0);
    dcp_status status = metadata_encode(checkpoint->metadata, &encoded);
    if (status == DCP_OK)
        status = buffer_status(&encoded);
    if (status == DCP_OK)
        status = open_and_publish(directory, given.storage, &checked, &encoded);
    buffer_free(&encoded);
    return status;
}
