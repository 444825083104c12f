#!/usr/bin/env python3
"""Write malicious checkpoints, siblings of tests/fixtures/hostile and larger ones, for the program `hostile`.

    python fuzz_hostile.py DIRECTORY [SCALE]

SCALE (1) multiplies the size of those that are large in numbers.
Needs nothing but Python; cases of zstd only with the package zstandard.
"""
import io
import json
import os
import pickle
import random
import struct
import sys
import zipfile
import zlib

CHECKPOINT = "torch.distributed.checkpoint."
SCALE = float(sys.argv[2]) if len(sys.argv) > 2 else 1

# ---- pickles, opcode by opcode


def text(value):
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value):
    if -2**31 <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    if len(data) < 256:
        return b"\x8a" + bytes([len(data)]) + data
    return b"\x8b" + struct.pack("<i", len(data)) + data


def name(module, attribute):
    return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"


def tuple_of(*values):
    return b"(" + b"".join(values) + b"t"


def list_of(*values):
    return b"](" + b"".join(values) + b"e"


def dict_of(*pairs):
    return b"}(" + b"".join(k + v for k, v in pairs) + b"u"


def put(index, value):
    return value + b"r" + struct.pack("<I", index)


def get(index):
    return b"j" + struct.pack("<I", index)


def call(function, *arguments):
    return function + tuple_of(*arguments) + b"R"


def new(module, attribute, *fields):
    return name(CHECKPOINT + module, attribute) + b")\x81" + dict_of(*((text(k), v) for k, v in fields)) + b"b"


def size_of(*numbers):
    return call(name("torch", "Size"), tuple_of(*(n if isinstance(n, bytes) else integer(n) for n in numbers)))


def whole(value, protocol=4):
    return b"\x80" + bytes([protocol]) + value + b"."


# ---- metadata

def properties(dtype=name("torch", "float32")):
    layout = call(name("torch.serialization", "_get_layout"), text("torch.strided"))
    memory = call(name(CHECKPOINT + "metadata", "_MEM_FORMAT_ENCODING"), integer(0))
    return (name(CHECKPOINT + "metadata", "TensorProperties") + b")\x81" +
            tuple_of(dtype, layout, b"\x89", memory, b"\x89") + b"b")


def chunk(offsets, sizes):
    return new("metadata", "ChunkStorageMetadata", ("offsets", size_of(*offsets)), ("sizes", size_of(*sizes)))


def tensor_entry(size, chunks, dtype=name("torch", "float32")):
    return new("metadata", "TensorStorageMetadata", ("properties", properties(dtype)),
               ("size", size if isinstance(size, bytes) else size_of(*size)),
               ("chunks", chunks if isinstance(chunks, bytes) else list_of(*chunks)))


def object_entry():
    return name(CHECKPOINT + "metadata", "BytesStorageMetadata") + b")\x81"


def index(fqn, offset=None):
    fields = [("fqn", fqn if isinstance(fqn, bytes) else text(fqn)), ("index", b"N")]
    return new("metadata", "MetadataIndex", *fields, *([] if offset is None else [("offset", size_of(*offset))]))


def stored(path="__0_0.distcp", offset=0, length=0, *more):
    return new("filesystem", "_StorageInfo", ("relative_path", path if isinstance(path, bytes) else text(path)),
               ("offset", offset if isinstance(offset, bytes) else integer(offset)),
               ("length", length if isinstance(length, bytes) else integer(length)), *more)


def metadata(entries, storage, planner=b"N", *more):
    return whole(new("metadata", "Metadata",
                     ("state_dict_metadata", entries if isinstance(entries, bytes) else dict_of(*entries)),
                     ("planner_data", planner),
                     ("storage_data", storage if isinstance(storage, bytes) else dict_of(*storage)), *more))


# ---- items

