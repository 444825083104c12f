/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to the safetensors reader: state while a header is parsed. */
#ifndef FORMAT_SAFETENSORS_SAFETENSORS_PARSER_H
#define FORMAT_SAFETENSORS_SAFETENSORS_PARSER_H

#include "format/json/json_reader.h"
#include "format/safetensors/safetensors_header.h"

#define SAFETENSORS_WHAT_MAX 512 /* largest file name in messages */

struct safetensors_parser {
    const char *file_name;
    uint64_t file_size;
    struct safetensors_header *header;
    struct json_text sharding_info; /* bytes is NULL if there is none */
};

/* An array of at most DCP_MAX_DIMS numbers that fit int64_t, in the header's arena. */
dcp_status safetensors_read_numbers(struct safetensors_parser *parser, struct json_reader *json,
                                    const int64_t **numbers, int32_t *count);
/* The value of a tensor's member: checked, and added to the header. */
dcp_status safetensors_read_tensor(struct safetensors_parser *parser, struct json_reader *json,
                                   struct json_text name);
/* Gives every tensor its offsets. */
dcp_status safetensors_read_sharding_info(struct safetensors_parser *parser);

#endif
