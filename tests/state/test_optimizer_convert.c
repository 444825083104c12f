/* SPDX-License-Identifier: BSD-3-Clause */
/* Every form of an optimizer's state from every other, compared as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "dcp.h"
#include "fault/failing_allocator.h"
#include "state/node.h"

static float moments[4] = {1, 2, 3, 4};

/* Three parameters in two groups; "b" of them is frozen. */
static const dcp_parameter parameters[] = {{"w", 0, false}, {"b", 0, true}, {"w.x", 1, false}};
static const dcp_optimizer_options all = {.parameters = parameters, .parameter_count = 3};

#define NATIVE                                                                                     \
    "{\"state\": {\"$dict\": [[0, {\"step\": 7, \"avg\": T}], [2, {\"step\": 9, \"deep\": "        \
    "{\"q\": 1.5}}]]}, "                                                                           \
    "\"param_groups\": [{\"lr\": 0.1, \"betas\": [0.9, 0.99], \"params\": [0, 1]}, "               \
    "{\"lr\": 0.2, \"params\": [2]}]}"
#define NAMED                                                                                      \
    "{\"state\": {\"w\": {\"step\": 7, \"avg\": T}, \"w.x\": {\"step\": 9, \"deep\": "             \
    "{\"q\": 1.5}}}, "                                                                             \
    "\"param_groups\": [{\"lr\": 0.1, \"betas\": [0.9, 0.99], \"params\": [\"w\", \"b\"]}, "       \
    "{\"lr\": 0.2, \"params\": [\"w.x\"]}]}"
#define FLAT                                                                                       \
    "{\"state.w.step\": 7, \"state.w.avg\": T, \"param_groups.w.lr\": 0.1, "                       \
    "\"param_groups.w.betas\": [0.9, 0.99], \"param_groups.b.lr\": 0.1, "                          \
    "\"param_groups.b.betas\": [0.9, 0.99], \"state.w.x.step\": 9, \"state.w.x.deep.q\": 1.5, "    \
    "\"param_groups.w.x.lr\": 0.2}"

static void put_moment(dcp_state *dict, const char *key)
{
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {4}, .data = moments};
    dcp_state_tensor(dict, key, &tensor);
}

static dcp_state *group(dcp_state *groups, double lr, bool betas)
{
    dcp_state *made = dcp_state_dict(groups, NULL);
    dcp_state_float(made, "lr", lr);
    if (betas) {
        dcp_state *tuple = dcp_state_tuple(made, "betas");
        dcp_state_float(tuple, NULL, 0.9);
        dcp_state_float(tuple, NULL, 0.99);
    }
    return dcp_state_list(made, "params");
}

static void put_state(dcp_state *first, dcp_state *second)
{
    dcp_state_int(first, "step", 7);
    put_moment(first, "avg");
    dcp_state_int(second, "step", 9);
    dcp_state_float(dcp_state_dict(second, "deep"), "q", 1.5);
}

/* By position, as a C program would write it: keys are texts, and ids of any order. */
static dcp_state *make_native(void)
{
    dcp_state *root = dcp_state_new(), *state = dcp_state_dict(root, "state");
    dcp_state *first = dcp_state_dict(state, "31"), *frozen = dcp_state_dict(state, "8");
    put_state(first, dcp_state_dict(state, "9"));
    dcp_state_int(frozen, "step", 1);
    dcp_state *groups = dcp_state_list(root, "param_groups"), *params = group(groups, 0.1, true);
    dcp_state_int(params, NULL, 31);
    dcp_state_int(params, NULL, 8);
    dcp_state_int(group(groups, 0.2, false), NULL, 9);
    assert_int_equal(dcp_state_status(root), DCP_OK);
    return root;
}

static void check_text(const dcp_state *tree, const char *expected)
{
    static const char tensor[] = "{\"$tensor\": {\"dtype\": \"float32\", \"shape\": [4]}}";
    char *text, full[2048] = "";
    size_t length = 0;
    for (const char *c = expected; *c; c++) {
        if (*c == 'T') {
            memcpy(full + length, tensor, sizeof tensor);
            length += sizeof tensor - 1;
        } else {
            full[length++] = *c;
            full[length] = '\0';
        }
    }
    assert_int_equal(dcp_state_to_json(tree, 0, &text), DCP_OK);
    assert_string_equal(text, full);
    dcp_text_free(text);
}

