#!/bin/sh
# Compares the public structs, enums and constants with the list beside this script, and sees that all public names
# begin with dcp_ or DCP_: check_layouts.sh INCLUDE CC LIST; with "update" behind it, writes the list.
set -eu
include=$1 cc=$2 list=$3 update=${4:-}
folder=$(dirname "$0") work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $("$cc" -dumpmachine) in
    x86_64-*) ;;
    *) echo "the list is of x86-64"; exit 77 ;;
esac

# The headers of libdcp alone: those of the libraries on top of it declare functions, which check_symbols.sh lists.
headers=$(cd "$include" && ls dcp/*.h | grep -v -e '/cuda\.h' -e '/mpi\.h' -e '/nccl\.h')
for header in $headers; do
    echo "#include <$header>"
done >"$work/all.h"
"$cc" -std=c11 -E -I"$include" '-D__attribute__(x)=' -x c "$work/all.h" |
    awk -v OURS="$include/dcp/" -f "$folder/declarations.awk" >"$work/declarations"
"$cc" -std=c11 -E -dM -I"$include" -x c "$work/all.h" | sed -n 's/^#define \(DCP_[A-Z_0-9]*\) [^ "].*/\1/p' |
    grep -v -e '^DCP_VERSION_' -e '^DCP_API$' | sort >"$work/constants"

status=0
for header in "$include"/dcp/*.h; do
    sed -n 's/^ *# *define *\([A-Za-z_0-9]*\).*/macro \1/p' "$header"
done | grep -v -e ' OMPI_SKIP_MPICXX$' -e ' MPICH_SKIP_MPICXX$' | cat - "$work/declarations" |
    awk '$1 != "field" && $NF !~ /^(dcp_|DCP_)/' >"$work/strangers"
if [ -s "$work/strangers" ]; then
    echo "public names that do not begin with dcp_ or DCP_:"
    cat "$work/strangers"
    status=1
fi

{
    cat <<'END'
#include <stddef.h>
#include <stdio.h>
#define STRUCT(s) printf("struct %s: %zu bytes\n", #s, sizeof(struct s));
#define FIELD(s, f) printf("    %s: at %zu, %zu bytes\n", #f, offsetof(struct s, f), sizeof(((struct s *)0)->f));
#define ENUM(e) printf("enum %s: %zu bytes\n", #e, sizeof(enum e));
#define VALUE(e, v) printf("    %s = %lld\n", #v, (long long)(v));
#define CONSTANT(c) printf("constant " #c " = %lld\n", (long long)(c));
END
    cat "$work/all.h"
    echo 'int main(void) {'
    awk '$1 == "struct" {print "STRUCT(" $2 ")"}
         $1 == "field" {print "FIELD(" $2 ", " $3 ")"}
         $1 == "enum" {print "ENUM(" $2 ")"}
         $1 == "enumerator" {print "VALUE(" $2 ", " $3 ")"}' "$work/declarations"
    sed 's/.*/CONSTANT(&)/' "$work/constants"
    echo 'return 0; }'
} >"$work/print.c"
"$cc" -std=c11 -I"$include" -o "$work/print" "$work/print.c"
"$work/print" >"$work/found"

if [ -n "$update" ]; then
    cp "$work/found" "$list"
elif ! diff -U 2 "$list" "$work/found"; then
    echo "The public layouts differ from $list (- listed, + found)."
    echo "Append new fields at the end of a struct that may grow, and new values to enums; never move, resize or renumber"
    echo "what has been released, unless the version says so (README.md, \"Versions\"): then bump it in dcp/version.h."
    echo "What is meant to change: $0 INCLUDE CC LIST update"
    status=1
fi
exit $status
