#!/bin/sh
# Compiles each installed header alone, as strict C and C++; those of libraries on top of others with the folders of
# these: check_headers.sh PREFIX CC CXX [FOLDER ...]
set -eu
include=$1/include cc=$2 cxx=$3
shift 3
strict="-Wall -Wextra -Wpedantic -Werror -fsyntax-only"

cd "$include"
for header in dcp.h dcp/*.h; do
    flags=
    case $header in
        dcp/cuda.h | dcp/mpi.h | dcp/nccl.h) flags=$(printf ' -isystem %s' "$@") ;;
    esac
    for standard in c11 c17; do
        # shellcheck disable=SC2086
        echo "#include <$header>" | "$cc" -std=$standard $strict -I. $flags -x c -
    done
    # shellcheck disable=SC2086
    echo "#include <$header>" | "$cxx" -std=c++17 $strict -I. $flags -x c++ -
    echo "$header"
done
for header in dcp/cpp/*.hpp; do
    # shellcheck disable=SC2086
    echo "#include <$header>" | "$cxx" -std=c++17 $strict -I. -x c++ -
    echo "$header"
done
for standard in c++17 c++20; do
    # shellcheck disable=SC2086
    echo "#include <dcp/dcp.hpp>" | "$cxx" -std=$standard $strict -I. -x c++ -
done
