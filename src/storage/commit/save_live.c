/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/commit/save_live.h"

#include <pthread.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct save_live *first;

void save_live_add(struct save_live *live)
{
    pthread_mutex_lock(&mutex);
    live->next = first;
    first = live;
    pthread_mutex_unlock(&mutex);
}

void save_live_remove(struct save_live *live)
{
    pthread_mutex_lock(&mutex);
    struct save_live **place = &first;
    while (*place && *place != live)
        place = &(*place)->next;
    if (*place)
        *place = live->next;
    pthread_mutex_unlock(&mutex);
}

bool save_live_has(const char *save_id)
{
    pthread_mutex_lock(&mutex);
    const struct save_live *live = first;
    while (live && strcmp(live->save_id, save_id) != 0)
        live = live->next;
    pthread_mutex_unlock(&mutex);
    return live != NULL;
}
