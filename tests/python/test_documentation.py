# SPDX-License-Identifier: BSD-3-Clause
"""Everything public says what it is, and functions what their arguments are and what they raise."""

import inspect
import re
import unittest

import libdcp


def names(module):
    for name in module.__all__:
        yield "%s.%s" % (module.__name__, name), getattr(module, name)


class Documentation(unittest.TestCase):
    modules = [libdcp]

    def test_everything_is_described(self):
        for module in self.modules:
            for name, value in names(module):
                self.assertTrue(inspect.getdoc(value), name)
                for part, method in vars(value).items() if inspect.isclass(value) else ():
                    if not part.startswith("_") and (callable(method) or isinstance(method, property)):
                        self.assertTrue(inspect.getdoc(getattr(value, part)), "%s.%s" % (name, part))

    def test_functions_describe_arguments_and_errors(self):
        for module in self.modules:
            for name, value in names(module):
                if not inspect.isfunction(value):
                    continue
                text = inspect.getdoc(value)
                for argument in inspect.signature(value).parameters:
                    self.assertRegex(text, r"\b%s\b" % argument, name)
                self.assertTrue(re.search(r"Error|Exception", text), name)


try:
    import libdcp.torch
except ImportError:  # no PyTorch
    pass
else:
    Documentation.modules.append(libdcp.torch)

if __name__ == "__main__":
    unittest.main()
