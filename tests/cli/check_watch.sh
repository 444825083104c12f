#!/bin/sh
# dcp watch and dcp report on a run: check_watch.sh DCP MAKE_RUN DIRECTORY
set -u
dcp=$1 make_run=$2 directory=$3
rm -rf "$directory"
mkdir -p "$directory"
run=$directory/run

fail() {
    echo "$*" >&2
    exit 1
}

expect() { # words, file
    grep -q -e "$1" "$2" || fail "no \"$1\" in: $(cat "$2")"
}

refuse() { # status, words, arguments
    status=$1 words=$2
    shift 2
    "$dcp" "$@" >"$directory/out" 2>&1
    got=$?
    [ $got -eq "$status" ] || fail "dcp $*: status $got, expected $status: $(cat "$directory/out")"
    expect "$words" "$directory/out"
}

refuse 1 "no such" watch --once "$directory/none"
refuse 1 "dcp_saves.jsonl" report "$directory/none"
refuse 2 usage watch
refuse 2 "no such option: --twice" watch --twice "$run"
refuse 2 usage report
refuse 2 usage report "$run" "$run"

"$make_run" "$run" 10 20 30 || fail "no run"

# ---- watch ----

"$dcp" watch --once "$run" >"$directory/once" || fail "watch --once"
[ "$(wc -l <"$directory/once")" -eq 1 ] || fail "more than a line: $(cat "$directory/once")"
expect '^nothing is being saved; last good: step_30; it took [0-9.]* s and training [0-9.]* s; next due: step 40, about ' \
    "$directory/once"

"$dcp" watch --once --json "$run" >"$directory/once" || fail "watch --once --json"
expect '^{"saving": null, "last_good": "step_30", "last_seconds": [0-9.]*, "last_stall": [0-9.]*, "saves": 3, "failed": 0, "next_step": 40, "next_time": [0-9]*}$' \
    "$directory/once"

# On a pipe there is a line for each change: a save begins, goes on, and is committed.
"$dcp" watch "$run" >"$directory/lines" &
watcher=$!
trap 'kill $watcher' EXIT # else it would go on after a failure, and whoever reads its output would wait for it
line() { # until the last one has these words
    tries=0
    until tail -n 1 "$directory/lines" | grep -q -e "$1"; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || fail "no line $1: $(cat "$directory/lines")"
        sleep 0.1
    done
}
line '^nothing is being saved; '
mkdir "$run/step_40"
: >"$run/step_40/.dcp_owner"
head -c 100000 /dev/zero >"$run/step_40/__0_0.distcp"
line '^saving step_40: 97.7K, .*; last good: step_30; '
"$dcp" watch --once --json "$run" >"$directory/once" || fail "watch --once --json"
expect '^{"saving": "step_40", "bytes": 100000, "bytes_per_second": [0-9]*, "begun": [0-9]*, "changed": [0-9]*, ' "$directory/once"
rm -r "$run/step_40"
"$make_run" "$run" 40 || fail "no step 40"
line '^nothing is being saved; last good: step_40; .*; next due: step 50'
kill -TERM $watcher # SIGINT is ignored where a shell without job control starts something in the background
trap - EXIT
wait $watcher || fail "a signal is no failure"

# A save whose job has died says how long nothing has come.
mkdir "$run/step_50"
: >"$run/step_50/.dcp_owner"
touch -d '1 hour ago' "$run/step_50/.dcp_owner"
"$dcp" watch --once "$run" >"$directory/once" || fail "watch of a dead save"
expect '^saving step_50: 0B, nothing for 36[0-9][0-9] s; last good: step_40' "$directory/once"

# ---- report ----

# A failure whose text would be markup, and a line that a full disk cut.
sed -n 's/"step": *10,/"step": 50,/; 1s/"saved": *true/"saved": false, "failure": "no \\"room\\" <script>alert(1)<\/script>"/p' \
    "$run/dcp_saves.jsonl" >"$directory/failed"
cat "$directory/failed" >>"$run/dcp_saves.jsonl"
for mirrored in true false; do
    printf '{"unix_time": 12, "run": "r", "step": 10, "path": "step_10", "mirror": "m", "mirrored": %s, "bytes": 5}\n' $mirrored
done >>"$run/dcp_saves.jsonl"
printf '{"unix_time": 12, "ru' >>"$run/dcp_saves.jsonl"
"$dcp" report "$run" >"$directory/report.html" || fail "report"
expect '^<p>5 saves, 1 of them failed\.' "$directory/report.html"
expect ' 2 copies to mirrors, 1 of them failed\.' "$directory/report.html"
expect ' 1 lines were not understood' "$directory/report.html"
expect 'no &#34;room&#34; &#60;script&#62;alert(1)' "$directory/report.html"
[ "$(grep -c '<svg' "$directory/report.html")" -eq 4 ] || fail "not 4 drawings"
[ "$(grep -c '<rect' "$directory/report.html")" -eq 20 ] || fail "not 5 bars in each"
[ "$(grep -c 'class="failed"' "$directory/report.html")" -eq 4 ] || fail "the failure is not marked"
! grep -q -e '<script' -e 'src=' -e 'href=' -e '://' "$directory/report.html" || fail "the page needs something else"

# For programs, with the failure's text as it was.
sed -i 's/ <script>alert(1)/\\u000a<script>/' "$run/dcp_saves.jsonl"
"$dcp" report --json "$run" >"$directory/json" || fail "report --json"
expect '^ {"unix_time": [0-9]*, "step": 10, "path": "step_10", "saved": true, "stall_seconds": [0-9.e-]*, "seconds": [0-9.e-]*, "bytes": [0-9]*, "run": "[0-9a-f]*"},$' \
    "$directory/json"
expect '"step": 50, "path": "step_10", "saved": false, .*, "failure": "no \\"room\\"\\u000a<script><.script>"}$' "$directory/json"
expect '^\], "copies": 2, "failed_copies": 1, "not_understood": 1}$' "$directory/json"

# On a terminal the line is as wide as that at most, so that it is replaced and not continued.
if command -v script >/dev/null && [ "$(TERM=xterm script -qec 'stty cols 30; echo yes' /dev/null </dev/null | tr -d '\r')" = yes ]; then
    TERM=xterm script -qec "stty cols 30; timeout 1 '$dcp' watch '$run'" /dev/null </dev/null | tr '\r' '\n' >"$directory/drawn"
    expect 'saving step_50: 0B, nothing f' "$directory/drawn"
    [ "$(sed 's/^.\[K//' "$directory/drawn" | awk '{ if (length($0) > most) most = length($0) } END { print most + 0 }')" -eq 29 ] ||
        fail "lines of a terminal of 30 columns: $(cat "$directory/drawn")"
fi
