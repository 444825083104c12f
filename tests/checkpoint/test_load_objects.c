/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects that several ranks want are read once: many small ones in few messages, large ones in
 * windows; those who do not want one do not get it. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/over_files.h"
#include "format/metadata/metadata_codec.h"
#include "group/collective.h"
#include "storage/shard/shard_reader.h"
#include "storages/every_storage.h"

enum { SMALL = 300, LARGE_SIZE = 9 << 20 };

/* What a rank has, or wants. */
struct tree {
    dcp_state *root;
    unsigned char *large;
    int32_t element;
};

struct trial {
    int small; /* objects */
    bool large;
    bool some; /* rank r wants those whose number modulo the count of ranks is not r + 1 */
    bool remote;
    bool derived;
    bool paired;
    dcp_reading reading;
    dcp_figures figures[RANKS_MAX];
    _Atomic int messages;
    int32_t elements[RANKS_MAX];
};

static bool wants(const struct trial *trial, int rank, int size, int number)
{
    return !trial->some || number % size != (rank + 1) % size;
}

static unsigned char byte_at(size_t i)
{
    return (unsigned char)(i * 131 + i / 4099);
}

static void tree_init(struct tree *tree, const struct trial *trial, int rank, int size, bool filled)
{
    char key[32], text[64];
    *tree = (struct tree){.root = dcp_state_new(), .element = filled ? 5 : -1};
    dcp_tensor tensor = {.dtype = DCP_I32, .data = &tree->element};
    for (int i = 0; i < trial->small; i++) {
        snprintf(key, sizeof key, "s%03d", i);
        snprintf(text, sizeof text, "text of object %d", i * 7);
        if (filled || wants(trial, rank, size, i))
            dcp_state_string(tree->root, key, filled ? text : "");
    }
    tree->large = trial->large ? malloc(LARGE_SIZE) : NULL;
    for (size_t i = 0; trial->large && i < LARGE_SIZE; i++)
        tree->large[i] = byte_at(i);
    if (trial->large && (filled || wants(trial, rank, size, 0)))
        dcp_state_bytes(tree->root, "large", tree->large, filled ? LARGE_SIZE : 1);
    dcp_state_tensor(tree->root, "tensor", &tensor);
}

static void tree_free(struct tree *tree)
{
    dcp_state_free(tree->root);
    free(tree->large);
}

static dcp_status tree_check(const struct tree *tree, const struct trial *trial, int rank, int size)
{
    char key[32], text[64];
    const char *found;
    const void *bytes;
    size_t length;
    for (int i = 0; i < trial->small; i++) {
        snprintf(key, sizeof key, "s%03d", i);
        snprintf(text, sizeof text, "text of object %d", i * 7);
        const dcp_state *node = dcp_state_find(tree->root, key);
        if (!wants(trial, rank, size, i)) {
            if (node)
                return dcp_error_set(DCP_ERR_INTERNAL, "%s came unasked", key);
            continue;
        }
        if (dcp_state_as_text(node, &found, &length) != DCP_OK || length != strlen(text) ||
            memcmp(found, text, length) != 0)
            return dcp_error_set(DCP_ERR_INTERNAL, "%s is wrong", key);
    }
    if (trial->large && wants(trial, rank, size, 0) &&
        (dcp_state_as_bytes(dcp_state_find(tree->root, "large"), &bytes, &length) != DCP_OK ||
         length != LARGE_SIZE || memcmp(bytes, tree->large, length) != 0))
        return dcp_error_set(DCP_ERR_INTERNAL, "large is wrong");
    return tree->element == 5 ? DCP_OK : dcp_error_set(DCP_ERR_INTERNAL, "tensor is wrong");
}

static void save(const char *path, const struct trial *trial, const dcp_save_options *options)
{
    struct tree tree;
    tree_init(&tree, trial, 0, 1, true);
    must(dcp_save(tree.root, path, options));
    tree_free(&tree);
}

static struct trial *counted; /* operations get the group's context alone */
static dcp_group_operations real;

static dcp_status count_all_to_all(void *context, const dcp_collective *call, const void *send,
                                   const size_t *send_sizes, const size_t *send_offsets,
                                   void *receive, const size_t *receive_sizes,
                                   const size_t *receive_offsets)
{
    counted->messages++;
    return real.all_to_all(context, call, send, send_sizes, send_offsets, receive, receive_sizes,
                           receive_offsets);
}

