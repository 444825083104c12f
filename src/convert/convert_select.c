/* SPDX-License-Identifier: BSD-3-Clause */
/* Which names of a source are converted, and what they are called. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "convert/convert_source.h"
#include "plan/names/name_filter.h"
#include "plan/names/name_rules.h"

struct selection {
    struct convert_source *source;
    const char *root; /* the key that the model is below; NULL: everything is taken */
    struct name_filter filter;
    bool *filter_used;
    struct name_rules rules;
    dcp_rename *renames;
    bool *rename_used;
    struct name_table names;
};

static const char *const model_keys[] = {"model", "module", "state_dict", "model_state_dict",
                                         "network"};
static const char *const optimizer_keys[] = {"optimizer", "optim", "optimizer_state_dict",
                                             "optimizers"};

/* Whether entries are below a key of the outermost dict. */
static bool has_root(const struct convert_source *source, const char *key)
{
    dcp_entry entry;
    for (size_t i = 0; i < convert_entry_count(source); i++)
        if (convert_entry(source, i, &entry) == DCP_OK && entry.path_length > 1 &&
            entry.path[0].key && strcmp(entry.path[0].key, key) == 0)
            return true;
    return false;
}

static dcp_status find_model(struct selection *selection)
{
    const struct convert_source *source = selection->source;
    for (size_t i = 0; i < sizeof model_keys / sizeof *model_keys; i++)
        if (has_root(source, model_keys[i])) {
            selection->root = model_keys[i];
            return DCP_OK;
        }
    for (size_t i = 0; i < sizeof optimizer_keys / sizeof *optimizer_keys; i++)
        if (has_root(source, optimizer_keys[i]))
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "%s: there is \"%s\", but none of the keys that models are below "
                                 "(\"model\", \"module\", \"state_dict\", \"model_state_dict\", "
                                 "\"network\"): choose by include and exclude instead",
                                 source->path, optimizer_keys[i]);
    return DCP_OK;
}

static dcp_status selection_begin(struct selection *selection)
{
    const dcp_convert_options *options = selection->source->options;
    size_t patterns = options->include_count + options->exclude_count;
    name_table_init(&selection->names);
    selection->filter = (struct name_filter){options->include, options->include_count,
                                             options->exclude, options->exclude_count};
    selection->filter_used = memory_allocate_zeroed(patterns, sizeof(bool));
    selection->rename_used = memory_allocate_zeroed(options->rename_count, sizeof(bool));
    selection->renames = memory_allocate_array(options->rename_count, sizeof *selection->renames);
    if (!selection->filter_used || !selection->rename_used || !selection->renames)
        return error_no_memory(patterns + options->rename_count, "patterns and rules");
    if (!options->renames && options->rename_count > 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "renames is NULL, rename_count is %zu",
                             options->rename_count);
    for (size_t i = 0; i < options->rename_count; i++)
        selection->renames[i] = (dcp_rename){options->renames[i].kind, options->renames[i].from,
                                             options->renames[i].to};
    RETURN_IF_ERROR(name_rules_init(&selection->rules, selection->renames, options->rename_count));
    RETURN_IF_ERROR(name_filter_check(&selection->filter));
    return options->model_only ? find_model(selection) : DCP_OK;
}

static void selection_end(struct selection *selection)
{
    memory_release(selection->filter_used);
    memory_release(selection->rename_used);
    memory_release(selection->renames);
    name_rules_free(&selection->rules);
    name_table_free(&selection->names);
}

static bool is_float(dcp_dtype dtype)
{
    return dtype == DCP_F64 || dtype == DCP_F32 || dtype == DCP_F16 || dtype == DCP_BF16;
}

/* Whether a target of the form has a place for an object: else *left_out, or the error. */
static dcp_status check_object(const struct convert_source *source, const char *name,
                               bool *left_out)
{
    const dcp_convert_options *options = source->options;
    *left_out = false;
    if (options->form == DCP_FORM_DCP || options->form == DCP_FORM_PT)
        return DCP_OK;
    *left_out = options->model_only;
    if (*left_out)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: \"%s\" is an object, for which safetensors and GGUF files have no "
                         "place: take the model only, or exclude it",
                         source->path, name);
}

