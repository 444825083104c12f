#!/bin/sh
# The command over a storage that it does not know: a module of examples/storages.
#
# usage: check_storage.sh DCP MODULE SAVE_ANYWHERE DIRECTORY
set -eu
dcp=$1 module=$2 save=$3 directory=$4

fail() {
    echo "$*" >&2
    exit 1
}

# $1: exit status, $2: text that is said; the rest is run.
expect_failure() {
    expected=$1 text=$2
    shift 2
    status=0
    said=$("$@" 2>&1) || status=$?
    [ "$status" -eq "$expected" ] || fail "$*: exit status $status instead of $expected: $said"
    case $said in
    *"$text"*) ;;
    *) fail "$*: says \"$said\" instead of \"$text\"" ;;
    esac
}

rm -rf "$directory"
mkdir -p "$directory"
checkpoint=tar://$directory/step_1
"$save" "$checkpoint" >"$directory/saved"

"$dcp" --storage "$module" ls "$checkpoint" >"$directory/listed"
grep -q 'matrix *float32 .*\[4096, 1024\]' "$directory/listed" || fail "ls does not show the matrix"
[ "$("$dcp" --storage "$module" cat "$checkpoint" matrix | wc -c)" -eq 16777216 ] || fail "cat gives other bytes"
[ "$("$dcp" --storage "$module" verify "$checkpoint")" = "0 faults" ] || fail "verify finds faults"

[ "$("$dcp" --storage "$module" repair --dry-run --allow-gaps "$checkpoint" | tail -n 1 | grep -c 'complete, not published')" -eq 1 ] ||
    fail "repair does not find the save complete"

# One changed byte of the checkpoint; at the beginning of the archive is the one that it has replaced.
printf '\377' | dd of="$directory/step_1.tar" bs=1 seek=20000000 conv=notrunc 2>"$directory/dd"
expect_failure 1 "XXH3" "$dcp" --storage "$module" verify "$checkpoint"

# What saving and loading takes there; nothing is left of it, also after a failure or an interruption.
left() {
    find "$directory" -name '*dcp-bench*'
}
"$dcp" --storage "$module" bench --bytes 3M --tensors 5 --ranks 2 --repeat 2 "tar://$directory" >"$directory/measured"
grep -q "5 tensors, 2 ranks" "$directory/measured" || fail "bench: $(cat "$directory/measured")"
[ -z "$(left)" ] || fail "bench has left $(left)"
expect_failure 1 "memory_limit is 1024 bytes" "$dcp" --storage "$module" bench --bytes 1M --memory-limit 1K "tar://$directory"
[ -z "$(left)" ] || fail "a bench that failed has left $(left)"
"$dcp" --storage "$module" bench --bytes 16M --repeat 1000 "tar://$directory" >"$directory/measured" 2>&1 &
bench=$!
while [ -z "$(left)" ]; do sleep 0.05; done
kill -TERM $bench
status=0
wait $bench || status=$?
[ $status -eq 143 ] || fail "an interrupted bench: exit status $status: $(cat "$directory/measured")"
[ -z "$(left)" ] || fail "an interrupted bench has left $(left)"
# What the storage does not take is a directory.
mkdir "$directory/plain"
"$dcp" --storage "$module" bench --bytes 64K --repeat 1 "$directory/plain" >"$directory/measured"
[ -z "$(ls -A "$directory/plain")" ] || fail "bench has left $(ls -A "$directory/plain")"

# Without the module, or with what is none.
expect_failure 1 "tar://" "$dcp" ls "$checkpoint"
expect_failure 2 "No such file" "$dcp" --storage "$directory/none.so" ls "$checkpoint"
expect_failure 2 "takes no argument" "$dcp" --storage "$module,why" ls "$checkpoint"
