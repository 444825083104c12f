# SPDX-License-Identifier: BSD-3-Clause
"""The package's structs lie as those of the headers do, by the list of frozen layouts."""

import ctypes
import re
import unittest
from pathlib import Path

from libdcp import _errors, _structs

LAYOUTS = Path(__file__).parents[1] / "install" / "layouts.txt"


def listed():
    """Of each struct its size and its fields' offsets and sizes; and the enumerators."""
    structs, values, fields = {}, {}, None
    for line in LAYOUTS.read_text().splitlines():
        struct = re.match(r"struct (\w+): (\d+) bytes", line)
        field = re.match(r"    (\w+): at (\d+), (\d+) bytes", line)
        value = re.match(r"    (\w+) = (\d+)", line)
        if struct:
            fields = {}
            structs[struct[1]] = (int(struct[2]), fields)
        elif field:
            fields[field[1]] = (int(field[2]), int(field[3]))
        elif value:
            values[value[1]] = int(value[2])
    return structs, values


class Structs(unittest.TestCase):
    def test_fields_lie_where_the_headers_have_them(self):
        structs, _ = listed()
        ours = [name for name in dir(_structs) if name.startswith("dcp_")]
        self.assertGreater(len(ours), 10)
        for name in ours:
            struct, (size, fields) = getattr(_structs, name), structs[name]
            self.assertLessEqual(ctypes.sizeof(struct), size, name)
            for field, kind in struct._fields_:
                place = (getattr(struct, field).offset, ctypes.sizeof(kind))
                self.assertEqual(place, fields[field], "%s.%s" % (name, field))

    def test_each_status_has_its_exception(self):
        _, values = listed()
        statuses = {name: value for name, value in values.items() if name.startswith("DCP_ERR_")}
        without = {"DCP_ERR_STATE", "DCP_ERR_CALLBACK", "DCP_ERR_INTERNAL"}
        for name, value in statuses.items():
            error = _errors.error_of(value, "text")
            self.assertEqual((error.status, str(error)), (value, "text"))
            self.assertEqual(type(error) is _errors.Error, name in without, name)


if __name__ == "__main__":
    unittest.main()
