/* SPDX-License-Identifier: BSD-3-Clause */
/* What a path holds, by the names there and by small files: what can be converted, and what is
 * refused by its name. Only in the file system; other storages have what a checkpoint can be
 * opened as. */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "convert/convert_source.h"
#include "convert/model_config.h"
#include "convert/source_training.h"
#include "format/safetensors/safetensors_index.h"

/* Names that tell what a directory is, by importance. */
enum seen {
    SEEN_DEEPSPEED,
    SEEN_MEGATRON,
    SEEN_GGUF,
    SEEN_TORCH_CHECKPOINTING,
    SEEN_MODELOPT,
    SEEN_METADATA,
    SEEN_METADATA_JSON,
    SEEN_RANK_METADATA,
    SEEN_STAGE,
    SEEN_INDEX,
    SEEN_MODEL,
    SEEN_SAFETENSORS,
    SEEN_ADAPTER,
    SEEN_CONFIG,
    SEEN_PICKLED,
    SEEN_COUNT
};

struct directory_look {
    size_t count[SEEN_COUNT];
    char first[SEEN_COUNT][256]; /* by name */
};

static const struct {
    const char *pattern;
    enum seen seen;
} signs[] = {
    {"*zero_pp_rank_*_states.pt", SEEN_DEEPSPEED},
    {"mp_rank_*_model_states.pt", SEEN_DEEPSPEED},
    {"layer_*model_states.pt", SEEN_DEEPSPEED},
    {"latest_universal", SEEN_DEEPSPEED},
    {"global_step[0-9]*", SEEN_DEEPSPEED},
    {"latest_checkpointed_iteration.txt", SEEN_MEGATRON},
    {"*.gguf", SEEN_GGUF},
    {"metadata.pkl", SEEN_TORCH_CHECKPOINTING},
    {"hf_quant_config.json", SEEN_MODELOPT},
    {".metadata", SEEN_METADATA},
    {"metadata.json", SEEN_METADATA_JSON},
    {"__*.metadata", SEEN_RANK_METADATA},
    {"pp[0-9]*", SEEN_STAGE},
    {SAFETENSORS_INDEX_NAME, SEEN_INDEX},
    {"model.safetensors", SEEN_MODEL},
    {"*.safetensors", SEEN_SAFETENSORS},
    {"adapter_config.json", SEEN_ADAPTER},
    {"config.json", SEEN_CONFIG},
    {"pytorch_model*.bin", SEEN_PICKLED},
    {"pytorch_model.bin.index.json", SEEN_PICKLED},
};

static void look_at_name(struct directory_look *look, const char *name)
{
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (fnmatch(signs[i].pattern, name, 0) == 0) {
            enum seen seen = signs[i].seen;
            if (look->count[seen]++ == 0 || strcmp(name, look->first[seen]) < 0)
                snprintf(look->first[seen], sizeof look->first[seen], "%s", name);
        }
}

static dcp_status refuse(const struct convert_source *source, const char *what, const char *name)
{
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: %s, which cannot be converted yet (there is %s)",
                         source->path, what, name);
}

/* One of the names that Megatron's metadata.json has, and ours has not. */
static dcp_status check_megatron(struct convert_source *source)
{
    const char *backend;
    RETURN_IF_ERROR(training_read_backend(source, "metadata.json", &backend));
    if (!backend)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: a Megatron-Core checkpoint (sharded_backend \"%s\"), which cannot be "
                         "converted yet",
                         source->path, backend);
}

static dcp_status look_at_config(struct convert_source *source)
{
    struct model_config config;
    const char *text;
    size_t size;
    RETURN_IF_ERROR(convert_read_text(source, "config.json", &text, &size));
    if (!text)
        return DCP_OK;
    dcp_status status = model_config_read(text, size, &source->arena, &config);
    if (status != DCP_OK)
        return error_prefix(status, "%s", source->path);
    source->quantized = config.quant_method;
    source->says_tied = config.tied;
    return DCP_OK;
}

static dcp_status take_model(struct convert_source *source, const struct directory_look *look,
                             const char **open_path)
{
    size_t length = strlen(source->path) + sizeof "/model.safetensors";
    RETURN_IF_ERROR(look_at_config(source));
    if (!source->quantized && look->count[SEEN_MODELOPT] > 0)
        source->quantized = "modelopt";
    source->form = DCP_FORM_HF;
    if (look->count[SEEN_MODEL] > 0 && look->count[SEEN_INDEX] == 0) {
        char *path = arena_allocate(&source->arena, length);
        if (!path)
            return error_no_memory(length, "a path");
        snprintf(path, length, "%s/model.safetensors", source->path);
        *open_path = path;
    }
    bool whole = look->count[SEEN_INDEX] + look->count[SEEN_MODEL] > 0;
    snprintf(source->text, sizeof source->text, "%s (%s)",
             !whole && look->count[SEEN_ADAPTER] > 0 ? "an adapter (LoRA), which is no model"
                                                     : "a Hugging Face directory",
             look->count[SEEN_INDEX]   ? "index"
             : look->count[SEEN_MODEL] ? "model.safetensors"
                                       : "safetensors files without an index");
    return DCP_OK;
}

