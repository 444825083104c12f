#!/bin/sh
# Extra files of a checkpoint, as dcp ls, cat and verify show them.
#     check_extra_files.sh DCP EXTRA_FILES DIRECTORY
set -u
dcp=$1 extra_files=$2 directory=$3
rm -rf "$directory"

fail() {
    echo "$*" >&2
    exit 1
}

# has WORDS COMMAND...: a line of what it prints
has() {
    words=$1
    shift
    "$dcp" "$@" >"$directory.out" 2>&1
    grep -q -e "$words" "$directory.out" || fail "dcp $*: no \"$words\" in: $(cat "$directory.out")"
}

"$extra_files" save "$directory" "layers: 2" || fail "nothing saved"
has "^config.yaml  *extra file, 9 bytes, in __0.g0.extra.config.yaml$" ls "$directory"
has "^1 tensor, 128 bytes, 0 objects, 3 extra files$" ls "$directory"
has '"name": "rank_1.bin", "file": "__1.g0.extra.rank_1.bin", "size": 64, "xxh3": "[0-9a-f]\{16\}"}' ls --json "$directory"
has "^layers: 2$" cat "$directory" config.yaml
[ "$("$dcp" cat "$directory" rank_0.bin | wc -c)" -eq 64 ] || fail "other bytes"
has "no.such: not in the checkpoint" cat "$directory" no.such
has "^0 faults$" verify "$directory"
printf "layers: 3" >"$directory/__0.g0.extra.config.yaml"
has "^__0.g0.extra.config.yaml:0: config.yaml: .* has XXH3 .*, expected" verify "$directory"
has "^1 fault$" verify "$directory"
"$dcp" cat "$directory" config.yaml >"$directory.out" 2>&1 && fail "a damaged file was written"
rm -rf "$directory" "$directory.out"
