#!/bin/sh
# Compares what a library exports and needs with the lists beside this script: check_symbols.sh LIBDIR NAME HEADER ...
set -eu
lists=$(dirname "$0") shared=$1/lib$2.so static=$1/lib$2.a name=$2
shift 2
status=0

compare() { # what, expected, found
    expected=$(mktemp)
    echo "$2" | sort >"$expected"
    if ! echo "$3" | sort | diff -u "$expected" -; then
        echo "lib$name: $1 differ from $lists/$name.symbols (- listed, + found)"
        status=1
    fi
    rm -f "$expected"
}

symbols=$(cat "$lists/$name.symbols")
compare "exported symbols" "$symbols" "$(nm -D --defined-only "$shared" | awk '$2 != "A" {print $3}')"
compare "functions in the headers" "$(echo "$symbols" | sed 's/@.*//')" \
    "$(cat "$@" | grep -v '^#' | tr '\n' ' ' | grep -o 'DCP_API [^;]*;' | sed 's/^[^(]*[ *]\(dcp_[a-z_0-9]*\)(.*/\1/')"
compare "symbols of the static library" "$(echo "$symbols" | sed 's/@.*//')" \
    "$(nm -g --defined-only "$static" | awk 'NF == 3 {print $3}')"

for library in $(readelf -d "$shared" | sed -n 's/.*(NEEDED).*\[\(.*\)\.so.*\]/\1/p'); do
    if ! grep -qx "$library" "$lists/$name.needed"; then
        echo "lib$name.so needs $library, which is not in $lists/$name.needed"
        status=1
    fi
done
exit $status
