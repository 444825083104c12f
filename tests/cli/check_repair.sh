#!/bin/sh
# dcp repair: a lost .metadata comes back, and nothing is published where that cannot be.
#     check_repair.sh DCP SHARD_FILES DIRECTORY
set -u
dcp=$1 shard_files=$2 directory=$3
rm -rf "$directory"

fail() {
    echo "$*" >&2
    exit 1
}

# repair STATUS WORDS ARGUMENT...
repair() {
    status=$1 words=$2
    shift 2
    "$dcp" repair "$@" >"$directory.out" 2>&1
    got=$?
    [ $got -eq "$status" ] || fail "repair $*: status $got, expected $status: $(cat "$directory.out")"
    grep -q -e "$words" "$directory.out" || fail "repair $*: no \"$words\" in: $(cat "$directory.out")"
}

"$shard_files" write "$directory" plain || fail "nothing written"
repair 1 "has a .metadata already" "$directory"
rm "$directory/.metadata"
repair 0 "3 names of save .*: complete, not published" --dry-run "$directory"
[ ! -e "$directory/.metadata" ] || fail "a dry run published something"
repair 1 "no valid shard file of save x" --save x "$directory"
repair 0 "__1_0.distcp: 3 items of save " "$directory"
"$dcp" verify "$directory" >"$directory.out" || fail "$(cat "$directory.out")"
rm "$directory/.metadata" "$directory/__0_0.distcp"
repair 1 "higher numbers, but no valid file of rank 0" "$directory"
repair 1 "\"model.layer.w\": no chunk holds \[0:4, 0:4096\]" --allow-gaps "$directory"
printf x >"$directory/__0_0.distcp"
repair 1 "__0_0.distcp: not used: .*no footer" "$directory"
[ ! -e "$directory/.metadata" ] || fail "an incomplete checkpoint was published"
repair 2 "no such option" --unknown "$directory"
repair 2 usage
rm -rf "$directory" "$directory.out"
