/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file state.h
 * @brief The state tree: nested dicts and lists whose leaves are tensors, objects, or callbacks
 * that give a subtree.
 *
 * A tree is made by dcp_state_new(), which gives the root, a dict. Every node belongs to its root
 * and lives until dcp_state_free(root), or until a load replaces the object that it is part of.
 * Nodes are borrowed pointers.
 *
 * Functions that add a child take the parent and a key. In a dict the key is a NUL-terminated UTF-8
 * string that is not there yet (it may be empty and may contain dots); in a list, tuple or set it
 * is NULL, and the child is appended. Keys and strings are copied; tensor memory is borrowed. Dict
 * keys that are no strings are added by dcp_state_pair() and dcp_state_int_key().
 *
 * **Errors stick.** Building calls may be chained without checks: adding to NULL fails, and the
 * first failure is kept by the root, where dcp_state_status() shows it and every save and load
 * reports it.
 *
 * **Flattening** follows PyTorch: dicts are entered; lists are entered if they contain a tensor, a
 * dict, or (at any depth of lists) such a list; everything else (tuples, lists of plain values,
 * scalars) is one object. Names are the keys and positions on the way, joined by "."; keys that are
 * no strings are what Python's str() makes of them, so that the key 0 is "0". Empty dicts vanish.
 * Source: torch.distributed.checkpoint._nested_dict and _traverse, 2.4 and newer.
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

/** What a node is. Kinds that no building call makes come from checkpoints. */
typedef enum dcp_kind {
    DCP_KIND_NONE = 0,
    DCP_KIND_BOOL = 1,
    DCP_KIND_INT = 2, /**< fits int64_t or uint64_t, else see dcp_state_int_digits() */
    DCP_KIND_FLOAT = 3,
    DCP_KIND_COMPLEX = 4,
    DCP_KIND_STRING = 5,
    DCP_KIND_BYTES = 6,
    DCP_KIND_BYTEARRAY = 7,

    DCP_KIND_LIST = 10,
    DCP_KIND_TUPLE = 11,
    DCP_KIND_DICT = 12,
    DCP_KIND_ORDERED_DICT = 13, /**< collections.OrderedDict; otherwise as a dict */
    DCP_KIND_SET = 14,
    DCP_KIND_FROZENSET = 15,
    DCP_KIND_PAIR = 16, /**< a pair of a dict that is being built, see dcp_state_pair() */

    DCP_KIND_TENSOR = 20,   /**< a tensor of the tree, or one inside an object */
    DCP_KIND_STATEFUL = 21, /**< callbacks, see dcp_stateful */

    DCP_KIND_DTYPE = 30,  /**< a torch.dtype */
    DCP_KIND_SIZE = 31,   /**< a torch.Size; children are ints */
    DCP_KIND_DEVICE = 32, /**< a torch.device, as text */

    DCP_KIND_OPAQUE =
        40, /**< a Python object of another class; never run, see dcp_state_opaque_name() */
    DCP_KIND_STREAM = 41 /**< an object as its stored stream, see dcp_state_stream() */
} dcp_kind;

/* ---- making and freeing ---- */

/** @return a new root, an empty dict; NULL if there is no memory. */
DCP_API dcp_state *dcp_state_new(void);

/** Frees a root with all its nodes and all memory that loads allocated for it. NULL is allowed. */
DCP_API void dcp_state_free(dcp_state *root);

/**
 * @return the first failure while building the tree that @p node belongs to, DCP_OK if none; sets
 * the message. What can only be told when values are complete is looked at here, and is no failure
 * that stays: a pair without its value, or a list in a tuple that is a key (DCP_ERR_ARGUMENT), and
 * tuples or frozensets that are equal in one dict or set (DCP_ERR_DUPLICATE).
 */
DCP_API dcp_status dcp_state_status(const dcp_state *node);

/* ---- building: containers return the new node, NULL on failure ---- */

DCP_API dcp_state *dcp_state_dict(dcp_state *parent, const char *key);
DCP_API dcp_state *dcp_state_list(dcp_state *parent, const char *key);
DCP_API dcp_state *dcp_state_tuple(dcp_state *parent, const char *key);
/** A collections.OrderedDict, which is built and flattened as a dict. */
DCP_API dcp_state *dcp_state_ordered_dict(dcp_state *parent, const char *key);

