#!/bin/sh
# dcp mirror on a run: what is copied, what is there already, and what is refused: check_mirror.sh DCP MAKE_RUN DIRECTORY
set -u
dcp=$1 make_run=$2 directory=$3
status=0

fault() {
    echo "$*" >&2
    status=1
}

expect_status() { # status, words of the command
    expected=$1
    shift
    "$dcp" "$@" >/dev/null 2>&1
    found=$?
    [ $found = "$expected" ] || fault "dcp $*: exited with $found instead of $expected"
}

rm -rf "$directory"
mkdir -p "$directory"
run=$directory/run far=$directory/far
"$make_run" "$run" 11 25 33 >/dev/null || fault "make_run fails"

"$dcp" mirror --dry-run "$run" "$far" >"$directory/dry" || fault "a dry run fails"
[ "$(grep -c '^would copy  step_' "$directory/dry")" = 3 ] || fault "dry: $(cat "$directory/dry")"
[ ! -e "$far" ] || fault "a dry run writes"

expect_status 0 pin "$run/step_11"
"$dcp" mirror --rate 1G "$run" "$far" >"$directory/first" || fault "copying fails"
[ "$(grep -c '^copied      step_' "$directory/first")" = 3 ] || fault "first: $(cat "$directory/first")"
for step in 11 25 33; do
    expect_status 0 verify "$far/step_$step"
done
[ "$("$dcp" latest "$far" 2>/dev/null)" = "$far/step_33" ] || fault "the latest of the mirror: $("$dcp" latest "$far")"
[ -e "$far/.dcp_pin.step_11" ] || fault "the pin is not copied"

# What is whole there is not copied again.
rm "$far/step_25/.metadata"
"$dcp" mirror --json "$run" "$far" >"$directory/again" || fault "copying again fails"
[ "$(grep -c '"result": "there"' "$directory/again")" = 2 ] || fault "again: $(cat "$directory/again")"
grep -q '"path": "step_25", "step": 25, "result": "copied", "bytes": [1-9][0-9]*, "kept_bytes": [1-9]' "$directory/again" ||
    fault "again: $(cat "$directory/again")"

"$dcp" list "$run" >"$directory/list" || fault "listing fails"
[ "$(grep -c ' \[mirrored\]' "$directory/list")" = 3 ] || fault "list: $(cat "$directory/list")"
grep 'step_11 ' "$directory/list" | grep -q ' \[pinned\]' || fault "list: $(cat "$directory/list")"
"$dcp" list --best loss "$run" >"$directory/best" || fault "listing the best fails"
[ "$(grep -c ' \[best\]' "$directory/best")" = 1 ] || fault "best: $(cat "$directory/best")"
"$dcp" list --json "$run" | grep -q '"pinned": true, "mirrored": 1' || fault "$("$dcp" list --json "$run")"

# Progress is for a terminal, and is of one checkpoint at a time.
if command -v script >/dev/null; then
    TERM=xterm timeout 100 script -qec "'$dcp' mirror --rate 4K '$run' '$directory/seen'" /dev/null </dev/null |
        tr '\r' '\n' >"$directory/drawn"
    grep -q 'copying step_33:  *[0-9.]* %  .* of .*  .*/s  .* left$' "$directory/drawn" || fault "drawn: $(cat "$directory/drawn")"
    grep -q "copied      step_33: " "$directory/drawn" || fault "drawn: $(cat "$directory/drawn")"
    rm -r "$directory/seen"
    TERM=xterm timeout 100 script -qec "'$dcp' mirror -q --rate 64K '$run' '$directory/seen'" /dev/null </dev/null >"$directory/drawn"
    grep -q ' % ' "$directory/drawn" && fault "progress with --quiet: $(cat "$directory/drawn")"
fi

# A signal ends it soon and cleanly, and the next call goes on.
"$dcp" mirror --rate 1K --json "$run" "$directory/slow" >"$directory/json" 2>"$directory/said" &
process=$!
tries=0
until [ -n "$(find "$directory/slow" -name '*.distcp' 2>/dev/null)" ] || [ $tries -gt 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
kill -TERM $process
wait $process
found=$?
[ $found = 143 ] || fault "interrupted, mirror ends with $found: $(cat "$directory/said")"
[ "$(cat "$directory/said")" = "dcp mirror: interrupted" ] || fault "interrupted, mirror says: $(cat "$directory/said")"
tail -n 1 "$directory/json" | grep -q '^\]$' || fault "interrupted, mirror prints: $(cat "$directory/json")"
[ -z "$(find "$directory/slow" -name '.dcp_owner')" ] || fault "interrupted, mirror leaves $(find "$directory/slow" -name '.dcp_owner')"
expect_status 0 mirror "$run" "$directory/slow"
expect_status 0 verify "$directory/slow/step_33"

"$make_run" "$directory/other" 11 >/dev/null || fault "make_run fails"
expect_status 1 mirror "$directory/other" "$far"
expect_status 1 mirror "$directory/none" "$far"
expect_status 1 mirror "$run" "$run"
expect_status 2 mirror "$run"
expect_status 2 mirror --rate 0 "$run" "$far"
expect_status 2 mirror --rate x "$run" "$far"
expect_status 0 prune --last 1 "$run"
[ -z "$(ls -A "$run" | grep 'dcp_mirrored.step_25')" ] || fault "notes stay: $(ls -A "$run")"

exit $status
