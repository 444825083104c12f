/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file optimizer.h
 * @brief An optimizer's state as trees, in the three forms of PyTorch, and conversion between them.
 *
 * | form | in Python |
 * | --- | --- |
 * | by position | `{"state": {0: {"exp_avg": t}}, "param_groups": [{"lr": 0.1, "params": [0]}]}` |
 * | by name | `{"state": {"w": {"exp_avg": t}}, "param_groups": [{"lr": 0.1, "params": ["w"]}]}` |
 * | flat | `{"state.w.exp_avg": t, "param_groups.w.lr": 0.1}` |
 *
 * An optimizer numbers its parameters. A checkpoint should name them, so that another rank, another
 * stage or another number of optimizers can find them. To save: convert to names, then dcp_save().
 * To load: dcp_optimizer_prepare() builds the destinations from the stored names, so that an
 * optimizer without state gets all of it; then dcp_load(), and convert to positions.
 *
 * Source: torch.distributed.checkpoint.state_dict (2.13), get_optimizer_state_dict() and
 * set_optimizer_state_dict().
 */
#ifndef DCP_OPTIMIZER_H
#define DCP_OPTIMIZER_H

#include "checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A parameter of an optimizer. The struct will not grow, because callers keep arrays of it. */
typedef struct dcp_parameter {
    const char *name; /**< as in the model's state: unique among all parameters */
    size_t group;     /**< index of its group in the optimizer's param_groups */
    bool frozen;      /**< requires no gradient: it has no state, and existing state is dropped */
} dcp_parameter;

typedef enum dcp_optimizer_form {
    DCP_OPTIMIZER_BY_POSITION = 0,
    DCP_OPTIMIZER_BY_NAME = 1,
    DCP_OPTIMIZER_FLAT = 2
} dcp_optimizer_form;

/** One optimizer. Arrays and texts are borrowed for the call. */
typedef struct dcp_optimizer_options {
    const dcp_parameter *parameters; /**< in the optimizer's order: position i is parameters[i] */
    size_t parameter_count;
    size_t group_count; /**< number of groups; 0: one more than the highest group of a parameter */
    /** Parameters without state or group in the source are not an error (strict=False). */
    bool partial;
} dcp_optimizer_options;

/**
 * Converts the state of one optimizer in @p source to another form, and adds it to @p into, a dict
 * of another tree.
 *
 * The source may be in any form, which is recognized: `state` and `param_groups`, with strings or
 * ints (or their keys may be ints as text) for parameters, or keys that begin with "state." and
 * "param_groups.". By position, ids need not be 0, 1 and so on: the i-th id that the groups list is
 * parameters[i]. In the other forms it may also hold parameters of other optimizers, which are
 * ignored: this is how state that several optimizers or stages saved is divided again. By name and
 * flat, @p into may already hold the state of other optimizers, so that the call can be repeated
 * for each of them.
 *
 * Parameters of one group must have been in groups of equal settings. A group without parameters
 * gets the settings of the source's group without parameters; there are none in flat form.
 * Nested state (dicts in a parameter's dict) becomes dotted keys in flat form, and dicts with
 * string keys again.
 *
 * Values are copied, tensors' memory is borrowed (see dcp_state_copy()): @p source must live as
 * long as what was loaded into it is used.
 *
 * Errors: DCP_ERR_MISSING_KEY when, by position, a parameter that is not frozen has no state though
 * others have, or a parameter is in none of the source's groups; DCP_ERR_DUPLICATE when settings
 * within a group differ or @p into has a name already; DCP_ERR_KIND for a source in no form;
 * DCP_ERR_ARGUMENT when by position the number of parameters differs. Source:
 * _split_optim_state_dict, _flatten_optim_state_dict, _unflatten_optim_state_dict.
 */
DCP_API dcp_status dcp_optimizer_convert_sized(const dcp_state *source,
                                               const dcp_optimizer_options *optimizer,
                                               size_t options_size, dcp_optimizer_form form,
                                               dcp_state *into);

static inline dcp_status dcp_optimizer_convert(const dcp_state *source,
                                               const dcp_optimizer_options *optimizer,
                                               dcp_optimizer_form form, dcp_state *into)
{
    return dcp_optimizer_convert_sized(source, optimizer, sizeof *optimizer, form, into);
}

/**
 * Adds the state of one optimizer in @p checkpoint to @p into, an empty dict, in its stored form,
 * as destinations of a load. PyTorch's getter allocates this state by a step without gradients. A
 * tensor with the shape of its parameter (its moments) is divided over ranks and devices as the
 * parameter is; other tensors are loaded whole. The load allocates their memory.
 *
 * @param prefix dotted name that the state is stored under, such as "optimizer"; "" for the root.
 * The load must find it there: @p into is the dict under that name.
 * @param model dict whose flattened names are those of the parameters, with this rank's chunks.
 * Errors: DCP_ERR_MISSING_KEY if a parameter that is not frozen has no state although others have
 * (unless `partial`), or if nothing is stored under the prefix.
 */
DCP_API dcp_status dcp_optimizer_prepare_sized(const dcp_checkpoint *checkpoint, const char *prefix,
                                               dcp_state *model,
                                               const dcp_optimizer_options *optimizer,
                                               size_t options_size, dcp_state *into);

static inline dcp_status dcp_optimizer_prepare(const dcp_checkpoint *checkpoint, const char *prefix,
                                               dcp_state *model,
                                               const dcp_optimizer_options *optimizer,
                                               dcp_state *into)
{
    return dcp_optimizer_prepare_sized(checkpoint, prefix, model, optimizer, sizeof *optimizer,
                                       into);
}

#ifdef __cplusplus
}
#endif

#endif
