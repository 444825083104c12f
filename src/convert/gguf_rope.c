/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/gguf_rope.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"

/* Far more than a head of a model has. */
enum { HEAD_DIM_MAX = 1 << 16 };

struct factors {
    struct convert_recipe recipe;
    float *values;
};

static dcp_status read_factors(const struct convert_source *source, const struct convert_item *item,
                               int64_t first, int64_t count, void *elements)
{
    const struct factors *factors = (const struct factors *)item->recipe;
    (void)source;
    memcpy(elements, factors->values + first, (size_t)count * sizeof *factors->values);
    return DCP_OK;
}

/* Of positive numbers, in full precision; without the C library's, which is a library of its own.
 */
static double power(double base, double exponent)
{
    const double ln2 = 0.69314718055994530942;
    int scale, terms = 24;
    double mantissa = frexp(base, &scale), ratio = (mantissa - 1) / (mantissa + 1);
    double logarithm = 0, result = 1;
    for (int n = 2 * terms + 1; n > 0; n -= 2)
        logarithm = logarithm * ratio * ratio + 2.0 / n;
    double whole = exponent * (logarithm * ratio + scale * ln2);
    int twos = (int)(whole / ln2);
    for (int n = terms; n > 0; n--)
        result = 1 + result * (whole - twos * ln2) / n;
    return ldexp(result, twos);
}

/* In float32, operation by operation, as the converter computes them; PyTorch's power, which
 * depends on the processor, may round otherwise. */
static float factor_of(const struct gguf_config *config, float exponent)
{
    const float turn = 6.283185307179586f;
    float context = (float)config->rope_context, factor = (float)config->rope_factor;
    float low = (float)config->rope_low, high = (float)config->rope_high;
    float frequency = 1 / (float)power(config->rope_theta, (double)exponent);
    float length = turn / frequency;
    if (length < (float)(config->rope_context / config->rope_high))
        return 1;
    if (length > (float)(config->rope_context / config->rope_low))
        return factor;
    float smooth = (context / length - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
}

static dcp_status make_item(struct convert_source *source, const struct gguf_config *config,
                            struct convert_item *item)
{
    static const char name[] = "rope_freqs.weight";
    static const dcp_path_part path = {.key = name};
    size_t count = (size_t)config->head_dim / 2;
    struct factors *factors = arena_allocate(&source->arena, sizeof *factors);
    float *values = arena_allocate_array(&source->arena, count, sizeof *values);
    int64_t *shape = arena_allocate(&source->arena, sizeof *shape);
    if (!factors || !values || !shape)
        return error_no_memory(count * sizeof *values, name);
    for (size_t i = 0; i < count; i++)
        values[i] = factor_of(config, (float)(2 * i) / (float)config->head_dim);
    *factors = (struct factors){{.read = read_factors}, values};
    *shape = (int64_t)count;
    *item = (struct convert_item){.name = name,
                                  .path = &path,
                                  .path_length = 1,
                                  .is_tensor = true,
                                  .stored = DCP_F32,
                                  .dtype = DCP_F32,
                                  .ndim = 1,
                                  .shape = shape,
                                  .bytes = count * sizeof *values,
                                  .recipe = &factors->recipe};
    return DCP_OK;
}

dcp_status gguf_rope_add(struct convert_source *source, const struct gguf_config *config)
{
    if (!config->rope_type || strcmp(config->rope_type, "llama3") != 0)
        return DCP_OK;
    if (config->head_dim < 2 || config->head_dim % 2 != 0 || config->head_dim > HEAD_DIM_MAX ||
        !(config->rope_theta > 0))
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: config.json: heads of %" PRIu64
                             " cannot have rotary embeddings with a base of %g",
                             source->path, config->head_dim, config->rope_theta);
    struct convert_item *items =
        arena_allocate_array(&source->arena, source->count + 1, sizeof *items);
    if (!items)
        return error_no_memory((source->count + 1) * sizeof *items, "tensors of a GGUF file");
    RETURN_IF_ERROR(make_item(source, config, items));
    if (source->count > 0)
        memcpy(items + 1, source->items, source->count * sizeof *items);
    source->items = items;
    source->count++;
    return DCP_OK;
}
