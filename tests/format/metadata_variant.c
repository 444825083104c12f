/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metadata_variant.h"
#include "pickle_assembler.h"

static const char *choose(const char *given, const char *plain)
{
    return given != NULL ? given : plain;
}

static void put_tensor(struct buffer *script, const struct metadata_variant *variant)
{
    if (variant->tensor != NULL) {
        buffer_append_format(script, "%s", variant->tensor);
        return;
    }
    buffer_append_format(
        script,
        NEW(METADATA_MODULE, "TensorStorageMetadata")
            FIELDS(KEY("properties") "%s" KEY("size") "%s" KEY("chunks") "%s"),
        choose(variant->properties, PROPERTIES(FLOAT32 "NONE NEWTRUE NONE NEWFALSE ")),
        choose(variant->size, SIZE(INT(4))),
        choose(variant->chunks, LIST(CHUNK(SIZE(INT(0)), SIZE(INT(4))))));
}

void metadata_variant_assemble(struct buffer *out, const struct metadata_variant *variant)
{
    struct buffer script;
    buffer_init(&script, 0);
    buffer_append_format(&script, "PROTO 4 %sEMPTY_DICT MARK ",
                         choose(variant->root, NEW(METADATA_MODULE, "Metadata")));
    buffer_append_format(&script, KEY("state_dict_metadata") "EMPTY_DICT MARK " KEY("w"));
    put_tensor(&script, variant);
    buffer_append_format(&script, KEY("step") "%s%sSETITEMS ",
                         choose(variant->object, NEW(METADATA_MODULE, "BytesStorageMetadata")),
                         choose(variant->more_entries, ""));
    buffer_append_format(&script, "%s",
                         choose(variant->paths, KEY("planner_data") DICT(KEY("w") TUPLE(
                                                    KEY("w")) KEY("step") TUPLE(KEY("step")))));
    buffer_append_format(&script, KEY("storage_data") "EMPTY_DICT MARK %s%s",
                         choose(variant->index, INDEX(KEY("fqn") KEY("w") KEY("index") INT(0)
                                                          KEY("offset") SIZE(INT(0)))),
                         choose(variant->storage, PLACE("__0_0.distcp", 1000, 1577)));
    buffer_append_format(&script, "%s%sSETITEMS %sSETITEMS BUILD STOP",
                         INDEX(KEY("fqn") KEY("step") KEY("index") "NONE ")
                             PLACE("__0_0.distcp", 0, 1000),
                         choose(variant->more_data, ""), choose(variant->more_fields, ""));
    buffer_append_u8(&script, 0);
    assert_int_equal(buffer_status(&script), DCP_OK);
    pickle_assemble(out, (const char *)script.data);
    buffer_free(&script);
}
