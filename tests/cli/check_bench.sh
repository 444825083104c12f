#!/bin/sh
# dcp bench: what it prints, what it refuses, and that it leaves nothing behind, also when it fails or is interrupted.
#     check_bench.sh DCP DIRECTORY HAVE_ZSTD
set -u
dcp=$1 directory=$2 zstd=$3
rm -rf "$directory"
mkdir -p "$directory"

fail() {
    echo "$*" >&2
    exit 1
}

empty() {
    [ -z "$(ls -A "$directory")" ] || fail "left behind after $*: $(ls -A "$directory")"
}

good() {
    "$dcp" bench "$@" "$directory" >"$directory.out" 2>"$directory.err" || fail "bench $*: $(cat "$directory.err")"
    empty "bench $*"
}

bad() {
    status=$1
    words=$2
    shift 2
    "$dcp" bench "$@" >"$directory.out" 2>"$directory.err"
    got=$?
    [ $got -eq "$status" ] || fail "bench $*: status $got, expected $status"
    grep -q -e "$words" "$directory.err" || fail "bench $*: no \"$words\" in: $(cat "$directory.err")"
    [ ! -s "$directory.out" ] || fail "bench $*: printed something"
    empty "bench $*"
}

good --bytes 3M --tensors 7 --ranks 3 --repeat 2
for word in "tensors, 3 ranks" "save  " "load  " planning staging writing syncing commit reading "bytes written" "extra memory" "median of 2"; do
    grep -q -e "$word" "$directory.out" || fail "no \"$word\" in: $(cat "$directory.out")"
done

good --json --bytes 256K --tensors 1 --repeat 1 --no-sync --io pool,buffered --threads 2
for word in '"bytes": 262144' '"save": \[' '"load": \[' '"total_seconds": ' '"writing_seconds": ' '"reading_seconds": ' \
    '"syncing_seconds": ' '"peak_memory": ' '"ring": false' '"direct": false'; do
    grep -q -e "$word" "$directory.out" || fail "no '$word' in: $(cat "$directory.out")"
done

good --bytes 1 --tensors 3 --ranks 2 --repeat 1
grep -q "^24 bytes in 3 tensors" "$directory.out" || fail "small: $(cat "$directory.out")"
if [ "$zstd" = 1 ]; then
    good --bytes 5M --compression zstd:1 --repeat 1 --ranks 2
    bad 1 "compression_level is 99" --bytes 1K --compression zstd:99 "$directory"
else
    bad 1 "DCP_ZSTD" --bytes 1K --compression zstd "$directory"
fi

# What another save costs, and how often to save.
good --bytes 2M --repeat 1 --no-sync --plan 64G
grep -q "^plan  a save of 64.0 GiB takes about " "$directory.out" || fail "plan: $(cat "$directory.out")"
[ "$(grep -c '^ .* %$' "$directory.out")" -eq 5 ] || fail "plan: $(cat "$directory.out")"
good --bytes 2M --repeat 1 --no-sync --mtbf 0.5 --json
grep -q '"plan": {"bytes": 2096800, ' "$directory.out" && grep -q '{"failure_seconds": 1800, "every_seconds": ' "$directory.out" ||
    fail "plan: $(cat "$directory.out")"

# No faster than it is told: 12 MiB of each of two ranks, 8 MiB a second.
good --json --bytes 24M --ranks 2 --write-rate 8M --repeat 1 --no-sync
sed -n '/"save"/,/"load"/s/.*"total_seconds": \([0-9]*\).*/\1/p' "$directory.out" | grep -qv '^0' || fail "rate: $(cat "$directory.out")"

# No more memory than it is told, and what it takes at the least is said.
good --json --bytes 64M --ranks 2 --memory-limit 8M --repeat 2
for peak in $(sed -n 's/.*"peak_memory": \([0-9]*\).*/\1/p' "$directory.out"); do
    [ "$peak" -gt 0 ] && [ "$peak" -le 8388608 ] || fail "memory: $(cat "$directory.out")"
done
bad 1 "memory_limit is 1024 bytes, but the smallest sufficient limit is" --bytes 1M --memory-limit 1K "$directory"

