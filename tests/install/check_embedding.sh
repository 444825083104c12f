#!/bin/sh
# Builds the library by README.md, "Embedding the sources", with a program that has names of its insides, and runs that:
# check_embedding.sh SOURCE CC BUILD
set -eu
source=$1 cc=$2 build=$3
embed=$source/cmake/embed.sh lists=$(dirname "$0") status=0
modules="libcjson libdeflate libxxhash"
rm -rf "$build"
mkdir -p "$build"

"$embed" names >"$build/dcp_names.h"
# In two halves, for the sake of time.
# shellcheck disable=SC2086
"$embed" sources >"$build/sources"
xargs -n $(($(wc -l <"$build/sources") / 2 + 1)) -P 2 sh -c '
    cc=$1 source=$2 build=$3 flags=$4
    shift 4
    "$cc" -std=c11 -O0 -D_GNU_SOURCE -Wall -Wextra -Werror -include "$build/dcp_names.h" \
        -I"$source/include" -I"$source/src" $flags -r -nostdlib -o "$build/part.$$.o" "$@"
' sh "$cc" "$source" "$build" "$(pkg-config --cflags $modules)" <"$build/sources"
"$cc" -r -nostdlib -o "$build/dcp.o" "$build"/part.*.o

nm -g --defined-only "$build/dcp.o" | awk 'NF == 3 {print $3}' | sort >"$build/found"
if grep -v '^dcp_' "$build/found"; then
    echo "these names are not renamed by $embed names"
    status=1
fi
sed 's/@.*//' "$lists/dcp.symbols" | sort >"$build/public"
if ! grep -v '^dcp_internal_' "$build/found" | diff "$build/public" -; then
    echo "the object and $lists/dcp.symbols have different public names (< listed, > found)"
    status=1
fi

# The program defines zip_open() and box_intersect().
# shellcheck disable=SC2046,SC2086
"$cc" -std=c11 -Wall -Wextra -Werror -I"$source/include" -o "$build/program" "$lists/consumer/save_load.c" \
    "$build/dcp.o" $(pkg-config --libs $modules) -pthread
"$build/program" "$build/checkpoint"
[ -e "$build/checkpoint/.metadata" ]
exit $status
