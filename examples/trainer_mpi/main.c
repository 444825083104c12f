/* SPDX-License-Identifier: BSD-3-Clause */
/* Trains a small classifier on any number of MPI ranks, and saves while it goes on. Started again,
 * on any number of ranks, it continues from the newest whole checkpoint as if nothing had happened.
 */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <dcp/mpi.h>

#include "trainers/sudden_death.h"
#include "training.h"

struct options {
    const char *directory;
    int64_t steps;
    int64_t save_every;
    int64_t keep; /* 0: all */
    int64_t hidden;
    int64_t die_in_save; /* 0: never */
    bool wait;
    const char *mirror; /* NULL: none */
};

static const char usage[] =
    "usage: mpirun -n RANKS trainer_mpi [OPTIONS]\n\n"
    "  --dir DIR          checkpoints are DIR/step_N (default: run)\n"
    "  --steps N          train up to this step (default: 60)\n"
    "  --save-every N     save after every N steps (default: 10)\n"
    "  --keep N           the newest checkpoints, the others are removed (default: all)\n"
    "  --hidden N         units of the two hidden layers (default: 1024)\n"
    "  --mirror DIR       a copy of each checkpoint goes there, and comes back from there\n"
    "  --wait             for each save; else training goes on meanwhile\n"
    "  --die-in-save K    all ranks die by SIGKILL while step K * N is saved\n";

static bool parse_count(const char *text, int64_t *count)
{
    char *end;

    *count = strtoll(text, &end, 10);
    return *text && !*end && *count > 0;
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    enum {
        DIR = 'd',
        STEPS = 's',
        SAVE_EVERY = 'e',
        KEEP = 'l',
        HIDDEN = 'h',
        DIE_IN_SAVE = 'k',
        MIRROR = 'm',
        WAIT = 'w'
    };
    static const struct option names[] = {{"dir", required_argument, NULL, DIR},
                                          {"steps", required_argument, NULL, STEPS},
                                          {"save-every", required_argument, NULL, SAVE_EVERY},
                                          {"keep", required_argument, NULL, KEEP},
                                          {"hidden", required_argument, NULL, HIDDEN},
                                          {"die-in-save", required_argument, NULL, DIE_IN_SAVE},
                                          {"mirror", required_argument, NULL, MIRROR},
                                          {"wait", no_argument, NULL, WAIT},
                                          {NULL, 0, NULL, 0}};
    bool good = true;
    int name;

    opterr = 0;
    while (good && (name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (name) {
        case DIR:
            options->directory = optarg;
            break;
        case STEPS:
            good = parse_count(optarg, &options->steps);
            break;
        case SAVE_EVERY:
            good = parse_count(optarg, &options->save_every);
            break;
        case KEEP:
            good = parse_count(optarg, &options->keep);
            break;
        case HIDDEN:
            good = parse_count(optarg, &options->hidden);
            break;
        case DIE_IN_SAVE:
            good = parse_count(optarg, &options->die_in_save);
            break;
        case MIRROR:
            options->mirror = optarg;
            break;
        case WAIT:
            options->wait = true;
            break;
        default:
            good = false;
        }
    }
    return good && optind == argc;
}

/* Collective: all ranks are to die. */
static void arm_sudden_death(const struct training *training, const char *directory)
{
    int rank = dcp_group_rank(training->group), ranks = dcp_group_size(training->group);
    int self = (int)getpid();
    int *processes = calloc((size_t)ranks, sizeof *processes);
    char path[4096];

    if (!processes)
        MPI_Abort(training->communicator, 1);
    MPI_Gather(&self, 1, MPI_INT, processes, 1, MPI_INT, 0, training->communicator);
    snprintf(path, sizeof path, "%s/step_%" PRId64, directory, training->step);
    if (rank == 0 && !sudden_death_arm(path, processes, ranks))
        MPI_Abort(training->communicator, 1);
    free(processes);
}

static dcp_status train(struct training *training, const struct options *options)
{
    const dcp_run_mirror mirror = {.size_of = sizeof mirror, .path = options->mirror};
    const dcp_run_keep keep = {.size_of = sizeof keep, .last = (int32_t)options->keep};
    const dcp_run_options run = {
        .group = training->group,
        .state = training->state,
        .identity = "spirals",
        .every_steps = options->save_every,
        .mode = options->wait ? DCP_RUN_BLOCKING : DCP_RUN_ASYNC_OVERLAPPED,
        .mirrors = &mirror,
        .mirror_count = options->mirror ? 1 : 0,
        .keep = options->keep > 0 ? &keep : NULL,
        .load = &(dcp_load_options){.strictness = DCP_STRICT_RAISE_ALL},
    };
    dcp_run_resumed resumed = {0};
    int rank = dcp_group_rank(training->group);
    dcp_status status = dcp_run_open(options->directory, &run, &training->run);

    if (status == DCP_OK)
        status = dcp_run_resume(training->run, &resumed);
    training->step = resumed.step;
    if (resumed.found && rank == 0)
        printf("RESUMED step=%" PRId64 " from %s on %d ranks\n", resumed.step, resumed.path,
               dcp_group_size(training->group));
    while (status == DCP_OK && training->step < options->steps) {
        double loss = training_step(training);
        if (rank == 0)
            printf("step %3" PRId64 " loss %.9f (%a)\n", training->step, loss, loss);
        fflush(stdout);
        if (training->step == options->die_in_save * options->save_every)
            arm_sudden_death(training, options->directory);
        status = dcp_run_step(training->run, training->step);
    }
    dcp_status closed = dcp_run_close(training->run);
    return status == DCP_OK ? closed : status;
}

/* Which checkpoint it resumes from and why, and what is saved. */
static void print_log(void *context, dcp_log_level level, const char *line)
{
    (void)context, (void)level;
    printf("%s\n", line);
}

int main(int argc, char **argv)
{
    struct options options = {"run", 60, 10, 0, 1024, 0, false, NULL};
    struct training training = {
        .communicator = MPI_COMM_WORLD,
        .schedule = {.base_rate = 0.01},
        .data = {.random_state = 2},
    };
    int rank, ranks, level;

    /* Saves commit in the background with this level; with less, when the trainer asks for them. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (!parse_options(argc, argv, &options)) {
        if (rank == 0)
            fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    if (!model_new(&training.model, options.hidden, rank, ranks)) {
        fprintf(stderr, "rank %d: no memory for a model of %" PRId64 " hidden units\n", rank,
                options.hidden);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }

    dcp_status status = dcp_group_new_mpi(training.communicator, &training.group);
    training.state = training_state(&training);
    if (rank == 0)
        dcp_set_log(print_log, NULL, DCP_LOG_INFO);
    if (status == DCP_OK)
        status = train(&training, &options);
    if (status != DCP_OK)
        fprintf(stderr, "rank %d: %s: %s\n", rank, dcp_status_string(status), dcp_error_message());
    dcp_state_free(training.state);
    dcp_group_free(training.group);
    model_free(&training.model);
    MPI_Finalize();
    return status == DCP_OK ? 0 : 1;
}