def archive(*records, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        for record, data in records:
            file.writestr("archive/" + record, data)
    return out.getvalue()


def tensor_pickle(sizes=(4,), strides=(1,), offset=0, count=4, key="0", storage="FloatStorage", more=b""):
    pid = tuple_of(text("storage"), name("torch", storage), text(key), text("cpu"), integer(count)) + b"Q"
    return call(name("torch._utils", "_rebuild_tensor_v2"), pid, integer(offset),
                tuple_of(*map(integer, sizes)), tuple_of(*map(integer, strides)), b"\x89",
                call(name("collections", "OrderedDict")), more)


FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def item(value=None, *records, data=FLOATS):
    value = tensor_pickle() if value is None else value
    return archive(("data.pkl", whole(value, 2)), *(records or [("data/0", data), ("version", b"3\n")]))


def usual(data=None, size=(4,), chunks=None, planner=b"N", path="__0_0.distcp", info=(), dtype=name("torch", "float32")):
    """A checkpoint of one tensor w in one item."""
    data = item() if data is None else data
    chunks = [chunk([0] * len(size), size)] if chunks is None else chunks
    meta = metadata([(text("w"), tensor_entry(size, chunks, dtype))],
                    [(index("w", [0] * len(size)), stored(path, 0, len(data), *info))], planner)
    return {".metadata": meta, "__0_0.distcp": data}


def one_object(value, *records):
    data = archive(("data.pkl", whole(value, 2)), *(records or [("version", b"3\n")]))
    return {".metadata": metadata([(text("w"), object_entry())], [(index("w"), stored(length=len(data)))]),
            "__0_0.distcp": data}


# ---- cases: yield name, kind, files, expect, target

DEEP = int(300000 * SCALE)


def nested():
    """Every container in itself, in the planner's data and in an object."""
    kinds = {
        "list": (b"]" * DEEP, b"a" * (DEEP - 1)),
        "dict_values": (b"}" + (b"N}") * DEEP, b"s" * DEEP),
        "tuple_keys": (b"}N" + b"\x85" * DEEP + b"N", b"s"),
        "frozensets": (b"(" * DEEP + b"N", b"\x91" * DEEP),
        "sets_of_sets": (b"\x8f(" * DEEP + b"N", b"\x90" * DEEP),
        "reduce": (name("a", "b") + (b")R") * DEEP, b""),
        "reduce_arguments": (name("a", "b") * DEEP + b")", b"R\x85" * (DEEP - 1) + b"R"),
        "build": (name("a", "b") + b")\x81" + b"Nb" * DEEP, b""),
        "build_states": ((name("a", "b") + b")\x81") * 50000 + b"N", b"b" * 50000),
        "ordered_dicts": ((name("collections", "OrderedDict") + b")RN") * 50000 + b"N", b"s" * 50000),
        "sizes": (name("torch", "Size") * 50000 + b")", b"\x85R" * 50000),
        "parameters": (name("torch._utils", "_rebuild_parameter") * 50000 + tensor_pickle(), b"\x89N\x87R" * 50000),
        "appends_of_marks": (b"](" * DEEP, b"e" * DEEP),
    }
    for kind, (first, last) in kinds.items():
        yield "deep_%s_planner" % kind, "dcp", usual(planner=first + last), "either", "w"
        yield "deep_%s_object" % kind, "dcp", one_object(first + last), "either", "w"
        yield "deep_%s_pt" % kind, "torch-save", {"": archive(
            ("data.pkl", whole(dict_of((text("w"), first + last)), 2)), ("data/0", FLOATS), ("version", b"3\n"))}, \
            "either", "w"


def opcodes():
    for code in range(256):
        for tail in (b"", b"\xff" * 8, b"1\n"):
            value = one_object(b"N" + bytes([code]) + tail)
            yield "opcode_%02x_%s" % (code, tail[:1].hex()), "dcp", value, "either", "w"
    good = usual()
    yield "protocol_0", "dcp", dict(good, **{".metadata": pickle.dumps({"a": 1.5, "b": [1, 2**70], "c": ("x",)}, 0)}), \
        "error", None
    for extra in (b"0", b"1", b"2", b"N.", b"(", b"Q", b"\x94" * 100000, b"\x97", b"\x98"):
        yield "stray_%s" % extra[:4].hex(), "dcp", dict(good, **{".metadata": good[".metadata"][:-1] + extra + b"."}), \
            "either", "w"
    yield "memo_many", "dcp", one_object(b"]" + b"".join(put(i, b"N") + b"a" for i in range(300000))), "either", "w"
    yield "memo_sparse", "dcp", one_object(b"]" + b"".join(put((i * 2654435761) % 2**32, b"N") + b"a"
                                                          for i in range(200000))), "either", "w"
    yield "long_huge", "dcp", one_object(integer(-(1 << (8 * 4000000)))), "either", "w"
    yield "longs_many", "dcp", one_object(list_of(*[integer((1 << 16376) - 1)] * 2000)), "either", "w"
    yield "string_surrogates", "dcp", one_object(text(b"\xed\xa0\x80" * 100000)), "either", "w"
    yield "string_invalid", "dcp", one_object(text(b"\xff\xc0\x80\xf5")), "either", "w"
    yield "key_invalid", "dcp", one_object(dict_of((text(b"\xff"), b"N"), (text(b"\0"), b"N"))), "either", "w"
    yield "key_many", "dcp", one_object(dict_of(*((integer(i << 32), b"N") for i in range(200000)))), "either", "w"
    yield "global_newlines", "dcp", one_object(name("a" * 1000000, "b" * 1000000)), "either", "w"
    yield "global_nul", "dcp", one_object(name("os\0", "sys\xfftem")), "either", "w"
    yield "stack_global_numbers", "dcp", one_object(integer(1) + integer(2) + b"\x93"), "error", "w"
    yield "newobj_ex", "dcp", one_object(name("a", "b") + b")}\x92"), "either", "w"
    yield "set_of_lists", "dcp", one_object(b"\x8f(]]]\x90"), "either", "w"
    yield "bytes_latin", "dcp", one_object(call(name("_codecs", "encode"), text("\u0100"), text("latin1"))), "either", "w"
    yield "device_long", "dcp", one_object(call(name("torch", "device"), text("x" * 31), integer(-2**63))), "either", "w"
    yield "size_of_negatives", "dcp", one_object(size_of(-1, -2**63, 2**80)), "either", "w"


def shared():
    """Little that is referred to often."""
    doubled = put(0, b"]") + b"".join(b"0" + put(i, list_of(get(i - 1), get(i - 1))) for i in range(1, 60))
    yield "doubled_planner", "dcp", usual(planner=doubled), "either", "w"
    many_chunks = list_of(*[put(9, chunk([0], [4]))] + [get(9)] * 1000000)
    yield "same_chunk_often", "dcp", usual(chunks=many_chunks), "error", "w"
    entry = put(7, tensor_entry((1000,), [chunk([i], [1]) for i in range(1000)]))
    names = [(text("w0"), entry)] + [(text("w%d" % i), get(7)) for i in range(1, int(100000 * SCALE))]
    yield "same_entry_often", "dcp", {".metadata": metadata(names, [])}, "error", None
    path = put(5, tuple_of(*[text("p")] * 100000))
    planner = dict_of((text("w"), path), *((text("w%d" % i), get(5)) for i in range(int(20000 * SCALE))))
    names = [(text("w"), object_entry())] + [(text("w%d" % i), object_entry()) for i in range(int(20000 * SCALE))]
    yield "same_path_often", "dcp", {".metadata": metadata(names, [], planner)}, "error", None
    names = [(text("w%d" % i), object_entry()) for i in range(int(20000 * SCALE))]
    long_path = put(3, text("x" * 1000000))
    infos = [(index("w0"), stored(long_path))] + [(index("w%d" % i), stored(get(3))) for i in range(1, int(20000 * SCALE))]
    yield "same_file_name_often", "dcp", {".metadata": metadata(names, infos)}, "error", None
    infos = [(put(4, index("w", [0])), stored())] + [(get(4), stored(length=i)) for i in range(100000)]
    yield "same_index_often", "dcp", dict(usual(), **{".metadata": metadata(
        [(text("w"), tensor_entry((4,), [chunk([0], [4])]))], infos)}), "either", "w"
    yield "same_name_often", "dcp", {".metadata": metadata([(text("w"), object_entry())] * 200000, [])}, "error", None
    value = put(0, dict_of(*((text("k%d" % i), b"N") for i in range(1000))))
    for i, kind in enumerate(("list", "dict")):
        of = list_of(value, *[get(0)] * 200000) if kind == "list" else dict_of(
            *((text("n%d" % i), value if i == 0 else get(0)) for i in range(int(20000 * SCALE))))
        yield "pt_same_dict_often_%s" % kind, "torch-save", {"": archive(
            ("data.pkl", whole(of, 2)), ("version", b"3\n"))}, "either", None
    doubled = put(0, dict_of((text("w"), tensor_pickle()))) + b"".join(
        b"0" + put(i, dict_of((text("a"), get(i - 1)), (text("b"), get(i - 1)))) for i in range(1, 60))
    yield "pt_doubled_dicts", "torch-save", {"": item(doubled)}, "either", None
    views = list_of(*[put(2, tensor_pickle((2**20,), (0,)))] + [get(2)] * 100000)
    yield "pt_same_view_often", "torch-save", {"": item(views)}, "either", None
    cycle = put(0, b"}") + text("w") + tensor_pickle() + b"s" + text("again") + get(0) + b"s"
    yield "pt_cycle", "torch-save", {"": item(cycle)}, "either", "w"


def shapes():
    big = 2**62
    for sizes in ([big, 4, 0], [0, big, big], [2**32, 2**32, 0], [big, big, 4], [4, big, big], [2**63 - 1], [2**63],
                  [2**64 + 4], [-4], [2**61], [2**40], [0] * 64, [1] * 64, [1] * 65, [1] * 1000, [0, -1], [-1, -4]):
        label = "x".join(map(str, sizes[:4])) + "_%d" % len(sizes)
        yield "size_" + label, "dcp", usual(size=sizes), "either", "w"
        strides = [1] * len(sizes)
        count = 0 if 0 in sizes else 4
        value = item(tensor_pickle(sizes, strides, count=count), data=FLOATS[:4 * count])
        yield "size_both_" + label, "dcp", usual(value, sizes), "either", "w"
        yield "size_pt_" + label, "torch-save", {"": item(dict_of((text("w"), tensor_pickle(sizes, strides, count=count))),
                                                          data=FLOATS[:4 * count])}, "either", "w"
    for sizes, strides, offset, count in [((2, 2), (2**62, 1), 0, 4), ((2,), (2**63 - 1,), 1, 4), ((3,), (-1,), 3, 4),
                                          ((4,), (1,), 2**63 - 1, 4), ((4,), (1,), 2**62, 4), ((4,), (1,), -2**63, 4),
                                          ((2**40,), (0,), 0, 4), ((2**31, 2**31), (0, 0), 0, 4), ((4,), (1,), 0, 2**62),
                                          ((4,), (1,), 0, -1), ((), (), 4, 4), ((0,), (2**62,), 2**62, 4),
                                          ((4, 1), (1, 2**63 - 1), 0, 4), ((4,), (1,), 0, 2**64)]:
        value = tensor_pickle(sizes, strides, offset, count)
        label = "%s_%s_%d_%d" % ("x".join(map(str, sizes)), "x".join(map(str, strides)), offset, count)
        yield "view_" + label, "dcp", usual(item(value), list(sizes)), "either", "w"
        yield "view_pt_" + label, "torch-save", {"": item(dict_of((text("w"), value)))}, "either", "w"
    for i, odd in enumerate([b"N", b"\x88", b"G" + struct.pack(">d", 4.0), text("4"), b")", get(77), integer(-2**70)]):
        yield "size_odd_%d" % i, "dcp", usual(chunks=[chunk([0], [odd])]), "error", "w"
        yield "offset_odd_%d" % i, "dcp", usual(chunks=[chunk([odd], [4])]), "error", "w"
        yield "place_odd_%d" % i, "dcp", usual(path=odd), "error", "w"
        good = usual()
        data = item()
        for field in ("offset", "length"):
            values = dict(offset=0, length=len(data))
            values[field] = odd
            meta = metadata([(text("w"), tensor_entry((4,), [chunk([0], [4])]))], [(index("w", [0]), stored(**values))])
            yield "%s_value_odd_%d" % (field, i), "dcp", dict(good, **{".metadata": meta}), \
                "either" if odd == b"\x88" else "error", "w"
    scalar = item(tensor_pickle((), (), 0, 1), data=FLOATS[:4])
    yield "scalar", "dcp", usual(scalar, ()), "either", "w"
    yield "scalar_two_chunks", "dcp", usual(scalar, (), [chunk([], []), chunk([], [])]), "error", "w"
    yield "scalar_no_chunk", "dcp", usual(scalar, (), []), "error", "w"
    yield "scalar_chunk_of_one", "dcp", usual(scalar, (), [chunk([0], [1])]), "error", "w"
    yield "scalar_object_index", "dcp", {".metadata": metadata(
        [(text("w"), tensor_entry((), [chunk([], [])]))], [(index("w"), stored(length=len(scalar)))]),
        "__0_0.distcp": scalar}, "error", "w"
    yield "dtype_text", "dcp", usual(dtype=text("torch.float32")), "error", "w"
    yield "dtype_none", "dcp", usual(dtype=b"N"), "error", "w"
    yield "dtype_quantized", "dcp", usual(dtype=name("torch", "qint8")), "error", "w"


def chunk_tables():
    count, data = int(100000 * SCALE), item(tensor_pickle((1,), (1,), 0, 1), data=FLOATS[:4])
    order = list(range(count))
    random.Random(1).shuffle(order)
    infos = [(index("w", [i]), stored(length=len(data))) for i in order]
    entry = tensor_entry((count,), [chunk([i], [1]) for i in order])
    yield "chunks_many", "dcp", {".metadata": metadata([(text("w"), entry)], infos), "__0_0.distcp": data}, "either", None
    entry = tensor_entry((count,), [chunk([i], [1]) for i in order[1:]])
    yield "chunks_many_hole", "dcp", {".metadata": metadata([(text("w"), entry)], infos), "__0_0.distcp": data}, \
        "either", None
    count = int(30000 * SCALE)
    for label, boxes in {
        "columns": [([0, i], [count, 1]) for i in range(count)],
        "stairs": [([0, i, 0], [i + 1, 1, 1]) for i in range(count)],
        "overlapping": [([0, i], [count, 2]) for i in range(count)],
        "nested": [([0, i], [count, count - i]) for i in range(count)],
        "diagonal": [([i, i], [1, 1]) for i in range(count)],
        "crosses": [([i, 0], [1, count - 1]) if i % 2 else ([0, i], [count, 1]) for i in range(count)],
        "empty": [([0, i], [0, 1]) for i in range(count)],
    }.items():
        size = [count] * len(boxes[0][0])
        entry = tensor_entry(size, [chunk(*box) for box in boxes])
        infos = [(index("w", box[0]), stored(length=len(data))) for box in boxes]
        yield "boxes_" + label, "dcp", {".metadata": metadata([(text("w"), entry)], infos), "__0_0.distcp": data}, \
            "either", None


def paths():
    good = item()
    for path in ["..\\x", "./__0_0.distcp", "a/../__0_0.distcp", "C:\\x", "//x", "/dev/zero", "/proc/self/mem",
                 "__0_0.distcp/", "__0_0.distcp/x", ".", "..", "x" * 5000, "x/" * 2000 + "y", ".metadata",
                 "\u202e", "a\nb", "\\", "~", "$HOME", "*", "-", " ", "__0_0.distcp ", "%00", "file:///etc/passwd",
                 "__0_0.distcp//", "sub//x", b"\xff\xfe", b"a\0b", "\ud800"]:
        value = text(path)
        yield "path_%s" % (path if isinstance(path, bytes) else path.encode("utf-8", "surrogatepass"))[:20].hex(), \
            "dcp", usual(good, path=value), "error" if path != "./__0_0.distcp" else "either", "w"
    for i, planner in enumerate([
            integer(1), text("x"), b"]", dict_of((text("w"), integer(1))), dict_of((text("w"), b")")),
            dict_of((text("w"), tuple_of(b"N"))), dict_of((text("w"), tuple_of(integer(-1)))),
            dict_of((text("w"), tuple_of(integer(2**80)))), dict_of((text("w"), tuple_of(integer(2**62)))),
            dict_of((text("w"), tuple_of(text("a\0b")))), dict_of((text("w"), tuple_of(text(b"\xff")))),
            dict_of((text("w"), tuple_of(b"\x88"))), dict_of((text("w"), list_of(text("a"), integer(0)))),
            dict_of((integer(3), b"N")), dict_of((text("w"), tuple_of(b"G\0\0\0\0\0\0\0\0"))),
            dict_of((text("other"), tuple_of(text("w")))), name("os", "system"), call(name("os", "system"), text("true")),
            dict_of((text("w"), tuple_of(*[text("")] * 100000)))]):
        yield "planner_%d" % i, "dcp", usual(planner=planner), "either", "w"
    for i, names in enumerate([text(b"a\0b"), text(b"\xff"), text("\ud800"), b"N", integer(1), b")", tuple_of(text("w")),
                               text("x" * 2000000)]):
        data = item()
        files = {".metadata": metadata([(names, tensor_entry((4,), [chunk([0], [4])]))],
                                       [(index(names, [0]), stored(length=len(data)))]), "__0_0.distcp": data}
        yield "name_%d" % i, "dcp", files, "either", None
    for i, transforms in enumerate([
            integer(1), text("stream.zstd/1"), list_of(integer(1)), list_of(*[text("stream.zstd/1")] * 2),
            list_of(*[text("stream.zstd/1")] * 100000), list_of(text("stream.zstd@x/1")), list_of(text("stream.zstd")),
            list_of(text("/")), list_of(text("")), list_of(b"]"), list_of(text("stream.zstd/" + "9" * 100000))]):
        yield "transform_%d" % i, "dcp", usual(info=[("transform_descriptors", transforms)]), "error", "w"


def end_records(count, size, position, comment=b"", zip64=None):
    out = b""
    if zip64:
        out += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 798, 45, 0, 0, *zip64)
        out += struct.pack("<4sIQI", b"PK\6\7", 0, position + size, 1)
    return out + struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, count & 0xffff, count & 0xffff, size & 0xffffffff,
                             position & 0xffffffff, len(comment)) + comment


