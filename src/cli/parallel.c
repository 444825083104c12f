/* SPDX-License-Identifier: BSD-3-Clause */
#include "parallel.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct crew {
    const struct parallel *parallel;
    pthread_mutex_t mutex; /* guards what follows */
    size_t next;
    dcp_status status;
    char message[1024];
    dcp_progress told;
    struct progress_line progress;
};

struct member {
    struct crew *crew;
    pthread_t thread;
    int number;
};

int parallel_threads(int32_t wanted, size_t count)
{
    enum { MOST = 8 };
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    long threads = wanted > 0 ? wanted : processors < MOST ? processors : MOST;
    if ((size_t)threads > count)
        threads = (long)count;
    return threads < 1 ? 1 : (int)threads;
}

/* Takes note of a piece that is done; a signal ends the work. Called with the mutex. */
static void note(struct crew *crew, dcp_status status, uint64_t bytes)
{
    if (status != DCP_OK && crew->status == DCP_OK) {
        crew->status = status;
        snprintf(crew->message, sizeof crew->message, "%s", dcp_error_message());
    }
    crew->told.bytes_done += bytes;
    if (!progress_draw(&crew->progress, &crew->told) && crew->status == DCP_OK) {
        crew->status = DCP_ERR_CANCELLED;
        snprintf(crew->message, sizeof crew->message, "interrupted");
    }
}

static void *work(void *argument)
{
    struct member *member = argument;
    struct crew *crew = member->crew;
    const struct parallel *parallel = crew->parallel;
    pthread_mutex_lock(&crew->mutex);
    while (crew->status == DCP_OK && crew->next < parallel->count) {
        size_t index = crew->next, end = index + parallel->run_length(parallel->context, index);
        crew->next = end;
        for (; index < end && crew->status == DCP_OK; index++) {
            uint64_t bytes = 0;
            pthread_mutex_unlock(&crew->mutex);
            dcp_status status = parallel->work(parallel->context, member->number, index, &bytes);
            pthread_mutex_lock(&crew->mutex);
            note(crew, status, bytes);
        }
    }
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

/* The calling thread is number 0; where others cannot be had, it does their part. */
dcp_status parallel_run(const struct parallel *parallel)
{
    struct crew crew = {.parallel = parallel, .told = {.bytes_total = parallel->bytes_total}};
    struct member first = {.crew = &crew};
    int more = parallel->thread_count - 1, started = 0;
    struct member *others = more > 0 ? calloc((size_t)more, sizeof *others) : NULL;
    pthread_mutex_init(&crew.mutex, NULL);
    progress_begin(&crew.progress);
    for (; others && started < more; started++) {
        others[started] = (struct member){.crew = &crew, .number = started + 1};
        if (pthread_create(&others[started].thread, NULL, work, &others[started]) != 0)
            break;
    }
    work(&first);
    for (int i = 0; i < started; i++)
        pthread_join(others[i].thread, NULL);
    progress_end(&crew.progress);
    pthread_mutex_destroy(&crew.mutex);
    free(others);
    return crew.status == DCP_OK ? DCP_OK : dcp_error_set(crew.status, "%s", crew.message);
}
