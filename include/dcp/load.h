/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file load.h
 * @brief Loading a checkpoint into a state tree, at any topology.
 */
#ifndef DCP_LOAD_H
#define DCP_LOAD_H

#include "environment.h"
#include "group.h"
#include "state.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most threads that one rank may read with. */
#define DCP_MAX_LOAD_THREADS 16

/** Which differences between the names wanted and the names stored are errors. All of them are in
 * the report. */
typedef enum dcp_strictness {
    DCP_STRICT_MISSING =
        0, /**< wanted but not stored is an error; stored but not wanted is not (as PyTorch) */
    DCP_STRICT_RAISE_ALL = 1, /**< both are errors */
    DCP_STRICT_PARTIAL =
        2 /**< neither is: missing entries keep their values (PyTorch's allow_partial_load) */
} dcp_strictness;

/** How much of what is read is checked against the checksums in the files. */
typedef enum dcp_verification {
    DCP_VERIFY_READ = 0, /**< every record and footer block that is read whole */
    DCP_VERIFY_WIDEN =
        1, /**< partial reads are widened to whole blocks or records, so that all is checked */
    DCP_VERIFY_NONE = 2
} dcp_verification;

/** Options of a load. All zero is the sensible default. Every rank must pass the same values. */
typedef struct dcp_load_options {
    dcp_group *group;    /**< the ranks that load together; NULL: this process alone */
    int32_t coordinator; /**< rank that reads the metadata */
    dcp_strictness strictness;
    dcp_verification verification;
    bool convert; /**< convert between real dtypes where stored and wanted differ; else that is an
                     error */
    double timeout_seconds; /**< deadline of each wait for other ranks; 0 means 1800 */
    int32_t thread_count;   /**< threads of this rank that read tensors, at most
                               DCP_MAX_LOAD_THREADS; 0 means up to 4, as the load is large and
                               processors are at hand */
    uint32_t io; /**< of dcp_io: how large tensors are read; DCP_IO_DIRECT is for memory that is
                    aligned to 4096, and through the page cache where it is not demanded */
} dcp_load_options;

/** What a load found; the same on every rank. */
typedef struct dcp_load_report dcp_load_report;

/** Kinds of lines in a report. */
typedef enum dcp_difference {
    DCP_DIFFERENCE_MISSING = 0,    /**< wanted by some rank, not stored */
    DCP_DIFFERENCE_UNEXPECTED = 1, /**< stored, wanted by no rank */
    DCP_DIFFERENCE_CONVERTED = 2,  /**< stored in another dtype and converted */
    DCP_DIFFERENCE_MISMATCHED = 3  /**< stored with another shape, dtype or kind; always an error */
} dcp_difference;

/** One line of a report; borrowed from it. */
typedef struct dcp_report_line {
    dcp_difference difference;
    const char *name;   /**< flattened name */
    const char *detail; /**< in words: "float32 -> bfloat16"; "" if the name says it all */
} dcp_report_line;

/**
 * Fills @p state from the checkpoint @p path. Collective over the group. The tree says what is
 * wanted: tensors with this rank's chunks and memory are filled in place (a chunk without memory
 * gets some, see dcp_state_chunk()), objects are replaced by what is stored, stateful entries are
 * asked and told.
 *
 * Succeeds only if every element of every destination was written from data whose checksums held.
 * On failure the same status comes on every rank, and the message says whether destinations were
 * already changed.
 *
 * @param path directory of a checkpoint (`.metadata`, or `__*.metadata` of a save without
 * collectives), directory of safetensors files, or a `.pt` file of torch.save.
 * @param report if not NULL, receives a report, owned by the caller, also when the load failed
 * because of what is in it; NULL on other failures.
 */
DCP_API dcp_status dcp_load_sized(dcp_state *state, const char *path,
                                  const dcp_load_options *options, size_t options_size,
                                  dcp_load_report **report);

static inline dcp_status dcp_load(dcp_state *state, const char *path,
                                  const dcp_load_options *options, dcp_load_report **report)
{
    return dcp_load_sized(state, path, options, sizeof *options, report);
}

/** @return number of lines. */
DCP_API size_t dcp_load_report_count(const dcp_load_report *report);

/** @return line @p index; fields are empty beyond the end. Sorted by difference, then name. */
DCP_API dcp_report_line dcp_load_report_line(const dcp_load_report *report, size_t index);

DCP_API void dcp_load_report_free(dcp_load_report *report);

#ifdef __cplusplus
}
#endif

#endif