def central(path, position, size, crc=0, method=0, extra=b"", flags=0, stored_size=None):
    return struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\1\2", 0, 0, flags, method, 0, 0, crc,
                       size if stored_size is None else stored_size, size, len(path), len(extra), 0, 0, 0, 0,
                       position) + path + extra


def local(path, data, crc=0, extra=b"", method=0):
    return struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 0, 0, method, 0, 0, crc, len(data), len(data), len(path),
                       len(extra)) + path + extra + data


def containers():
    value = whole(tensor_pickle(), 2)
    records = [(b"archive/data.pkl", value), (b"archive/data/0", FLOATS), (b"archive/version", b"3\n")]

    def container(change=lambda i, p: {}, end=None, comment=b"", zip64=None, more=b""):
        body, directory = bytearray(), bytearray()
        for i, (path, data) in enumerate(records):
            fields = dict(position=len(body), size=len(data), crc=zlib.crc32(data))
            fields.update(change(i, len(body)))
            directory += central(path, **fields)
            body += local(path, data, zlib.crc32(data))
        count = len(records)
        body += more
        return bytes(body + directory) + end_records(count, len(directory), len(body), comment,
                                              zip64 and [z(count, len(directory), len(body)) for z in zip64])

    def zip64_extra(*numbers):
        return struct.pack("<HH%dQ" % len(numbers), 1, 8 * len(numbers), *numbers)

    huge = [2**63, 2**64 - 1, 2**32, 0]
    plain = [lambda c, s, p: c, lambda c, s, p: c, lambda c, s, p: s, lambda c, s, p: p]
    yield "zip_plain", "dcp", usual(container()), "either", "w"
    for i in range(4):
        for number in huge:
            fields = list(plain)
            fields[i] = lambda c, s, p, n=number: n
            yield "zip64_end_%d_%x" % (i, number), "dcp", usual(container(zip64=fields)), "either", "w"
            for record in range(3):
                def change(r, p, record=record, i=i, number=number):
                    if r != record:
                        return {}
                    all_ones = [len(records[r][1]), len(records[r][1]), p]
                    all_ones[i % 3] = number
                    return dict(size=0xffffffff, position=0xffffffff, extra=zip64_extra(*all_ones)[:28 - (i == 3) * 8])
                yield "zip64_record%d_%d_%x" % (record, i, number), "dcp", usual(container(change)), "either", "w"
    yield "zip_comment_is_zip", "dcp", usual(container(comment=container())), "either", "w"
    yield "zip_comment_is_end", "dcp", usual(container(comment=end_records(0, 0, 0))), "either", "w"
    yield "zip_all_same_data", "dcp", usual(container(lambda i, p: dict(position=0))), "error", "w"
    yield "zip_data_is_pickle", "dcp", usual(container(lambda i, p: dict(position=0, size=16) if i == 1 else {})), "error", "w"
    yield "zip_directory_is_record", "dcp", usual(container(lambda i, p: dict(size=300) if i == 2 else {})), "error", "w"
    for flags in (1, 0x20, 0x40, 0x2000, 0xffff):
        yield "zip_flags_%x" % flags, "dcp", usual(container(lambda i, p: dict(flags=flags))), "either", "w"
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    megabytes = max(100, int(300 * SCALE))
    zeros = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(megabytes)) + bomb.flush()
    records[0] = (b"archive/data.pkl", zeros)
    yield "zip_bomb_pickle", "dcp", usual(container(lambda i, p: dict(
        method=8, size=megabytes << 20, stored_size=len(zeros)) if i == 0 else {})), "error", "w"
    yield "zip_bomb_pt", "torch-save", {"": container(lambda i, p: dict(
        method=8, size=megabytes << 20, stored_size=len(zeros)) if i == 0 else {})}, "error", None
    lists = whole(list_of(*[b"]"] * int(20000000 * SCALE)), 2)
    wide = zlib.compress(lists, 9)[2:-4]
    records[0] = (b"archive/data.pkl", wide)
    yield "zip_bomb_lists", "torch-save", {"": container(lambda i, p: dict(
        method=8, size=len(lists), stored_size=len(wide)) if i == 0 else {})}, "error", None
    records[0] = (b"archive/data.pkl", value)
    records += [(b"archive/%d" % i, b"") for i in range(60000)]
    yield "zip_many_records", "dcp", usual(container()), "either", "w"
    records[3:] = [(b"archive/data/0", b"xxxx")] * 1000
    yield "zip_same_name", "dcp", usual(container()), "error", "w"
    for path in (b"archive/data/0\0", b"\xff\xfe/x", b"x" * 60000, b"", b"/", b"archive/../data/0", b"/etc/passwd"):
        records[3:] = [(path, b"data")]
        yield "zip_name_%s" % path[:12].hex(), "dcp", usual(container()), "either", "w"
    records[3:] = []
    for version in (b"", b"-1", b"99999999999999999999", b"3.5", b"3" * 100000, b"\xff"):
        records[2] = (b"archive/version", version)
        yield "zip_version_%s" % version[:8].hex(), "dcp", usual(container()), "either", "w"
    for key in ("", "../0", "0\0", "00", "data/0", "0" * 100000, "-0"):
        yield "storage_key_%s" % key[:8].encode().hex(), "dcp", usual(item(tensor_pickle(key=key))), "error", "w"


