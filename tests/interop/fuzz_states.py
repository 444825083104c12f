"""Random states for the tests against PyTorch: every kind of tensor and value, under every kind of key."""
import collections
import random
import struct

import torch

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64",
          "uint32", "uint16", "uint8", "bool", "complex128", "complex64", "complex32",
          "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
          "float4_e2m1fn_x2"]
PT_DTYPES = DTYPES + ["bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"]
SAFE_DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint64",
               "uint32", "uint16", "uint8", "bool", "complex64", "float8_e4m3fn", "float8_e5m2"]
INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
TEXTS = ["", "step", ".", "..", "a.b", ".a", "a.", "0", "-1", "True", "$dict", "$bytes", "gr\u00fc\u00df",
         "\u4e16\u754c", "\U0001f600", "with space", "tab\tnew\nline", "quote\"\\'", "/", "a/b", "\x7f\x1b[31m",
         "\u202e\ufeff", "__metadata__"]
FLOATS = [0.0, -0.0, 1.0, 0.1, 1e-5, 1e16, 1e22, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"),
          float("nan"), 3.4028235677973366e38, 2.0**53 + 2]
INTS = [0, 1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1,
        2**64, 2**80, 2**511, 2**2039, 10**4000]


class Maker:
    """Makes a state from a random generator; `form` is "dcp", "pt" or "safetensors"."""

    def __init__(self, rng, form):
        self.rng, self.form = rng, form
        self.dtypes = {"dcp": DTYPES, "pt": PT_DTYPES, "safetensors": SAFE_DTYPES}[form]
        self.shared = []

    # ---- tensors

    def shape(self, most=400):
        ndim = self.rng.choice([0, 1, 1, 2, 2, 2, 3, 4, 5, 8])
        shape = [self.rng.choice([0, 1, 1, 2, 3, 4, 5, 7]) for _ in range(ndim)]
        if self.rng.random() < 0.8:
            shape = [max(1, n) for n in shape]
        while _product(shape) > most:
            shape[self.rng.randrange(ndim)] = 1
        return shape

    def dense(self, shape, dtype):
        size = torch.empty(0, dtype=dtype).element_size()
        count = _product(shape)
        data = torch.frombuffer(bytearray(self.rng.randbytes(count * size) or b"\0"), dtype=torch.uint8)
        data = data[: count * size]
        if dtype is torch.bool:
            data = data & 1
        return data.clone().view(dtype).reshape(shape)

    def tensor(self):
        dtype = getattr(torch, self.rng.choice(self.dtypes))
        value = self.dense(self.shape(), dtype)
        # Operations that only some dtypes have are left to those; views are for all.
        for _ in range(self.rng.choice([0, 0, 1, 1, 2, 3])):
            value = self.view(value)
        if value.dtype.is_complex and self.rng.random() < 0.3 and value.dtype is not torch.complex32:
            value = torch.conj(value)
            if self.rng.random() < 0.5:
                value = value.imag  # of a conjugate: the negative bit
        elif value.dtype in (torch.float32, torch.float64) and self.rng.random() < 0.05:
            value = torch._neg_view(value)
        if value.dtype.is_floating_point and value.element_size() > 1 and self.rng.random() < 0.1:
            value = torch.nn.Parameter(value, requires_grad=self.rng.random() < 0.5)
        return value

    def view(self, value):
        how, dim = self.rng.randrange(6), self.rng.randrange(max(1, value.ndim))
        if value.ndim == 0:
            return value.expand(3) if how == 0 else value
        if how == 0:
            return value.permute(self.rng.sample(range(value.ndim), value.ndim))
        if how == 1 and value.shape[dim] > 0:
            start = self.rng.randrange(value.shape[dim])
            return value.narrow(dim, start, self.rng.randint(0, value.shape[dim] - start))
        if how == 2:
            slices = [slice(None)] * value.ndim
            slices[dim] = slice(self.rng.randrange(2), None, self.rng.randint(1, 3))
            return value[tuple(slices)]
        if how == 3 and value.ndim < 8:
            return value.unsqueeze(dim).expand(*value.shape[:dim], self.rng.randint(0, 3), *value.shape[dim:])
        if how == 4 and value.shape[dim] > 0:
            return value.select(dim, self.rng.randrange(value.shape[dim]))
        if how == 5 and value.shape[dim] >= 2:
            return value.unfold(dim, 2, 1) if value.ndim < 8 else value
        return value

    # ---- values

    def integer(self):
        value = self.rng.choice(INTS) + self.rng.choice([0, 0, 1, -1])
        return -value if self.rng.random() < 0.4 else value

    def real(self):
        if self.rng.random() < 0.5:
            return self.rng.choice(FLOATS)
        return struct.unpack("<d", self.rng.randbytes(8))[0]

    def text(self):
        choice = self.rng.random()
        if choice < 0.6:
            return self.rng.choice(TEXTS)
        if choice < 0.9:
            return "".join(chr(self.rng.choice([0x20, 0x41, 0x7f, 0x80, 0xff, 0x3b1, 0x20ac, 0xffff, 0x10ffff]))
                           for _ in range(self.rng.randrange(9)))
        return self.rng.choice(["x", "\u20ac"]) * self.rng.choice([255, 256, 257, 70000])

    def leaf(self):
        make = self.rng.choice([
            lambda: None, lambda: True, lambda: False, self.integer, self.integer, self.real, self.real, self.text,
            lambda: "a\0b", lambda: "\ud800", lambda: self.rng.randbytes(self.rng.choice([0, 1, 255, 256, 3000])),
            lambda: bytearray(self.rng.randbytes(self.rng.choice([0, 5, 300]))),
            lambda: complex(self.real(), self.real()),
            lambda: getattr(torch, self.rng.choice(DTYPES)),
            lambda: torch.Size(self.shape()),
            lambda: torch.device(self.rng.choice(["cpu", "cuda:1", "meta", "cuda"])),
        ])
        return make()

    def key(self):
        if self.rng.random() < 0.7:
            return self.rng.choice(TEXTS + ["k%d" % i for i in range(30)])
        return self.rng.choice([
            lambda: self.rng.randrange(-3, 300), self.integer, lambda: True, lambda: None, lambda: 0.5, lambda: -0.0,
            lambda: (1, 2), lambda: (), lambda: ("a", (1.5, None)), lambda: (1,), lambda: ("it's", 'say "x"', "\n"),
            lambda: b"by\xff'tes", lambda: torch.float32, lambda: 1 - 2j, lambda: -0.0 + 1e22j,
            lambda: (True, b"\0"),
        ])()

    def hashable(self):
        while True:
            value = self.leaf()
            try:
                hash(value)
                return value
            except TypeError:
                continue

    def dictionary(self, depth, child):
        made = collections.OrderedDict() if self.rng.random() < 0.2 else {}
        for _ in range(self.rng.choice([0, 1, 2, 3, 5])):
            made[self.key()] = child(depth + 1)
        return made

    def value(self, depth=0):
        """A value that is one object, whatever is inside."""
        if self.shared and self.rng.random() < 0.05:
            return self.rng.choice(self.shared)
        if depth > 3 or self.rng.random() < 0.5:
            return self.leaf()
        how, count = self.rng.randrange(6), self.rng.choice([0, 1, 2, 3, 4, 7])
        if how == 0:
            made = [self.value(depth + 1) for _ in range(count)]
        elif how == 1:
            made = tuple(self.value(depth + 1) for _ in range(count))
        elif how == 2:
            made = tuple([self.tensor(), self.dictionary(depth, self.value)])
        elif how == 3:
            made = {self.hashable() for _ in range(count)}
        elif how == 4:
            made = frozenset(self.hashable() for _ in range(count))
        else:
            made = (self.dictionary(depth, self.value),)
        self.shared.append(made)
        return made

    def node(self, depth=1):
        choice = self.rng.random()
        if choice < 0.45:
            return self.tensor()
        if choice < 0.75 or depth > 4:
            return self.value()
        if choice < 0.9:
            return self.dictionary(depth, self.node)
        return [self.node(depth + 1) for _ in range(self.rng.choice([0, 1, 2, 3]))]

    def state(self):
        if self.form == "safetensors":
            return {key: self.tensor().contiguous().clone().detach().resolve_conj().resolve_neg()
                    for key in {self.text() for _ in range(self.rng.randrange(1, 30))} - {"__metadata__"}}
        state = {}
        for _ in range(self.rng.choice([1, 3, 8, 15])):
            state[self.key()] = self.node()
        if self.rng.random() < 0.06:
            state["many"] = {i: self.leaf() if i % 3 else self.dense([i % 5], torch.int16)
                             for i in range(self.rng.choice([999, 1000, 1001, 1200]))}
        if self.rng.random() < 0.2:
            cycle = [1, ("in", [])]
            cycle[1][1].append(cycle)
            state["cycle"] = (cycle,)
        return state


