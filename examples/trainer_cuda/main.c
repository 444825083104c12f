/* SPDX-License-Identifier: BSD-3-Clause */
/* Trains on the GPUs of a machine, data parallel over NCCL, and saves while it goes on. Started
 * again, on any number of GPUs, it continues from the newest whole checkpoint with the same bits as
 * if it had never stopped. Exits with 77 where there are not as many GPUs. */
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "trainers/sudden_death.h"
#include "training.h"

enum { GPUS_MOST = 64, SKIPPED = 77 };

struct options {
    const char *directory;
    int64_t gpus; /* 0: all */
    int64_t steps;
    int64_t save_every;
    int64_t die_in_save; /* 0: never */
};

static struct options options = {.directory = "run", .steps = 60, .save_every = 10};

/* One of the GPUs, and what came of it. */
struct worker {
    struct training training;
    double loss;
    uint64_t digest;
    pthread_t thread;
};

static const char usage[] = "usage: trainer_cuda [OPTIONS]\n\n"
                            "  --dir DIR          checkpoints are DIR/step_N (default: run)\n"
                            "  --gpus N           how many GPUs (default: all)\n"
                            "  --steps N          train up to this step (default: 60)\n"
                            "  --save-every N     save after every N steps (default: 10)\n"
                            "  --die-in-save K    dies by SIGKILL while step K * N is saved\n";

static bool parse_count(const char *text, int64_t *count)
{
    char *end;
    *count = strtoll(text, &end, 10);
    return *text && !*end && *count > 0;
}

static bool parse_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"dir", required_argument, NULL, 'd'},         {"gpus", required_argument, NULL, 'g'},
        {"steps", required_argument, NULL, 's'},       {"save-every", required_argument, NULL, 'e'},
        {"die-in-save", required_argument, NULL, 'k'}, {NULL, 0, NULL, 0}};
    bool good = true;
    int name;
    opterr = 0;
    while (good && (name = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (name == 'd')
            options.directory = optarg;
        else if (name == 'g')
            good = parse_count(optarg, &options.gpus) && options.gpus <= GPUS_MOST;
        else if (name == 's')
            good = parse_count(optarg, &options.steps);
        else if (name == 'e')
            good = parse_count(optarg, &options.save_every);
        else
            good = name == 'k' && parse_count(optarg, &options.die_in_save);
    }
    return good && optind == argc;
}

static void arm_sudden_death(const struct training *training)
{
    int self = (int)getpid();
    char path[4096];
    snprintf(path, sizeof path, "%s/step_%" PRId64, training->directory, training->network.step);
    must(sudden_death_arm(path, &self, 1), "dying", "no thread for it");
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct training *training = &worker->training;
    training_begin(training, options.save_every);
    while (training->network.step < options.steps) {
        training_step(training);
        if (training->network.step == options.die_in_save * options.save_every &&
            training->gpu == 0)
            arm_sudden_death(training);
        training_after_step(training);
    }
    must(network_loss(&training->network, &worker->loss) == cudaSuccess, "the loss", "lost");
    worker->digest = training_digest(training);
    training_end(training);
    return NULL;
}

static void train(struct worker *workers, int gpus)
{
    ncclComm_t communicators[GPUS_MOST] = {NULL};
    if (gpus > 1)
        must(ncclCommInitAll(communicators, gpus, NULL) == ncclSuccess, "ncclCommInitAll",
             ncclGetLastError(NULL));
    for (int i = 0; i < gpus; i++) {
        workers[i].training = (struct training){.directory = options.directory,
                                                .gpu = i,
                                                .gpus = gpus,
                                                .communicator = communicators[i]};
        must(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0, "a GPU",
             "no thread for it");
    }
    for (int i = 0; i < gpus; i++)
        pthread_join(workers[i].thread, NULL);
}

int main(int argc, char **argv)
{
    static struct worker workers[GPUS_MOST];
    int found = 0;
    if (!parse_options(argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    if (cudaGetDeviceCount(&found) != cudaSuccess || found == 0 || found < options.gpus) {
        printf("skipped: there are %d GPUs here\n", found);
        return SKIPPED;
    }
    int gpus = options.gpus > 0 ? (int)options.gpus : found < GPUS_MOST ? found : GPUS_MOST;
    train(workers, gpus);
    for (int i = 1; i < gpus; i++)
        must(workers[i].digest == workers[0].digest, "training", "the GPUs' parameters differ");
    printf("step %" PRId64 ", loss %.9f (%a), parameters %016" PRIx64 "\n", options.steps,
           workers[0].loss, workers[0].loss, workers[0].digest);
    return 0;
}
