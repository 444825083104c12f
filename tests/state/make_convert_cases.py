# SPDX-License-Identifier: BSD-3-Clause
"""Writes convert_cases.inc: what PyTorch's Tensor.copy_ makes of elements of one dtype in another.

    pip install torch==2.13.0
    python make_convert_cases.py > convert_cases.inc

A line begins with two dtypes and a count; the first line of a source dtype, where both are the same, has the elements' bits,
the others have what becomes of them. UNDEFINED marks what PyTorch does not define, and shows by giving several results: floats
outside an unsigned 32-bit integer's range, and NaN from or to small floats.
"""

import math
import struct

import torch

DTYPES = {
    "float64": "DCP_F64", "float32": "DCP_F32", "float16": "DCP_F16", "bfloat16": "DCP_BF16",
    "int64": "DCP_I64", "int32": "DCP_I32", "int16": "DCP_I16", "int8": "DCP_I8",
    "uint64": "DCP_U64", "uint32": "DCP_U32", "uint16": "DCP_U16", "uint8": "DCP_U8", "bool": "DCP_BOOL",
    "float8_e4m3fn": "DCP_F8_E4M3FN", "float8_e4m3fnuz": "DCP_F8_E4M3FNUZ", "float8_e5m2": "DCP_F8_E5M2",
    "float8_e5m2fnuz": "DCP_F8_E5M2FNUZ", "float8_e8m0fnu": "DCP_F8_E8M0FNU",
}
UNSIGNED = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}
COPIES = 64  # long enough for PyTorch's vector loops

FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 2.5, 3.5, 300.7, -300.7, 70000.9, -70000.9, 1e10, -1e10, 1e20, -1e20,
          math.inf, -math.inf, math.nan, 448.0, 464.0, 465.0, 480.0, 240.0, 248.0, 249.0, 57344.0, 61440.0, 61441.0,
          65504.0, 65519.0, 65520.0, 2.0**-9, 2.0**-10, 3 * 2.0**-11, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25, 3 * 2.0**-26,
          2.0**-127, 2.0**-126, 1.5 * 2.0**-127, 1e-45, 3.4028234663852886e38, 1.00390625, 1.01171875, 1.0625, 1.1875,
          0.0625 * 1.0625, 16777217.0, 2147483647.5, -2147483648.5, 9.3e18, -0.7]
SMALL = [0, 1, 2, 7, 8, 9, 0x30, 0x7b, 0x7c, 0x7d, 0x7e, 0x7f, 0x80, 0x81, 0xfb, 0xff]
HALVES = [0, 1, 0x3ff, 0x400, 0x3c00, 0x7bff, 0x7c00, 0x7f7f, 0x7f80, 0x8000, 0x8001, 0xc000, 0xfbff, 0xff80]
INTEGERS = [0, 1, 127, 128, 255, 256, 300, 32767, 65535, 70001, 16777217, 2**31 - 1, 2**32 - 1, 2**53 + 1, 2**63 - 1,
            2**63, 2**64 - 1]


def bits_of(dtype):
    """Bit patterns to convert from."""
    size = getattr(torch, dtype).itemsize
    if dtype == "float64":
        return [struct.unpack("<Q", struct.pack("<d", v))[0] for v in FLOATS]
    if dtype == "float32":
        values = [v for v in FLOATS if math.isnan(v) or math.isinf(v) or abs(v) < 3.5e38]
        return [struct.unpack("<I", struct.pack("<f", v))[0] for v in values]
    if dtype == "bool":
        return [0, 1]
    if "float" in dtype:
        return SMALL if size == 1 else HALVES
    return sorted({v & (2 ** (8 * size) - 1) for v in INTEGERS} | {2 ** (8 * size - 1)})


def convert(dtype, to, bits):
    size = getattr(torch, dtype).itemsize
    raw = bytearray(bits.to_bytes(size, "little") * COPIES)
    source = torch.frombuffer(raw, dtype=getattr(torch, dtype))
    result = torch.empty(COPIES, dtype=getattr(torch, to)).copy_(source)
    return source, result, int(result.view(UNSIGNED[result.element_size()])[0].item())


def undefined(dtype, to, source):
    if "float" not in dtype:
        return False
    value = source.double()[0].item()
    if math.isnan(value):
        return dtype not in ("float32", "float64") or to in ("int64", "int32", "uint32", "uint64")
    return to == "uint32" and not -2.0**31 <= value < 2.0**32


def main():
    print("/* SPDX-License-Identifier: BSD-3-Clause */")
    print("/* Made by make_convert_cases.py with PyTorch 2.13.0. */")
    for dtype in DTYPES:
        inputs = bits_of(dtype)
        print(f"{DTYPES[dtype]},{DTYPES[dtype]},{len(inputs)},{','.join(map(hex, inputs))},")
        for to in DTYPES:
            if dtype == to:
                continue
            expected = []
            for bits in inputs:
                source, _, result = convert(dtype, to, bits)
                expected.append("UNDEFINED" if undefined(dtype, to, source) else hex(result))
            print(f"{DTYPES[dtype]},{DTYPES[to]},{len(inputs)},{','.join(expected)},")


if __name__ == "__main__":
    main()
