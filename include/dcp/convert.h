/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file convert.h
 * @brief Converting a checkpoint from one form into another.
 *
 * Data is streamed: memory does not grow with the size of the model, except for names, shapes and
 * objects. Nothing is visible at the destination until all of it is written and durable, and
 * nothing that exists is replaced.
 *
 * | form | what it is |
 * | --- | --- |
 * | #DCP_FORM_DCP | a DCP directory; as a source also a union, and stages pp0, pp1 and so on |
 * | #DCP_FORM_PT | one file of torch.save: nested dicts and lists of tensors and objects |
 * | #DCP_FORM_SAFETENSORS | one safetensors file |
 * | #DCP_FORM_DEEPSPEED | a directory of DeepSpeed: ZeRO-1 to 3, universal; only as a source |
 * | #DCP_FORM_TORCH_CHECKPOINTING | a directory of torch_checkpointing: files of ranks, .pt or
 * safetensors, with metadata.pkl or without; only as a source |
 * | #DCP_FORM_MEGATRON | a directory of Megatron-Core's torch_dist, also with what Megatron Bridge
 * puts beside it; only as a source |
 * | #DCP_FORM_HF | a Hugging Face directory: safetensors files, an index if there are several, and
 * beside them files such as config.json; as a source also what PyTorch's HuggingFaceStorageWriter
 * leaves |
 * | #DCP_FORM_GGUF | one GGUF file of Llama, Mistral or Mixtral, without a vocabulary; only as a
 * destination, from the names of Hugging Face and a config.json |
 *
 * These sources are recognized, but not converted (DCP_ERR_UNSUPPORTED): GGUF, DeepSpeed's
 * checkpoints with pipelines, experts or tensor parallelism, and pickled Hugging Face shards.
 * Quantized models are copied as they are, and named in dcp_convert_report::source_text. Those in
 * FP8 with block scales, MXFP4 and compressed-tensors are dequantized with
 * dcp_convert_options::dequantize; those of bitsandbytes, GPTQ, AWQ, ModelOpt and others are not.
 */
#ifndef DCP_CONVERT_H
#define DCP_CONVERT_H

#include "progress.h"
#include "storage.h"
#include "tensor.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Most ranks that dcp_convert_options::ranks may name. */
#define DCP_CONVERT_RANKS_MAX 1024

/** A form of checkpoints. */
typedef enum dcp_form {
    DCP_FORM_UNKNOWN = 0,      /**< none of them, or not said */
    DCP_FORM_DCP = 10,         /**< a DCP directory */
    DCP_FORM_PT = 20,          /**< a file of torch.save */
    DCP_FORM_SAFETENSORS = 30, /**< a safetensors file */
    DCP_FORM_HF = 40,          /**< a Hugging Face directory */
    DCP_FORM_GGUF = 50,        /**< a GGUF file; only as a destination */
    DCP_FORM_DEEPSPEED = 100,  /**< a checkpoint of DeepSpeed; only a source, as the next two */
    DCP_FORM_TORCH_CHECKPOINTING = 110, /**< a directory of torch_checkpointing */
    DCP_FORM_MEGATRON = 120             /**< Megatron-Core's torch_dist */
} dcp_form;

/** @return "dcp", "pt", "safetensors", "hf", "gguf", "deepspeed", "torch_checkpointing" or
 * "megatron"; NULL for other values. Static. */
DCP_API const char *dcp_form_name(dcp_form form);

/** @return the form of that name; #DCP_FORM_UNKNOWN if there is none. */
DCP_API dcp_form dcp_form_from_name(const char *name);

/** @return the form that a destination's suffix says: ".pt", ".pth", ".bin", ".ckpt",
 * ".safetensors" or ".gguf"; #DCP_FORM_UNKNOWN: none. */
DCP_API dcp_form dcp_form_from_path(const char *path);

/** The type of the matrices in a GGUF file. Vectors, norms and the routers of experts are F32. */
typedef enum dcp_gguf_type {
    DCP_GGUF_AUTO = 0, /**< as the first matrix: BF16, F16, or else F32 */
    DCP_GGUF_F32 = 10,
    DCP_GGUF_F16 = 20,
    DCP_GGUF_BF16 = 30,
    DCP_GGUF_Q8_0 = 40 /**< 8 bits, 32 with a scale; F16 where rows are no multiple of 32 */
} dcp_gguf_type;

/** What happens to `lm_head.weight` if it is the same tensor as the embedding. */
typedef enum dcp_tied {
    /** A Hugging Face directory is written without it if the source's config.json says that both
     * are tied, and they are equal bit for bit; else it is kept. */
    DCP_TIED_AUTO = 0,
    DCP_TIED_KEEP = 10, /**< kept in any case */
    DCP_TIED_DROP = 20  /**< left out if it is equal bit for bit, whatever config.json says */
} dcp_tied;

