/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves a tensor and a number, loads both again, and compares. */
#ifndef CONSUMER_SAVE_LOAD_H
#define CONSUMER_SAVE_LOAD_H

#include <stdio.h>
#include <string.h>

#include <dcp.h>

/* Names that the library has inside: ours must not meet them. */
int box_intersect(void);
int zip_open(void);
int box_intersect(void)
{
    return 1;
}
int zip_open(void)
{
    return 2;
}

static dcp_state *make_state(float *weight, int64_t step)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.dtype = DCP_F32;
    tensor.ndim = 2;
    tensor.global_shape[0] = 2;
    tensor.global_shape[1] = 3;
    tensor.data = weight;
    dcp_state_tensor(dcp_state_dict(root, "model"), "weight", &tensor);
    dcp_state_int(root, "step", step);
    return root;
}

static int save_and_load(const char *path, dcp_group *group)
{
    float saved[6] = {0, 1, 2, 3, 4, 5};
    float loaded[6] = {0, 0, 0, 0, 0, 0};
    int64_t step = 0;
    dcp_save_options save_options;
    dcp_load_options load_options;
    memset(&save_options, 0, sizeof save_options);
    memset(&load_options, 0, sizeof load_options);
    save_options.group = group;
    save_options.overwrite = DCP_OVERWRITE_REPLACE;
    load_options.group = group;

    dcp_state *from = make_state(saved, 7);
    dcp_state *into = make_state(loaded, 0);
    bool good = dcp_save(from, path, &save_options) == DCP_OK &&
                dcp_load(into, path, &load_options, NULL) == DCP_OK &&
                dcp_state_as_int(dcp_state_find(into, "step"), &step) == DCP_OK;
    if (!good)
        fprintf(stderr, "%s\n", dcp_error_message());
    else if (step != 7 || memcmp(saved, loaded, sizeof saved) != 0)
        fprintf(stderr, "what came back differs\n");
    good = good && step == 7 && memcmp(saved, loaded, sizeof saved) == 0;
    dcp_state_free(from);
    dcp_state_free(into);
    return good && box_intersect() + zip_open() == 3 ? 0 : 1;
}

#endif
