#!/bin/sh
# Sees that check_layouts.sh fails when an interface is changed: check_layouts_notice.sh INCLUDE CC LIST
set -eu
include=$1 cc=$2 list=$3
check=$(dirname "$0")/check_layouts.sh work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$include" "$work/include"

# FILE, an edit of it by sed, and what must then be printed.
notices() {
    sed "$2" "$include/dcp/$1" >"$work/include/dcp/$1"
    if cmp -s "$include/dcp/$1" "$work/include/dcp/$1"; then
        echo "\"$2\" changes nothing in $1"
        exit 1
    fi
    if "$check" "$work/include" "$cc" "$list" >"$work/printed" 2>&1 || ! grep -q -e "$3" "$work/printed"; then
        echo "not noticed: \"$2\" in $1"
        cat "$work/printed"
        exit 1
    fi
    cp "$include/dcp/$1" "$work/include/dcp/$1"
}

"$check" "$work/include" "$cc" "$list" || exit $?
notices load.h 's/^ *const char \*detail;/&\n    int added;/' '+    added: at 24'
notices load.h 's/^ *const char \*stored_name;/int64_t stored_name[2];/' '+    stored_name: at 24, 16 bytes'
notices load.h 's/^typedef struct dcp_load_report dcp_load_report;/&\ntypedef struct dcp_new { int field; } dcp_new;/' '+struct dcp_new'
notices status.h 's/DCP_ERR_BUSY = 35/DCP_ERR_BUSY = 36/' '+    DCP_ERR_BUSY = 36'
notices status.h 's/DCP_ERR_BUSY = 35,/& DCP_ERR_NEW = 37,/' '+    DCP_ERR_NEW = 37'
notices tensor.h 's/DCP_MAX_DIMS 64/DCP_MAX_DIMS 65/' '+constant DCP_MAX_DIMS = 65'
notices tensor.h 's/^DCP_API size_t dcp_dtype_size/DCP_API int dtype_bits(dcp_dtype dtype);\n&/' 'function dtype_bits'
[ ! -e "$include/dcp/mpi.h" ] || # a build without MPI installs none
    notices mpi.h 's/^#include <mpi.h>/#define GROUP_LIMIT 3\n&/' 'macro GROUP_LIMIT'
