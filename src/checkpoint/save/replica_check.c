/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/replica_check.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/save/replica_compare.h"
#include "checkpoint/save/replica_digest.h"
#include "checkpoint/save/replica_message.h"

/* One check, on one rank. */
struct replica_check {
    dcp_saving *saving;
    struct dcp_collective call;
    bool dry;           /* all digests are 0 */
    struct buffer keys; /* keys of all of its items, 8 bytes each */
    struct buffer
        question; /* the coordinator's request: items to digest, 4 bytes each; then the part */
    struct buffer digests;   /* digests of these items */
    struct buffer differing; /* keys, 8 bytes each */
    struct buffer description;
    /* At the coordinator. */
    struct replica_holders shared;
    size_t differing_count;
};

bool replica_check_is_wanted(const dcp_saving *saving)
{
    return saving->options.check_replicas != DCP_REPLICA_CHECK_OFF && !saving->replicas_checked &&
           dcp_group_size(saving->options.group) > 1;
}

static dcp_status next_turn(uint64_t *turn)
{
    static atomic_uint_fast64_t turns;
    uint_fast64_t none = 0;
    if (atomic_load(&turns) == 0) {
        uint32_t first;
        RETURN_IF_ERROR(random_bytes(&first, sizeof first, "a sample of replicas"));
        atomic_compare_exchange_strong(&turns, &none, (uint_fast64_t)first + 1);
    }
    *turn = atomic_fetch_add(&turns, 1);
    return DCP_OK;
}

/* Turns go through all parts, in steps that soon reach every region: the number of parts is prime.
 */
static uint32_t part_of(uint64_t turn)
{
    enum { STEP = 155 };
    return (uint32_t)(turn % DCP_REPLICA_PARTS * STEP % DCP_REPLICA_PARTS);
}

/* ---- which ranks hold replicas ---- */

static dcp_status list_keys(struct replica_check *check)
{
    const struct save_plan *plan = &check->saving->local.plan;
    RETURN_IF_ERROR(buffer_reserve(&check->keys, plan->count * sizeof(uint64_t)));
    for (size_t i = 0; i < plan->count; i++)
        buffer_append_u64(&check->keys, replica_key(&plan->items[i]));
    return buffer_status(&check->keys);
}

static dcp_status make_questions(struct replica_check *check, const struct group_messages *keys,
                                 struct buffer *questions)
{
    bool sampled =
        check->saving->options.check_replicas == DCP_REPLICA_CHECK_SAMPLED && !check->dry;
    uint64_t turn = 0;
    if (!check->dry)
        RETURN_IF_ERROR(next_turn(&turn));
    RETURN_IF_ERROR(replica_holders_find(&check->shared, keys, sampled, turn));
    RETURN_IF_ERROR(replica_holders_ask(&check->shared, questions));
    for (int rank = 0; rank < keys->count; rank++) {
        buffer_append_u32(&questions[rank], part_of(turn));
        RETURN_IF_ERROR(buffer_status(&questions[rank]));
    }
    return DCP_OK;
}

static dcp_status ask(struct replica_check *check, dcp_status status)
{
    const dcp_save_options *options = &check->saving->options;
    int ranks = dcp_group_size(options->group);
    struct group_messages keys = {0};
    struct buffer *questions = NULL;
    if (status == DCP_OK)
        status = list_keys(check);
    status = group_gather(options->group, &check->call, options->coordinator, status,
                          check->keys.data, check->keys.size, &keys);
    if (check->saving->coordinates && status == DCP_OK) {
        questions = memory_allocate_zeroed((size_t)ranks, sizeof *questions);
        status = questions ? make_questions(check, &keys, questions)
                           : error_no_memory((size_t)ranks * sizeof *questions, "questions");
    }
    group_messages_free(&keys);
    status = group_scatter(options->group, &check->call, options->coordinator, status, questions,
                           &check->question);
    for (int rank = 0; questions && rank < ranks; rank++)
        buffer_free(&questions[rank]);
    memory_release(questions);
    return status;
}

/* ---- comparing digests ---- */