static dcp_status judge_directory(struct convert_source *source, const struct directory_look *look,
                                  const char **open_path)
{
    if (look->count[SEEN_DEEPSPEED] > 0)
        return refuse(source, "a DeepSpeed checkpoint", look->first[SEEN_DEEPSPEED]);
    if (look->count[SEEN_MEGATRON] > 0)
        return refuse(source, "a run of Megatron", look->first[SEEN_MEGATRON]);
    if (look->count[SEEN_TORCH_CHECKPOINTING] > 0)
        return refuse(source, "a checkpoint of torch_checkpointing",
                      look->first[SEEN_TORCH_CHECKPOINTING]);
    if (look->count[SEEN_METADATA_JSON] > 0)
        RETURN_IF_ERROR(check_megatron(source));
    source->form = DCP_FORM_DCP;
    if (look->count[SEEN_METADATA] > 0 || look->count[SEEN_RANK_METADATA] > 0) {
        snprintf(source->text, sizeof source->text, "a DCP directory%s",
                 look->count[SEEN_METADATA] > 0 ? "" : " with the metadata of single ranks");
        return DCP_OK;
    }
    if (look->count[SEEN_SAFETENSORS] > 0 || look->count[SEEN_INDEX] > 0)
        return take_model(source, look, open_path);
    if (look->count[SEEN_GGUF] > 0)
        return refuse(source, "a directory of GGUF files", look->first[SEEN_GGUF]);
    if (look->count[SEEN_PICKLED] > 0)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "%s: a Hugging Face directory of pickled files: convert %s by itself",
                             source->path, look->first[SEEN_PICKLED]);
    snprintf(source->text, sizeof source->text, "%s",
             look->count[SEEN_STAGE] > 0 ? "pipeline stages, each a DCP directory" : "a directory");
    return DCP_OK;
}

static dcp_status recognize_directory(struct convert_source *source, const char **open_path)
{
    struct directory_look look = {0};
    bool training;
    RETURN_IF_ERROR(training_recognize(source, &training));
    if (training)
        return DCP_OK;
    DIR *directory = opendir(source->path);
    if (!directory)
        return dcp_error_set(DCP_ERR_IO, "%s: cannot be listed: %s", source->path, strerror(errno));
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        look_at_name(&look, entry->d_name);
    closedir(directory);
    return judge_directory(source, &look, open_path);
}

static dcp_status recognize_file(struct convert_source *source)
{
    size_t length = strlen(source->path), suffix = strlen(".safetensors");
    char magic[4] = {0};
    FILE *file = fopen(source->path, "rb");
    if (!file)
        return dcp_error_set(DCP_ERR_IO, "%s: cannot be opened: %s", source->path, strerror(errno));
    size_t read = fread(magic, 1, sizeof magic, file);
    fclose(file);
    if (read == sizeof magic && memcmp(magic, "GGUF", sizeof magic) == 0)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: a GGUF file, which cannot be converted",
                             source->path);
    bool safetensors =
        length > suffix && strcmp(source->path + length - suffix, ".safetensors") == 0;
    source->form = safetensors ? DCP_FORM_SAFETENSORS : DCP_FORM_PT;
    snprintf(source->text, sizeof source->text, "%s",
             safetensors ? "a safetensors file" : "a file of torch.save");
    return DCP_OK;
}

dcp_status convert_recognize(struct convert_source *source, const char **open_path)
{
    struct stat about;
    *open_path = source->path;
    source->form = DCP_FORM_DCP;
    if (source->options->member_count > 0 || source->options->storage) {
        snprintf(source->text, sizeof source->text, "%s",
                 source->options->member_count > 0 ? "a union of DCP directories" : "a checkpoint");
        return DCP_OK;
    }
    if (stat(source->path, &about) != 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? dcp_error_set(DCP_ERR_NOT_FOUND, "%s: there is no such file or directory",
                                   source->path)
                   : dcp_error_set(DCP_ERR_IO, "%s: %s", source->path, strerror(errno));
    return S_ISDIR(about.st_mode) ? recognize_directory(source, open_path) : recognize_file(source);
}
