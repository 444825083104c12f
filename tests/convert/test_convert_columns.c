/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that load their columns of a tensor in a file that other programs read: of each stripe one
 * rank reads all, and gives the others what they want. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "checkpoint/wanted_parts.h"
#include "fault/over_files.h"

/* So that the large tensor has several stripes. */
enum { ROWS = 4003 };

struct trial {
    dcp_reading reading;
    dcp_figures figures[RANKS_MAX];
    uint64_t wanted[RANKS_MAX];
};

/* Bytes of all ranks. */
struct sums {
    uint64_t read, exchanged, wanted;
};

static atomic_int reads; /* of all ranks, but for those of queues, which are large */

static int count_read(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                      size_t *done)
{
    atomic_fetch_add(&reads, 1);
    return file_ops_system.pread(context, descriptor, bytes, size, offset, done);
}

/* Not in safetensors files, and no matter here: the ranks' states have it as it was. */
static const char *const objects[] = {"step"};

static dcp_status load_body(struct rank *self)
{
    struct trial *trial = self->context;
    struct wanted_parts parts;
    struct file_ops ops = file_ops_system;
    dcp_figures *figures = &trial->figures[self->rank];
    figures->size_of = sizeof *figures;
    const dcp_load_options options = {.group = self->group,
                                      .timeout_seconds = 30,
                                      .reading = trial->reading,
                                      .exclude = objects,
                                      .exclude_count = 1,
                                      .figures = figures};
    ops.remote = over_network;
    ops.pread = count_read;
    wanted_parts_init(&parts, ROWS, WANT_COLUMNS, self->rank, self->size, false, true);
    wanted_parts_overwrite(&parts);
    dcp_status status = load_over(&ops, parts.root, self->path, &options, NULL);
    if (status == DCP_OK)
        status = wanted_parts_check(&parts);
    trial->wanted[self->rank] = wanted_parts_bytes(&parts);
    wanted_parts_free(&parts);
    return status;
}

static struct sums load_by(const char *path, int ranks, dcp_reading reading)
{
    struct trial trial = {.reading = reading};
    struct sums sums = {0};
    ranks_must(ranks, path, load_body, &trial);
    for (int r = 0; r < ranks; r++) {
        sums.read += trial.figures[r].bytes_read;
        sums.exchanged += trial.figures[r].bytes_exchanged;
        sums.wanted += trial.wanted[r];
    }
    return sums;
}

/* Nobody gets what it does not want, and no row is a read of its own. The headers are read by each
 * rank. */
static void expect_columns(const char *path)
{
    uint64_t once = load_by(path, 1, DCP_READING_DIRECT).read;
    for (int ranks = 2; ranks <= 4; ranks++) {
        atomic_store(&reads, 0);
        struct sums together = load_by(path, ranks, DCP_READING_COOPERATIVE);
        assert_true(atomic_load(&reads) < ROWS / 10);
        assert_in_range(together.read, once - once / 50, once + once / 50);
        assert_true(together.exchanged > 0 && together.exchanged < together.wanted);
        assert_true(load_by(path, ranks, DCP_READING_DIRECT).read > once + once / 4);
    }
}

static void columns_of_each_form_are_read_once(void **state)
{
    static const struct {
        const char *name;
        dcp_form form;
    } forms[] = {{"model.pt", DCP_FORM_PT},
                 {"model.safetensors", DCP_FORM_SAFETENSORS},
                 {"model", DCP_FORM_HF}};
    char from[4096];
    snprintf(from, sizeof from, "%s", path_in(state, "from"));
    wanted_parts_save(from, ROWS, NULL);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const char *to = path_in(state, forms[i].name);
        const dcp_convert_options options = {
            .form = forms[i].form, .skip_sync = true, .exclude = objects, .exclude_count = 1};
        must(dcp_convert(from, to, &options, NULL));
        expect_columns(to);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(
        columns_of_each_form_are_read_once, directory_setup, directory_teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
