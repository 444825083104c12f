#!/bin/sh
# Compiles each installed header alone, as strict C and C++: check_headers.sh PREFIX CC CXX [flags ...]
set -eu
include=$1/include cc=$2 cxx=$3
shift 3
strict="-Wall -Wextra -Wpedantic -Werror -fsyntax-only"

cd "$include"
for header in dcp.h dcp/*.h; do
    flags=
    [ "$header" != dcp/mpi.h ] || flags=$(printf ' -isystem %s' "$@")
    for standard in c11 c17; do
        # shellcheck disable=SC2086
        echo "#include <$header>" | "$cc" -std=$standard $strict -I. $flags -x c -
    done
    # shellcheck disable=SC2086
    echo "#include <$header>" | "$cxx" -std=c++17 $strict -I. $flags -x c++ -
    echo "$header"
done
