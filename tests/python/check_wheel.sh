#!/bin/sh
# Builds a wheel that brings the libraries it needs, and installs it into an empty environment, in which the tests and the
# command then run: check_wheel.sh PYTHON PACKAGE DIRECTORY
set -eu
python=$1 package=$2 directory=$3
tests=$(cd "$(dirname "$0")" && pwd)
rm -rf "$directory"
mkdir -p "$directory"

"$python" -m pip wheel --quiet --no-deps --wheel-dir "$directory" "$package" || {
    echo "the wheel could not be built: is there a network to get scikit-build-core by?"
    "$python" -m pip download --quiet --no-deps --dest "$directory/probe" scikit-build-core || exit 77
    exit 1
}
PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair --wheel-dir "$directory/repaired" "$directory"/libdcp-*.whl
wheel=$(echo "$directory"/repaired/libdcp-*-py3-none-manylinux*.whl)
test -f "$wheel" || { echo "no wheel for all versions of Python: $(ls "$directory/repaired")"; exit 1; }

"$python" -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet "$wheel" ml_dtypes
cd "$directory"
unset LIBDCP_LIBRARY PYTHONPATH
for test in structs checkpoint arguments save_load saver; do
    "$directory/venv/bin/python" "$tests/test_$test.py"
done
"$directory/venv/bin/python" -m libdcp ls "$tests/../fixtures/basic/ckpt" >"$directory/listed"
"$directory/venv/bin/dcp" ls "$tests/../fixtures/basic/ckpt" | cmp - "$directory/listed"
"$directory/venv/bin/python" -c '
import libdcp
from pathlib import Path
package = Path(libdcp.__file__).parent
assert (package / "py.typed").exists() and list(package.glob("libdcp.so.*")) and (package / "bin/dcp").exists()
'