/**
 * Adds an empty set, to which elements are added with NULL for their key: values that have a hash,
 * which lists, dicts, sets and bytearrays have not (DCP_ERR_ARGUMENT), and that no element equals
 * (DCP_ERR_DUPLICATE). A set is one object, in the order in which its elements were added, which
 * has no meaning.
 */
DCP_API dcp_state *dcp_state_set(dcp_state *parent, const char *key);
/** The same for a frozenset, which may be a key or an element of a set. PyTorch loads those of a
 * checkpoint, but torch.load() takes none with weights_only. */
DCP_API dcp_state *dcp_state_frozenset(dcp_state *parent, const char *key);

/**
 * Begins a pair of a dict, for keys that are no strings: of the two values that are then added to
 * the pair, with NULL for their key, the first is the key and the second the value.
 *
 * @code
 * dcp_state *pair = dcp_state_pair(learning_rates);
 * dcp_state *key = dcp_state_tuple(pair, NULL); // (1, "encoder")
 * dcp_state_int(key, NULL, 1);
 * dcp_state_string(key, NULL, "encoder");
 * dcp_state_float(pair, NULL, 1e-4);
 * @endcode
 *
 * Keys are all that has a hash in Python (no lists, dicts, sets, bytearrays), but no tensors. As in
 * Python, keys that are equal are one, see dcp_state_find_key(): a key that is in the dict already
 * is DCP_ERR_DUPLICATE. A pair that has no value is an error of the tree (dcp_state_status()), and
 * is not yet in the dict. Names of tensors take keys as text: 0 and "0" in one dict are an error of
 * the save.
 * @return the pair, a node of its own kind; NULL on failure.
 */
DCP_API dcp_state *dcp_state_pair(dcp_state *dict);

/**
 * A pair that has its key, an int, and takes the value:
 * `dcp_state_dict(dcp_state_int_key(state, 0), NULL)` is the dict under the key 0, as optimizers
 * have it.
 */
DCP_API dcp_state *dcp_state_int_key(dcp_state *dict, int64_t key);

/**
 * Copies a key of counted length into the tree, for callers whose strings are not NUL-terminated.
 * @return the key, NUL-terminated, borrowed from the tree; NULL on failure (a NUL inside, not
 * UTF-8).
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
 * @param digits decimal: a "-" if it is negative, then digits that do not begin with a needless 0;
 * anything else is DCP_ERR_ARGUMENT. Saves refuse ints of more than 2048 bytes (some 4900 digits);
 * of more than 255 (some 610 digits) PyTorch's torch.load() takes none with weights_only.
 */
DCP_API dcp_status dcp_state_digits(dcp_state *parent, const char *key, const char *digits);
/** Adds a torch.dtype; one whose tensors cannot be saved is DCP_ERR_ARGUMENT. */
DCP_API dcp_status dcp_state_dtype(dcp_state *parent, const char *key, dcp_dtype value);
/**
 * Adds a torch.Size.
 * @param sizes @p count sizes, copied; a negative one is DCP_ERR_ARGUMENT. NULL if @p count is 0.
 */
DCP_API dcp_status dcp_state_size(dcp_state *parent, const char *key, const int64_t *sizes,
                                  size_t count);
/**
 * Adds a torch.device.
 * @param device its type, and its index if it has one: "cpu", "cuda:1". Anything else is
 * DCP_ERR_ARGUMENT; whether PyTorch knows the type is not checked.
 */
DCP_API dcp_status dcp_state_device(dcp_state *parent, const char *key, const char *device);

/**
 * Adds a tensor, or this rank's chunk of one.
 * @return the node, to which dcp_state_add_chunk() can add further chunks; NULL on failure.
 */
DCP_API dcp_state *dcp_state_tensor_sized(dcp_state *parent, const char *key,
                                          const dcp_tensor *tensor, size_t tensor_size);

static inline dcp_state *dcp_state_tensor(dcp_state *parent, const char *key,
                                          const dcp_tensor *tensor)
{
    return dcp_state_tensor_sized(parent, key, tensor, sizeof *tensor);
}

/**
 * Adds another chunk that this rank holds of the same tensor. Dtype and global shape must be the
 * node's; the box must not overlap its other chunks.
 */
DCP_API dcp_status dcp_state_add_chunk_sized(dcp_state *tensor_node, const dcp_tensor *chunk,
                                             size_t tensor_size);

static inline dcp_status dcp_state_add_chunk(dcp_state *tensor_node, const dcp_tensor *chunk)
{
    return dcp_state_add_chunk_sized(tensor_node, chunk, sizeof *chunk);
}

