/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file state.h
 * @brief The state tree: nested dicts and lists whose leaves are tensors, objects, or callbacks
 * that produce a subtree.
 *
 * dcp_state_new() makes a tree and returns its root, a dict. Every node belongs to its root and
 * lives until dcp_state_free(root), or until a load replaces the object that contains it. Nodes are
 * borrowed pointers.
 *
 * Functions that add a child take the parent and a key. In a dict the key is a NUL-terminated UTF-8
 * string that the dict does not have yet (it may be empty and may contain dots). In a list, tuple
 * or set it is NULL, and the child is appended. Keys and strings are copied; tensor memory is
 * borrowed. dcp_state_pair() and dcp_state_int_key() add dict keys that are not strings.
 *
 * **Errors stick.** Building calls may be chained without checks: adding to NULL fails, and the
 * root keeps the first failure. dcp_state_status() returns it, and every save and load reports it.
 *
 * **Flattening** follows PyTorch: dicts are entered; lists are entered if they contain a tensor, a
 * dict, or (at any depth of lists) such a list; everything else (tuples, lists of plain values,
 * scalars) is one object. A name is the keys and positions from the root to the entry, joined by
 * ".". Keys that are not strings are converted as by Python's str(), so the key 0 becomes "0".
 * Empty dicts are left out. Source: torch.distributed.checkpoint._nested_dict and _traverse, 2.4
 * and newer.
 *
 * Threading: a tree may be used by one thread at a time.
 */
#ifndef DCP_STATE_H
#define DCP_STATE_H

#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A node of a state tree. */
typedef struct dcp_state dcp_state;

/** The kind of a node. Kinds that no building call makes occur in loaded checkpoints. */
typedef enum dcp_kind {
    DCP_KIND_NONE = 0,
    DCP_KIND_BOOL = 1,
    DCP_KIND_INT = 2, /**< an int; if it does not fit int64_t or uint64_t, see
                           dcp_state_int_digits() */
    DCP_KIND_FLOAT = 3,
    DCP_KIND_COMPLEX = 4,
    DCP_KIND_STRING = 5,
    DCP_KIND_BYTES = 6,
    DCP_KIND_BYTEARRAY = 7,

    DCP_KIND_LIST = 10,
    DCP_KIND_TUPLE = 11,
    DCP_KIND_DICT = 12,
    DCP_KIND_ORDERED_DICT = 13, /**< a collections.OrderedDict; treated as a dict */
    DCP_KIND_SET = 14,
    DCP_KIND_FROZENSET = 15,
    DCP_KIND_PAIR = 16, /**< a pair that is being added to a dict, see dcp_state_pair() */

    DCP_KIND_TENSOR = 20,   /**< a tensor of the tree, or one inside an object */
    DCP_KIND_STATEFUL = 21, /**< callbacks, see dcp_stateful */

    DCP_KIND_DTYPE = 30,  /**< a torch.dtype */
    DCP_KIND_SIZE = 31,   /**< a torch.Size; children are ints */
    DCP_KIND_DEVICE = 32, /**< a torch.device, as text */

    DCP_KIND_OPAQUE =
        40, /**< a Python object of another class, never executed; see dcp_state_opaque_name() */
    DCP_KIND_STREAM = 41 /**< an object as its stored stream, see dcp_state_stream() */
} dcp_kind;

/* ---- making and freeing ---- */

/** @return a new root, an empty dict; NULL if there is no memory. */
DCP_API dcp_state *dcp_state_new(void);

/** Frees a root, all its nodes, and all memory that loads allocated for it. NULL is allowed. */
DCP_API void dcp_state_free(dcp_state *root);

/**
 * @return the first failure while building the tree of @p node, and sets its message; DCP_OK if
 * there was none. Errors that can only be found in complete values are checked by this call and do
 * not stick: a pair without a value, or a list inside a tuple that is a key (DCP_ERR_ARGUMENT), and
 * equal tuples or frozensets in one dict or set (DCP_ERR_DUPLICATE).
 */
DCP_API dcp_status dcp_state_status(const dcp_state *node);

