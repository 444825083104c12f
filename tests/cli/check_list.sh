#!/bin/sh
# dcp list and dcp latest: every reference tree as its expected.json says, and for people.
#     check_list.sh DCP TREES DIRECTORY
set -u
dcp=$1 trees=$2 directory=$3
rm -rf "$directory"
mkdir -p "$directory"

fail() {
    echo "$*" >&2
    exit 1
}

# "path|step|kind|complete|latest|marked" of each checkpoint: of the lines of dcp list --json, ...
listed() {
    sed -n 's/^ *{"path": "\(.*\)", "step": \([^,]*\), "kind": "\([^"]*\)", .*"complete": \([a-z]*\),.* "latest": \([a-z]*\), "marked": \([a-z]*\),.*/\1|\2|\3|\4|\5|\6/p' | sort
}

# ... and of an expected.json, which has a line for each value.
expected() {
    sed -n 's/^ *"\([a-z_]*\)": "\{0,1\}\(.*[^,"]\)"\{0,1\},\{0,1\}$/\1 \2/p' "$1" | awk '
        { key = $1; sub(/^[^ ]* /, ""); value[key] = $0 }
        key == "marked" && value["kind"] != "foreign" {
            print value["path"] "|" value["step"] "|" value["kind"] "|" value["complete"] "|" value["latest"] "|" value["marked"]
        }' | sort
}

count=0
for tree in "$trees"/*/; do
    name=$(basename "$tree")
    expected "$tree/expected.json" >"$directory/expected"
    "$dcp" list --json "$tree/run" >"$directory/json" || fail "dcp list $name fails"
    listed <"$directory/json" >"$directory/listed"
    [ -s "$directory/listed" ] || fail "$name: nothing listed: $(cat "$directory/json")"
    diff "$directory/expected" "$directory/listed" || fail "$name is not listed as expected"
    latest=$(sed -n 's/^\([^|]*\)|.*|true|[a-z]*$/\1/p' "$directory/expected")
    found=$("$dcp" latest "$tree/run" 2>"$directory/reason") || fail "dcp latest $name: $(cat "$directory/reason")"
    [ "$found" = "$tree/run/$latest" ] || fail "dcp latest $name: $found, expected $latest"
    grep -q "^dcp latest: $latest is the newest whole one" "$directory/reason" || fail "$name: $(cat "$directory/reason")"
    "$dcp" latest --json "$tree/run" | grep -q "{\"path\": \"$latest\", .*\"latest\": true" || fail "$name: JSON of the latest"
    # What is the latest can be read as it is, but for what is only recognized.
    if [ "$name" != orbax ]; then
        "$dcp" verify "$found" >"$directory/verified" 2>&1 || fail "dcp verify of $name's latest: $(cat "$directory/verified")"
        "$dcp" ls "$found" >"$directory/verified" 2>&1 || fail "dcp ls of $name's latest: $(cat "$directory/verified")"
    fi
    count=$((count + 1))
done
[ $count -eq 22 ] || fail "$count trees"

# For people.
"$dcp" list "$trees/kempnerforge/run" >"$directory/table" || fail "the table"
grep -Eq '^ +step +size +age +kind +path +state$' "$directory/table" || fail "$(cat "$directory/table")"
grep -Eq '^ +20 +[0-9.]+ KiB +[0-9]+[smhd] +dcp +step_20 +whole$' "$directory/table" || fail "$(cat "$directory/table")"
grep -Eq '^ +30 .* step_30 +whole \[latest\]$' "$directory/table" || fail "$(cat "$directory/table")"
grep -Eq '^ +40 .* step_40 +no .metadata \[marked\]$' "$directory/table" || fail "$(cat "$directory/table")"
tail -1 "$directory/table" | grep -q '^step_30 is .*; the mark latest names step_40$' || fail "$(cat "$directory/table")"

for command in ls stat verify; do
    if "$dcp" $command "$trees/kempnerforge/run" 2>"$directory/err"; then fail "$command of a run"; fi
    grep -q "no checkpoint: .*; it is a run, the latest checkpoint of which is .*/run/step_30$" "$directory/err" ||
        fail "$command of a run says: $(cat "$directory/err")"
done

# A name cannot command a terminal, and is JSON nevertheless.
mkdir -p "$directory/run/$(printf 'x\033[31m"step=1.ckpt')"
"$dcp" list "$directory/run" | grep -q 'x\\x1b\[31m"step=1.ckpt' || fail "a name with control characters"
"$dcp" list --json "$directory/run" | grep -q 'x\\u001b\[31m\\"step=1.ckpt' || fail "its JSON"

mkdir -p "$directory/run/$(printf 'y\302\233m\377step=2.ckpt')"
"$dcp" list "$directory/run" | grep -q 'y\\xc2\\x9bm\\xffstep=2.ckpt' || fail "a name that is no UTF-8"
"$dcp" list --json "$directory/run" | grep -q 'y\\u009bm\\ufffdstep=2.ckpt' || fail "the JSON of a name that is no UTF-8"

# Steps that are longer than the column, and names whose characters have several bytes: "state" stays above the states.
mkdir -p "$directory/wide/step=1234567890123.ckpt" "$directory/wide/$(printf 'sch\303\266n-step=2.ckpt')"
"$dcp" list "$directory/wide" >"$directory/table" || fail "a wide table"
python3=$(command -v python3) || python3=
[ -z "$python3" ] || python3 - "$directory/table" <<'END' || fail "columns are not aligned: $(cat "$directory/table")"
import sys
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()[:-1]
head = lines[0]
assert len(lines) == 3
for line in lines[1:]:
    step, path, state = head.index("step") + 4, head.index("path"), head.index("state")
    assert line[:step].strip().isdigit() and line[step] == " ", line
    assert line[path - 1] == " " and line[path] != " ", line
    assert line[state - 1] == " " and line[state] != " ", line
END

# refuse STATUS WORDS ARGUMENT...
refuse() {
    status=$1 words=$2
    shift 2
    "$dcp" "$@" >"$directory/out" 2>&1
    got=$?
    [ $got -eq "$status" ] || fail "dcp $*: status $got, expected $status: $(cat "$directory/out")"
    grep -q -e "$words" "$directory/out" || fail "dcp $*: no \"$words\" in: $(cat "$directory/out")"
}
mkdir "$directory/empty"
refuse 0 "no checkpoints are there" list "$directory/empty"
refuse 1 "no checkpoints are there" latest "$directory/empty"
refuse 0 "no checkpoints are there; it is a checkpoint itself, which dcp ls shows$" list "$trees/../basic/ckpt"
refuse 1 "no checkpoints are there; it is a checkpoint itself, which dcp ls shows$" latest "$trees/../basic/ckpt"
refuse 1 "no such" list "$directory/none"
refuse 1 "is a file" latest "$directory/out"
refuse 2 usage list
refuse 2 "no such option" list --unknown "$directory"
refuse 2 usage latest "$directory" "$directory"
[ "$("$dcp" list --json "$directory/empty" | tr -d ' \n')" = "[]" ] || fail "an empty array"
rm -rf "$directory"
