/* SPDX-License-Identifier: BSD-3-Clause */
#include <dcp/cuda.h>

#include "save_load.h"

/* Loads into memory of the first GPU, if there is one; else that is said in words. */
static int load_to_device(const char *path)
{
    dcp_state *into = make_state(NULL, 0);
    dcp_state *model = dcp_state_find(into, "model");
    dcp_tensor tensor;
    bool good = dcp_state_chunk(dcp_state_find(model, "weight"), 0, &tensor) == DCP_OK;
    dcp_state_free(into);
    into = dcp_state_new();
    tensor.device = dcp_cuda_stream(0, NULL);
    dcp_state_tensor(dcp_state_dict(into, "model"), "weight", &tensor);
    dcp_status status = dcp_load(into, path, NULL, NULL);
    good = good && (status == DCP_OK || status == DCP_ERR_DEVICE);
    if (status != DCP_OK)
        printf("%s\n", dcp_error_message());
    dcp_state_free(into);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    return argc != 2 || save_and_load(argv[1], NULL) != 0 || load_to_device(argv[1]) != 0;
}