/**
 * Adds the chunks that a flat range of a tensor consists of: what an optimizer holds that shards
 * flattened parameters. Elements @p start to @p start + @p length - 1 of the row-major tensor lie
 * consecutively at @p data; they are decomposed into at most 2 * ndim - 1 boxes.
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
 * An entry that is asked for its state instead of having one: PyTorch's Stateful.
 *
 * Both functions get a fresh dict to work on and return DCP_OK or a failure (dcp_error_set() sets
 * the message). On save `state_dict` fills it. On load `state_dict` fills it with what is to be
 * loaded (tensors as destinations, objects as place holders), the load fills those in, and
 * `load_state_dict` is called. Tensor memory named in the dict must stay valid until the save or
 * load that asked for it has ended. The struct will not grow.
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
 * Adds a copy of a node, of this tree or another one, with all that is below it. Values are copied;
 * the memory of tensors and what stateful entries point to is borrowed, as it is by the node, so
 * that a tree can be saved under other names without moving a byte. What is shared stays shared.
 * @return the copy; NULL on failure.
 */
DCP_API dcp_state *dcp_state_copy(dcp_state *parent, const char *key, const dcp_state *node);

/**
 * Adds an object as the stream that it is stored as: what dcp_checkpoint_read_stream() or
 * dcp_object_encode() gave. A save writes it byte for byte and does not look into its pickle, so
 * that objects that this library cannot represent are copied without loss. As the place holder of a
 * load it is as good as any other object, and is replaced by the value that is loaded.
 *
 * A save checks that it is a file of torch.save: a zip archive with a record data.pkl, in which
 * each record that has a CRC-32 agrees with it. Anything else is an error there. It must be an
 * entry by itself: inside of an object (a tuple, a list of plain values) it is
 * DCP_ERR_UNSUPPORTED. Python runs what the pickle names when it loads it: a stream that is not
 * trusted is not to be trusted in another checkpoint either.
 * @param bytes copied; dcp_state_as_bytes() reads them.
 */
DCP_API dcp_status dcp_state_stream(dcp_state *parent, const char *key, const void *bytes,
                                    size_t size);

/** One step of the way from the root to an entry: a dict key, or a list position when `key` is
 * NULL. The struct will not grow, as it comes in arrays. */
typedef struct dcp_path_part {
    const char *key;
    int64_t position;
} dcp_path_part;

/* ---- looking ---- */

DCP_API dcp_kind dcp_state_kind(const dcp_state *node);

/** @return number of children of a container (for dicts: pairs); 0 for leaves. */
DCP_API size_t dcp_state_count(const dcp_state *node);

/** @return child @p index (for dicts: the value, in order of insertion); NULL if there is none.
 * Iterative; O(1). */
DCP_API dcp_state *dcp_state_at(const dcp_state *node, size_t index);

/** @return the key of pair @p index of a dict, as a node of any kind (mostly a string), to be read
 * as other nodes are; NULL if there is none. */
DCP_API const dcp_state *dcp_state_key_at(const dcp_state *node, size_t index);

/** @return the child of a dict under a string key; NULL if there is none. */
DCP_API dcp_state *dcp_state_find(const dcp_state *node, const char *key);

/**
 * @return the child of a dict under a key that equals an int as Python compares: 1, True and 1.0
 * are the same key, "1" is another one. NULL if there is none.
 */
DCP_API dcp_state *dcp_state_find_int(const dcp_state *node, int64_t key);

/**
 * Looks up any key, as Python compares keys: numbers by value, whatever their kind; tuples (a
 * torch.Size is one) by their elements; frozensets whatever their order; "a" is not b"a"; NaN, and
 * objects of classes that only Python knows, equal only the same node.
 *
 * Keys are found in an index, but for tuples and frozensets: one after the other.
 * @param node a dict, or a set.
 * @param key a node of any tree: a key of another dict, or one that was built for it.
 * @return the child of the dict, or the element of the set. NULL if there is none, if the key has
 * no hash (a list, a dict), or if there is no memory to compare tuples.
 */
DCP_API dcp_state *dcp_state_find_key(const dcp_state *node, const dcp_state *key);

