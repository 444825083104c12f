/* SPDX-License-Identifier: BSD-3-Clause */
/* The storage table (dcp/storage.h) as the rest of the room sees it: handles that know their table,
 * and statuses that can be trusted. Everything above reaches bytes through these functions. */
#ifndef STORAGE_STORAGE_H
#define STORAGE_STORAGE_H

#include "base/buffer.h"
#include "base/rate.h"
#include "dcp/storage.h"

/* Copies a caller's table and checks that it has what every storage has; NULL: the file system. */
dcp_status storage_take(dcp_storage *ours, const dcp_storage *theirs);
/* The storage for an id: `table` if it handles the id, otherwise the file system, which handles no
 * "scheme://". */
dcp_status storage_choose(const dcp_storage *table, const char *id, const dcp_storage **chosen);

/* Whether it is the file system, so that ids are paths. */
bool storage_is_files(const dcp_storage *table);

/* The id in a form that means the same when the process changes its directory
 * (dcp_storage::absolute). Owned by the caller. */
dcp_status storage_keep_id(const dcp_storage *table, const char *id, char **kept);

struct storage_directory {
    const dcp_storage *table; /* NULL: not open */
    void *handle;
    char *id;
    dcp_storage_traits traits;
};

/* flags: of dcp_storage_open. The table must stay. On failure it is not open. *created: that was
 * done; may be NULL. */
dcp_status storage_directory_open(struct storage_directory *directory, const dcp_storage *table,
                                  const char *id, uint32_t flags, bool *created);
/* Removes the directory if it is empty, where the storage can do that. What fails is logged; the
 * error is kept. */
void storage_directory_withdraw(const struct storage_directory *directory);
/* Does nothing for one that is not open. */
void storage_directory_close(struct storage_directory *directory);
dcp_status storage_directory_list(const struct storage_directory *directory,
                                  dcp_storage_visitor visitor, void *context);
/* A file that is not there counts as removed. */
dcp_status storage_directory_remove(const struct storage_directory *directory, const char *name);
dcp_status storage_directory_sync(const struct storage_directory *directory);
/* UINT64_MAX: not known. */
dcp_status storage_directory_space(const struct storage_directory *directory, uint64_t *bytes);

/* An open file of a directory, which stays open as long. */
struct storage_file {
    const struct storage_directory *directory; /* NULL: not open */
    dcp_storage_file file;
    char *path; /* the directory's id and the name, for messages */
};

dcp_status storage_file_open(struct storage_file *file, const struct storage_directory *directory,
                             const char *name, const dcp_storage_access *access);
/* Fine for one that is not open. */
void storage_file_close(struct storage_file *file);
/* Reads the whole range or fails; a range beyond the end is DCP_ERR_FORMAT. */
dcp_status storage_file_read(struct storage_file *file, void *bytes, size_t size, uint64_t offset);
dcp_status storage_file_create(struct storage_file *file, const struct storage_directory *directory,
                               const char *name, const dcp_storage_access *access);
dcp_status storage_file_write(struct storage_file *file, const void *bytes, size_t size,
                              uint64_t offset);
/* Both close the file, also on failure. Sealing never replaces a file. */
dcp_status storage_file_seal(struct storage_file *file, uint64_t size);
void storage_file_abandon(struct storage_file *file);

/* Hints, and functions that a storage may lack. */
bool storage_file_is_cached(struct storage_file *file, uint64_t offset, size_t size);
/* Whether aligned transfers, from memory in large pages, are the best way, and still so. */
bool storage_file_wants_alignment(struct storage_file *file);
bool storage_file_knows_cache(const struct storage_file *file);
void storage_file_expect(struct storage_file *file, uint64_t offset, size_t size);

/* A range of a file in memory, which may outlive the open file, not its table. All zero: nothing.
 */
struct storage_mapping {
    dcp_storage table;
    void *handle;
    const void *bytes;
    size_t size;
};

/* A range inside of the file; no bytes are NULL. DCP_ERR_UNSUPPORTED where there is no such way. */
dcp_status storage_file_map(struct storage_file *file, uint64_t offset, size_t size,
                            struct storage_mapping *mapping);
void storage_unmap(struct storage_mapping *mapping);

/* Appends a file as a whole; more than limit is DCP_ERR_FORMAT. */
dcp_status storage_read_whole(const struct storage_directory *directory, const char *name,
                              uint64_t limit, struct buffer *bytes);

/* Which file has a name; see dcp_storage::identify. */
dcp_status storage_directory_identify(const struct storage_directory *directory, const char *name,
                                      char identity[DCP_STORAGE_IDENTITY]);
/* The same by its content, on every storage, as content_identify_bytes() finds it for bytes. */
dcp_status storage_directory_digest(const struct storage_directory *directory, const char *name,
                                    char identity[DCP_STORAGE_IDENTITY]);

/* Bytes of the name of a file that is published, the NUL at its end among them. */
enum { STORAGE_PUBLISHED_NAME = 64 };

/* A small file that will appear. All zero: none. */
struct storage_publication {
    const struct storage_directory *directory;
    char name[STORAGE_PUBLISHED_NAME];
    void *handle;          /* of a storage that prepares */
    dcp_storage_file file; /* of another one: written, to be sealed */
    uint64_t size;
    char digest[DCP_STORAGE_IDENTITY]; /* of its content, with `file` */
};

dcp_status storage_publication_prepare(struct storage_publication *publication,
                                       const struct storage_directory *directory, const char *name,
                                       const void *bytes, size_t size, bool durable);
/* Takes no memory, unless the storage does. The publication has ended in either case. */
dcp_status storage_publication_publish(struct storage_publication *publication,
                                       dcp_storage_condition condition, bool *visible);
/* The same, but replaces only the file with that identity: DCP_ERR_BUSY if it is gone. May allocate
 * memory. */
dcp_status storage_publication_publish_over(struct storage_publication *publication,
                                            const char *identity, bool *visible);
/* Does nothing for none; keeps the thread's error. */
void storage_publication_retract(struct storage_publication *publication);

#endif