/** A rule that renames an item of the source. Only the first rule that matches is applied. The
 * struct will not grow, as callers keep arrays of it. */
typedef struct dcp_convert_rename {
    dcp_rename_kind kind; /**< as for dcp_rename, with `from` in the place of `wanted` */
    const char *from;     /**< in the source */
    const char *to;       /**< in the destination, as dcp_rename::stored */
} dcp_convert_rename;

/** A tensor or object of the destination. */
typedef struct dcp_convert_item {
    const char *name;
    bool is_tensor;
    const char *type; /**< of tensors: the dtype's name, or what GGUF calls it */
    int32_t ndim;
    const int64_t *shape;
    uint64_t bytes;
} dcp_convert_item;

/** Is told what a conversion would write. The item, and what it points to, is valid during the
 * call. */
typedef void (*dcp_convert_item_function)(void *context, const dcp_convert_item *item);

/** How a checkpoint is converted. All zero is the sensible default. Arrays and texts are borrowed
 * for the call. */
typedef struct dcp_convert_options {
    /** Of the source: directories whose union it is (dcp_open_options::members). */
    const char *const *members;
    size_t member_count;
    /** Where the source is, and the destination if it is a DCP directory; NULL: in the file system.
     * Destinations of other forms are in the file system. */
    const dcp_storage *storage;
    const dcp_storage *target_storage;

    /** Form of the destination. #DCP_FORM_UNKNOWN: its suffix decides: ".pt", ".pth", ".bin",
     * ".ckpt", ".safetensors" or ".gguf". */
    dcp_form form;

    /** Patterns over the source's names, as dcp_load_options::include. One that matches no name is
     * DCP_ERR_ARGUMENT. */
    const char *const *include;
    size_t include_count;
    const char *const *exclude;
    size_t exclude_count;
    /** A rule that applies to no name is DCP_ERR_ARGUMENT; two tensors of one name are
     * DCP_ERR_DUPLICATE. A tensor that gets another name is an entry of the outermost dict in forms
     * that nest. */
    const dcp_convert_rename *renames;
    size_t rename_count;
    /** Takes only the model: what is below the first of the keys "model", "module", "state_dict",
     * "model_state_dict" and "network" that the outermost dict has, without that key. If it has
     * none of these keys, everything is taken, unless something is below "optimizer" or "optim",
     * which is DCP_ERR_ARGUMENT. Renames see names without the key. */
    bool model_only;
    /** Float64, float32, float16 and bfloat16 tensors are converted to this dtype, which is one of
     * these four, as PyTorch does it; #DCP_DTYPE_NONE: they keep their dtype. DCP_ERR_UNSUPPORTED
     * for quantized models, unless `dequantize` is the same dtype. */
    dcp_dtype dtype;
    dcp_tied tied;

    /** Hugging Face directories: the most bytes of tensors in one file; a larger tensor has a file
     * of its own; 0 means 50 GB, as in transformers 5. */
    uint64_t shard_size;

    /** DCP directories: written as by this many ranks, each of which holds a part of the first
     * dimension of every tensor; 0 means 1; at most #DCP_CONVERT_RANKS_MAX. */
    int32_t ranks;
    dcp_compression compression; /**< DCP directories, as dcp_save_options::compression */
    int32_t compression_level;

    /** Threads that read and write; 0 means 4, and for DCP directories one for each processor, at
     * most 4, or 8 that compress for several ranks. */
    int32_t thread_count;
    bool skip_sync; /**< do not wait for the disk */

    dcp_progress_function progress; /**< may end the conversion: DCP_ERR_CANCELLED */
    void *progress_context;

    dcp_take take; /**< of training checkpoints of other frameworks */

    /** Quantized weights become tensors of this dtype, DCP_BF16 or DCP_F32, bit for bit as their
     * reference computes them: FP8 with a scale for each block, row or tensor (DeepSeek); MXFP4
     * (gpt-oss), with rows and columns exchanged as in the model; compressed-tensors' float, int,
     * pack, nvfp4-pack and mxfp4-pack formats, computed in the dtype of their scales. Their scales
     * are left out, and quantization_config is removed from config.json. Blocks at the ends of rows
     * and columns are smaller, never stretched (transformers 5.23 stretches them). Other tensors
     * stay as they are. #DCP_DTYPE_NONE: weights are copied as they are stored.
     *
     * A weight without its scale, and a scale without its weight, is DCP_ERR_FORMAT; another
     * quantization DCP_ERR_UNSUPPORTED; a source that is not quantized DCP_ERR_ARGUMENT. `include`
     * and `exclude` may leave scales out that weights need: they are found all the same. */
    dcp_dtype dequantize;
    /** Megatron-Core stacks the layers of one kind in one tensor, whose name has no layer number.
     * With this option each layer of the model gets a separate tensor, `decoder.layers.3.mlp...`.
     */
    bool unstack;

    /** A file of rules that rename, join, divide, stack, transpose and cast tensors: JSON, as the
     * manual page dcp-convert(1) describes it. Its rules see the names that `renames` give, and
     * dequantized weights. A rule that applies to no name is DCP_ERR_ARGUMENT, unless it says
     * "optional". NULL: none. */
    const char *transform;
    bool transform_inverse; /**< its inverse; DCP_ERR_ARGUMENT if it has none */
    /** The config.json whose numbers rules name, and by which a GGUF file is written; NULL: the one
     * of a source that is a Hugging Face directory. */
    const char *transform_config;

    dcp_gguf_type gguf_type; /**< GGUF files */

    /** A conversion that ends before its end, by a failure, its progress function or with its
     * process, leaves what it has done in the directory TARGET.partial, and one with the same
     * options continues it: of DCP directories of several ranks by whole files of ranks, of other
     * forms by blocks. For sources in files; not to DCP directories of one rank.
     * DCP_ERR_EXISTS: what is there is of another source, of other options or of another version of
     * the library; DCP_ERR_BUSY: another process continues it. */
    bool resume;
    /** Writes nothing, and reads no elements but those that are compared because they may be tied:
     * what can be told of the result beforehand is an error or in the report, as otherwise. */
    bool dry_run;
    /** With `dry_run`: is told each item of the destination, in the order of the source. */
    dcp_convert_item_function told;
    void *told_context;
} dcp_convert_options;