def _product(shape):
    count = 1
    for n in shape:
        count *= n
    return count


# ---- what flattening must make of a state

def enters(value, by_name):
    """Whether flattening enters a value. A file of torch.save has names for dicts whose keys all have a text."""
    if isinstance(value, collections.abc.Mapping):
        return not by_name or all(_has_text(k) for k in value)
    return isinstance(value, list) and _has_parts(value, set())


def _has_text(key):
    if type(key) is tuple:
        return all(type(k) is not tuple and _has_text(k) for k in key)
    if isinstance(key, str):
        return encodable(key) and "\0" not in key
    if type(key) is int:
        return -2**63 <= key < 2**63
    return key is None or type(key) in (bool, float)


def _has_parts(values, seen):
    if id(values) in seen:
        return False
    seen.add(id(values))
    return any(isinstance(v, (torch.Tensor, collections.abc.Mapping)) or (isinstance(v, list) and _has_parts(v, seen))
               for v in values)


def encodable(text):
    try:
        text.encode()
        return True
    except UnicodeEncodeError:
        return False


def flatten(state, by_name=False):
    """[(path, value)] in order."""
    found = []

    def visit(path, value):
        if not enters(value, by_name) or not isinstance(value, (list, collections.abc.Mapping)):
            found.append((path or ("",), value))
        elif isinstance(value, list):
            for i, v in enumerate(value):
                visit(path + (i,), v)
        else:
            for k, v in value.items():
                visit(path + (str(k),), v)

    visit((), state)
    return found


