/* SPDX-License-Identifier: BSD-3-Clause */
/* A checkpoint's metadata as the .metadata of a directory whose shard files are there. */
#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/save/save_extra_files.h"
#include "checkpoint/view/view.h"
#include "dcp/shard_file.h"
#include "format/metadata/metadata_codec.h"
#include "storage/commit/save_owner.h"
#include "storage/open/directory.h"

/* A publication on its way. */
struct publishing {
    const struct storage_directory *directory;
    const dcp_save_options *options;
    struct metadata metadata; /* of the checkpoint, with the extra files that are added */
    struct save_extra_files extra;
    struct arena added;
    uint32_t generation; /* of these */
    bool visible;
};

/* What is there is noted first, and only that is replaced. */
static dcp_status place_metadata(struct publishing *publishing, const struct buffer *encoded)
{
    const struct storage_directory *directory = publishing->directory;
    const dcp_save_options *options = publishing->options;
    struct storage_publication publication;
    char replaced[DCP_STORAGE_IDENTITY];
    bool *visible = &publishing->visible;
    dcp_status status = storage_directory_identify(directory, METADATA_NAME, replaced);
    bool is_there = status == DCP_OK;
    if (status != DCP_OK && status != DCP_ERR_NOT_FOUND)
        return status;
    if (is_there && options->overwrite == DCP_OVERWRITE_REFUSE)
        return dcp_error_set(DCP_ERR_EXISTS,
                             "%s has a " METADATA_NAME " already, and overwriting is refused",
                             directory->id);
    RETURN_IF_ERROR(save_extra_files_make(&publishing->extra, directory, 0, publishing->generation,
                                          !options->skip_sync));
    RETURN_IF_ERROR(storage_publication_prepare(&publication, directory, METADATA_NAME,
                                                encoded->data, encoded->size, !options->skip_sync));
    status = is_there ? storage_publication_publish_over(&publication, replaced, visible)
                      : storage_publication_publish(&publication, DCP_PUBLISH_IF_ABSENT, visible);
    if (status == DCP_OK && !options->skip_sync)
        status = storage_directory_sync(directory);
    return status;
}

/* As those of rank 0, of a generation of their own. */
static dcp_status add_extra_files(struct publishing *publishing)
{
    const struct storage_directory *directory = publishing->directory;
    struct directory listed;
    if (publishing->extra.count == 0)
        return DCP_OK;
    RETURN_IF_ERROR(directory_read(directory, &listed));
    dcp_status status =
        directory_next_generation(&listed, directory->id, ALL_RANKS, &publishing->generation);
    directory_free(&listed);
    return status == DCP_OK ? save_extra_files_add(&publishing->extra, 0, publishing->generation,
                                                   &publishing->added, &publishing->metadata)
                            : status;
}

static dcp_status publish_owned(struct publishing *publishing)
{
    struct buffer encoded;
    buffer_init(&encoded, 0);
    dcp_status status = add_extra_files(publishing);
    if (status == DCP_OK)
        status = metadata_encode(&publishing->metadata, &encoded);
    if (status == DCP_OK)
        status = place_metadata(publishing, &encoded);
    if (status != DCP_OK && !publishing->visible)
        save_extra_files_unmake(&publishing->extra, publishing->directory, 0,
                                publishing->generation);
    buffer_free(&encoded);
    return status;
}

static dcp_status publish(struct publishing *publishing)
{
    char id[SAVE_ID_SIZE];
    struct save_owner *owner;
    RETURN_IF_ERROR(save_id_make(id));
    RETURN_IF_ERROR(save_owner_take_all(publishing->directory, id,
                                        publishing->options->takeover_seconds, &owner));
    dcp_status status = publish_owned(publishing);
    save_owner_free(owner, publishing->directory);
    return status;
}

static dcp_status open_and_publish(const char *id, const dcp_storage *given,
                                   struct publishing *publishing)
{
    struct storage_directory directory;
    const dcp_storage *chosen;
    dcp_storage storage;
    RETURN_IF_ERROR(storage_take(&storage, given));
    RETURN_IF_ERROR(storage_choose(&storage, id, &chosen));
    uint32_t flags = publishing->options->skip_sync ? 0u : (uint32_t)DCP_OPEN_DURABLE;
    RETURN_IF_ERROR(storage_directory_open(&directory, chosen, id, flags, NULL));
    publishing->directory = &directory;
    dcp_status status = publish(publishing);
    publishing->directory = NULL;
    storage_directory_close(&directory);
    return status;
}

dcp_status dcp_checkpoint_publish_sized(const dcp_checkpoint *checkpoint, const char *directory,
                                        const dcp_publish_options *options, size_t options_size)
{
    dcp_publish_options given;
    dcp_save_options checked;
    if (!checkpoint || !directory || !*directory)
        return dcp_error_set(DCP_ERR_ARGUMENT, "publishing metadata needs a checkpoint and a path");
    RETURN_IF_ERROR(sized_read(&given, sizeof given, options, options_size, "dcp_publish_options"));
    const dcp_save_options as_save = {.overwrite = given.overwrite,
                                      .skip_sync = given.skip_sync,
                                      .takeover_seconds = given.takeover_seconds,
                                      .extra_files = given.extra_files,
                                      .extra_file_count = given.extra_file_count};
    RETURN_IF_ERROR(options_check_save(&as_save, &checked));
    struct publishing publishing = {.options = &checked, .metadata = *checkpoint->metadata};
    arena_init(&publishing.added, 0);
    dcp_status status = save_extra_files_take(&publishing.extra, &as_save);
    if (status == DCP_OK)
        status = open_and_publish(directory, given.storage, &publishing);
    save_extra_files_free(&publishing.extra);
    arena_free(&publishing.added);
    return status;
}
