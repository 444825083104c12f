#!/bin/sh
# Builds and runs the consumer by pkg-config: check_pkg_config.sh LIBDIR CC CXX BUILD [PART=LINKS ...]
set -eu
libdir=$1 cc=$2 cxx=$3 build=$4
shift 4
source=$(dirname "$0")/consumer
export PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir"
mkdir -p "$build"

consume() { # compiler, source, package
    program=$build/$(basename "$2" | tr . _)
    # shellcheck disable=SC2046
    $1 -Wall -Wextra -Werror -o "$program" "$source/$2" $(pkg-config --cflags --libs "$3") $4
    "$program" "$program.checkpoint"
    # Of our own libraries the archives, of all others what the machine has.
    # shellcheck disable=SC2046
    $1 -Wall -Wextra -Werror -o "${program}_static" "$source/$2" $(pkg-config --cflags "$3") \
        $(pkg-config --static --libs "$3" | sed 's/-ldcp_\([a-z]*\)/-l:libdcp_\1.a/; s/-ldcp /-l:libdcp.a /') $4
    if readelf -d "${program}_static" | grep -q 'NEEDED.*libdcp'; then
        echo "$program: not linked statically"
        exit 1
    fi
    "${program}_static" "${program}_static.checkpoint"
    echo "$2: shared and static"
}

consume "$cc -std=c11" save_load.c dcp ""
consume "$cxx -std=c++17" save_load.cpp dcp ""
consume "$cxx -std=c++17" save_load_hpp.cpp dcp ""
for part; do
    consume "$cc -std=c11" "save_load_${part%%=*}.c" "dcp-${part%%=*}" "${part#*=}"
    consume "$cxx -std=c++17" "save_load_${part%%=*}.cpp" "dcp-${part%%=*}" "${part#*=}"
done
