/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "state/flatten.h"

static int root_new(void **state)
{
    *state = dcp_state_new();
    return *state ? 0 : -1;
}

static int root_free(void **state)
{
    dcp_state_free(*state);
    return 0;
}

static float memory[4];
static const dcp_tensor vector = {.dtype = DCP_F32, .ndim = 1, .data = memory, .global_shape = {4}};

static void add_tensor(dcp_state *parent, const char *key)
{
    assert_non_null(dcp_state_tensor(parent, key, &vector));
}

static void expect_message(const char *message)
{
    if (!strstr(dcp_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", dcp_error_message(), message);
}

/* One line an entry: its name, then its path as keys and [positions], then its kind. */
static void describe(const struct flat_state *flat, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < flat->count; i++) {
        const struct flat_entry *entry = &flat->entries[i];
        used += (size_t)snprintf(text + used, size - used, "%s:", entry->name);
        for (size_t p = 0; p < entry->path_length; p++)
            used += entry->path[p].key
                        ? (size_t)snprintf(text + used, size - used, "<%s>", entry->path[p].key)
                        : (size_t)snprintf(text + used, size - used, "[%" PRId64 "]",
                                           entry->path[p].position);
        used +=
            (size_t)snprintf(text + used, size - used, " %s\n", node_kind_name(entry->node->kind));
    }
}

static void expect_entries(dcp_state *root, const char *expected)
{
    struct flat_state flat;
    char text[4096];
    for (int round = 0; round < 2; round++) {
        assert_int_equal(flatten_state(root, &flat), DCP_OK);
        describe(&flat, text, sizeof text);
        assert_string_equal(text, expected);
        flatten_free(&flat);
    }
}

static void expect_failure(dcp_state *root, dcp_status status, const char *message)
{
    struct flat_state flat;
    assert_int_equal(flatten_state(root, &flat), status);
    expect_message(message);
    assert_int_equal(flat.count + flat.stateful_count, 0);
    flatten_free(&flat);
}

static void dicts_are_entered(void **state)
{
    dcp_state *model = dcp_state_dict(*state, "model");
    add_tensor(model, "a.b");
    dcp_state *inner = dcp_state_dict(model, "c.d");
    dcp_state_int(inner, "e.f", 1);
    dcp_state_dict(inner, "vanishes");
    dcp_state_int(dcp_state_dict(*state, ""), "", 2);
    dcp_state_string(*state, "last", "x");
    expect_entries(*state, "model.a.b:<model><a.b> tensor\n"
                           "model.c.d.e.f:<model><c.d><e.f> int\n"
                           ".:<><> int\n"
                           "last:<last> string\n");
}

static void an_empty_state_has_no_entries(void **state)
{
    expect_entries(*state, "");
}

static void a_part_of_a_tree_is_flattened_alone(void **state)
{
    dcp_state *model = dcp_state_dict(*state, "model");
    dcp_state_int(model, "a", 1);
    expect_entries(model, "a:<a> int\n");
}

/* The format's facts, 10.1. */
static void lists_are_entered_for_what_they_contain(void **state)
{
    dcp_state *root = *state;
    dcp_state *list = dcp_state_list(root, "plain");
    dcp_state_int(list, NULL, 1);
    dcp_state_list(list, NULL);
    dcp_state_list(root, "empty");

    list = dcp_state_list(root, "tensors");
    dcp_state_list(list, NULL);
    add_tensor(list, NULL);
    dcp_state_int(list, NULL, 3);

    list = dcp_state_list(root, "dicts");
    dcp_state_dict(list, NULL); /* leaves a gap */
    dcp_state_int(dcp_state_dict(list, NULL), "x", 1);

    list = dcp_state_list(root, "deep");
    dcp_state *inner = dcp_state_list(dcp_state_list(list, NULL), NULL);
    dcp_state_int(inner, NULL, 1);
    add_tensor(inner, NULL);
    dcp_state_int(dcp_state_list(list, NULL), NULL, 1);

    dcp_state *tuple = dcp_state_tuple(root, "tuple");
    add_tensor(tuple, NULL);
    dcp_state_dict(tuple, NULL);
    add_tensor(dcp_state_tuple(dcp_state_list(root, "list of tuple"), NULL), NULL);

    expect_entries(root, "plain:<plain> list\n"
                         "empty:<empty> list\n"
                         "tensors.0:<tensors>[0] list\n"
                         "tensors.1:<tensors>[1] tensor\n"
                         "tensors.2:<tensors>[2] int\n"
                         "dicts.1.x:<dicts>[1]<x> int\n"
                         "deep.0.0.0:<deep>[0][0][0] int\n"
                         "deep.0.0.1:<deep>[0][0][1] tensor\n"
                         "deep.1:<deep>[1] list\n"
                         "tuple:<tuple> tuple\n"
                         "list of tuple:<list of tuple> list\n");
}

static void keys_become_strings(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    dcp_state *dict = dcp_state_dict(*state, "state");
    dcp_state *key = node_new(pool, DCP_KIND_TUPLE);
    node_append(pool, key, NULL, node_int(pool, 1));
    node_append(pool, key, NULL, node_int(pool, 2));
    node_append(pool, dict, node_int(pool, 0), node_int(pool, 5));
    node_append(pool, dict, key, node_int(pool, 6));
    node_append(pool, dict, node_new(pool, DCP_KIND_NONE), node_int(pool, 7));
    expect_entries(*state, "state.0:<state><0> int\n"
                           "state.(1, 2):<state><(1, 2)> int\n"
                           "state.None:<state><None> int\n");
    node_append(pool, dict, node_text(pool, DCP_KIND_OPAQUE, "a.b", 3), node_int(pool, 8));
    expect_failure(*state, DCP_ERR_UNSUPPORTED, "a key of kind opaque object");
}

static void keys_with_nul_are_refused(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    node_append(pool, *state, node_text(pool, DCP_KIND_STRING, "a\0b", 3), node_int(pool, 5));
    expect_failure(*state, DCP_ERR_ARGUMENT, "begins with \"a\" has a NUL inside");
}

static void names_that_collide_are_refused(void **state)
{
    dcp_state_int(dcp_state_dict(*state, "a"), "b", 1);
    dcp_state_int(*state, "a.b", 2);
    expect_failure(*state, DCP_ERR_DUPLICATE,
                   "duplicated flatten key a.b: of [\"a\"][\"b\"] and of [\"a.b\"]");
}

static void positions_may_collide_with_keys(void **state)
{
    add_tensor(dcp_state_list(*state, "a"), NULL);
    dcp_state_int(*state, "a.0", 2);
    expect_failure(*state, DCP_ERR_DUPLICATE, "[\"a\"][0] and of [\"a.0\"]");
}

static void only_dicts_are_states(void **state)
{
    expect_failure(NULL, DCP_ERR_ARGUMENT, "the state is NULL");
    expect_failure(dcp_state_list(*state, "list"), DCP_ERR_ARGUMENT, "expected a dict");
}

static void the_tree_s_failure_is_reported(void **state)
{
    dcp_state_int(*state, "\xff", 1);
    expect_failure(*state, DCP_ERR_ARGUMENT, "not valid UTF-8");
}

static void containers_in_themselves_are_refused(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    dcp_state *dict = dcp_state_dict(*state, "a");
    dcp_state *list = dcp_state_list(dict, "b");
    node_append(pool, list, NULL, list);
    expect_entries(*state, "a.b:<a><b> list\n"); /* nothing to enter for: its encoder's affair */
    node_append(pool, list, NULL, dict);
    expect_failure(*state, DCP_ERR_ARGUMENT, "the list at [\"a\"][\"b\"][0] contains itself");
    list->as.children.items[0].value = node_int(pool, 1);
    expect_failure(*state, DCP_ERR_ARGUMENT, "the dict at [\"a\"][\"b\"][1] contains itself");
}

static void deep_nesting_is_refused_or_a_leaf(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    dcp_state *list = node_new(pool, DCP_KIND_LIST);
    for (int i = 0; i < 100000; i++) {
        dcp_state *outer = node_new(pool, DCP_KIND_LIST);
        node_append(pool, outer, NULL, list);
        list = outer;
    }
    node_append(pool, dcp_state_list(*state, "lists"), NULL, list);
    expect_entries(*state, "lists:<lists> list\n");
    dcp_state *dict = *state;
    for (int i = 0; i < 999; i++)
        dict = dcp_state_dict(dict, "d");
    struct flat_state flat;
    dcp_state_int(dict, "leaf", 1);
    assert_int_equal(flatten_state(*state, &flat), DCP_OK);
    assert_int_equal(flat.count, 2);
    flatten_free(&flat);
    dcp_state_int(dcp_state_dict(dict, "d"), "leaf", 1);
    expect_failure(*state, DCP_ERR_UNSUPPORTED, "nested more than 1000 deep");
}

/* Lists that share lists, and dicts that share dicts, 60 levels of two each. */
static void shared_containers_do_not_take_forever(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    dcp_state *list = node_new(pool, DCP_KIND_LIST);
    dcp_state *dict = node_new(pool, DCP_KIND_DICT);
    for (int i = 0; i < 60; i++) {
        dcp_state *outer = node_new(pool, DCP_KIND_LIST);
        node_append(pool, outer, NULL, list);
        node_append(pool, outer, NULL, list);
        list = outer;
        outer = node_new(pool, DCP_KIND_DICT);
        node_append(pool, outer, node_int(pool, 1), dict);
        node_append(pool, outer, node_int(pool, 2), dict);
        dict = outer;
    }
    node_append(pool, dcp_state_list(*state, "lists"), NULL, list);
    expect_entries(*state, "lists:<lists> list\n");
    node_append(pool, *state, node_text(pool, DCP_KIND_STRING, "dicts", 5), dict);
    expect_failure(*state, DCP_ERR_UNSUPPORTED, "shared more than 1048576 times");
}

static void put(dcp_state *dict, const char *key, dcp_state *value)
{
    dcp_state *name = node_text(dict->pool, DCP_KIND_STRING, key, strlen(key));
    assert_int_equal(node_append(dict->pool, dict, name, value), DCP_OK);
}

/* As a pickle's memo leaves them: a string and a list in three places each, one of them in a dict
 * that is itself in two places. */
static void shared_values_become_one_for_each_place(void **state)
{
    dcp_state *root = *state, *text, *list;
    struct flat_state flat;
    text = node_text(root->pool, DCP_KIND_STRING, "same", 4);
    list = node_new(root->pool, DCP_KIND_LIST);
    assert_int_equal(node_append(root->pool, list, NULL, text), DCP_OK);
    dcp_state *dict = dcp_state_dict(root, "d");
    put(dict, "a", text);
    put(dict, "b", list);
    put(root, "e", dict);
    put(root, "f", text);
    put(root, "g", list);
    assert_int_equal(flatten_state(root, &flat), DCP_OK);
    assert_int_equal(flatten_own_objects(root, &flat), DCP_OK);
    assert_int_equal(flat.count, 6);
    for (size_t i = 0; i < flat.count; i++)
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(flat.entries[i].node, flat.entries[j].node);
    /* Each is in the tree, the last of those that have one place. */
    for (size_t i = 2; i < flat.count; i++)
        assert_ptr_equal(flat.entries[i].node, flat.entries[i].place->value);
    char *json;
    assert_int_equal(dcp_state_to_json(root, 0, &json), DCP_OK);
    assert_string_equal(json,
                        "{\"d\": {\"a\": \"same\", \"b\": [\"same\"]}, \"e\": {\"a\": \"same\", "
                        "\"b\": [\"same\"]}, \"f\": \"same\", \"g\": [\"same\"]}");
    dcp_text_free(json);
    flatten_free(&flat);
}

static void destinations_must_not_overlap_themselves(void **state)
{
    struct flat_state flat;
    dcp_tensor repeated = {.dtype = DCP_F32, .ndim = 2, .strided = true, .global_shape = {3, 4}};
    repeated.strides[1] = 1;
    add_tensor(*state, "fine");
    dcp_state_tensor(*state, "without memory", &repeated);
    assert_int_equal(flatten_state(*state, &flat), DCP_OK);
    assert_int_equal(flatten_check_destinations(&flat), DCP_OK);
    flatten_free(&flat);
    repeated.data = memory;
    dcp_state_tensor(dcp_state_dict(*state, "model"), "w", &repeated);
    assert_int_equal(flatten_state(*state, &flat), DCP_OK);
    assert_int_equal(flatten_check_destinations(&flat), DCP_ERR_ARGUMENT);
    expect_message("model.w: a chunk of sizes [3, 4] and strides [0, 1] overlaps itself in memory");
    flat.entries[2].left_out = true;
    assert_int_equal(flatten_check_destinations(&flat), DCP_OK);
    flatten_free(&flat);
}

/* ---- stateful entries ---- */

struct counter {
    int64_t value;
    int asked, reported;
    dcp_status fail;
    dcp_stateful *inner; /* put under "inner" if not NULL */
};

static int call_number;

static dcp_status counter_state(void *context, dcp_state *into)
{
    struct counter *counter = context;
    counter->asked++;
    if (counter->fail != DCP_OK)
        return dcp_error_set(counter->fail, "the disk of the counter is full");
    dcp_state_int(into, "value", counter->value);
    add_tensor(dcp_state_list(into, "history"), NULL);
    if (counter->inner)
        dcp_state_stateful(into, "inner", counter->inner);
    return DCP_OK;
}

static dcp_status counter_filled(void *context, const dcp_state *filled)
{
    struct counter *counter = context;
    counter->reported = ++call_number;
    if (counter->fail != DCP_OK)
        return counter->fail;
    return dcp_state_as_int(dcp_state_find(filled, "value"), &counter->value);
}

static void stateful_entries_are_called_on_load(void **state)
{
    struct counter inner = {.value = 5};
    dcp_stateful inner_entry = {counter_state, counter_filled, &inner};
    struct counter outer = {.value = 7, .inner = &inner_entry};
    const dcp_stateful entry = {counter_state, counter_filled, &outer};
    struct counter silent = {.value = 9};
    const dcp_stateful silent_entry = {.state_dict = counter_state, .context = &silent};
    dcp_state_stateful(dcp_state_dict(*state, "train"), "loader", &entry);
    dcp_state_stateful(*state, "silent", &silent_entry);
    dcp_state_int(*state, "step", 1);
    expect_entries(*state,
                   "train.loader.value:<train><loader><value> int\n"
                   "train.loader.history.0:<train><loader><history>[0] tensor\n"
                   "train.loader.inner.value:<train><loader><inner><value> int\n"
                   "train.loader.inner.history.0:<train><loader><inner><history>[0] tensor\n"
                   "silent.value:<silent><value> int\n"
                   "silent.history.0:<silent><history>[0] tensor\n"
                   "step:<step> int\n");
    assert_int_equal(outer.asked, 2);

    struct flat_state flat;
    assert_int_equal(flatten_state(*state, &flat), DCP_OK);
    assert_int_equal(flat.stateful_count, 3);
    assert_string_equal(flat.statefuls[1].name, "train.loader.inner");
    assert_int_equal(flat.statefuls[1].path_length, 3);
    flat.entries[0].node->as.integer.bits = 70;
    flat.entries[2].node->as.integer.bits = 50;
    call_number = 0;
    assert_int_equal(flatten_notify(&flat), DCP_OK);
    assert_int_equal(outer.value, 70);
    assert_int_equal(inner.value, 50);
    assert_int_equal(outer.reported, 1);
    assert_int_equal(inner.reported, 2);
    assert_int_equal(silent.reported, 0);

    inner.fail = DCP_ERR_CALLBACK;
    dcp_error_set(DCP_ERR_CALLBACK, "an old message");
    assert_int_equal(flatten_notify(&flat), DCP_ERR_CALLBACK);
    assert_string_equal(dcp_error_message(), "train.loader.inner: callback failed");
    flatten_free(&flat);
}

/* Told is who has something that was not left out, or nothing at all. */
static void those_left_out_are_not_called(void **state)
{
    struct counter inner = {.value = 5};
    dcp_stateful inner_entry = {counter_state, counter_filled, &inner};
    struct counter outer = {.value = 7, .inner = &inner_entry};
    const dcp_stateful entry = {counter_state, counter_filled, &outer};
    struct counter next = {.value = 9};
    const dcp_stateful next_entry = {counter_state, counter_filled, &next};
    dcp_state_int(*state, "before", 1);
    dcp_state_stateful(*state, "loader", &entry);
    dcp_state_stateful(*state, "loaded", &next_entry);
    static const struct {
        size_t first, end; /* of the entries that are left out: 0, then loader's 1 2, inner's 3 4,
                              loaded's 5 6 */
        bool outer, inner, next;
    } cases[] = {
        {0, 0, true, true, true},    {0, 1, true, true, true},   {1, 5, false, false, true},
        {3, 5, true, false, true},   {1, 3, true, true, true},   {5, 7, true, true, false},
        {0, 7, false, false, false}, {2, 7, true, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flat_state flat;
        assert_int_equal(flatten_state(*state, &flat), DCP_OK);
        assert_int_equal(flat.count, 7);
        for (size_t k = cases[i].first; k < cases[i].end; k++)
            flat.entries[k].left_out = true;
        outer.reported = inner.reported = next.reported = 0;
        assert_int_equal(flatten_notify(&flat), DCP_OK);
        assert_int_equal(outer.reported != 0, cases[i].outer);
        assert_int_equal(inner.reported != 0, cases[i].inner);
        assert_int_equal(next.reported != 0, cases[i].next);
        flatten_free(&flat);
    }
}

static void failing_stateful_entries_are_named(void **state)
{
    struct counter counter = {.fail = DCP_ERR_NO_SPACE};
    const dcp_stateful entry = {counter_state, counter_filled, &counter};
    dcp_state_stateful(dcp_state_dict(*state, "train"), "loader", &entry);
    expect_failure(*state, DCP_ERR_NO_SPACE, "train.loader: the disk of the counter is full");
}

static dcp_status builds_badly(void *context, dcp_state *into)
{
    (void)context;
    dcp_state_int(into, "a", 1);
    dcp_state_int(into, "a", 1);
    return DCP_OK;
}

static void badly_built_subtrees_are_named(void **state)
{
    const dcp_stateful entry = {.state_dict = builds_badly};
    dcp_state_stateful(*state, "loader", &entry);
    expect_failure(*state, DCP_ERR_DUPLICATE, "loader: the key \"a\" is in the dict already");
}

static dcp_status gives_itself(void *context, dcp_state *into)
{
    return dcp_state_stateful(into, "again", context);
}

static void stateful_entries_without_end_are_refused(void **state)
{
    dcp_stateful entry = {.state_dict = gives_itself};
    entry.context = &entry;
    dcp_state_stateful(*state, "again", &entry);
    expect_failure(*state, DCP_ERR_UNSUPPORTED, "nested more than 1000 deep");
}

static void expect_by_rules(dcp_state *root, const struct flatten_rules *rules,
                            const char *expected)
{
    struct flat_state flat;
    char text[4096];
    assert_int_equal(flatten_by_rules(root, rules, &flat), DCP_OK);
    describe(&flat, text, sizeof text);
    assert_string_equal(text, expected);
    flatten_free(&flat);
}

static dcp_status give_tensor(void *context, dcp_state *into)
{
    (void)context;
    return dcp_state_tensor(into, "moment", &vector) ? DCP_OK : DCP_ERR_NO_MEMORY;
}

static dcp_status expect_moment(void *context, const dcp_state *filled)
{
    *(int *)context += dcp_state_find(filled, "moment") != NULL;
    return DCP_OK;
}

static void the_top_alone_is_one_entry_each(void **state)
{
    const struct flatten_rules rules = {.top_only = true};
    struct flat_state flat;
    int reported = 0;
    dcp_stateful entry = {give_tensor, expect_moment, &reported};
    add_tensor(*state, "w");
    add_tensor(dcp_state_dict(*state, "model"), "w");
    dcp_state_dict(*state, "empty");
    add_tensor(dcp_state_list(*state, "list"), NULL);
    dcp_state_stateful(*state, "optimizer", &entry);
    expect_by_rules(*state, &rules,
                    "w:<w> tensor\nmodel:<model> dict\nempty:<empty> dict\nlist:<list> list\n"
                    "optimizer:<optimizer> dict\n");
    assert_int_equal(flatten_by_rules(*state, &rules, &flat), DCP_OK);
    assert_int_equal(flatten_notify(&flat), DCP_OK);
    assert_int_equal(reported, 1);
    flatten_free(&flat);
}

static bool is_stored_whole(const void *context, const char *name, size_t length)
{
    const char *const *names = context;
    for (; *names; names++)
        if (strlen(*names) == length && memcmp(*names, name, length) == 0)
            return true;
    return false;
}

static void dicts_that_are_stored_whole_are_entries(void **state)
{
    static const char *const names[] = {"plain",    "deep.below", "tensors",
                                        "stateful", "empty",      NULL};
    const struct flatten_rules rules = {.is_whole = is_stored_whole, .context = names};
    const dcp_stateful entry = {.state_dict = give_tensor};
    dcp_state_int(dcp_state_dict(*state, "plain"), "a", 1);
    dcp_state_int(dcp_state_dict(dcp_state_dict(*state, "deep"), "below"), "a", 1);
    dcp_state *tensors = dcp_state_dict(*state, "tensors");
    dcp_state_int(tensors, "a", 1);
    add_tensor(dcp_state_list(dcp_state_dict(tensors, "inner"), "list"), NULL);
    dcp_state_stateful(dcp_state_dict(*state, "stateful"), "optimizer", &entry);
    dcp_state_dict(*state, "empty");
    dcp_state_dict(*state, "vanishes");
    expect_by_rules(*state, &rules,
                    "plain:<plain> dict\n"
                    "deep.below:<deep><below> dict\n"
                    "tensors.a:<tensors><a> int\n"
                    "tensors.inner.list.0:<tensors><inner><list>[0] tensor\n"
                    "stateful.optimizer.moment:<stateful><optimizer><moment> tensor\n"
                    "empty:<empty> dict\n");
}

static dcp_status flatten_and_notify(dcp_state *root)
{
    struct flat_state flat;
    dcp_status status = flatten_state(root, &flat);
    if (status == DCP_OK)
        status = flatten_notify(&flat);
    flatten_free(&flat);
    return status;
}

static dcp_status one_value(void *context, dcp_state *into)
{
    (void)context;
    return dcp_state_int(into, "value", 1);
}

static void memory_failures_are_reported(void **state)
{
    struct state_pool *pool = &((dcp_state *)*state)->root->own;
    const dcp_stateful entry = {.state_dict = one_value};
    dcp_state *list = dcp_state_list(*state, "list");
    for (int i = 0; i < 20; i++) {
        char key[100];
        snprintf(key, sizeof key, "%090d", i);
        dcp_state_stateful(*state, key, &entry);
        add_tensor(list, NULL);
        list = dcp_state_list(list, NULL);
    }
    node_append(pool, *state, node_int(pool, 3), node_int(pool, 4));
    assert_int_equal(flatten_and_notify(*state), DCP_OK); /* the tree keeps the key's digits */
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = flatten_and_notify(*state);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, root_new, root_free)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(dicts_are_entered),
        TEST(the_top_alone_is_one_entry_each),
        TEST(dicts_that_are_stored_whole_are_entries),
        TEST(an_empty_state_has_no_entries),
        TEST(a_part_of_a_tree_is_flattened_alone),
        TEST(lists_are_entered_for_what_they_contain),
        TEST(keys_become_strings),
        TEST(keys_with_nul_are_refused),
        TEST(names_that_collide_are_refused),
        TEST(positions_may_collide_with_keys),
        TEST(only_dicts_are_states),
        TEST(the_tree_s_failure_is_reported),
        TEST(containers_in_themselves_are_refused),
        TEST(deep_nesting_is_refused_or_a_leaf),
        TEST(shared_containers_do_not_take_forever),
        TEST(shared_values_become_one_for_each_place),
        TEST(destinations_must_not_overlap_themselves),
        TEST(stateful_entries_are_called_on_load),
        TEST(those_left_out_are_not_called),
        TEST(failing_stateful_entries_are_named),
        TEST(badly_built_subtrees_are_named),
        TEST(stateful_entries_without_end_are_refused),
        TEST(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