static dcp_status make_digests(struct replica_check *check)
{
    const dcp_saving *saving = check->saving;
    const struct buffer *question = &check->question;
    size_t count = question->size / sizeof(uint32_t);
    struct replica_digester digester;
    if (count == 0)
        return dcp_error_set(DCP_ERR_GROUP, "the coordinator's request for digests is empty");
    count--;
    struct replica_sample sample = {
        .all = saving->options.check_replicas == DCP_REPLICA_CHECK_ALL,
        .part = load_u32(question->data + count * sizeof(uint32_t)) % DCP_REPLICA_PARTS,
    };
    if (count == 0)
        return DCP_OK;
    if (!check->dry)
        RETURN_IF_ERROR(
            flatten_await_devices(&saving->local.flat, saving->options.timeout_seconds));
    dcp_status status = replica_digester_init(&digester);
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        uint32_t item = load_u32(question->data + i * sizeof(uint32_t));
        uint64_t digest = 0;
        if (item >= saving->local.plan.count)
            status = dcp_error_set(
                DCP_ERR_GROUP,
                "the coordinator asks for the digest of item %u, which does not exist", item);
        else if (!check->dry)
            status = replica_digest(&digester, &saving->local.sources[item],
                                    load_u64(check->keys.data + item * sizeof(uint64_t)), sample,
                                    &digest);
        buffer_append_u64(&check->digests, digest);
    }
    replica_digester_free(&digester);
    return status == DCP_OK ? buffer_status(&check->digests) : status;
}

static dcp_status compare(struct replica_check *check)
{
    const dcp_save_options *options = &check->saving->options;
    struct group_messages digests = {0};
    struct buffer keys;
    buffer_init(&keys, 0);
    dcp_status status = make_digests(check);
    status = group_gather(options->group, &check->call, options->coordinator, status,
                          check->digests.data, check->digests.size, &digests);
    if (check->saving->coordinates && status == DCP_OK)
        status = replica_holders_compare(&check->shared, &digests, REPLICA_MESSAGE_MOST, &keys,
                                         &check->differing_count);
    group_messages_free(&digests);
    status = group_broadcast(options->group, &check->call, options->coordinator, status, keys.data,
                             keys.size, &check->differing);
    buffer_free(&keys);
    return status;
}

/* ---- reporting ---- */

static dcp_status judge(const struct replica_check *check,
                        const struct group_messages *descriptions)
{
    const dcp_saving *saving = check->saving;
    char text[ERROR_TEXT_MAX];
    RETURN_IF_ERROR(replica_message_make(descriptions, check->differing.size / sizeof(uint64_t),
                                         check->differing_count, text));
    if (text[0] == '\0')
        return DCP_OK;
    if (!saving->options.allow_different_replicas)
        return dcp_error_set(DCP_ERR_REPLICA, "%s", text);
    log_line(DCP_LOG_WARNING, "saving to %s: %s", saving->session.path ? saving->session.path : "",
             text);
    return DCP_OK;
}

static dcp_status report(struct replica_check *check)
{
    const dcp_save_options *options = &check->saving->options;
    struct group_messages descriptions = {0};
    dcp_status status = replica_message_append(check->saving->local.sources, &check->keys,
                                               &check->differing, &check->description);
    status = group_gather(options->group, &check->call, options->coordinator, status,
                          check->description.data, check->description.size, &descriptions);
    if (check->saving->coordinates && status == DCP_OK)
        status = judge(check, &descriptions);
    group_messages_free(&descriptions);
    return group_agree(options->group, &check->call, status);
}

static dcp_status run(dcp_saving *saving, bool dry, dcp_status status)
{
    struct replica_check check = {
        .saving = saving,
        .call = {"comparing replicas", saving->options.timeout_seconds},
        .dry = dry,
    };
    status = ask(&check, status);
    if (status == DCP_OK)
        status = compare(&check);
    if (status == DCP_OK && check.differing.size > 0)
        status = report(&check);
    replica_holders_free(&check.shared);
    buffer_free(&check.description);
    buffer_free(&check.differing);
    buffer_free(&check.digests);
    buffer_free(&check.question);
    buffer_free(&check.keys);
    return status;
}

dcp_status replica_check_run(dcp_saving *saving, dcp_status status)
{
    int64_t began = clock_monotonic_ns();
    if (!replica_check_is_wanted(saving))
        return status;
    status = run(saving, false, status);
    saving->replicas_checked = status == DCP_OK;
    saving->operation.figures.replica_check_seconds +=
        (double)(clock_monotonic_ns() - began) * 1e-9;
    return status;
}

dcp_status replica_check_measure(dcp_saving *saving, dcp_status status)
{
    return replica_check_is_wanted(saving) ? run(saving, true, status) : status;
}
