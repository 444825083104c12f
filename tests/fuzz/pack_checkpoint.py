#!/usr/bin/env python3
"""Makes an input of fuzz_convert of a directory: pack_checkpoint.py OPTIONS DIRECTORY > INPUT

Letters of OPTIONS: a or m (dcp convert --all or --masters), u (--unstack), d (--dequantize bf16), t (--transform
rules.json, which is in the directory) and i (its inverse), s, h or g (into safetensors, Hugging Face's or GGUF; else .pt).
Elements are left out, as the target makes its own, but where they are shapes, and so are shard files of DCP.
"""
import json
import os
import sys
import zipfile


def pack(path):
    """The sizes of storages, and the bytes that the target makes the file of."""
    with open(path, "rb") as file:
        contents = file.read()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            storages = {record.filename.split("/data/")[1]: record.file_size for record in archive.infolist() if "/data/" in record.filename}
            name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            return ",".join(str(storages[key]) for key in sorted(storages, key=int)) or "0", archive.read(name)
    if path.endswith(".safetensors"):
        length = int.from_bytes(contents[:8], "little")
        header = json.loads(contents[8:8 + length])
        if any(name.endswith(".weight_shape") for name in header):
            return None, contents
        return str(len(contents) - 8 - length), json.dumps(header, separators=(",", ":")).encode()
    return None, contents


def main():
    options, directory = sys.argv[1:]
    sys.stdout.buffer.write(options.encode())
    for folder, _, names in sorted(os.walk(directory)):
        for name in sorted(names):
            if name.endswith(".distcp"):
                continue
            path = os.path.join(folder, name)
            sizes, contents = pack(path)
            shown = os.path.relpath(path, directory) + (" " + sizes if sizes else "")
            sys.stdout.buffer.write(b"\n=== " + shown.encode() + b"\n" + contents)


main()
