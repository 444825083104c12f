/* SPDX-License-Identifier: BSD-3-Clause */
/* An optimizer that has no state yet gets all of what was saved, in whatever form, at any number of
 * ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

static const dcp_parameter parameters[] = {{"layer.w", 0, false}, {"layer.b", 1, false}};
static const dcp_optimizer_options optimizer = {.parameters = parameters, .parameter_count = 2};

/* w is 7 x 2 and divided by rows; b has 3 elements, which all ranks hold. */
static dcp_tensor shape_of(int parameter, int rank, int size)
{
    dcp_mesh mesh = {.ndim = 1, .shape = {size}, .rank = rank};
    dcp_placement placement = parameter == 0 ? dcp_shard(0) : dcp_replicate();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = parameter == 0 ? 2 : 1};
    tensor.global_shape[0] = parameter == 0 ? 7 : 3;
    tensor.global_shape[1] = 2;
    must(dcp_mesh_shard(&mesh, &tensor, &placement));
    return tensor;
}

static float formula(const dcp_tensor *chunk, int64_t index, int which)
{
    int64_t row = chunk->ndim == 2 ? 2 : 1;
    return (float)(1000 * which + chunk->offsets[0] * row + index);
}

static int64_t volume(const dcp_tensor *chunk)
{
    return chunk->sizes[0] * (chunk->ndim == 2 ? 2 : 1);
}

struct rank_memory {
    float moments[2][2][16]; /* of parameter, of which */
    double step[2];
};

static void build_native(dcp_state *root, struct rank_memory *memory, int rank, int size)
{
    static const char *const keys[] = {"0", "1"}, *const names[] = {"exp_avg", "exp_avg_sq"};
    dcp_state *state = dcp_state_dict(root, "state"),
              *groups = dcp_state_list(root, "param_groups");
    for (int p = 0; p < 2; p++) {
        dcp_tensor chunk = shape_of(p, rank, size), step = {.dtype = DCP_F64};
        dcp_state *dict = dcp_state_dict(state, keys[p]), *group = dcp_state_dict(groups, NULL);
        for (int m = 0; m < 2; m++) {
            for (int64_t i = 0; i < volume(&chunk); i++)
                memory->moments[p][m][i] = formula(&chunk, i, 2 * p + m);
            chunk.data = memory->moments[p][m];
            dcp_state_tensor(dict, names[m], &chunk);
        }
        memory->step[p] = 10 + p;
        step.data = &memory->step[p];
        dcp_state_tensor(dict, "step", &step);
        dcp_state_float(group, "lr", 0.1 * (p + 1));
        dcp_state_int(dcp_state_list(group, "params"), NULL, p);
    }
}

static dcp_status save_body(struct rank *self)
{
    const dcp_optimizer_form *form = self->context;
    struct rank_memory *memory = calloc(1, sizeof *memory);
    dcp_state *native = dcp_state_new(), *root = dcp_state_new();
    build_native(native, memory, self->rank, self->size);
    dcp_status status = dcp_optimizer_convert(
        native, &optimizer, *form, dcp_state_dict(dcp_state_dict(root, "run"), "optimizer"));
    dcp_save_options options = {.group = self->group, .timeout_seconds = 30};
    if (status == DCP_OK)
        status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    dcp_state_free(native);
    free(memory);
    return status;
}

static dcp_state *make_model(int rank, int size)
{
    dcp_state *model = dcp_state_new(), *layer = dcp_state_dict(model, "layer");
    for (int p = 0; p < 2; p++) {
        dcp_tensor chunk = shape_of(p, rank, size);
        dcp_state_tensor(layer, p == 0 ? "w" : "b", &chunk);
    }
    return model;
}