/* ---- building: containers return the new node, NULL on failure ---- */

DCP_API dcp_state *dcp_state_dict(dcp_state *parent, const char *key);
DCP_API dcp_state *dcp_state_list(dcp_state *parent, const char *key);
DCP_API dcp_state *dcp_state_tuple(dcp_state *parent, const char *key);
/** Adds a collections.OrderedDict, which is built and flattened as a dict. */
DCP_API dcp_state *dcp_state_ordered_dict(dcp_state *parent, const char *key);

/**
 * Adds an empty set. Elements are added with NULL as their key. They must be hashable: lists,
 * dicts, sets and bytearrays are DCP_ERR_ARGUMENT. A value that equals an element is
 * DCP_ERR_DUPLICATE. A set is stored as one object. It keeps the order in which its elements were
 * added, which has no meaning.
 */
DCP_API dcp_state *dcp_state_set(dcp_state *parent, const char *key);
/** Adds an empty frozenset, which may be a key or an element of a set. PyTorch loads frozensets in
 * checkpoints, but torch.load() refuses them with weights_only. */
DCP_API dcp_state *dcp_state_frozenset(dcp_state *parent, const char *key);

/**
 * Adds a pair to a dict, for a key that is not a string. Two values are then added to the pair,
 * with NULL as their key: first the key, then the value.
 *
 * @code
 * dcp_state *pair = dcp_state_pair(learning_rates);
 * dcp_state *key = dcp_state_tuple(pair, NULL); // (1, "encoder")
 * dcp_state_int(key, NULL, 1);
 * dcp_state_string(key, NULL, "encoder");
 * dcp_state_float(pair, NULL, 1e-4);
 * @endcode
 *
 * A key may be any value that is hashable in Python (no lists, dicts, sets or bytearrays), except a
 * tensor. Keys are compared as in Python, see dcp_state_find_key(); a key that the dict already has
 * is DCP_ERR_DUPLICATE. A pair without a value is not in the dict yet, and is an error of the tree
 * (dcp_state_status()). Names of tensors contain keys as text, so a save refuses a dict with both 0
 * and "0".
 * @return the pair (#DCP_KIND_PAIR); NULL on failure.
 */
DCP_API dcp_state *dcp_state_pair(dcp_state *dict);

/**
 * Adds a pair whose key is an int; the value is then added to the pair.
 * `dcp_state_dict(dcp_state_int_key(state, 0), NULL)` adds a dict under the key 0, as in the state
 * of an optimizer.
 */
DCP_API dcp_state *dcp_state_int_key(dcp_state *dict, int64_t key);

/**
 * Copies a key of @p length bytes into the tree, for callers whose strings are not NUL-terminated.
 * @return the key, NUL-terminated, borrowed from the tree; NULL on failure (it contains a NUL, or
 * is not UTF-8).
 */
DCP_API const char *dcp_state_intern(dcp_state *node, const char *key, size_t length);

/* ---- building: leaves ---- */

DCP_API dcp_status dcp_state_none(dcp_state *parent, const char *key);
DCP_API dcp_status dcp_state_bool(dcp_state *parent, const char *key, bool value);
DCP_API dcp_status dcp_state_int(dcp_state *parent, const char *key, int64_t value);
DCP_API dcp_status dcp_state_uint(dcp_state *parent, const char *key, uint64_t value);
DCP_API dcp_status dcp_state_float(dcp_state *parent, const char *key, double value);
/** @param value NUL-terminated UTF-8. */
DCP_API dcp_status dcp_state_string(dcp_state *parent, const char *key, const char *value);
/** As dcp_state_string(), with a length; the text may contain NUL. */
DCP_API dcp_status dcp_state_text(dcp_state *parent, const char *key, const char *value,
                                  size_t length);
DCP_API dcp_status dcp_state_bytes(dcp_state *parent, const char *key, const void *bytes,
                                   size_t length);
DCP_API dcp_status dcp_state_bytearray(dcp_state *parent, const char *key, const void *bytes,
                                       size_t length);
