#!/bin/sh
# dcp repair and dcp verify --repair: a lost .metadata comes back, and nothing is published where that cannot be.
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

# verify STATUS WORDS ARGUMENT...: what it prints of both, without line breaks.
verify() {
    status=$1 words=$2
    shift 2
    "$dcp" verify "$@" >"$directory.raw" 2>"$directory.err"
    got=$?
    cat "$directory.raw" "$directory.err" | tr '\n' ' ' >"$directory.out"
    [ $got -eq "$status" ] || fail "verify $*: status $got, expected $status: $(cat "$directory.out")"
    grep -q -e "$words" "$directory.out" || fail "verify $*: no \"$words\" in: $(cat "$directory.out")"
    case "$*" in *--json*) ! command -v python3 >/dev/null || python3 -m json.tool <"$directory.raw" >/dev/null ||
        fail "verify $*: not JSON: $(cat "$directory.out")" ;; esac
}

verify 0 "^note: .metadata needs no repair 0 faults $" --repair "$directory"
verify 0 '^{"faults": \[\], "notes": \[\], "checked": true} $' --json "$directory"
verify 0 '^{"repair": null, "faults": ' --json --repair "$directory"
rm "$directory/.metadata"
repair 0 '"items": 3}\], "streams": \[\], "faults": \[\], "published": false, "save": "[0-9a-f-]*", "names": 3}$' --json -n "$directory"
verify 1 '{"file": ".metadata", "offset": 0, "name": "", "fault": ".* but no .metadata, which dcp repair rebuilds if all of them are there"} \], ' --json "$directory"
[ ! -e "$directory/.metadata" ] || fail "a check published something"
verify 0 " not recovered: .* 3 names of save .*: published 0 faults $" --repair "$directory"
cp "$directory/.metadata" "$directory.good"
head -c 100 "$directory.good" >"$directory/.metadata"
repair 1 "has a .metadata already" "$directory"
verify 0 '"published": true, .* "faults": \[\], "notes": \[\], "checked": true} $' --json --repair "$directory"
cmp "$directory.good" "$directory/.metadata" || fail "another .metadata than before"
verify 2 "one directory" --repair "$directory" "$directory"
rm "$directory/.metadata" "$directory/__0_0.distcp"
verify 1 '"name": "model.layer.w", "fault": .*"published": false, "error": .*"checked": true} $' --json --repair "$directory"
verify 1 "not repaired: .* elements are missing in all .* 1 fault $" --repair "$directory"
verify 1 '"checked": false, "error": ".*no such file' --json "$directory/none"
repair 1 "higher numbers, but no valid file of rank 0" "$directory"
repair 1 "\"model.layer.w\": no chunk holds \[0:4, 0:4096\]" --allow-gaps "$directory"
printf x >"$directory/__0_0.distcp"
repair 1 "__0_0.distcp: not used: .*no footer" "$directory"
[ ! -e "$directory/.metadata" ] || fail "an incomplete checkpoint was published"
repair 1 "__0_0.distcp:0: 1 bytes: no stream of torch.save" "$directory"
repair 1 "no such" --like "$directory/none" "$directory"
verify 2 "^dcp verify: --like is for --repair" --like "$directory" "$directory"
repair 2 "no such option" --unknown "$directory"
repair 2 usage
rm -rf "$directory" "$directory.out" "$directory.raw" "$directory.err" "$directory.good"