static dcp_status check_moments(const dcp_state *native, int rank, int size)
{
    const dcp_state *state = dcp_state_find(native, "state");
    if (dcp_state_count(state) != 2)
        return dcp_error_set(DCP_ERR_INTERNAL, "state of %zu parameters", dcp_state_count(state));
    for (int p = 0; p < 2; p++) {
        const dcp_state *dict = dcp_state_at(state, (size_t)p);
        dcp_tensor expected = shape_of(p, rank, size), found;
        for (int m = 0; m < 2; m++) {
            const dcp_state *moment = dcp_state_find(dict, m == 0 ? "exp_avg" : "exp_avg_sq");
            if (volume(&expected) == 0)
                continue;
            if (dcp_state_chunk(moment, 0, &found) != DCP_OK ||
                volume(&found) != volume(&expected) || found.offsets[0] != expected.offsets[0])
                return dcp_error_set(DCP_ERR_INTERNAL, "parameter %d has another chunk", p);
            for (int64_t i = 0; i < volume(&found); i++)
                if (((const float *)found.data)[i] != formula(&found, i, 2 * p + m))
                    return dcp_error_set(DCP_ERR_INTERNAL, "parameter %d, moment %d is wrong", p,
                                         m);
        }
        if (dcp_state_chunk(dcp_state_find(dict, "step"), 0, &found) != DCP_OK ||
            *(const double *)found.data != 10 + p)
            return dcp_error_set(DCP_ERR_INTERNAL, "parameter %d has another step", p);
        double lr = 0;
        dcp_state_as_float(
            dcp_state_find(dcp_state_at(dcp_state_find(native, "param_groups"), (size_t)p), "lr"),
            &lr);
        if (lr != 0.1 * (p + 1))
            return dcp_error_set(DCP_ERR_INTERNAL, "group %d has the rate %g", p, lr);
    }
    return DCP_OK;
}

