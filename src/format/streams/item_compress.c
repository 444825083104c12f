/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/item_compress.h"

#include "base/error.h"

#if DCP_HAVE_ZSTD
#include <signal.h>
#include <stdatomic.h>

#include "base/memory.h"
#include "base/memory_account.h"
#include "format/streams/zstd_memory.h"

/* Size of the parts that threads compress; small, as each thread holds several. */
#define PART_SIZE (2 << 20)

/* More than zstd allocates in small blocks for the largest number of threads. */
#define SPARE_SIZE ((size_t)1 << 20)

struct item_compressor {
    ZSTD_CCtx *context;
    struct memory_account *account;
    unsigned char *spare; /* while threads are made, else NULL */
    size_t spare_used;
    atomic_size_t refused; /* bytes that zstd asked for in vain, for messages */
    size_t room;
    unsigned char output[];
};

/* zstd 1.5 crashes if it runs out of memory while it makes its threads, so it is given spare memory
 * then, and the failure is reported at the end. */
static void *allocate(void *context, size_t size)
{
    struct item_compressor *compressor = context;
    /* zstd's threads work for the account of the compressing thread. */
    struct memory_account *before = memory_account_enter(compressor->account);
    void *block = memory_allocate(size);
    memory_account_enter(before);
    if (block != NULL)
        return block;
    compressor->refused = size;
    if (compressor->spare == NULL || size > SPARE_SIZE - 64 - compressor->spare_used)
        return NULL;
    block = compressor->spare + compressor->spare_used;
    compressor->spare_used += (size + 63) & ~(size_t)63;
    return block;
}

static void release(void *context, void *block)
{
    struct item_compressor *compressor = context;
    uintptr_t place = (uintptr_t)block - (uintptr_t)compressor->spare;
    if (compressor->spare == NULL || place >= SPARE_SIZE)
        memory_release(block);
}

dcp_status item_compressor_check(int32_t level)
{
    if (level < ZSTD_minCLevel() || level > ZSTD_maxCLevel())
        return dcp_error_set(DCP_ERR_ARGUMENT, "compression_level is %d, expected %d to %d", level,
                             ZSTD_minCLevel(), ZSTD_maxCLevel());
    return DCP_OK;
}

static dcp_status zstd_failed(const struct item_compressor *compressor, size_t result)
{
    if (zstd_lacks_memory(result))
        return error_no_memory(compressor->refused, "compressing an item");
    return dcp_error_set(DCP_ERR_INTERNAL, "zstd: %s", ZSTD_getErrorName(result));
}

static dcp_status set_parameter(struct item_compressor *compressor, ZSTD_cParameter parameter,
                                int value)
{
    size_t result = ZSTD_CCtx_setParameter(compressor->context, parameter, value);
    return ZSTD_isError(result) ? zstd_failed(compressor, result) : DCP_OK;
}

static dcp_status no_output(void *context, const void *bytes, size_t size)
{
    (void)context, (void)bytes, (void)size;
    return DCP_OK;
}

/* zstd makes its threads when a stream begins. Begin one now, so that they take none of the
 * process's signals. If zstd lacks threads, it works without. */
static dcp_status start_threads(struct item_compressor *compressor, uint32_t count)
{
    size_t refused = ZSTD_CCtx_setParameter(compressor->context, ZSTD_c_nbWorkers, (int)count);
    if (ZSTD_isError(refused))
        return DCP_OK;
    RETURN_IF_ERROR(set_parameter(compressor, ZSTD_c_jobSize, PART_SIZE));
    compressor->spare = memory_allocate(SPARE_SIZE);
    if (compressor->spare == NULL)
        return error_no_memory(SPARE_SIZE, "compressing items");
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    dcp_status status = item_compressor_add(compressor, NULL, 0, no_output, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == DCP_OK && compressor->spare_used > 0)
        status = error_no_memory(compressor->spare_used, "compressing items");
    RETURN_IF_ERROR(status);
    memory_release(compressor->spare);
    compressor->spare = NULL;
    ZSTD_CCtx_reset(compressor->context, ZSTD_reset_session_only);
    return DCP_OK;
}

