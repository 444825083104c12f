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

cd "$directory"
unset LIBDCP_LIBRARY PYTHONPATH

# try_in PYTHON ENVIRONMENT: the tests in an empty environment of that Python
try_in() {
    "$1" -m venv "$directory/$2"
    "$directory/$2/bin/pip" install --quiet "$wheel" ml_dtypes
    for test in structs checkpoint arguments save_load saver bad_input; do
        "$directory/$2/bin/python" "$tests/test_$test.py" || { echo "test_$test.py fails with $1"; exit 1; }
    done
}

try_in "$python" venv
# The oldest and newest others that pyenv has here, and the newest free-threaded one: one wheel is for all of them.
ls -d "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/3.*/bin/python 2>/dev/null | sort -V | while read -r other; do
    "$other" -c 'import sys; sys.exit(sys.version_info < (3, 9))' && echo "$other"
done >others
for other in $({ sed -n '1p;$p' others && grep 't/bin/python$' others | tail -n 1; } | sort -u); do
    try_in "$other" "other_$("$other" -c 'import sys; print("%d.%d" % sys.version_info[:2] + sys.abiflags)')"
done

"$directory/venv/bin/python" -m libdcp ls "$tests/../fixtures/basic/ckpt" >"$directory/listed"
"$directory/venv/bin/dcp" ls "$tests/../fixtures/basic/ckpt" | cmp - "$directory/listed"
"$directory/venv/bin/python" -c '
import libdcp
from pathlib import Path
package = Path(libdcp.__file__).parent
assert (package / "py.typed").exists() and list(package.glob("libdcp.so.*")) and (package / "bin/dcp").exists()
'
