/* SPDX-License-Identifier: BSD-3-Clause */
/* A state whose dicts have keys that are no strings, as check_keys.py has it in Python:
 *
 *   keys save DIRECTORY   saves it there, and writes it to DIRECTORY.pt
 *   keys load DIRECTORY   loads what Python has saved there, and compares each value */
#include <err.h>
#include <stdio.h>
#include <string.h>

#include <dcp.h>

/* Fails with a text of what. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            errx(1, __VA_ARGS__);                                                                  \
    } while (0)

enum { PARAMETERS = 12, ELEMENTS = 6 };

static float moments[PARAMETERS][2][ELEMENTS];

static float expected(int parameter, int moment, int element)
{
    return (float)(parameter * 100 + moment * 10 + element);
}

/* optimizer.state: parameter -> its step and moments. The last one has a large number. */
static int64_t parameter_key(int parameter)
{
    return parameter + 1 < PARAMETERS ? parameter : INT64_C(1) << 40;
}

static void add_optimizer(dcp_state *root, bool is_place_holder)
{
    static const char *const names[] = {"exp_avg", "exp_avg_sq"};
    dcp_state *states = dcp_state_dict(dcp_state_dict(root, "optimizer"), "state");
    for (int p = 0; p < PARAMETERS; p++) {
        dcp_state *state = dcp_state_dict(dcp_state_int_key(states, parameter_key(p)), NULL);
        dcp_state_int(state, "step", is_place_holder ? -1 : p);
        for (int m = 0; m < 2; m++) {
            const dcp_tensor tensor = {
                .dtype = DCP_F32, .ndim = 2, .global_shape = {2, 3}, .data = moments[p][m]};
            dcp_state_tensor(state, names[m], &tensor);
        }
    }
}

/* Values under every kind of key that PyTorch makes a name of; `value` is a place holder. */
static void add_keyed(dcp_state *root, int value)
{
    dcp_state *keyed = dcp_state_dict(root, "keyed"), *pair = dcp_state_pair(keyed);
    dcp_state_none(pair, NULL);
    dcp_state_int(pair, NULL, value);
    pair = dcp_state_pair(keyed);
    dcp_state_bool(pair, NULL, true);
    dcp_state_int(pair, NULL, value);
    pair = dcp_state_pair(keyed);
    dcp_state_float(pair, NULL, 0.5);
    dcp_state_int(pair, NULL, value);
    pair = dcp_state_pair(keyed);
    dcp_state_digits(pair, NULL, "-100000000000000000000");
    dcp_state_int(pair, NULL, value);
    pair = dcp_state_pair(keyed);
    dcp_state_bytes(pair, NULL, "a'", 2);
    dcp_state_int(pair, NULL, value);
    pair = dcp_state_pair(keyed);
    dcp_state *tuple = dcp_state_tuple(pair, NULL);
    dcp_state_int(tuple, NULL, 1);
    dcp_state_string(tuple, NULL, "a");
    dcp_state_int(pair, NULL, value);
}

static dcp_state *build(bool is_place_holder)
{
    dcp_state *root = dcp_state_new();
    add_optimizer(root, is_place_holder);
    add_keyed(root, is_place_holder ? -1 : 5);
    dcp_state *set = dcp_state_set(root, "set");
    if (!is_place_holder) {
        dcp_state_int(set, NULL, 3);
        dcp_state_string(set, NULL, "three");
        dcp_state_int(dcp_state_tuple(set, NULL), NULL, 3);
    }
    CHECK(dcp_state_status(root) == DCP_OK, "%s", dcp_error_message());
    return root;
}

static dcp_status write_file(void *context, const void *bytes, size_t size)
{
    return fwrite(bytes, 1, size, context) == size ? DCP_OK : DCP_ERR_IO;
}

static void save(const char *directory)
{
    char path[4096];
    for (int p = 0; p < PARAMETERS; p++)
        for (int m = 0; m < 2; m++)
            for (int e = 0; e < ELEMENTS; e++)
                moments[p][m][e] = expected(p, m, e);
    dcp_state *root = build(false);
    CHECK(dcp_save(root, directory, NULL) == DCP_OK, "%s", dcp_error_message());
    snprintf(path, sizeof path, "%s.pt", directory);
    FILE *file = fopen(path, "wb");
    if (!file)
        err(1, "%s", path);
    CHECK(dcp_object_encode(root, write_file, file) == DCP_OK, "%s", dcp_error_message());
    if (fclose(file) != 0)
        err(1, "%s", path);
    dcp_state_free(root);
}

static void load(const char *directory)
{
    dcp_state *root = build(true);
    CHECK(dcp_load(root, directory, NULL, NULL) == DCP_OK, "%s", dcp_error_message());
    const dcp_state *states = dcp_state_find(dcp_state_find(root, "optimizer"), "state");
    for (int p = 0; p < PARAMETERS; p++) {
        int64_t step;
        const dcp_state *state = dcp_state_find_int(states, parameter_key(p));
        CHECK(dcp_state_as_int(dcp_state_find(state, "step"), &step) == DCP_OK && step == p,
              "step of %d", p);
        for (int m = 0; m < 2; m++)
            for (int e = 0; e < ELEMENTS; e++)
                CHECK(moments[p][m][e] == expected(p, m, e), "element %d of %d.%d", e, p, m);
    }
    const dcp_state *keyed = dcp_state_find(root, "keyed"), *set = dcp_state_find(root, "set");
    for (size_t i = 0; i < dcp_state_count(keyed); i++) {
        int64_t value;
        CHECK(dcp_state_as_int(dcp_state_at(keyed, i), &value) == DCP_OK && value == 5, "value %zu",
              i);
    }
    const dcp_state *ours = build(false), *theirs = set;
    set = dcp_state_find(ours, "set");
    CHECK(dcp_state_kind(theirs) == DCP_KIND_SET && dcp_state_count(theirs) == 3, "the set");
    for (size_t i = 0; i < 3; i++)
        CHECK(dcp_state_find_key(theirs, dcp_state_at(set, i)), "element %zu of the set", i);
    dcp_state_free((dcp_state *)ours);
    dcp_state_free(root);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        errx(2, "usage: keys save|load DIRECTORY");
    if (strcmp(argv[1], "save") == 0)
        save(argv[2]);
    else
        load(argv[2]);
    return 0;
}