static dcp_status describe(const struct convert_source *source, const dcp_entry *entry,
                           struct convert_item *item)
{
    dcp_dtype wanted = source->options->dtype;
    item->is_tensor = entry->is_tensor;
    item->requires_grad = entry->requires_grad;
    if (!entry->is_tensor)
        return DCP_OK;
    item->stored = item->dtype = entry->dtype;
    item->ndim = entry->ndim;
    item->shape = entry->global_shape;
    item->bytes = entry->bytes;
    if (wanted == DCP_DTYPE_NONE || !is_float(entry->dtype))
        return DCP_OK;
    uint64_t elements = entry->bytes / dcp_dtype_size(entry->dtype);
    item->dtype = wanted;
    if (elements > INT64_MAX / dcp_dtype_size(wanted))
        return dcp_error_set(DCP_ERR_SHAPE, "%s: more than 2^63 bytes as %s", entry->name,
                             dcp_dtype_name(wanted));
    item->bytes = elements * dcp_dtype_size(wanted);
    return DCP_OK;
}

/* Gives the item its name: below the root, and by the first rule that matches. */
static dcp_status name_item(struct selection *selection, const dcp_entry *entry,
                            struct convert_item *item)
{
    struct convert_source *source = selection->source;
    const char *renamed;
    size_t skip = selection->root ? 1 : 0, rule;
    item->name = selection->root ? entry->name + strlen(selection->root) + 1 : entry->name;
    item->path = entry->path + skip;
    item->path_length = entry->path_length - skip;
    RETURN_IF_ERROR(name_rules_apply(&selection->rules, item->name, &renamed, &rule));
    if (rule < selection->rules.count)
        selection->rename_used[rule] = true;
    if (strcmp(renamed, item->name) != 0) {
        dcp_path_part *part = arena_allocate(&source->arena, sizeof *part);
        char *copy = arena_copy_text(&source->arena, renamed, strlen(renamed));
        if (!part || !copy)
            return error_no_memory(strlen(renamed), "a name");
        *part = (dcp_path_part){.key = copy};
        item->name = copy;
        item->path = part;
        item->path_length = 1;
    }
    uint64_t index = source->count;
    bool existing;
    RETURN_IF_ERROR(
        name_table_add(&selection->names, item->name, strlen(item->name), &index, &existing));
    return existing ? dcp_error_set(DCP_ERR_DUPLICATE,
                                    "\"%s\" would be twice in the result: of "
                                    "\"%s\" and of another name",
                                    item->name, entry->name)
                    : DCP_OK;
}

static bool is_below_root(const struct selection *selection, const dcp_entry *entry)
{
    return !selection->root || (entry->path_length > 1 && entry->path[0].key &&
                                strcmp(entry->path[0].key, selection->root) == 0);
}

static dcp_status take_entry(struct selection *selection, size_t index)
{
    struct convert_source *source = selection->source;
    struct convert_item *item = &source->items[source->count];
    bool left_out = false;
    dcp_entry entry;
    RETURN_IF_ERROR(convert_entry(source, index, &entry));
    bool passes = name_filter_passes(&selection->filter, entry.name, selection->filter_used) &&
                  is_below_root(selection, &entry);
    if (passes && !entry.is_tensor)
        RETURN_IF_ERROR(check_object(source, entry.name, &left_out));
    if (!passes || left_out) {
        source->left_out++;
        return DCP_OK;
    }
    *item = (struct convert_item){.entry = index};
    RETURN_IF_ERROR(describe(source, &entry, item));
    RETURN_IF_ERROR(name_item(selection, &entry, item));
    source->count++;
    return DCP_OK;
}

static dcp_status check_used(const struct selection *selection)
{
    const dcp_convert_options *options = selection->source->options;
    for (size_t i = 0; i < options->include_count + options->exclude_count; i++)
        if (!selection->filter_used[i])
            return dcp_error_set(
                DCP_ERR_ARGUMENT, "%s: no name matches the pattern \"%s\"", selection->source->path,
                i < options->include_count ? options->include[i]
                                           : options->exclude[i - options->include_count]);
    for (size_t i = 0; i < options->rename_count; i++)
        if (!selection->rename_used[i])
            return dcp_error_set(DCP_ERR_ARGUMENT, "%s: no name is renamed by the rule \"%s\"",
                                 selection->source->path, options->renames[i].from);
    return DCP_OK;
}

dcp_status convert_select(struct convert_source *source)
{
    struct selection selection = {.source = source};
    size_t count = convert_entry_count(source);
    source->items = arena_allocate_array(&source->arena, count, sizeof *source->items);
    dcp_status status = source->items
                            ? selection_begin(&selection)
                            : error_no_memory(count * sizeof *source->items, "names to convert");
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        status = take_entry(&selection, i);
    if (status == DCP_OK)
        status = check_used(&selection);
    selection_end(&selection);
    return status;
}

void convert_leave_out(struct convert_source *source, size_t item)
{
    memmove(&source->items[item], &source->items[item + 1],
            (source->count - item - 1) * sizeof *source->items);
    source->count--;
}
