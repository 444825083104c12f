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
has "^step 1000, saved 20[0-9-]* [0-9:]* UTC by 2 ranks$" ls "$directory"
has '^  model  "two\\u000alines"$' ls "$directory"
has '^  loss  0.5$' ls "$directory"
has ', "save": {"id": "[^"]*", "writer": "libdcp", "step": 1000, "unix_time": [0-9]*, "world_size": 2, "info": {"model": "two\\u000alines", "loss": 0.5}}}$' \
    ls --json "$directory"
has '^{"name": "config.yaml", "type": "file", "size": 9, "text": "layers: 2"}$' cat --json "$directory" config.yaml
"$dcp" cat "$directory" rank_1.bin | base64 -w 0 >"$directory.out"
has "^{\"name\": \"rank_1.bin\", \"type\": \"file\", \"size\": 64, \"base64\": \"$(cat "$directory.out")\"}$" \
    cat --json "$directory" rank_1.bin
has "no.such: not in the checkpoint" cat "$directory" no.such
has "^0 faults$" verify "$directory"
printf "layers: 3" >"$directory/__0.g0.extra.config.yaml"
has "^__0.g0.extra.config.yaml:0: config.yaml: .* has XXH3 .*, expected" verify "$directory"
has "^1 fault$" verify "$directory"
sed 's/"save_id":.*"[^"]*"/"save_id": "another"/' "$directory/metadata.json" >"$directory.out"
cp "$directory.out" "$directory/metadata.json"
has "^metadata.json is of another save$" ls "$directory"
echo "no JSON" >"$directory/metadata.json"
has "metadata.json" ls "$directory"
has "^w  *float32" ls "$directory"
"$dcp" ls "$directory" >"$directory.out" 2>&1 && fail "a metadata.json that cannot be read is no failure"
rm "$directory/metadata.json"
"$dcp" ls "$directory" >"$directory.out" 2>&1 || fail "a metadata.json that is not there is a failure"
"$dcp" cat "$directory" config.yaml >"$directory.out" 2>&1 && fail "a damaged file was written"
rm -rf "$directory" "$directory.out"