static dcp_state *convert(const dcp_state *source, const dcp_optimizer_options *options,
                          dcp_optimizer_form form)
{
    dcp_state *into = dcp_state_new();
    if (dcp_optimizer_convert(source, options, form, into) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    return into;
}

static void every_form_from_every_form(void **state)
{
    (void)state;
    static const char *const texts[] = {NATIVE, NAMED, FLAT};
    dcp_state *native = make_native();
    for (int from = 0; from < 3; from++) {
        dcp_state *source = convert(native, &all, (dcp_optimizer_form)from);
        check_text(source, texts[from]);
        for (int to = 0; to < 3; to++) {
            dcp_state *result = convert(source, &all, (dcp_optimizer_form)to);
            check_text(result, texts[to]);
            dcp_state_free(result);
        }
        dcp_state_free(source);
    }
    dcp_state_free(native);
}

static void memory_of_tensors_is_borrowed(void **state)
{
    (void)state;
    dcp_state *native = make_native(), *flat = convert(native, &all, DCP_OPTIMIZER_FLAT);
    dcp_tensor chunk;
    assert_int_equal(dcp_state_chunk(dcp_state_find(flat, "state.w.avg"), 0, &chunk), DCP_OK);
    assert_ptr_equal(chunk.data, moments);
    dcp_state_free(flat);
    dcp_state_free(native);
}

/* Saved by one optimizer, loaded by two, in either form, and the reverse. */
static void other_counts_of_optimizers(void **state)
{
    (void)state;
    static const dcp_parameter first[] = {{"w.x", 0, false}},
                               second[] = {{"b", 0, true}, {"w", 0, false}};
    static const dcp_optimizer_options one = {.parameters = first, .parameter_count = 1},
                                       two = {.parameters = second, .parameter_count = 2};
    dcp_state *native = make_native();
    for (int form = DCP_OPTIMIZER_BY_NAME; form <= DCP_OPTIMIZER_FLAT; form++) {
        dcp_state *whole = convert(native, &all, (dcp_optimizer_form)form);
        dcp_state *left = convert(whole, &one, DCP_OPTIMIZER_BY_POSITION);
        dcp_state *right = convert(whole, &two, DCP_OPTIMIZER_BY_POSITION);
        check_text(left, "{\"state\": {\"$dict\": [[0, {\"step\": 9, \"deep\": {\"q\": 1.5}}]]}, "
                         "\"param_groups\": [{\"lr\": 0.2, \"params\": [0]}]}");
        check_text(right, "{\"state\": {\"$dict\": [[1, {\"step\": 7, \"avg\": T}]]}, "
                          "\"param_groups\": [{\"lr\": 0.1, \"betas\": [0.9, 0.99], \"params\": "
                          "[0, 1]}]}");
        dcp_state *together = dcp_state_new();
        for (int o = 0; o < 2; o++)
            assert_int_equal(dcp_optimizer_convert(o ? left : right, o ? &one : &two,
                                                   (dcp_optimizer_form)form, together),
                             DCP_OK);
        dcp_state *again = convert(together, &all, DCP_OPTIMIZER_BY_POSITION);
        check_text(again, NATIVE);
        dcp_state_free(again);
        dcp_state_free(together);
        dcp_state_free(right);
        dcp_state_free(left);
        dcp_state_free(whole);
    }
    dcp_state_free(native);
}

/* Plain SGD has none. */
static void no_state_at_all(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new();
    dcp_state *groups = dcp_state_list(root, "param_groups"), *params = group(groups, 0.1, false);
    for (int i = 0; i < 3; i++)
        dcp_state_int(params, NULL, i);
    static const dcp_parameter same[] = {{"w", 0, false}, {"b", 0, false}, {"x", 0, false}};
    static const dcp_optimizer_options options = {.parameters = same, .parameter_count = 3};
    dcp_state *flat = convert(root, &options, DCP_OPTIMIZER_FLAT);
    dcp_state *native = convert(flat, &options, DCP_OPTIMIZER_BY_POSITION);
    check_text(native, "{\"state\": {}, \"param_groups\": [{\"lr\": 0.1, \"params\": [0, 1, 2]}]}");
    dcp_state_free(native);
    dcp_state_free(flat);
    dcp_state_free(root);
}

static void a_group_without_parameters(void **state)
{
    (void)state;
    static const dcp_parameter one[] = {{"w", 1, false}};
    static const dcp_optimizer_options options = {
        .parameters = one, .parameter_count = 1, .group_count = 3};
    dcp_state *root = dcp_state_new(), *groups = dcp_state_list(root, "param_groups");
    group(groups, 0.5, false);
    dcp_state_string(group(groups, 0.1, false), NULL, "w");
    dcp_state *native = convert(root, &options, DCP_OPTIMIZER_BY_POSITION);
    check_text(native, "{\"state\": {}, \"param_groups\": [{\"lr\": 0.5, \"params\": []}, "
                       "{\"lr\": 0.1, \"params\": [0]}, {\"lr\": 0.5, \"params\": []}]}");
    dcp_state_free(native);
    group(groups, 0.6, false);
    dcp_state *into = dcp_state_new();
    assert_int_equal(dcp_optimizer_convert(root, &options, DCP_OPTIMIZER_BY_POSITION, into),
                     DCP_ERR_DUPLICATE);
    dcp_state_free(into);
    dcp_state_free(root);
}

static void must_refuse(const dcp_state *source, const dcp_optimizer_options *options,
                        dcp_optimizer_form form, dcp_status expected, const char *message)
{
    dcp_state *into = dcp_state_new();
    dcp_status status = dcp_optimizer_convert(source, options, form, into);
    if (status != expected || !strstr(dcp_error_message(), message))
        fail_msg("%d: %s; expected %d: %s", (int)status, dcp_error_message(), (int)expected,
                 message);
    dcp_state_free(into);
}

static void what_is_missing(void **state)
{
    (void)state;
    static const dcp_parameter more[] = {{"w", 0, false}, {"new", 0, false}},
                               thawed[] = {{"w", 0, false}, {"b", 0, false}};
    dcp_optimizer_options options = {.parameters = more, .parameter_count = 2},
                          other = {.parameters = thawed, .parameter_count = 2};
    dcp_state *native = make_native();
    for (int form = DCP_OPTIMIZER_BY_NAME; form <= DCP_OPTIMIZER_FLAT; form++) {
        dcp_state *whole = convert(native, &all, (dcp_optimizer_form)form);
        options.partial = other.partial = false;
        must_refuse(whole, &options, DCP_OPTIMIZER_BY_POSITION, DCP_ERR_MISSING_KEY,
                    "\"new\" is in no group");
        must_refuse(whole, &other, DCP_OPTIMIZER_BY_POSITION, DCP_ERR_MISSING_KEY,
                    "no entry for the parameter \"b\"");
        options.partial = other.partial = true;
        for (int o = 0; o < 2; o++) {
            dcp_state *result = convert(whole, o ? &options : &other, DCP_OPTIMIZER_BY_POSITION);
            check_text(result, "{\"state\": {\"$dict\": [[0, {\"step\": 7, \"avg\": T}]]}, "
                               "\"param_groups\": [{\"lr\": 0.1, \"betas\": [0.9, 0.99], "
                               "\"params\": [0, 1]}]}");
            dcp_state_free(result);
        }
        dcp_state_free(whole);
    }
    must_refuse(native, &options, DCP_OPTIMIZER_BY_NAME, DCP_ERR_ARGUMENT,
                "has 2 parameters, but param_groups list 3");
    dcp_state_free(native);
}

static void settings_that_differ_in_a_group(void **state)
{
    (void)state;
    static const dcp_parameter joined[] = {{"w", 0, false}, {"b", 0, true}, {"w.x", 0, false}};
    static const dcp_optimizer_options options = {.parameters = joined, .parameter_count = 3};
    dcp_state *native = make_native();
    for (int form = DCP_OPTIMIZER_BY_NAME; form <= DCP_OPTIMIZER_FLAT; form++) {
        dcp_state *whole = convert(native, &all, (dcp_optimizer_form)form);
        must_refuse(whole, &options, DCP_OPTIMIZER_BY_POSITION, DCP_ERR_DUPLICATE, "of \"w.x\"");
        dcp_state_free(whole);
    }
    dcp_state_free(native);
}

/* Sources in no form, each by what is wrong with it. */
static void wrong_sources(void **state)
{
    (void)state;
    dcp_state *root = dcp_state_new(), *dicts[8];
    for (int i = 0; i < 8; i++) {
        char key[8];
        snprintf(key, sizeof key, "%d", i);
        dicts[i] = dcp_state_dict(root, key);
    }
    dcp_state_int(dicts[0], "state", 1);
    dcp_state_dict(dicts[1], "state");
    dcp_state_dict(dicts[2], "param_groups");
    dcp_state_int(dicts[3], "step", 1);
    dcp_state_int(dcp_state_list(dicts[4], "param_groups"), NULL, 1);
    dcp_state *mixed = group(dcp_state_list(dicts[5], "param_groups"), 1, false);
    dcp_state_int(mixed, NULL, 0);
    dcp_state_string(mixed, NULL, "w");
    dcp_state_int(dcp_state_dict(dicts[6], "state"), "w", 1);
    dcp_state_list(dicts[6], "param_groups");
    dcp_state *twice = group(dcp_state_list(dicts[7], "param_groups"), 1, false);
    dcp_state_int(twice, NULL, 4);
    dcp_state_int(twice, NULL, 4);
    for (int i = 0; i < 8; i++)
        must_refuse(dicts[i], &all, DCP_OPTIMIZER_BY_NAME,
                    i == 7 ? DCP_ERR_DUPLICATE : DCP_ERR_KIND, "");
    must_refuse(NULL, &all, DCP_OPTIMIZER_BY_NAME, DCP_ERR_ARGUMENT, "is a dict");
    must_refuse(dicts[1], &all, (dcp_optimizer_form)3, DCP_ERR_ARGUMENT, "form is 3");
    assert_int_equal(dcp_optimizer_convert(dicts[1], &all, DCP_OPTIMIZER_FLAT, dicts[3]),
                     DCP_ERR_ARGUMENT);
    dcp_state_free(root);
}

static void wrong_parameters(void **state)
{
    (void)state;
    static const dcp_parameter twice[] = {{"w", 0, false}, {"w", 0, false}}, unnamed[] = {{0}},
                               outside[] = {{"w", 2, false}}, huge[] = {{"w", SIZE_MAX, false}};
    dcp_optimizer_options options = {.parameters = twice, .parameter_count = 2};
    dcp_state *native = make_native();
    must_refuse(native, &options, DCP_OPTIMIZER_FLAT, DCP_ERR_DUPLICATE, "two parameters");
    options = (dcp_optimizer_options){.parameters = unnamed, .parameter_count = 1};
    must_refuse(native, &options, DCP_OPTIMIZER_FLAT, DCP_ERR_ARGUMENT, "no name");
    options =
        (dcp_optimizer_options){.parameters = outside, .parameter_count = 1, .group_count = 2};
    must_refuse(native, &options, DCP_OPTIMIZER_FLAT, DCP_ERR_ARGUMENT, "group 2 of 2");
    options = (dcp_optimizer_options){.parameters = huge, .parameter_count = 1};
    must_refuse(native, &options, DCP_OPTIMIZER_FLAT, DCP_ERR_ARGUMENT, "is in group");
    options = (dcp_optimizer_options){.parameter_count = 1};
    must_refuse(native, &options, DCP_OPTIMIZER_FLAT, DCP_ERR_ARGUMENT, "parameters is NULL");
    dcp_state_free(native);
}

static void every_failed_allocation(void **state)
{
    (void)state;
    dcp_state *native = make_native();
    for (int pair = 0; pair < 9; pair++) {
        dcp_state *source = convert(native, &all, (dcp_optimizer_form)(pair / 3));
        dcp_status status = DCP_ERR_NO_MEMORY;
        for (long n = 1; status != DCP_OK; n++) {
            dcp_state *into = dcp_state_new();
            failing_allocator_install(n, false);
            status = dcp_optimizer_convert(source, &all, (dcp_optimizer_form)(pair % 3), into);
            bool reached = failing_allocator_reached();
            failing_allocator_remove();
            assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
            dcp_state_free(into);
        }
        dcp_state_free(source);
    }
    dcp_state_free(native);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_from_every_form),
        cmocka_unit_test(memory_of_tensors_is_borrowed),
        cmocka_unit_test(other_counts_of_optimizers),
        cmocka_unit_test(no_state_at_all),
        cmocka_unit_test(a_group_without_parameters),
        cmocka_unit_test(what_is_missing),
        cmocka_unit_test(settings_that_differ_in_a_group),
        cmocka_unit_test(wrong_sources),
        cmocka_unit_test(wrong_parameters),
        cmocka_unit_test(every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
