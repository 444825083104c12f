/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "storage/shard/extra_read.h"
#include "storage/verify/verification.h"

/* Ranks that saved separately may have used the same name. */
dcp_status verify_extra_files(struct verification *verification)
{
    const struct metadata *metadata = verification->metadata;
    struct name_table names;
    dcp_status status = DCP_OK;
    name_table_init(&names);
    for (size_t i = 0; i < metadata->extra_file_count && status == DCP_OK; i++) {
        const struct extra_file *extra = &metadata->extra_files[i];
        uint64_t first = i;
        bool existing;
        status = name_table_add(&names, extra->name, strlen(extra->name), &first, &existing);
        if (status == DCP_OK && existing)
            verification_fault(verification, extra->file, 0, extra->name,
                               "an extra file of this name is in %s as well, which is found by it",
                               metadata->extra_files[first].file);
        if (status == DCP_OK)
            status = verification_judge(verification, extra_check(verification->reader, extra),
                                        extra->file, 0, extra->name);
    }
    name_table_free(&names);
    return status;
}