/** What was converted. */
typedef struct dcp_convert_report {
    dcp_form source;
    dcp_form target;
    char source_text[192]; /**< what the source was recognized as, in words */
    uint64_t tensors;      /**< in the destination */
    uint64_t objects;
    uint64_t bytes;    /**< of these tensors */
    uint64_t files;    /**< of the destination that hold them; 0: not counted (DCP directories) */
    uint64_t left_out; /**< names of the source that options, or the destination's form with
                          model_only, have left out */
    uint64_t tied;     /**< tensors that were left out because they are tied */
    uint64_t dequantized; /**< weights that were computed */
    uint64_t resumed;     /**< bytes that an earlier conversion had written */
} dcp_convert_report;

/**
 * Finds out what a source is, as dcp_convert() does, without reading its data.
 * @param report gets `source` and `source_text`; the rest is zero.
 * Errors: DCP_ERR_UNSUPPORTED for forms that are only recognized, and those of opening it.
 */
DCP_API dcp_status dcp_convert_recognize_sized(const char *source,
                                               const dcp_convert_options *options,
                                               size_t options_size, dcp_convert_report *report,
                                               size_t report_size);

static inline dcp_status dcp_convert_recognize(const char *source,
                                               const dcp_convert_options *options,
                                               dcp_convert_report *report)
{
    return dcp_convert_recognize_sized(source, options, sizeof *options, report, sizeof *report);
}

/**
 * Converts a checkpoint. What is read is checked against the checksums that there are, also where a
 * large tensor has a single one (PyTorch's files) and is read in parts, shares a storage with
 * others or is stored transposed: what is missing of it is read in the end.
 *
 * - DCP directories, and `.pt` files, hold tensors and objects under the names that the source has,
 *   nested as there. Keys of dicts are text, as PyTorch's own flattening makes them. Lists become
 *   dicts if some of their elements were left out. The step, info and extra files of a DCP
 *   directory go into another one.
 * - `.pt` files keep storages that tensors of a `.pt` source share, strides too, unless they are
 *   converted.
 * - safetensors files and Hugging Face directories hold no objects: an object is
 *   DCP_ERR_UNSUPPORTED, unless `model_only` is given. Tensors lie in them as the safetensors
 *   package and transformers write them; from one Hugging Face directory to another, its other
 *   files are copied, and the dtype in config.json becomes that of the tensors.
 *
 * @param target must not exist, except as an empty directory; a DCP directory may also be one that
 * holds no checkpoint and is not the source.
 * @param options NULL: all defaults.
 * @param report NULL: not wanted. After a failure it is not filled in.
 * Errors: DCP_ERR_EXISTS, DCP_ERR_UNSUPPORTED, DCP_ERR_ARGUMENT, DCP_ERR_DUPLICATE,
 * DCP_ERR_FORMAT (also where an index and the headers of its files differ), DCP_ERR_CANCELLED, and
 * those of reading and saving. After a failure nothing is left of the destination, unless
 * dcp_convert_options::resume is given.
 */
DCP_API dcp_status dcp_convert_sized(const char *source, const char *target,
                                     const dcp_convert_options *options, size_t options_size,
                                     dcp_convert_report *report, size_t report_size);

static inline dcp_status dcp_convert(const char *source, const char *target,
                                     const dcp_convert_options *options, dcp_convert_report *report)
{
    return dcp_convert_sized(source, target, options, sizeof *options, report, sizeof *report);
}

#ifdef __cplusplus
}
#endif

#endif
