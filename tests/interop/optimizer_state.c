/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes optimizers' state that PyTorch saved to our native form, by position, and from there back
 * to what PyTorch loads: optimizer_state STORED OUT name|flat OPTIMIZER:GROUP:FROZEN:NAME ... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp.h"

enum { PARAMETERS = 64, OPTIMIZERS = 4 };

static void must(dcp_status status, const char *what)
{
    if (status == DCP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, dcp_error_message());
    exit(1);
}

static void read_parameters(char **texts, int count, dcp_parameter parameters[][PARAMETERS],
                            dcp_optimizer_options optimizers[OPTIMIZERS])
{
    for (int i = 0; i < count; i++) {
        int optimizer = 0, group = 0, frozen = 0, end = 0;
        if (sscanf(texts[i], "%d:%d:%d:%n", &optimizer, &group, &frozen, &end) != 3 || !end)
            exit(2);
        dcp_optimizer_options *options = &optimizers[optimizer];
        options->parameters = parameters[optimizer];
        parameters[optimizer][options->parameter_count++] =
            (dcp_parameter){texts[i] + end, (size_t)group, frozen != 0};
    }
}

static dcp_state *make_model(const dcp_checkpoint *checkpoint)
{
    dcp_state *model = dcp_state_new();
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        dcp_entry entry;
        must(dcp_checkpoint_entry(checkpoint, i, &entry), "an entry");
        if (strncmp(entry.name, "model.", 6) != 0)
            continue;
        dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
        for (int32_t d = 0; d < entry.ndim; d++)
            tensor.global_shape[d] = entry.global_shape[d];
        dcp_state_tensor(model, entry.name + 6, &tensor);
    }
    return model;
}

int main(int argc, char **argv)
{
    static dcp_parameter parameters[OPTIMIZERS][PARAMETERS];
    dcp_optimizer_options optimizers[OPTIMIZERS] = {{0}};
    dcp_checkpoint *checkpoint;
    dcp_load_options load = {0};
    dcp_save_options save = {0};

    if (argc < 5)
        return 2;
    read_parameters(argv + 4, argc - 4, parameters, optimizers);
    dcp_optimizer_form form =
        strcmp(argv[3], "flat") == 0 ? DCP_OPTIMIZER_FLAT : DCP_OPTIMIZER_BY_NAME;
    must(dcp_checkpoint_open(argv[1], NULL, &checkpoint), "opening");
    dcp_state *model = make_model(checkpoint), *out = dcp_state_new();
    dcp_state *native = dcp_state_dict(out, "native"), *named = dcp_state_dict(out, "optimizer");
    dcp_state *loaded[OPTIMIZERS] = {NULL}, *copies[OPTIMIZERS] = {NULL};
    for (int o = 0; o < OPTIMIZERS && optimizers[o].parameter_count > 0; o++) {
        char key[8];
        snprintf(key, sizeof key, "%d", o);
        loaded[o] = dcp_state_new();
        copies[o] = dcp_state_new();
        dcp_state *into = dcp_state_dict(loaded[o], "optimizer");
        must(dcp_optimizer_prepare(checkpoint, "optimizer", model, &optimizers[o], into),
             "preparing");
        must(dcp_load(loaded[o], argv[1], &load, NULL), "loading");
        must(dcp_optimizer_convert(into, &optimizers[o], DCP_OPTIMIZER_BY_POSITION,
                                   dcp_state_dict(native, key)),
             "to positions");
        must(dcp_optimizer_convert(into, &optimizers[o], DCP_OPTIMIZER_BY_POSITION, copies[o]),
             "to positions");
        must(dcp_optimizer_convert(copies[o], &optimizers[o], form, named), "to names");
    }
    must(dcp_save(out, argv[2], &save), "saving");
    dcp_state_free(out);
    for (int o = 0; o < OPTIMIZERS; o++) {
        dcp_state_free(copies[o]);
        dcp_state_free(loaded[o]);
    }
    dcp_state_free(model);
    dcp_checkpoint_close(checkpoint);
    return 0;
}
