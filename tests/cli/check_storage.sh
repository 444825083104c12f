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
grep -q 'matrix *float32 *\[4096, 1024\]' "$directory/listed" || fail "ls does not show the matrix"
[ "$("$dcp" --storage "$module" cat "$checkpoint" matrix | wc -c)" -eq 16777216 ] || fail "cat gives other bytes"
[ "$("$dcp" --storage "$module" verify "$checkpoint")" = "0 faults" ] || fail "verify finds faults"

[ "$("$dcp" --storage "$module" repair --dry-run --allow-gaps "$checkpoint" | tail -n 1 | grep -c 'complete, not published')" -eq 1 ] ||
    fail "repair does not find the save complete"

# One changed byte of the checkpoint; at the beginning of the archive is the one that it has replaced.
printf '\377' | dd of="$directory/step_1.tar" bs=1 seek=20000000 conv=notrunc 2>"$directory/dd"
expect_failure 1 "XXH3" "$dcp" --storage "$module" verify "$checkpoint"

# Without the module, or with what is none.
expect_failure 1 "tar://" "$dcp" ls "$checkpoint"
expect_failure 2 "No such file" "$dcp" --storage "$directory/none.so" ls "$checkpoint"
expect_failure 2 "takes no argument" "$dcp" --storage "$module,why" ls "$checkpoint"