/** Reads a leaf. @return DCP_ERR_KIND if the node is something else, or the value does not fit. */
DCP_API dcp_status dcp_state_as_bool(const dcp_state *node, bool *value);
DCP_API dcp_status dcp_state_as_int(const dcp_state *node, int64_t *value);
DCP_API dcp_status dcp_state_as_uint(const dcp_state *node, uint64_t *value);
/** Also reads ints that a double holds exactly. */
DCP_API dcp_status dcp_state_as_float(const dcp_state *node, double *value);
DCP_API dcp_status dcp_state_as_complex(const dcp_state *node, double *real, double *imaginary);
/** Strings, devices. @param text borrowed, NUL-terminated. @param length may be NULL. */
DCP_API dcp_status dcp_state_as_text(const dcp_state *node, const char **text, size_t *length);
/** Bytes, bytearrays and stored streams. @param bytes borrowed. */
DCP_API dcp_status dcp_state_as_bytes(const dcp_state *node, const void **bytes, size_t *length);
DCP_API dcp_status dcp_state_as_dtype(const dcp_state *node, dcp_dtype *dtype);

/** @return an int of any size in decimal digits; borrowed; NULL if the node is no int. */
DCP_API const char *dcp_state_int_digits(const dcp_state *node);

/** @return number of chunks that a tensor node holds here. */
DCP_API size_t dcp_state_chunk_count(const dcp_state *node);

/**
 * Describes chunk @p index of a tensor node; `data` shows memory that a load allocated, too.
 *
 * A tensor inside of an object that was loaded is a view of the storage that it was saved with,
 * whose offset and strides it has: it may be `strided`, repeat elements (strides of 0), and share
 * memory with other tensors of the object. Saved again, they share one storage as before.
 */
DCP_API dcp_status dcp_state_chunk_sized(const dcp_state *node, size_t index, dcp_tensor *chunk,
                                         size_t tensor_size);

static inline dcp_status dcp_state_chunk(const dcp_state *node, size_t index, dcp_tensor *chunk)
{
    return dcp_state_chunk_sized(node, index, chunk, sizeof *chunk);
}

/**
 * @return "module.name" of the Python class or function that an opaque node would have called; NULL
 * if it is not opaque. Its children, if any, are the arguments, and then the state, that the pickle
 * gave it.
 *
 * Numpy's scalars, arrays and random states, deque, Namespace, datetime and so on are such objects.
 * A save writes them as they were read, so that Python unpickles an equal value; what cannot be
 * (storages by themselves) is DCP_ERR_UNSUPPORTED. Python calls what they name when it loads them:
 * objects of a checkpoint that is not trusted are not to be trusted in another one either.
 */
DCP_API const char *dcp_state_opaque_name(const dcp_state *node);

/**
 * Renders a node as JSON text, for people and programs. Ints have all their digits, floats are the
 * shortest text that gives the same float back ("1.0" stays a float). Tuples become arrays. What
 * JSON lacks becomes an object whose first key starts with "$":
 *
 * | node | text |
 * | --- | --- |
 * | float that is not finite | `{"$float": "nan"}`, "inf", "-inf" |
 * | complex | `{"$complex": [1.0, -2.0]}` |
 * | bytes, bytearray | `{"$bytes": "00ff"}`, `{"$bytearray": "00ff"}`, in hex |
 * | set, frozenset, torch.Size | `{"$set": [...]}`, `{"$frozenset": [...]}`, `{"$size": [...]}` |
 * | torch.dtype, torch.device | `{"$dtype": "bfloat16"}`, `{"$device": "cuda:0"}` |
 * | tensor | `{"$tensor": {"dtype": "float32", "shape": [2, 3]}}` |
 * | dict with a key that is no string or starts with "$" | `{"$dict": [[key, value], ...]}` |
 * | opaque, with children if it has any | `{"$opaque": "module.name", "children": [...]}` |
 * | stored stream, by its number of bytes | `{"$stream": 1280}` |
 * | stateful entry | `{"$stateful": true}` |
 * | value that contains itself | `{"$cycle": true}` where it does |
 *
 * Shared values are repeated. Lone surrogates in strings are escaped, other bytes that are not
 * UTF-8 become U+FFFD.
 *
 * @param text owned by the caller; freed with dcp_text_free().
 * @param limit most bytes of text; beyond it DCP_ERR_UNSUPPORTED. 0 means 64 MiB.
 */
DCP_API dcp_status dcp_state_to_json(const dcp_state *node, size_t limit, char **text);

/** Frees text that the library gave to the caller. NULL is allowed. */
DCP_API void dcp_text_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