static dcp_status load_body(struct rank *self)
{
    struct trial *trial = self->context;
    struct tree tree;
    struct file_ops ops = file_ops_system;
    dcp_figures *figures = &trial->figures[self->rank];
    figures->size_of = sizeof *figures;
    const dcp_load_options options = {
        .group = self->group, .timeout_seconds = 30, .reading = trial->reading, .figures = figures};
    if (trial->remote)
        ops.remote = over_network;
    if (trial->paired) {
        dcp_group *bulk;
        must(dcp_group_duplicate(self->group, 30, &bulk));
        must(dcp_group_pair(self->group, bulk, 30));
    }
    if (trial->derived)
        self->group->operations.all_to_all = NULL;
    if (self->rank == 0 && !trial->derived && !trial->paired) {
        counted = trial;
        real = self->group->operations;
        self->group->operations.all_to_all = count_all_to_all;
    }
    tree_init(&tree, trial, self->rank, self->size, false);
    dcp_status status = trial->remote ? load_over(&ops, tree.root, self->path, &options, NULL)
                                      : dcp_load(tree.root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = tree_check(&tree, trial, self->rank, self->size);
    trial->elements[self->rank] = tree.element;
    tree_free(&tree);
    return status;
}

/* By ranks together, of each object that at least two want. */
struct volume {
    uint64_t read;      /* each once */
    uint64_t exchanged; /* by all who want it but one */
};

static struct volume expected_volume(const char *path, const struct trial *trial, int size)
{
    struct metadata metadata;
    struct shard_reader *reader;
    enum storage_form form;
    struct volume volume = {0};
    const dcp_storage *storage = every_storage() ? every_storage() : dcp_storage_files();
    must(storage_read_metadata(storage, storage_at(path), &form, &metadata, &reader));
    for (size_t i = 0; i < metadata.count; i++) {
        const struct metadata_entry *entry = &metadata.entries[i];
        int number = entry->name[0] == 's' ? atoi(entry->name + 1) : 0;
        uint64_t ranks = 0, bytes = entry->pieces[0].length;
        for (int r = 0; r < size && !entry->is_tensor; r++)
            ranks += wants(trial, r, size, number);
        volume.read += ranks > 0 ? bytes : 0;
        volume.exchanged += ranks > 0 ? bytes * (ranks - 1) : 0;
    }
    shard_reader_free(reader);
    metadata_free(&metadata);
    return volume;
}

static struct volume total(const struct trial *trial, int size)
{
    struct volume volume = {0};
    for (int r = 0; r < size; r++) {
        volume.read += trial->figures[r].bytes_read;
        volume.exchanged += trial->figures[r].bytes_exchanged;
    }
    return volume;
}

/* The tensor is exchanged, too: four bytes for each rank but one. */
static void each_object_is_read_once(void **state)
{
    const char *path = path_in(state, "c");
    struct trial trial = {.small = SMALL, .reading = DCP_READING_COOPERATIVE};
    save(path, &trial, NULL);
    for (int size = 2; size <= 5; size++)
        for (int way = 0; way < 4; way++) {
            trial.some = way == 1 && size > 2;
            trial.derived = way == 2;
            trial.paired = way == 3;
            trial.reading = DCP_READING_COOPERATIVE;
            trial.messages = 0;
            ranks_must(size, path, load_body, &trial);
            struct volume expected = expected_volume(path, &trial, size);
            struct volume once = total(&trial, size);
            assert_int_equal(once.exchanged, expected.exchanged + 4 * ((uint64_t)size - 1));
            assert_in_range(trial.messages, 0, 2 * size); /* not one for each object */
            trial.reading = DCP_READING_DIRECT;
            ranks_must(size, path, load_body, &trial);
            struct volume direct = total(&trial, size);
            assert_int_equal(direct.exchanged, 0);
            /* What is left: the tensor's stream, and what each rank opens a file for. */
            assert_in_range(direct.read - once.read, expected.exchanged,
                            expected.exchanged + (uint64_t)size * 8192);
        }
}

static void large_objects_come_in_windows(void **state)
{
    const char *path = path_in(state, "c");
    struct trial trial = {.small = 3, .large = true, .reading = DCP_READING_COOPERATIVE};
    save(path, &trial, NULL);
    for (int size = 2; size <= 4; size++)
        for (int way = 0; way < 2; way++) {
            trial.some = way == 1 && size > 2;
            trial.messages = 0;
            ranks_must(size, path, load_body, &trial);
            struct volume expected = expected_volume(path, &trial, size);
            struct volume once = total(&trial, size);
            assert_int_equal(once.exchanged, expected.exchanged + 4 * ((uint64_t)size - 1));
            assert_in_range(once.read, expected.read, expected.read + (uint64_t)size * 16384);
            assert_true(getenv("RANKS_APART") ? trial.messages > 2 : trial.messages == 0);
            for (int r = 0; r < size; r++)
                assert_in_range(trial.figures[r].peak_memory, 0, 48 << 20);
        }
}

static void compressed_objects_are_read_once(void **state)
{
#if DCP_HAVE_ZSTD
    const char *path = path_in(state, "c");
    struct trial trial = {.small = 40, .large = true, .reading = DCP_READING_COOPERATIVE};
    save(path, &trial, &(dcp_save_options){.compression = DCP_COMPRESSION_ZSTD});
    ranks_must(3, path, load_body, &trial);
    struct volume expected = expected_volume(path, &trial, 3);
    assert_int_equal(total(&trial, 3).exchanged, expected.exchanged + 8);
#else
    (void)state;
    skip();
#endif
}

/* Many small reads over a network are worth it; few are not, nor many in the page cache. */
static void the_way_is_chosen_by_cost(void **state)
{
    needs_files();
    static const struct {
        int small;
        bool remote;
        bool shared;
    } cases[] = {{SMALL, true, true}, {SMALL, false, false}, {10, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%zu", i);
        const char *path = path_in(state, name);
        struct trial trial = {.small = cases[i].small, .remote = cases[i].remote};
        save(path, &trial, NULL);
        ranks_must(4, path, load_body, &trial);
        uint64_t exchanged = expected_volume(path, &trial, 4).exchanged;
        assert_int_equal(total(&trial, 4).exchanged, cases[i].shared ? exchanged : 0);
    }
}

/* With a limit of memory each rank reads its objects by itself. */
static dcp_status limited_body(struct rank *self)
{
    struct trial *trial = self->context;
    struct tree tree;
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {.group = self->group,
                                      .timeout_seconds = 30,
                                      .reading = DCP_READING_COOPERATIVE,
                                      .memory_limit = (uint64_t)256 << 20,
                                      .figures = &figures};
    tree_init(&tree, trial, self->rank, self->size, false);
    dcp_status status = dcp_load(tree.root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = tree_check(&tree, trial, self->rank, self->size);
    if (status == DCP_OK && figures.bytes_exchanged > 4)
        status = dcp_error_set(DCP_ERR_INTERNAL, "objects were exchanged");
    tree_free(&tree);
    return status;
}

static void limited_memory_is_kept(void **state)
{
    struct trial trial = {.small = SMALL};
    save(path_in(state, "c"), &trial, NULL);
    ranks_must(3, path_in(state, "c"), limited_body, &trial);
}

/* Flips a bit in the text of one object. */
static void damage(const char *path)
{
    static const char text[] = "text of object 49"; /* the seventh one's */
    char name[1024];
    snprintf(name, sizeof name, "%s/__0_0.distcp", path);
    int file = open(name, O_RDWR);
    assert_true(file >= 0);
    size_t size = (size_t)lseek(file, 0, SEEK_END);
    char *bytes = malloc(size);
    assert_int_equal(pread(file, bytes, size, 0), size);
    char *found = memmem(bytes, size, text, sizeof text - 1);
    assert_non_null(found);
    *found ^= 1;
    assert_int_equal(pwrite(file, found, 1, found - bytes), 1);
    free(bytes);
    close(file);
}

static void damage_is_everyones_and_changes_nothing(void **state)
{
    needs_files();
    const char *path = path_in(state, "c");
    struct trial trial = {.small = 20, .some = true, .reading = DCP_READING_COOPERATIVE};
    struct rank ranks[RANKS_MAX];
    save(path, &trial, NULL);
    damage(path);
    ranks_run(ranks, 4, path, load_body, &trial);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_CHECKSUM);
        assert_string_equal(ranks[r].message, ranks[0].message);
        assert_non_null(strstr(ranks[r].message, "s007 (__0_0.distcp:"));
        assert_null(strstr(ranks[r].message, "partly"));
        assert_int_equal(trial.elements[r], -1);
    }
}

/* Checkpoints of one structure in which what is stored last has another length. */
enum { CHAIN = 4 };

static const size_t note_lengths[CHAIN] = {40, 900, 900, 7};

static void save_note(const char *path, size_t number)
{
    char note[1000];
    dcp_state *root = dcp_state_new();
    memset(note, 'a' + (int)number, note_lengths[number]);
    dcp_state_int(root, "a", 1);
    dcp_state_int(root, "b", 2);
    dcp_state_text(root, "note", note, note_lengths[number]);
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
}

static dcp_status load_note(struct rank *self, const char *path, size_t number,
                            dcp_load_plan_cache *cache)
{
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options options = {.group = self->group,
                                      .timeout_seconds = 30,
                                      .reading = DCP_READING_COOPERATIVE,
                                      .figures = &figures,
                                      .plan_cache = cache};
    const char *note = NULL;
    size_t length = 0;
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "a", 0);
    dcp_state_string(root, "note", "");
    dcp_status status = dcp_load(root, path, &options, NULL);
    if (status == DCP_OK)
        status = dcp_state_as_text(dcp_state_find(root, "note"), &note, &length);
    if (status == DCP_OK &&
        (length != note_lengths[number] || note[length - 1] != 'a' + (int)number))
        status = dcp_error_set(DCP_ERR_INTERNAL, "load %zu is wrong", number);
    if (status == DCP_OK && figures.plan_reused != (number > 0))
        status = dcp_error_set(DCP_ERR_INTERNAL, "load %zu planned otherwise", number);
    dcp_state_free(root);
    return status;
}