def compressed():
    try:
        import zstandard
    except ImportError:
        return
    transforms = [("transform_descriptors", list_of(text("stream.zstd/1")))]
    data = item()
    good = zstandard.ZstdCompressor().compress(data)
    dictionary = zstandard.train_dictionary(1024, [b"%d,%d" % (i * i, i) * 20 for i in range(2000)])
    frames = {
        "dictionary": zstandard.ZstdCompressor(dict_data=dictionary).compress(data),
        "frame_per_byte": b"".join(zstandard.ZstdCompressor().compress(bytes([b])) for b in data),
        "skippable_many": b"\x50\x2a\x4d\x18\0\0\0\0" * 200000 + good,
        "skippable_huge": b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + good,
        "empty_many": b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00" * 100000 + good,
        "legacy": b"\x25\xb5\x2f\xfd" + good[4:],
        "checksum_wrong": zstandard.ZstdCompressor(write_checksum=True).compress(data)[:-1] + b"\0",
        "window_27": b"\x28\xb5\x2f\xfd\x00" + bytes([(27 - 10) << 3]) + b"\x01\x00\x00" + good,
        "window_28": b"\x28\xb5\x2f\xfd\x00" + bytes([(28 - 10) << 3]) + b"\x01\x00\x00" + good,
        "window_31": b"\x28\xb5\x2f\xfd\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00" + good,
        "zeros": zstandard.ZstdCompressor().compress(bytes(100 << 20)),
        "noise_behind": good + b"noise",
        "twice": zstandard.ZstdCompressor().compress(good),
        "none": b"",
    }
    for label, frame in frames.items():
        yield "zstd_" + label, "dcp", usual(frame, info=transforms), "either", "w"
        files = one_object(b"N")
        files["__0_0.distcp"] = frame
        files[".metadata"] = metadata([(text("w"), object_entry())], [
            (index("w"), stored("__0_0.distcp", 0, len(frame), *transforms))])
        yield "zstd_object_" + label, "dcp", files, "either", "w"


