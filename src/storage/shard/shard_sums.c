/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_sums.h"

#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/shard_file.h"

#define PAGE_SIZE    (FOOTER_PAGE_SUMS * sizeof(uint64_t))
#define WINDOW_PAGES (SHARD_SUMS_WINDOW / PAGE_SIZE)

dcp_status shard_sums_init(struct shard_sums *sums, const struct footer *footer)
{
    size_t count = footer->page_count;
    size_t kept = count < SHARD_SUMS_KEPT ? count : SHARD_SUMS_KEPT;
    *sums = (struct shard_sums){.page_count = count};
    sums->pages = memory_allocate_array(count, sizeof *sums->pages);
    sums->kept = memory_allocate_array(kept, PAGE_SIZE);
    if (!sums->pages || !sums->kept) {
        memory_release(sums->pages);
        memory_release(sums->kept);
        *sums = (struct shard_sums){0};
        return error_no_memory(count * sizeof *sums->pages + kept * PAGE_SIZE, "block checksums");
    }
    if (count > 0)
        memcpy(sums->pages, footer->pages, count * sizeof *sums->pages);
    for (size_t i = 0; i < SHARD_SUMS_KEPT; i++)
        sums->kept_pages[i] = SIZE_MAX;
    pthread_mutex_init(&sums->mutex, NULL);
    return DCP_OK;
}

void shard_sums_free(struct shard_sums *sums)
{
    if (!sums->pages)
        return;
    pthread_mutex_destroy(&sums->mutex);
    memory_release(sums->pages);
    memory_release(sums->kept);
}

/* Sums of so many pages from one on. */
static size_t count_sums(const struct shard_file *file, size_t page, size_t pages)
{
    uint64_t left = file->block_count - (uint64_t)page * FOOTER_PAGE_SUMS;
    size_t most = pages * FOOTER_PAGE_SUMS;
    return left < most ? (size_t)left : most;
}

static dcp_status check_page(const struct shard_file *file, size_t page, const uint64_t *bytes)
{
    uint64_t computed = xxh3_64(bytes, count_sums(file, page, 1) * sizeof *bytes);
    if (computed == file->sums.pages[page])
        return DCP_OK;
    return dcp_error_set(DCP_ERR_CHECKSUM,
                         "page %zu of block checksums at offset %" PRIu64 " has XXH3 %016" PRIx64
                         ", expected %016" PRIx64,
                         page, file->content_length + (uint64_t)page * PAGE_SIZE, computed,
                         file->sums.pages[page]);
}

/* Pages of the file, as they lie there. */
static dcp_status read_pages(struct shard_file *file, size_t page, size_t pages, uint64_t *bytes)
{
    size_t count = count_sums(file, page, pages);
    RETURN_IF_ERROR(shard_file_read(file, bytes, count * sizeof *bytes,
                                    file->content_length + (uint64_t)page * PAGE_SIZE));
    for (size_t i = 0; i < pages; i++)
        RETURN_IF_ERROR(check_page(file, page + i, bytes + i * FOOTER_PAGE_SUMS));
    return DCP_OK;
}

/* The same of one page, which may be there; the mutex is held. */
static dcp_status keep_page(struct shard_file *file, size_t page, uint64_t **bytes)
{
    struct shard_sums *sums = &file->sums;
    size_t slots = sums->page_count < SHARD_SUMS_KEPT ? sums->page_count : SHARD_SUMS_KEPT;
    if (slots == 0)
        return dcp_error_set(DCP_ERR_INTERNAL, "%s has no pages of sums", shard_file_path(file));
    for (size_t i = 0; i < slots; i++) {
        *bytes = sums->kept + i * FOOTER_PAGE_SUMS;
        if (sums->kept_pages[i] == page)
            return DCP_OK;
    }
    size_t slot = sums->next;
    sums->next = (slot + 1) % slots;
    sums->kept_pages[slot] = SIZE_MAX;
    *bytes = sums->kept + slot * FOOTER_PAGE_SUMS;
    RETURN_IF_ERROR(read_pages(file, page, 1, *bytes));
    sums->kept_pages[slot] = page;
    return DCP_OK;
}

static dcp_status read_kept(struct shard_file *file, size_t page, uint64_t *bytes)
{
    uint64_t *kept;
    pthread_mutex_lock(&file->sums.mutex);
    dcp_status status = keep_page(file, page, &kept);
    if (status == DCP_OK)
        memcpy(bytes, kept, count_sums(file, page, 1) * sizeof *bytes);
    pthread_mutex_unlock(&file->sums.mutex);
    return status;
}

static dcp_status make_room(struct shard_sums_window *window, size_t size)
{
    if (window->capacity >= size)
        return DCP_OK;
    memory_release(window->sums);
    *window = (struct shard_sums_window){.sums = memory_allocate(size)};
    if (!window->sums)
        return error_no_memory(size, "block checksums");
    window->capacity = size;
    return DCP_OK;
}

/* So many pages, or fewer. */
static void expect_pages(struct shard_file *file, size_t page, size_t pages)
{
    struct cached_group group = {.start = UINT64_MAX};
    if (page >= file->sums.page_count)
        return;
    size_t left = file->sums.page_count - page;
    shard_file_expect(file, &group, file->content_length + (uint64_t)page * PAGE_SIZE,
                      count_sums(file, page, pages < left ? pages : left) * sizeof(uint64_t));
}

void shard_sums_expect(struct shard_file *file, uint64_t offset, uint64_t length)
{
    if (file->footer != FOOTER_GOOD || length == 0 || offset >= file->content_length ||
        length > file->content_length - offset)
        return;
    size_t page = (size_t)(offset / file->block_size / FOOTER_PAGE_SUMS);
    size_t last = (size_t)((offset + length - 1) / file->block_size / FOOTER_PAGE_SUMS);
    expect_pages(file, page, last - page < WINDOW_PAGES ? last - page + 1 : WINDOW_PAGES);
}

static dcp_status move_window(struct shard_file *file, struct shard_sums_window *window,
                              uint64_t block, uint64_t end)
{
    size_t page = (size_t)(block / FOOTER_PAGE_SUMS);
    size_t all = (size_t)(footer_page_count(end) - page);
    size_t pages = all < WINDOW_PAGES ? all : WINDOW_PAGES;
    window->count = 0;
    RETURN_IF_ERROR(make_room(window, pages * PAGE_SIZE));
    RETURN_IF_ERROR(pages == 1 ? read_kept(file, page, window->sums)
                               : read_pages(file, page, pages, window->sums));
    if (all > pages && !file->reader->how.plain)
        expect_pages(file, page + pages, all - pages < WINDOW_PAGES ? all - pages : WINDOW_PAGES);
    window->first = (uint64_t)page * FOOTER_PAGE_SUMS;
    window->count = count_sums(file, page, pages);
    return DCP_OK;
}

dcp_status shard_sums_find(struct shard_file *file, struct shard_sums_window *window,
                           uint64_t block, uint64_t end, uint64_t *sum)
{
    if (block < window->first || block - window->first >= window->count)
        RETURN_IF_ERROR(move_window(file, window, block, end));
    *sum = load_u64((const unsigned char *)&window->sums[block - window->first]);
    return DCP_OK;
}

void shard_sums_close(struct shard_sums_window *window)
{
    memory_release(window->sums);
    *window = (struct shard_sums_window){0};
}