DCP_API dcp_status dcp_state_complex(dcp_state *parent, const char *key, double real,
                                     double imaginary);
/**
 * Adds an int of any size.
 * @param digits decimal: a "-" if it is negative, then digits without leading zeros; anything else
 * is DCP_ERR_ARGUMENT. Saves refuse ints of more than 2048 bytes (about 4900 digits). torch.load()
 * with weights_only refuses ints of more than 255 bytes (about 610 digits).
 */
DCP_API dcp_status dcp_state_digits(dcp_state *parent, const char *key, const char *digits);
/** Adds a torch.dtype. Errors: DCP_ERR_ARGUMENT if tensors of this dtype cannot be saved. */
DCP_API dcp_status dcp_state_dtype(dcp_state *parent, const char *key, dcp_dtype value);
/**
 * Adds a torch.Size.
 * @param sizes @p count sizes, copied; a negative one is DCP_ERR_ARGUMENT. NULL if @p count is 0.
 */
DCP_API dcp_status dcp_state_size(dcp_state *parent, const char *key, const int64_t *sizes,
                                  size_t count);
/**
 * Adds a torch.device.
 * @param device the type, with an index if it has one: "cpu", "cuda:1". Anything else is
 * DCP_ERR_ARGUMENT. The call does not check that PyTorch knows the type.
 */
DCP_API dcp_status dcp_state_device(dcp_state *parent, const char *key, const char *device);

/**
 * Adds a tensor, or this rank's chunk of one.
 * @return the node; dcp_state_add_chunk() can add more chunks to it. NULL on failure.
 */
DCP_API dcp_state *dcp_state_tensor_sized(dcp_state *parent, const char *key,
                                          const dcp_tensor *tensor, size_t tensor_size);

static inline dcp_state *dcp_state_tensor(dcp_state *parent, const char *key,
                                          const dcp_tensor *tensor)
{
    return dcp_state_tensor_sized(parent, key, tensor, sizeof *tensor);
}

/**
 * Adds another chunk of the same tensor that this rank holds. Its dtype and global shape must be
 * those of the node; its box must not overlap the other chunks.
 */
DCP_API dcp_status dcp_state_add_chunk_sized(dcp_state *tensor_node, const dcp_tensor *chunk,
                                             size_t tensor_size);

static inline dcp_status dcp_state_add_chunk(dcp_state *tensor_node, const dcp_tensor *chunk)
{
    return dcp_state_add_chunk_sized(tensor_node, chunk, sizeof *chunk);
}

/**
 * Adds a flat range of a tensor as chunks, for optimizers that shard flattened parameters. Elements
 * @p start to @p start + @p length - 1 of the row-major tensor lie consecutively at @p data; the
 * range is decomposed into at most 2 * ndim - 1 boxes.
 *
 * @param whole dtype, ndim and global_shape are used.
 * @param data may be NULL on load.
 * @return the tensor's node; NULL on failure.
 */
DCP_API dcp_state *dcp_state_flat_range_sized(dcp_state *parent, const char *key,
                                              const dcp_tensor *whole, size_t tensor_size,
                                              int64_t start, int64_t length, void *data);

static inline dcp_state *dcp_state_flat_range(dcp_state *parent, const char *key,
                                              const dcp_tensor *whole, int64_t start,
                                              int64_t length, void *data)
{
    return dcp_state_flat_range_sized(parent, key, whole, sizeof *whole, start, length, data);
}

/**
 * An entry that provides its state through callbacks: PyTorch's Stateful.
 *
 * Each function receives a new dict and returns DCP_OK or a failure (dcp_error_set() sets the
 * message). On save `state_dict` fills the dict with the state. On load `state_dict` fills it with
 * destinations: tensors whose memory is written, and objects that are replaced. The load fills
 * these, then calls `load_state_dict`. Tensor memory in the dict must stay valid until the save or
 * load has ended. The struct will not grow.
 */
typedef struct dcp_stateful {
    dcp_status (*state_dict)(void *context, dcp_state *into);
    dcp_status (*load_state_dict)(void *context, const dcp_state *filled); /**< optional */
    void *context;
} dcp_stateful;