def safetensors():
    def file(header, data=b"\0" * 8, length=None):
        header = header if isinstance(header, bytes) else header.encode("utf-8", "surrogatepass")
        return struct.pack("<Q", len(header) if length is None else length) + header + data

    tensor = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
    headers = {
        "good": '{"w":%s}' % tensor,
        "duplicate": '{"w":%s,"w":%s}' % (tensor, tensor),
        "duplicate_escaped": '{"w":%s,"\\u0077":%s}' % (tensor, tensor),
        "nul": '{"w\\u0000":%s}' % tensor,
        "surrogate": '{"\\ud800":%s}' % tensor,
        "surrogate_reversed": '{"\\udc00\\ud800":%s}' % tensor,
        "surrogate_pair": '{"\\ud83d\\ude00":%s}' % tensor,
        "invalid_utf8": b'{"\xff":' + tensor.encode() + b"}",
        "bom": b'\xef\xbb\xbf{"w":' + tensor.encode() + b"}",
        "spaces": " " * 100000 + '{"w":%s}' % tensor + " " * 100000,
        "behind": '{"w":%s}x' % tensor,
        "behind_nul": '{"w":%s}\0' % tensor,
        "two": '{"w":%s}{"w":%s}' % (tensor, tensor),
        "comma": '{"w":%s,}' % tensor,
        "list": '[{"w":%s}]' % tensor,
        "control": '{"a\nb":%s}' % tensor,
        "escape_bad": '{"\\x41":%s}' % tensor,
        "escape_cut": '{"\\u00',
        "metadata_twice": '{"__metadata__":{},"__metadata__":{},"w":%s}' % tensor,
        "metadata_nested": '{"__metadata__":{"a":{"b":[1]}},"w":%s}' % tensor,
        "metadata_number": '{"__metadata__":3,"w":%s}' % tensor,
        "field_twice": '{"w":{"dtype":"F32","dtype":"F64","shape":[2],"data_offsets":[0,8]}}',
        "field_unknown": '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":[[[{}]]]}}',
        "field_missing": '{"w":{"dtype":"F32","shape":[2]}}',
        "offsets_three": '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}',
        "dims_65": '{"w":{"dtype":"F32","shape":[%s2],"data_offsets":[0,8]}}' % ("1," * 64),
        "dims_many": '{"w":{"dtype":"F32","shape":[%s2],"data_offsets":[0,8]}}' % ("1," * 1000000),
        "scalar_wrong": '{"w":{"dtype":"F32","shape":[],"data_offsets":[0,8]}}',
        "names_many": '{%s}' % ",".join('"w%d":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}' % i for i in range(100000)),
        "name_long": '{"%s":%s}' % ("x" * 5000000, tensor),
        "deep_dicts": '{"w":' * 200000,
        "deep_unknown": '{"w":{"x":' + "[" * 200000 + "]" * 200000 + "}}",
        "string_open": '{"' + "x" * 1000000,
    }
    for number in ("1e0", "2.0", "02", "+2", "-2", "-0", "99999999999999999999", "9223372036854775808", "2e400", "0x2", "NaN",
                   "true", "null", '"2"', "2" * 1000000):
        headers["shape_" + number[:20].strip('"')] = '{"w":{"dtype":"F32","shape":[%s],"data_offsets":[0,8]}}' % number
        headers["end_" + number[:20].strip('"')] = '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,%s]}}' % number
    sharding = ['{"w":{"saved_offsets":[9223372036854775807]}}', '{"w":{"saved_offsets":[-1]}}', '{"w":{"saved_offsets":[1e3]}}',
                '{"w":{"saved_offsets":[4]},"w":{"saved_offsets":[0]}}', '{"w":{}}', '{"w":[]}', "[]", "", "{" * 100000,
                '{"x":{"saved_offsets":[0]}}', '{"w":{"saved_offsets":[1000000000000]}}',
                '{%s"w":{"saved_offsets":[0]}}' % ('"x":{"saved_offsets":[0]},' * 100000)]
    for i, info in enumerate(sharding):
        headers["sharding_%d" % i] = '{"__metadata__":{"DCP_SHARDING_INFO":%s},"w":%s}' % (json.dumps(info), tensor)
    for label, header in headers.items():
        expect = "either"
        yield "st_" + label, "safetensors-dir", {"a.safetensors": file(header)}, expect, None
    good = file(headers["good"])
    other = file('{"w":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}')
    yield "st_same_name_other_dtype", "safetensors-dir", {"a.safetensors": good, "b.safetensors": other}, "error", "w"
    yield "st_same_name_twice", "safetensors-dir", {"a.safetensors": good, "b.safetensors": good}, "error", "w"
    yield "st_empty_beside", "safetensors-dir", {"a.safetensors": good, "b.safetensors": b""}, "error", "w"
    for length in (0, 1, 2**31, 2**63, 2**64 - 1, 2**64 - 8):
        yield "st_length_%x" % length, "safetensors-dir", {"a.safetensors": file(headers["good"], length=length)}, "error", None


def main():
    root = sys.argv[1]
    rows = []
    for make in (nested, opcodes, shared, shapes, chunk_tables, paths, containers, compressed, safetensors):
        for case, kind, files, expect, target in make():
            case = "%03d_%s" % (len(rows), "".join(c if c.isalnum() or c in "_-" else "-" for c in case))[:80]
            directory = os.path.join(root, case)
            checkpoint = "ckpt.pt" if kind == "torch-save" else "ckpt"
            os.makedirs(directory if kind == "torch-save" else os.path.join(directory, checkpoint))
            for path, data in files.items():
                with open(os.path.join(directory, checkpoint, path) if path else os.path.join(directory, checkpoint), "wb") as out:
                    out.write(data)
            row = {"case": case, "kind": kind, "checkpoint": checkpoint, "expect": expect, "target": target, "why": case}
            with open(os.path.join(directory, "case.json"), "w") as out:
                json.dump(row, out)
            rows.append(row)
    with open(os.path.join(root, "index.json"), "w") as out:
        json.dump({"cases": rows}, out)


if __name__ == "__main__":
    main()
