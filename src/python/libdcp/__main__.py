# SPDX-License-Identifier: BSD-3-Clause
"""The command ``dcp``: ``python -m libdcp ls PATH``."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def main() -> None:
    """Becomes the command that came with the package, or else the one of the system."""
    own = Path(__file__).parent / "bin" / "dcp"
    command = str(own) if own.exists() else shutil.which("dcp")
    if command is None or Path(command).resolve() == Path(sys.argv[0]).resolve():
        sys.exit("libdcp: the command dcp did not come with this installation")
    os.execv(command, ["dcp", *sys.argv[1:]])


if __name__ == "__main__":
    main()