/** Adds a stateful entry to a dict. @param stateful copied. */
DCP_API dcp_status dcp_state_stateful(dcp_state *parent, const char *key,
                                      const dcp_stateful *stateful);

/**
 * Adds a copy of a node of this or another tree, with its whole subtree. Values are copied. Tensor
 * memory and the contexts of stateful entries are borrowed, so a tree can be saved under other
 * names without copying its data. Shared values stay shared in the copy.
 * @return the copy; NULL on failure.
 */
DCP_API dcp_state *dcp_state_copy(dcp_state *parent, const char *key, const dcp_state *node);

/**
 * Adds an object as its encoded stream, from dcp_checkpoint_read_stream() or dcp_object_encode(). A
 * save writes the stream unchanged and does not parse its pickle, so that objects that this library
 * cannot represent are copied without loss. A load replaces it by the loaded value, as it does any
 * object.
 *
 * A save checks that the stream is a file of torch.save: a zip archive with a record data.pkl, in
 * which each record that has a CRC-32 matches it. Anything else is an error of the save. The stream
 * must be an entry; inside an object (a tuple, a list of plain values) it is DCP_ERR_UNSUPPORTED.
 * Security: Python executes what the pickle names when it loads the stream. Copying an untrusted
 * stream into another checkpoint does not make it safe.
 * @param bytes copied; dcp_state_as_bytes() reads them.
 */
DCP_API dcp_status dcp_state_stream(dcp_state *parent, const char *key, const void *bytes,
                                    size_t size);

/** One step of the path from the root to an entry: a dict key, or a list position if `key` is NULL.
 * The struct will not grow, because it is used in arrays. */
typedef struct dcp_path_part {
    const char *key;
    int64_t position;
} dcp_path_part;

/* ---- looking ---- */

DCP_API dcp_kind dcp_state_kind(const dcp_state *node);

/** @return number of children of a container (for dicts: pairs); 0 for leaves. */
DCP_API size_t dcp_state_count(const dcp_state *node);

/** @return child @p index (for dicts: the value, in order of insertion); NULL if there is none.
 * Takes constant time. */
DCP_API dcp_state *dcp_state_at(const dcp_state *node, size_t index);

/** @return the key of pair @p index of a dict: a node of any kind, usually a string. NULL if there
 * is none. */
DCP_API const dcp_state *dcp_state_key_at(const dcp_state *node, size_t index);

/** @return the child of a dict under a string key; NULL if there is none. */
DCP_API dcp_state *dcp_state_find(const dcp_state *node, const char *key);

/**
 * @return the child of a dict under a key that equals an int in Python: 1, True and 1.0 are the
 * same key, "1" is another one. NULL if there is none.
 */
DCP_API dcp_state *dcp_state_find_int(const dcp_state *node, int64_t key);

/**
 * Looks up any key. Keys are compared as in Python: numbers of all kinds by value; tuples, and
 * torch.Size as one, by their elements; frozensets without regard to order. "a" is not b"a". NaN,
 * and objects of other Python classes, equal only the same node.
 *
 * Keys are looked up in an index; tuples and frozensets are compared one by one.
 * @param node a dict, or a set.
 * @param key a node of any tree.
 * @return the child of the dict, or the element of the set. NULL if there is none, if the key is
 * not hashable (a list, a dict), or if there is no memory to compare tuples.
 */
DCP_API dcp_state *dcp_state_find_key(const dcp_state *node, const dcp_state *key);

/** Reads a leaf. @return DCP_ERR_KIND if the node has another kind, or the value does not fit. */
DCP_API dcp_status dcp_state_as_bool(const dcp_state *node, bool *value);
DCP_API dcp_status dcp_state_as_int(const dcp_state *node, int64_t *value);
DCP_API dcp_status dcp_state_as_uint(const dcp_state *node, uint64_t *value);
/** Also reads ints that a double holds exactly. */
DCP_API dcp_status dcp_state_as_float(const dcp_state *node, double *value);
DCP_API dcp_status dcp_state_as_complex(const dcp_state *node, double *real, double *imaginary);
/** Reads strings and devices. @param text borrowed, NUL-terminated. @param length may be NULL. */
DCP_API dcp_status dcp_state_as_text(const dcp_state *node, const char **text, size_t *length);
/** Reads bytes, bytearrays and stored streams. @param bytes borrowed. */
DCP_API dcp_status dcp_state_as_bytes(const dcp_state *node, const void **bytes, size_t *length);
DCP_API dcp_status dcp_state_as_dtype(const dcp_state *node, dcp_dtype *dtype);