# ---- what a value must look like as JSON

def as_json(value, above=()):
    if id(value) in above:
        return {"$cycle": True}
    if isinstance(value, torch.Tensor):
        return {"$tensor": {"dtype": str(value.dtype)[6:], "shape": list(value.shape)}}
    if isinstance(value, torch.dtype):
        return {"$dtype": str(value)[6:]}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"$" + type(value).__name__: bytes(value).hex()}
    if isinstance(value, complex):
        return {"$complex": [as_json(value.real), as_json(value.imag)]}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"$float": repr(value)}
    if isinstance(value, int) and not isinstance(value, bool) and (value.bit_length() + 8) // 8 > 2048:
        size = value.bit_length() // 8 + 1
        return {"$opaque": "builtins.int", "children": [{"$bytes": value.to_bytes(size, "little", signed=True).hex()}]}
    if isinstance(value, str) and not encodable(value):
        data = value.encode("utf-8", "surrogatepass").hex()
        return {"$opaque": "builtins.str", "children": [{"$bytes": data}]}
    above = above + (id(value),)
    if isinstance(value, torch.Size):
        return {"$size": list(value)}
    if isinstance(value, (list, tuple)):
        return [as_json(v, above) for v in value]
    if isinstance(value, (set, frozenset)):
        return {"$" + type(value).__name__: [as_json(v, above) for v in value]}
    if isinstance(value, dict):
        if all(isinstance(k, str) and encodable(k) and not k.startswith("$") for k in value):
            return {k: as_json(v, above) for k, v in value.items()}
        return {"$dict": [[as_json(k, above), as_json(v, above)] for k, v in value.items()]}
    return value


def comparable(document):
    """Text that is equal for equal JSON: sets have no order, dicts have one."""
    if isinstance(document, dict):
        if len(document) == 1 and next(iter(document)) in ("$set", "$frozenset"):
            (mark, values), = document.items()
            return "%s(%s)" % (mark, sorted(comparable(v) for v in values))
        return "{%s}" % ", ".join("%r: %s" % (k, comparable(v)) for k, v in document.items())
    if isinstance(document, list):
        return "[%s]" % ", ".join(comparable(v) for v in document)
    return "%s %r" % (type(document).__name__, document)


# ---- what a value must be, exactly

def tagged(value, write):
    """The tagged form of a value, see tests/fixtures/README.md; write(bytes) gives a file's name."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return {"t": "tensor", "dtype": str(value.dtype)[6:], "shape": list(value.shape),
                "file": write(tensor_bytes(value))}
    if value is None:
        return {"t": "none"}
    if isinstance(value, torch.Size):
        return {"t": "size", "v": list(value)}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"t": kind, "v": str(value)}
    if kind == "int":
        return {"t": kind if (value.bit_length() + 8) // 8 <= 2048 else "other", "v": str(value)}
    if kind == "float":
        return {"t": kind, "v": value.hex()}
    if kind == "complex":
        return {"t": kind, "re": value.real.hex(), "im": value.imag.hex()}
    if kind == "str":
        if not encodable(value):
            return {"t": "other"}
        return {"t": kind, "hex": value.encode().hex()} if "\0" in value else {"t": kind, "v": value}
    if kind in ("bytes", "bytearray"):
        return {"t": kind, "hex": bytes(value).hex()}
    if kind in ("list", "tuple", "set", "frozenset"):
        return {"t": kind, "v": [tagged(v, write) for v in value]}
    if kind in ("dict", "OrderedDict"):
        return {"t": "dict" if kind == "dict" else "odict",
                "v": [[tagged(k, write), tagged(v, write)] for k, v in value.items()]}
    return {"t": kind, "v": value}


def tensor_bytes(value):
    """Row-major bytes, also of dtypes that PyTorch cannot copy."""
    value = value.detach()
    if value.is_conj() or value.is_neg():
        value = value.resolve_conj().resolve_neg()
    if value.numel() == 0:
        return b""
    size = value.element_size()
    storage = bytes(value.untyped_storage())
    if value.numel() * size == len(storage) and value.is_contiguous():
        return storage
    positions = [value.storage_offset()]
    for extent, stride in zip(value.shape, value.stride()):
        positions = [p + i * stride for p in positions for i in range(extent)]
    return b"".join(storage[p * size:(p + 1) * size] for p in positions)