/* Besides its own context, each thread holds some parts and their compressed output. */
uint64_t item_compressor_memory(int32_t level, uint32_t thread_count)
{
    ZSTD_compressionParameters parameters = ZSTD_getCParams(level, 0, 0);
    uint64_t window = (uint64_t)1 << parameters.windowLog;
    uint64_t one = ZSTD_estimateCStreamSize(level) + sizeof(struct item_compressor) +
                   ZSTD_CStreamOutSize() + (64 << 10);
    if (thread_count == 0)
        return one;
    return (thread_count + 1) * (one + 4 * (uint64_t)PART_SIZE + 2 * window) + SPARE_SIZE;
}

dcp_status item_compressor_new(int32_t level, uint32_t thread_count, struct item_compressor **made)
{
    size_t room = ZSTD_CStreamOutSize();
    struct item_compressor *compressor = memory_allocate(sizeof *compressor + room);
    *made = NULL;
    if (compressor == NULL)
        return error_no_memory(sizeof *compressor + room, "compressing items");
    *compressor = (struct item_compressor){.account = memory_account_current(), .room = room};
    ZSTD_customMem memory = {allocate, release, compressor};
    compressor->context = ZSTD_createCCtx_advanced(memory);
    dcp_status status = DCP_OK;
    if (compressor->context == NULL)
        status = error_no_memory(compressor->refused, "compressing items");
    if (status == DCP_OK)
        status = set_parameter(compressor, ZSTD_c_compressionLevel, level);
    if (status == DCP_OK)
        status = set_parameter(compressor, ZSTD_c_contentSizeFlag, 0);
    if (status == DCP_OK && thread_count > 0)
        status = start_threads(compressor, thread_count);
    if (status == DCP_OK)
        *made = compressor;
    else
        item_compressor_free(compressor);
    return status;
}

static dcp_status carry_on(struct item_compressor *compressor, ZSTD_inBuffer *input,
                           ZSTD_EndDirective directive, item_compressed receive, void *context)
{
    size_t left;
    do {
        ZSTD_outBuffer output = {.dst = compressor->output, .size = compressor->room};
        left = ZSTD_compressStream2(compressor->context, &output, input, directive);
        if (ZSTD_isError(left))
            return zstd_failed(compressor, left);
        if (output.pos > 0)
            RETURN_IF_ERROR(receive(context, output.dst, output.pos));
    } while (directive == ZSTD_e_end ? left > 0 : input->pos < input->size);
    return DCP_OK;
}

dcp_status item_compressor_add(struct item_compressor *compressor, const void *bytes, size_t size,
                               item_compressed receive, void *context)
{
    ZSTD_inBuffer input = {.src = bytes, .size = size};
    return carry_on(compressor, &input, ZSTD_e_continue, receive, context);
}

dcp_status item_compressor_end(struct item_compressor *compressor, item_compressed receive,
                               void *context)
{
    ZSTD_inBuffer input = {0};
    return carry_on(compressor, &input, ZSTD_e_end, receive, context);
}

void item_compressor_free(struct item_compressor *compressor)
{
    if (compressor == NULL)
        return;
    ZSTD_freeCCtx(compressor->context);
    memory_release(compressor->spare);
    memory_release(compressor);
}

#else

static dcp_status refuse(void)
{
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "cannot compress by zstd: this library was built with DCP_ZSTD=OFF");
}

dcp_status item_compressor_check(int32_t level)
{
    (void)level;
    return refuse();
}

dcp_status item_compressor_new(int32_t level, uint32_t thread_count, struct item_compressor **made)
{
    (void)level, (void)thread_count;
    *made = NULL;
    return refuse();
}

uint64_t item_compressor_memory(int32_t level, uint32_t thread_count)
{
    (void)level, (void)thread_count;
    return 0;
}

dcp_status item_compressor_add(struct item_compressor *compressor, const void *bytes, size_t size,
                               item_compressed receive, void *context)
{
    (void)compressor, (void)bytes, (void)size, (void)receive, (void)context;
    return refuse();
}

dcp_status item_compressor_end(struct item_compressor *compressor, item_compressed receive,
                               void *context)
{
    (void)compressor, (void)receive, (void)context;
    return refuse();
}

void item_compressor_free(struct item_compressor *compressor)
{
    (void)compressor;
}

#endif

uint64_t item_compressed_bound(uint64_t size)
{
    /* A block of up to 128 KiB that does not shrink is stored with a header of 3 bytes; the frame's
     * own takes some, and parts made side by side end in short blocks. */
    return size + size / 256 + 1024;
}
