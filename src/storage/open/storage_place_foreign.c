/* SPDX-License-Identifier: BSD-3-Clause */
/* Directories of other frameworks, by the names in them. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/path.h"
#include "state/training_form.h"
#include "storage/open/storage_place.h"

/* Names of others, as they are listed: from the first one on. */
static const struct directory_name *others(const struct storage_place *place, size_t *count)
{
    const struct directory *listing = &place->listing;
    *count = directory_count(listing, DIRECTORY_OTHER);
    return listing->names + listing->first[DIRECTORY_OTHER];
}

static bool lists(const struct storage_place *place, const char *name)
{
    size_t count;
    const struct directory_name *names = others(place, &count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i].name, name) == 0)
            return true;
    return false;
}

/* Whether a name in the place is a directory with a file of that name, and no link. */
static dcp_status holds(const struct storage_place *place, const char *name, const char *file,
                        bool *found)
{
    struct storage_directory directory;
    char *id = path_join(place->id, name);
    *found = false;
    if (!id)
        return place_no_memory(name);
    dcp_status status =
        storage_directory_open(&directory, place->storage, id, DCP_OPEN_NO_LINK, NULL);
    memory_release(id);
    if (status != DCP_OK)
        return status == DCP_ERR_NOT_FOUND || status == DCP_ERR_KIND ? DCP_OK : status;
    status = place_find_file(&directory, file, found);
    storage_directory_close(&directory);
    return status;
}

/* ---- DCP directories ---- */

/* In which frameworks keep model and optimizer, or both, beside what is no DCP. */
static const char *const inner_names[][2] = {{"pytorch_model_fsdp_0", "optimizer_0"},
                                             {"model", "optim"},
                                             {"model_and_optim", NULL},
                                             {"weights", NULL}};
enum { INNER_SETS = sizeof inner_names / sizeof *inner_names, INNER_MOST = 2 };

/* Those of one framework that are there, if any of them holds a DCP checkpoint. */
static dcp_status place_inner(struct storage_place *place, const char *const names[INNER_MOST],
                              bool *found)
{
    struct directory_name parts[INNER_MOST];
    size_t count = 0;
    *found = false;
    for (size_t i = 0; i < INNER_MOST && names[i]; i++) {
        bool is_dcp = false;
        if (!lists(place, names[i]))
            continue;
        RETURN_IF_ERROR(holds(place, names[i], METADATA_NAME, &is_dcp));
        *found = *found || is_dcp;
        parts[count++] = (struct directory_name){.name = names[i]};
    }
    if (*found && lists(place, "pytorch_model_fsdp_1"))
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s holds several models, pytorch_model_fsdp_0 and others: name the "
                             "directories that are meant",
                             place->id);
    place->form = STORAGE_UNION;
    return *found ? place_parts(place, parts, count) : DCP_OK;
}

/* ---- files of torch.save ---- */

/* The file of this name in the place, which may be in a directory there, becomes the place. */
static dcp_status take_file(struct storage_place *place, const char *name)
{
    char *path = path_join(place->id, name);
    if (!path)
        return place_no_memory(name);
    storage_directory_close(&place->directory);
    dcp_status status = place_file(place, path);
    memory_release(path);
    return status;
}

/* "model_000020.pt" of a directory that has nothing else but files of the same step, "optim_000020"
 * and so on, as emergency saves of MegaCpp; NULL: it is none. */
static const char *find_model(const struct storage_place *place)
{
    static const char *const before[] = {"model_", "optim_", "meta_", "extra_"};
    const char *model = NULL, *number = NULL;
    size_t count, digits = 0;
    const struct directory_name *names = others(place, &count);
    for (size_t i = 0; i < count; i++) {
        const char *name = names[i].name, *at = NULL;
        for (size_t k = 0; k < sizeof before / sizeof *before && !at; k++)
            if (strncmp(name, before[k], strlen(before[k])) == 0)
                at = name + strlen(before[k]);
        if (!at ||
            (number && (strspn(at, "0123456789") != digits || memcmp(at, number, digits) != 0)))
            return NULL;
        number = at;
        digits = strspn(at, "0123456789");
        if (strncmp(name, before[0], strlen(before[0])) == 0 && strcmp(at + digits, ".pt") == 0)
            model = name;
    }
    return digits >= 6 ? model : NULL;
}

