#!/bin/sh
# dcp prune and dcp pin on a run: what goes, what stays, and what is refused: check_prune.sh DCP MAKE_RUN DIRECTORY
set -u
dcp=$1 make_run=$2 directory=$3
status=0

fault() {
    echo "$*" >&2
    status=1
}

steps() {
    ls "$directory/run" | grep '^step_[0-9]*$' | sort -t_ -k2 -n | tr '\n' ' '
}

expect_steps() {
    [ "$(steps)" = "$1" ] || fault "expected $1, found $(steps)"
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
"$make_run" "$directory/run" 11 25 33 42 57 64 >/dev/null || fault "make_run fails"
mkdir "$directory/run/step_old"

"$dcp" prune --dry-run --last 2 "$directory/run" >"$directory/dry" || fault "a dry run fails"
grep -q '^would remove step_11: no rule keeps it$' "$directory/dry" || fault "dry: $(cat "$directory/dry")"
grep -q '^keep         step_64: the newest whole one$' "$directory/dry" || fault "dry: $(cat "$directory/dry")"
expect_steps "step_11 step_25 step_33 step_42 step_57 step_64 "

"$dcp" prune --json -n --last 5 "$directory/run" | tr '\n' ' ' >"$directory/json"
grep -q '^\[  {"path": "step_11", "result": "would remove", "why": "no rule keeps it"},  {"path": "step_25", "result": "keep", .* \] $' \
    "$directory/json" || fault "json: $(cat "$directory/json")"

"$dcp" pin --json "$directory/run/step_25/" >"$directory/json" || fault "pinning fails"
grep -q '^{"run": ".*/run", "path": "step_25", "pinned": true}$' "$directory/json" || fault "pin: $(cat "$directory/json")"
expect_status 1 pin "$directory/run/step_26"
[ -z "$("$dcp" pin --json "$directory/run/step_26" 2>/dev/null)" ] || fault "an object although nothing was pinned"
"$dcp" prune --best 1 --metric loss "$directory/run" >"$directory/best" || fault "pruning fails"
grep -q '^keep         step_25: pinned$' "$directory/best" || fault "best: $(cat "$directory/best")"
grep -q '^removed      step_33: no rule keeps it$' "$directory/best" || fault "best: $(cat "$directory/best")"
expect_steps "step_11 step_25 step_64 "
expect_status 0 pin --remove "$directory/run/step_25"
expect_status 1 pin --remove "$directory/run/step_25"
expect_status 0 prune --identity another --last 1 "$directory/run"
expect_steps "step_11 step_25 step_64 "
expect_status 0 prune --last 1 "$directory/run"
expect_steps "step_64 "
[ -d "$directory/run/step_old" ] || fault "a foreign directory was removed"

# A signal lets the removal at hand end, and begins no other.
"$make_run" "$directory/signalled" 11 25 33 >/dev/null || fault "make_run fails"
if strace -f -qq -o "$directory/calls" -e trace=unlinkat -e inject=unlinkat:signal=TERM:when=1 true 2>"$directory/said"; then
    strace -f -qq -o "$directory/calls" -e trace=unlinkat -e inject=unlinkat:signal=TERM:when=1 \
        "$dcp" prune --json --last 1 "$directory/signalled" >"$directory/json" 2>"$directory/said"
    found=$?
    [ $found = 143 ] || fault "interrupted, prune ends with $found: $(cat "$directory/said")"
    [ "$(head -n 1 "$directory/said")" = "dcp prune: interrupted" ] || fault "interrupted, prune says: $(cat "$directory/said")"
    tail -n 1 "$directory/json" | grep -q '^\]$' || fault "interrupted, prune prints: $(cat "$directory/json")"
    grep -q '"step_11", "result": "removed"' "$directory/json" || fault "interrupted, prune prints: $(cat "$directory/json")"
    grep -q '"step_25", "result": "leave", "why": "pruning was stopped"' "$directory/json" ||
        fault "interrupted, prune prints: $(cat "$directory/json")"
    expect_status 0 verify "$directory/signalled/step_25"
    expect_status 0 prune --last 1 "$directory/signalled"
    [ "$(ls "$directory/signalled" | grep '^step_' | tr '\n' ' ')" = "step_33 " ] || fault "after an interruption: $(ls "$directory/signalled")"
fi

# Another framework's run, only by name.
mkdir -p "$directory/titan/checkpoint/step-1" "$directory/titan/checkpoint/step-7"
cp -r "$directory/run/step_64" "$directory/titan/checkpoint/step-5"
cp -r "$directory/run/step_64" "$directory/titan/checkpoint/step-6"
expect_status 1 prune --last 1 "$directory/titan"
expect_status 1 prune --layout titanic --last 1 "$directory/titan"
"$dcp" prune --layout Torchtitan --last 1 "$directory/titan" >"$directory/titan.out" || fault "pruning torchtitan's run fails"
grep -q '^removed      checkpoint/step-5: no rule keeps it$' "$directory/titan.out" || fault "titan: $(cat "$directory/titan.out")"
[ "$(ls "$directory/titan/checkpoint" | tr '\n' ' ')" = "step-6 step-7 " ] || fault "titan: $(ls "$directory/titan/checkpoint")"

for wrong in "prune" "prune --last 0 x" "prune --last x y" "prune --best 1 x" "prune a b" "pin" "pin --x y" "pin a b"; do
    # shellcheck disable=SC2086
    expect_status 2 $wrong
done
expect_status 1 prune --last 1 "$directory"
[ "$("$dcp" latest "$directory/run" 2>/dev/null)" = "$directory/run/step_64" ] || fault "what is left is not whole"
exit $status