static dcp_status load_notes(struct rank *self)
{
    dcp_load_plan_cache *cache;
    must(dcp_load_plan_cache_new(&cache));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < CHAIN && status == DCP_OK; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s%zu", self->path, i);
        status = load_note(self, path, i, cache);
    }
    dcp_load_plan_cache_free(cache);
    return status;
}

static void lengths_are_those_of_the_checkpoint(void **state)
{
    for (size_t i = 0; i < CHAIN; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%zu", i);
        save_note(path_in(state, name), i);
    }
    ranks_must(3, path_in(state, "c"), load_notes, NULL);
}

#define directory_test(test)                                                                       \
    cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

/* What a pickle's memo makes one value of is two, once other values are loaded into both. */
static void equal_values_of_an_object_stay_apart(void **state)
{
    const char *path = path_in(state, "c"), *text;
    dcp_state *stored = dcp_state_new(), *root = dcp_state_new();
    dcp_state *from = dcp_state_dict(stored, "d"), *into = dcp_state_dict(root, "d");
    dcp_state *same = node_text(root->pool, DCP_KIND_STRING, "same", 4);
    must(dcp_state_string(from, "a", "first"));
    must(dcp_state_string(from, "b", "second"));
    must(dcp_save(stored, path, NULL));
    for (const char *key = "a"; *key <= 'b'; key = *key == 'a' ? "b" : "c")
        must(node_append(into->pool, into, node_text(into->pool, DCP_KIND_STRING, key, 1), same));
    must(dcp_load(root, path, NULL, NULL));
    must(dcp_state_as_text(dcp_state_find(into, "a"), &text, NULL));
    assert_string_equal(text, "first");
    must(dcp_state_as_text(dcp_state_find(into, "b"), &text, NULL));
    assert_string_equal(text, "second");
    dcp_state_free(stored);
    dcp_state_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        directory_test(each_object_is_read_once),
        directory_test(large_objects_come_in_windows),
        directory_test(compressed_objects_are_read_once),
        directory_test(the_way_is_chosen_by_cost),
        directory_test(limited_memory_is_kept),
        directory_test(lengths_are_those_of_the_checkpoint),
        directory_test(damage_is_everyones_and_changes_nothing),
        directory_test(equal_values_of_an_object_stay_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