# What is left in the page cache: nothing is said of it, so that it is only taken.
for way in any kept dropped auto; do
    good --json --bytes 6M --repeat 1 --page-cache $way
    [ $way != kept ] || grep -q '"direct": false, ' "$directory.out" || fail "kept: $(cat "$directory.out")"
done
bad 1 "use one of them" --bytes 1K --page-cache kept --io direct "$directory"

# Replicas, and what it takes to compare them.
good --bytes 4M --tensors 5 --ranks 3 --repeat 1 --no-sync --check-replicas off
! grep -q "checking" "$directory.out" || fail "checks: $(cat "$directory.out")"
grep -q "^4194300 bytes in 5 tensors" "$directory.out" || fail "replicas: $(cat "$directory.out")"
for check in sampled all; do
    good --bytes 4M --tensors 5 --ranks 3 --repeat 1 --no-sync --check-replicas $check
    grep -q "checking  [0-9.]* s, within planning: " "$directory.out" || fail "no check: $(cat "$directory.out")"
done

# Threads that write a file, as many as there are most of the time, and their priority, seen as long as there is no checkpoint:
# three seconds at this rate.
watch() {
    "$dcp" bench --bytes 24M --tensors 3 --write-rate 8M --repeat 1 --no-sync --io pool,buffered "$@" "$directory" \
        >"$directory.out" 2>"$directory.err" &
    bench=$!
    counts= seen=
    while :; do
        count=0 found=
        for task in /proc/$bench/task/*; do
            count=$((count + 1))
            command -v ionice >/dev/null && found="$found$(ionice -p "${task##*/}" 2>/dev/null)
"
        done
        kill -0 $bench 2>/dev/null && [ -z "$(find "$directory" -name .metadata 2>/dev/null)" ] || break
        counts="$counts $count"
        seen="$seen$found"
        sleep 0.02
    done
    threads=$(echo "$counts" | tr ' ' '\n' | sort | uniq -c | sort -rn | awk 'NF == 2 { print $2; exit }')
    wait $bench || fail "bench $*: $(cat "$directory.err")"
    empty "bench $*"
}
watch --io-threads 1 --io-priority idle
one=$threads
! command -v ionice >/dev/null || echo "$seen" | grep -q idle || fail "idle: $seen"
watch --io-threads 5 --io-priority low
[ "$threads" -gt "$one" ] && [ "$threads" -le $((one + 4)) ] || fail "$threads threads with up to five that write, $one with one"
! command -v ionice >/dev/null || echo "$seen" | grep -q "best-effort: prio 7" || fail "low: $seen"

bad 2 "usage: dcp bench"
bad 2 "usage: dcp bench" "$directory" "$directory"
for option in --bytes=0 --bytes=-1 --bytes= --bytes=5X --bytes=99999999999G --tensors=0 --tensors=x --ranks=0 --ranks=100000 \
    --threads=0 --write-rate=0 --write-rate=fast --io-threads=0 --io-threads=257 --io-priority=high --memory-limit=0 \
    --memory-limit=-1 --io=fast --io=ring, --compression=gzip --compression=zstd: --repeat=0 --repeat=1e3 \
    --check-replicas=some --page-cache=some --plan=0 --mtbf=often; do
    bad 2 "cannot be" "$option" "$directory"
done
bad 2 "no such option" --fast "$directory"
bad 1 "io is" --io=ring,pool --bytes 1K "$directory"
bad 1 "cannot make a directory" --bytes 1K "$directory/missing"

# Interrupted, it ends soon and removes what it made.
"$dcp" bench --bytes 64M --repeat 1000 "$directory" >"$directory.out" 2>"$directory.err" &
bench=$!
while [ -z "$(ls -A "$directory")" ]; do sleep 0.05; done
kill -TERM $bench
wait $bench
[ $? -eq 143 ] || fail "interrupted: $(cat "$directory.err")"
[ "$(cat "$directory.err")" = "dcp bench: interrupted" ] || fail "interrupted, it says: $(cat "$directory.err")"
empty "an interruption"
rm -rf "$directory" "$directory.out" "$directory.err"
