/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file optimizer.h
 * @brief An optimizer's state as trees, in the three forms of PyTorch, and conversion between them.
 *
 * | form | as Python writes it |
 * | --- | --- |
 * | by position | `{"state": {0: {"exp_avg": t}}, "param_groups": [{"lr": 0.1, "params": [0]}]}` |
 * | by name | `{"state": {"w": {"exp_avg": t}}, "param_groups": [{"lr": 0.1, "params": ["w"]}]}` |
 * | flat | `{"state.w.exp_avg": t, "param_groups.w.lr": 0.1}` |
 *
 * An optimizer numbers its parameters; a checkpoint should name them, so that they are found again
 * when another rank, another stage or another number of optimizers holds them. Saving: convert to
 * names, dcp_save(). Loading: dcp_optimizer_prepare() builds what to load from what is stored, so
 * that an optimizer that has no state yet loses nothing; then dcp_load(), and convert to positions.
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

/** A parameter of an optimizer. The struct will not grow, as callers keep arrays of it. */
typedef struct dcp_parameter {
    const char *name; /**< as in the model's state: unique among all parameters */
    size_t group;     /**< which of the optimizer's param_groups it is in */
    bool frozen;      /**< requires no gradient: has no state, and what there is is dropped */
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
    size_t group_count; /**< 0: one more than the highest group of a parameter */
    /** Parameters of which the source has no state or no group are no error (strict=False). */
    bool partial;
} dcp_optimizer_options;

/**
 * Adds to @p into, a dict of another tree, what @p source holds of one optimizer, in another form.
 *
 * The source may be in any form, which is recognized: `state` and `param_groups`, with strings or
 * ints (or their keys may be ints as text) for parameters, or keys that begin with "state." and
 * "param_groups.". By position, ids need not be 0, 1 and so on: the i-th id that the groups list is
 * parameters[i]. Otherwise it may hold other optimizers' parameters too, which are left alone:
 * that is how state that several optimizers, or stages, saved is dealt out. By name and flat,
 * @p into may hold other optimizers' state already, so that calls can be repeated for each of them.
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
 * Adds to @p into, an empty dict, all that @p checkpoint holds of one optimizer, in the form that
 * it is stored in, as destinations of a load: what PyTorch's getter allocates by a step without
 * gradients. A tensor of a parameter's own shape (its moments) is divided over ranks and devices as
 * the parameter is; others are wanted whole. The load allocates their memory.
 *
 * @param prefix dotted name that the state is stored under, such as "optimizer"; "" for the root.
 * The load must find it there: @p into is the dict under that name.
 * @param model dict whose flattened names are those of the parameters, with this rank's chunks.
 * Errors: DCP_ERR_MISSING_KEY when a parameter that is not frozen has no state though others have
 * (unless `partial`), or nothing is stored under the prefix.
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