static dcp_status load_body(struct rank *self)
{
    dcp_load_options options = {
        .group = self->group, .strictness = DCP_STRICT_RAISE_ALL, .timeout_seconds = 30};
    dcp_state *model = make_model(self->rank, self->size), *root = dcp_state_new(),
              *native = dcp_state_new();
    dcp_state *into = dcp_state_dict(dcp_state_dict(root, "run"), "optimizer");
    dcp_checkpoint *checkpoint = NULL;
    dcp_status status = dcp_checkpoint_open(self->path, NULL, &checkpoint);
    if (status == DCP_OK)
        status = dcp_optimizer_prepare(checkpoint, "run.optimizer", model, &optimizer, into);
    if (status == DCP_OK)
        status = dcp_load(root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = dcp_optimizer_convert(into, &optimizer, DCP_OPTIMIZER_BY_POSITION, native);
    if (status == DCP_OK)
        status = check_moments(native, self->rank, self->size);
    dcp_checkpoint_close(checkpoint);
    dcp_state_free(native);
    dcp_state_free(root);
    dcp_state_free(model);
    return status;
}

static void every_form_at_every_size(void **state)
{
    for (dcp_optimizer_form form = DCP_OPTIMIZER_BY_POSITION; form <= DCP_OPTIMIZER_FLAT; form++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", (int)form);
        ranks_must(2, path_in(state, name), save_body, &form);
        for (int size = 1; size <= 3; size++)
            ranks_must(size, path_in(state, name), load_body, NULL);
    }
}

/* Two optimizers, or two stages, each want their own of what one saved. */
static void a_part_of_the_parameters(void **state)
{
    static const dcp_parameter second[] = {{"layer.b", 0, false}};
    static const dcp_optimizer_options options = {.parameters = second, .parameter_count = 1};
    for (dcp_optimizer_form form = DCP_OPTIMIZER_BY_NAME; form <= DCP_OPTIMIZER_FLAT; form++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", (int)form);
        ranks_must(1, path_in(state, name), save_body, &form);
        dcp_state *model = make_model(0, 1), *root = dcp_state_new(), *native = dcp_state_new();
        dcp_state *into = dcp_state_dict(dcp_state_dict(root, "run"), "optimizer");
        dcp_checkpoint *checkpoint;
        dcp_tensor found;
        must(dcp_checkpoint_open(path_in(state, name), NULL, &checkpoint));
        must(dcp_optimizer_prepare(checkpoint, "run.optimizer", model, &options, into));
        must(dcp_load(root, path_in(state, name), &(dcp_load_options){0}, NULL));
        must(dcp_optimizer_convert(into, &options, DCP_OPTIMIZER_BY_POSITION, native));
        const dcp_state *dict = dcp_state_at(dcp_state_find(native, "state"), 0);
        assert_int_equal(dcp_state_count(dcp_state_find(native, "state")), 1);
        must(dcp_state_chunk(dcp_state_find(dict, "exp_avg_sq"), 0, &found));
        assert_true(((const float *)found.data)[2] == 3002);
        assert_int_equal(dcp_state_count(dcp_state_find(native, "param_groups")), 1);
        dcp_checkpoint_close(checkpoint);
        dcp_state_free(native);
        dcp_state_free(root);
        dcp_state_free(model);
    }
}

/* PyTorch's own: Adam over FSDP2, saved by name. */
static void what_pytorch_saved(void **state)
{
    (void)state;
    static const char path[] = FIXTURES "/fsdp2_adam_w2/ckpt";
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    dcp_parameter found[16];
    dcp_optimizer_options options = {.parameters = found};
    dcp_state *model = dcp_state_new(), *root = dcp_state_new(), *native = dcp_state_new();
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    for (size_t i = 0; i < dcp_checkpoint_count(checkpoint); i++) {
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
        if (strncmp(entry.name, "app.model.", 10) != 0 || strstr(entry.name, "running_") ||
            strstr(entry.name, "num_batches"))
            continue;
        dcp_tensor tensor = {.dtype = entry.dtype, .ndim = entry.ndim};
        memcpy(tensor.global_shape, entry.global_shape, (size_t)entry.ndim * sizeof(int64_t));
        dcp_state_tensor(model, entry.name + 10, &tensor);
        found[options.parameter_count++] = (dcp_parameter){entry.name + 10, 0, false};
    }
    assert_true(options.parameter_count > 0);
    dcp_state *into = dcp_state_dict(dcp_state_dict(root, "app"), "optim");
    must(dcp_optimizer_prepare(checkpoint, "app.optim", model, &options, into));
    must(dcp_load(root, path, &(dcp_load_options){0}, NULL));
    must(dcp_optimizer_convert(into, &options, DCP_OPTIMIZER_BY_POSITION, native));
    assert_int_equal(dcp_state_count(dcp_state_find(native, "state")), options.parameter_count);
    dcp_checkpoint_close(checkpoint);
    dcp_state_free(native);
    dcp_state_free(root);
    dcp_state_free(model);
}

static void must_refuse(dcp_checkpoint *checkpoint, const char *prefix, dcp_state *model,
                        const dcp_optimizer_options *options, dcp_status expected,
                        const char *message)
{
    dcp_state *into = dcp_state_new();
    must_fail(dcp_optimizer_prepare(checkpoint, prefix, model, options, into), expected, message);
    dcp_state_free(into);
}

static void what_is_missing(void **state)
{
    static const dcp_parameter more[] = {{"layer.w", 0, false}, {"layer.new", 0, false}};
    dcp_optimizer_options options = {.parameters = more, .parameter_count = 2};
    dcp_optimizer_form form = DCP_OPTIMIZER_BY_NAME;
    dcp_checkpoint *checkpoint;
    dcp_state *model = make_model(0, 1), *into = dcp_state_new();
    dcp_tensor chunk = shape_of(1, 0, 1);
    ranks_must(1, path_in(state, "c"), save_body, &form);
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    must_refuse(checkpoint, "run", model, &optimizer, DCP_ERR_MISSING_KEY, "no state of this");
    must_refuse(checkpoint, "run.optimizer", model, &options, DCP_ERR_MISSING_KEY,
                "the parameter \"layer.new\" is not a tensor");
    dcp_state_tensor(dcp_state_find(model, "layer"), "new", &chunk);
    must_refuse(checkpoint, "run.optimizer", model, &options, DCP_ERR_MISSING_KEY,
                "no optimizer state of the parameter \"layer.new\"");
    options.partial = true;
    must(dcp_optimizer_prepare(checkpoint, "run.optimizer", model, &options, into));
    assert_int_equal(dcp_state_count(dcp_state_find(into, "state")), 1);
    must_fail(dcp_optimizer_prepare(checkpoint, "run.optimizer", model, &options, into),
              DCP_ERR_ARGUMENT, "an empty dict");
    must_refuse(NULL, "", model, &options, DCP_ERR_ARGUMENT, "only with a checkpoint");
    dcp_checkpoint_close(checkpoint);
    dcp_state_free(into);
    dcp_state_free(model);
}

static void every_failed_allocation(void **state)
{
    dcp_optimizer_form form = DCP_OPTIMIZER_FLAT;
    dcp_checkpoint *checkpoint;
    dcp_status status = DCP_ERR_NO_MEMORY;
    ranks_must(1, path_in(state, "c"), save_body, &form);
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    dcp_state *model = make_model(0, 1);
    for (long n = 1; status != DCP_OK; n++) {
        dcp_state *into = dcp_state_new();
        failing_allocator_install(n, false);
        status = dcp_optimizer_prepare(checkpoint, "run.optimizer", model, &optimizer, into);
        bool reached = failing_allocator_reached();
        failing_allocator_remove();
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        dcp_state_free(into);
    }
    dcp_state_free(model);
    dcp_checkpoint_close(checkpoint);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(every_form_at_every_size), directory_test(a_part_of_the_parameters),
        cmocka_unit_test(what_pytorch_saved),     directory_test(what_is_missing),
        directory_test(every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