/** @return an int of any size in decimal digits; borrowed; NULL if the node is not an int. */
DCP_API const char *dcp_state_int_digits(const dcp_state *node);

/** @return number of chunks of a tensor node. */
DCP_API size_t dcp_state_chunk_count(const dcp_state *node);

/**
 * Describes chunk @p index of a tensor node. `data` is set also if a load allocated the memory.
 *
 * A tensor inside a loaded object is a view of the storage that it was saved with, and keeps its
 * offset and strides: it may be `strided`, repeat elements (strides of 0), and share memory with
 * other tensors of the object. If the object is saved again, they share one storage as before.
 */
DCP_API dcp_status dcp_state_chunk_sized(const dcp_state *node, size_t index, dcp_tensor *chunk,
                                         size_t tensor_size);

static inline dcp_status dcp_state_chunk(const dcp_state *node, size_t index, dcp_tensor *chunk)
{
    return dcp_state_chunk_sized(node, index, chunk, sizeof *chunk);
}

/**
 * @return "module.name" of the Python class or function that an opaque node would have called; NULL
 * if it is not opaque. Its children, if any, are the arguments from the pickle, then the state.
 *
 * Examples are scalars, arrays and random states of NumPy, deque, Namespace and datetime. A save
 * writes them as they were read, so that Python unpickles an equal value; objects for which this is
 * impossible (bare storages) are DCP_ERR_UNSUPPORTED. Security: Python calls the functions that
 * they name when it loads them. Copying untrusted objects into another checkpoint does not make
 * them safe.
 */
DCP_API const char *dcp_state_opaque_name(const dcp_state *node);

/**
 * Renders a node as JSON text. Ints have all their digits. Floats are the shortest text that reads
 * back as the same float ("1.0" stays a float). Tuples become arrays. Values that JSON does not
 * have become an object whose first key starts with "$":
 *
 * | node | text |
 * | --- | --- |
 * | infinite float or NaN | `{"$float": "nan"}`, "inf", "-inf" |
 * | complex | `{"$complex": [1.0, -2.0]}` |
 * | bytes, bytearray | `{"$bytes": "00ff"}`, `{"$bytearray": "00ff"}`, in hex |
 * | set, frozenset, torch.Size | `{"$set": [...]}`, `{"$frozenset": [...]}`, `{"$size": [...]}` |
 * | torch.dtype, torch.device | `{"$dtype": "bfloat16"}`, `{"$device": "cuda:0"}` |
 * | tensor | `{"$tensor": {"dtype": "float32", "shape": [2, 3]}}` |
 * | dict with a key that is not a string or starts with "$" | `{"$dict": [[key, value], ...]}` |
 * | opaque, with children if it has any | `{"$opaque": "module.name", "children": [...]}` |
 * | stored stream, by its number of bytes | `{"$stream": 1280}` |
 * | stateful entry | `{"$stateful": true}` |
 * | value that contains itself | `{"$cycle": true}` at the inner place |
 *
 * Shared values are repeated. Lone surrogates in strings are escaped; other bytes that are not
 * UTF-8 become U+FFFD.
 *
 * @param text owned by the caller; freed with dcp_text_free().
 * @param limit maximum size of the text in bytes; 0 means 64 MiB. A longer text is
 * DCP_ERR_UNSUPPORTED.
 */
DCP_API dcp_status dcp_state_to_json(const dcp_state *node, size_t limit, char **text);

/** Frees text that the library gave to the caller. NULL is allowed. */
DCP_API void dcp_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
