/* SPDX-License-Identifier: BSD-3-Clause */
/* What dcp convert says of itself. */
#ifndef CLI_CONVERT_PAGE_H
#define CLI_CONVERT_PAGE_H

#define CONVERT_DESCRIPTION                                                                        \
    "Recognises the form of a CHECKPOINT by what is in it, prints what it is taken for, and "      \
    "writes its tensors and objects to DST. The data streams: memory does not grow with the "      \
    "size of the model. DST appears when all of it is durable. It must not be there before, "      \
    "but for an empty directory. An interrupted conversion leaves nothing behind, unless it is "   \
    "given --resume.\n"                                                                            \
    "\n"                                                                                           \
    "A CHECKPOINT may be a safetensors file or a Hugging Face directory, too. It may also be a "   \
    "training checkpoint of another framework, or the directory of a run whose marks lead to "     \
    "one: DeepSpeed's ZeRO-1 to 3 and universal checkpoints, those of torch_checkpointing, and "   \
    "Megatron-Core's torch_dist. Of these the model's weights are "                                \
    "taken as they were trained, under the model's names, gathered from the ranks' files by "      \
    "ranges. Forms that are recognised and not supported, such as GGUF as a source, are refused "  \
    "by name.\n"                                                                                   \
    "\n"                                                                                           \
    "Quantized models are recognised by config.json and the names of their tensors:\n"             \
    "  fp8                float8_e4m3fn with a scale for each block, row or weight (DeepSeek),\n"  \
    "                     and experts of two numbers in a byte with a scale for each 32\n"         \
    "  mxfp4              _blocks and _scales (gpt-oss)\n"                                         \
    "  compressed-tensors float-, int-, naive- and pack-quantized, nvfp4-pack-quantized,\n"        \
    "                     mxfp4-pack-quantized, and mixtures of them\n"                            \
    "The last blocks of rows and columns are smaller; transformers 5.23 stretches them, and "      \
    "gets other values. Scales are taken out by --dequantize, and config.json of the result "      \
    "has no quantization_config. A weight without its scale is an error, and so is a scale "       \
    "without its weight. Models of bitsandbytes, GPTQ, AWQ, ModelOpt and others are copied, "      \
    "and refused by name with --dequantize and --dtype, and as GGUF files.\n"

#define CONVERT_GGUF                                                                               \
    "\n"                                                                                           \
    "GGUF files are written of Llama, Mistral and Mixtral under the names of Hugging Face, with "  \
    "their config.json. They are byte for byte those of the gguf package with llama.cpp's names: " \
    "heads of queries and keys are permuted, experts stacked; vectors, norms and routers are "     \
    "F32; with q8_0, matrices whose rows are no multiple of 32 are F16. There is no vocabulary "   \
    "in the file (tokenizer.ggml.model is none): programs that generate text need "                \
    "one from elsewhere. Rotary embeddings that are scaled linearly or as Llama 3.1's are "        \
    "written as llama.cpp's converter writes them; others are refused.\n"

#define CONVERT_TRANSFORMS                                                                         \
    "\n"                                                                                           \
    "Transform files (--transform) are JSON objects: \"rules\", a list that is applied in "        \
    "its order to all tensors, each rule to the result of the one before; \"others\", "            \
    "what becomes of tensors that no rule is for: \"keep\" (the default), \"drop\" or "            \
    "\"refuse\"; \"values\", numbers for names that config.json has not, or other names "          \
    "for them; \"comment\".\n"                                                                     \
    "\n"                                                                                           \
    "Names are patterns: \"*\" is a part of a name without dots, \"**\" any part, \"#\" a "        \
    "number. All patterns of a rule have the same stars. Dimensions are counted from 0. "          \
    "Numbers may be names of numbers in config.json. A rule is an object with one of "             \
    "these members:\n"                                                                             \
    "  rename, to        Another name.\n"                                                          \
    "  join, to, dim     Several tensors become one along a dimension. With \"parts\",\n"          \
    "                    numbers, their sizes have this proportion; without, they are\n"           \
    "                    equal. With \"groups\", each is divided into so many groups,\n"           \
    "                    and groups stand together: for queries, keys and values,\n"               \
    "                    \"groups\" is the number of key-value heads.\n"                           \
    "  split, to, dim    The inverse, with \"parts\" and \"groups\" too; \"to\" is a "             \
    "list.\n"                                                                                      \
    "  stack, to, dim    Tensors whose names have the numbers 0, 1 and so on at \"#\"\n"           \
    "                    become one along a new dimension: experts, layers.\n"                     \
    "  unstack, to, dim  The inverse; \"#\" is in \"to\".\n"                                       \
    "  transpose, dims   Exchanges two neighbouring dimensions.\n"                                 \
    "  permute_heads, heads\n"                                                                     \
    "                    The two halves of each head's rows become pairs of rows, as\n"            \
    "                    llama.cpp has them. unpermute_heads is the inverse.\n"                    \
    "  cast, dtype       Converts elements, as PyTorch does. With \"from\", tensors of\n"          \
    "                    another dtype are an error.\n"                                            \
    "  pad, dim, multiple\n"                                                                       \
    "                    Adds zeros up to a multiple of a number. With \"size\", another\n"        \
    "                    size than this is an error.\n"                                            \
    "  cut, dim, size    Keeps this size.\n"                                                       \
    "  drop              Leaves tensors out.\n"                                                    \
    "  tie, with         Leaves a tensor out that equals another one bit for bit, and\n"           \
    "                    keeps it otherwise. untie adds it again.\n"                               \
    "\n"                                                                                           \
    "\"optional\" allows that a rule is for no name, which is an error otherwise. "                \
    "\"only\" is \"forward\" or \"inverse\": the rule is for that direction alone, as it "         \
    "is written.\n"                                                                                \
    "\n"                                                                                           \
    "--inverse inverts the rules and their order. A rename, join, split, stack, unstack, "         \
    "transpose and permutation has an exact inverse; so does a pad if it says its size, a "        \
    "cut if it says its multiple, and a cast if it widens and says from what. A drop has "         \
    "none, and is refused unless it has \"only\".\n"                                               \
    "\n"                                                                                           \
    "The directory transforms of the examples has llama_megatron.json and "                        \
    "mixtral_megatron.json, for the names and layouts of Hugging Face and of Megatron-Core "       \
    "with Transformer Engine, and llama_torchtitan.json for those of torchtitan. --dry-run "       \
    "shows what rules come to.\n"

#endif