/* Megatron's directories of ranks, mp_rank_TT, mp_rank_TT_PPP or mp_rank_TT_PPP_EEE: how many, and
 * the first one. */
static size_t count_rank_directories(const struct storage_place *place, const char **first)
{
    static const char before[] = "mp_rank_";
    size_t count, found = 0, length = strlen(before);
    const struct directory_name *names = others(place, &count);
    for (size_t i = 0; i < count; i++) {
        const char *name = names[i].name;
        if (strncmp(name, before, length) != 0 ||
            strspn(name + length, "0123456789_") != strlen(name + length))
            continue;
        if (found++ == 0 || strcmp(name, *first) < 0)
            *first = name;
    }
    return found;
}

/* A model that is not divided among ranks is one file. */
static dcp_status place_megatron(struct storage_place *place, bool *found)
{
    static const char file[] = "model_optim_rng.pt";
    const char *first = NULL;
    size_t count = count_rank_directories(place, &first);
    *found = false;
    if (count > 0)
        RETURN_IF_ERROR(holds(place, first, file, found));
    if (!*found)
        return DCP_OK;
    if (count > 1)
        return dcp_error_set(
            DCP_ERR_UNSUPPORTED,
            "%s: a checkpoint of Megatron-LM in its old form, one file for each of %zu ranks, "
            "which are not put together here: open %s/%s and the others by themselves, or let "
            "Megatron-LM convert it (--ckpt-convert-format torch_dist --ckpt-convert-save DIR)",
            place->id, count, first, file);
    char *name = path_join(first, file);
    dcp_status status = name ? take_file(place, name) : place_no_memory(file);
    memory_release(name);
    return status;
}

/* ---- what cannot be read ---- */

static dcp_status refuse_orbax(const struct storage_place *place)
{
    static const char *const items[] = {"state", "default", "params"};
    bool found = lists(place, "_CHECKPOINT_METADATA") || lists(place, "_METADATA") ||
                 lists(place, "manifest.ocdbt");
    for (size_t i = 0; i < sizeof items / sizeof *items && !found; i++)
        if (lists(place, items[i]))
            RETURN_IF_ERROR(holds(place, items[i], "_METADATA", &found));
    return found ? dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "%s: a checkpoint of Orbax, whose arrays (zarr in OCDBT) are not "
                                 "read here: restore it with Orbax, and save what is wanted as "
                                 "safetensors",
                                 place->id)
                 : DCP_OK;
}

/* The directory of a training checkpoint of another framework, or of a run of it. */
static dcp_status place_training(struct storage_place *place)
{
    bool found = false;
    place->form = STORAGE_TRAINING;
    if (storage_is_files(place->storage))
        RETURN_IF_ERROR(training_form_find(place->id, false, &found));
    return found ? DCP_OK : place_nothing(place, place->id);
}

dcp_status place_training_step(struct storage_place *place)
{
    bool found = false;
    if (storage_is_files(place->storage))
        RETURN_IF_ERROR(training_form_find(place->id, true, &found));
    if (found)
        place->form = STORAGE_TRAINING;
    return DCP_OK;
}

dcp_status place_foreign(struct storage_place *place)
{
    /* litgpt's, and of one of Megatron's ranks */
    static const char *const files[] = {"lit_model.pth", "model_optim_rng.pt"};
    const char *file = NULL;
    bool found = false;
    for (size_t i = 0; i < INNER_SETS && !found; i++)
        RETURN_IF_ERROR(place_inner(place, inner_names[i], &found));
    if (found)
        return DCP_OK;
    for (size_t i = 0; i < sizeof files / sizeof *files && !file; i++)
        file = lists(place, files[i]) ? files[i] : NULL;
    if (!file)
        file = find_model(place);
    if (file)
        return take_file(place, file);
    RETURN_IF_ERROR(place_megatron(place, &found));
    if (found)
        return DCP_OK;
    RETURN_IF_ERROR(refuse_orbax(place));
    return place_training(place);
}
