# dcp convert as a command: what it says, how much memory it takes, signals, damaged checkpoints:
# check_convert.sh DCP FIXTURES SCRATCH ZSTD SANITIZED
set -eu
dcp=$1 fixtures=$2 scratch=$3 zstd=$4 sanitized=$5
rm -rf "$scratch" && mkdir -p "$scratch"

fail() { echo "check_convert.sh: $1" >&2; exit 1; }

# A safetensors file of one tensor of zeros, [ROWS, 8000], which takes no room on the disk: make_file PATH ROWS
make_file() {
    header=$(printf '{"a":{"dtype":"F32","shape":[%d,8000],"data_offsets":[0,%s]}}' "$2" "$(($2 * 32000))")
    printf "\\$(printf %03o ${#header})\\000\\000\\000\\000\\000\\000\\000%s" "$header" >"$1"
    truncate -s $((8 + ${#header} + $2 * 32000)) "$1"
}

# The same of many tensors, [64, 16]: make_many PATH COUNT
make_many() {
    header=$(awk -v n="$2" 'BEGIN {
        printf "{"
        for (i = 0; i < n; i++)
            printf "%s\"layers.%d.weight\":{\"dtype\":\"F32\",\"shape\":[64,16],\"data_offsets\":[%d,%d]}", i ? "," : "", i, i * 4096, (i + 1) * 4096
        printf "}"
    }')
    { for byte in 0 1 2 3 4 5 6 7; do printf "\\$(printf %03o $((${#header} >> 8 * byte & 255)))"; done; printf %s "$header"; } >"$1"
    truncate -s $((8 + ${#header} + $2 * 4096)) "$1"
}

# ---- what it says ----

small=$fixtures/models/llama
"$dcp" convert "$small" "$scratch/a.safetensors" 2>"$scratch/said" >"$scratch/done"
grep -q "is taken for a Hugging Face directory (index)$" "$scratch/said" || fail "the source's form is told"
grep -q "^20 tensors, 145 KiB (148224 bytes), 0 objects$" "$scratch/done" || fail "what was converted is told"
"$dcp" convert --json -- "$scratch/a.safetensors" "$scratch/b" --to 2>/dev/null && fail "behind -- there are paths alone"
"$dcp" convert "$scratch/a.safetensors" --to=dcp --json "$scratch/b" 2>/dev/null |
    grep -q '^{"source": "safetensors", .*"target": "dcp", "tensors": 20, ' || fail "options anywhere, and JSON"
"$dcp" convert "$fixtures/models/gguf_llama/hf" "$scratch/a.gguf" 2>&1 >/dev/null | grep -q "no vocabulary" ||
    fail "what a GGUF file lacks is told"
"$dcp" verify "$scratch/b" | grep -q "^0 faults$" || fail "the result is whole"
"$dcp" convert --to dcp "$small" "$scratch/stage" --quiet --exclude "model.layers.0"
"$dcp" convert "$small" "$scratch/other" --quiet --to dcp --include "model.layers.0"
"$dcp" convert --quiet "$scratch/stage" "$scratch/other" "$scratch/union.safetensors"
cmp "$scratch/union.safetensors" "$scratch/a.safetensors" || fail "several directories are one source"
"$dcp" convert -n "$small" "$scratch/none" --to hf --shard-size 30KB -i model.layers.0 >"$scratch/done" 2>"$scratch/said"
grep -q "^  14.0 KiB  bfloat16  model.layers.0.mlp.down_proj.weight \[64, 112\]$" "$scratch/done" || fail "a dry run tells names and shapes"
grep -q "^9 tensors, 66.2 KiB (67840 bytes), 0 objects, 11 left out; nothing was written$" "$scratch/done" || fail "$(cat "$scratch/done")"
"$dcp" convert -nqj "$fixtures/models/gguf_llama/hf" "$scratch/none.gguf" --gguf-type q8_0 2>/dev/null >"$scratch/done"
grep -q '{"name": "blk.0.attn_q.weight", "type": "tensor", "dtype": "Q8_0", "shape": \[32, 32\], "bytes": 1088}' "$scratch/done" ||
    fail "a dry run of a GGUF file: $(cat "$scratch/done")"
for form in dcp pt safetensors hf; do
    "$dcp" convert -n -q -m "$fixtures/fsdp2_adam_w2/ckpt" "$scratch/none" --to $form -i app.model >"$scratch/done" || fail "a dry run to $form"
    [ ! -s "$scratch/done" ] || fail "a quiet dry run prints something"
done
"$dcp" convert -nj "$fixtures/fsdp2_adam_w2/ckpt" "$scratch/none.pt" 2>/dev/null | grep -q '^ {"name": "app.optim.*", "type": "object"}' ||
    fail "a dry run tells of objects"
"$dcp" convert -n -q "$fixtures/fsdp2_adam_w2/ckpt" "$scratch/none.safetensors" 2>/dev/null && fail "a dry run finds what cannot be written"
[ -z "$(ls -d "$scratch"/none* 2>/dev/null)" ] || fail "a dry run leaves something"
for wrong in --to=nothing --dtype=bfloat --shard-size=x --ranks=0 --nothing --tied=maybe; do
    status=0
    "$dcp" convert "$wrong" "$small" "$scratch/wrong.pt" 2>/dev/null || status=$?
    [ $status -eq 2 ] || fail "$wrong is wrong usage"
done

# ---- damaged checkpoints: an error or a result, and nothing else ----

for case in "$fixtures"/hostile/*/ckpt*; do
    for form in dcp pt; do
        status=0
        (
            [ -n "$sanitized" ] || ulimit -v 4000000
            exec timeout 60 "$dcp" convert --quiet --no-sync --to "$form" "$case" "$scratch/hostile" 2>/dev/null
        ) || status=$?
        [ $status -le 1 ] || fail "$case to $form ends with $status"
        [ $status -eq 0 ] || [ ! -e "$scratch/hostile" ] || fail "$case to $form leaves something"
        rm -rf "$scratch/hostile"
    done
done

# ---- a conversion that is killed, and goes on ----

# Kills a conversion when it has noted something: begin_and_kill TARGET OPTION...
begin_and_kill() {
    journal=$1.partial/journal
    "$dcp" convert "$scratch/killed.safetensors" "$@" --resume --quiet --no-sync &
    process=$!
    until [ "$(stat -c %s "$journal" 2>/dev/null || echo 0)" -gt 24 ]; do
        kill -0 $process 2>/dev/null || break
        sleep 0.01
    done
    kill -KILL $process 2>/dev/null || true
    wait $process 2>/dev/null || true
}

if [ -z "$sanitized" ]; then
    make_file "$scratch/killed.safetensors" 20000
    begin_and_kill "$scratch/killed.pt"
    if [ ! -e "$scratch/killed.pt" ]; then # else it was done before
        "$dcp" convert "$scratch/killed.safetensors" "$scratch/killed.pt" --resume --quiet --no-sync --tied keep 2>"$scratch/said" &&
            fail "another conversion was continued"
        grep -q "killed.pt.partial: is of another conversion: " "$scratch/said" || fail "$(cat "$scratch/said")"
        "$dcp" convert "$scratch/killed.safetensors" "$scratch/killed.pt" --resume --no-sync >"$scratch/done" 2>&1
        grep -q "^1 tensor, 610 MiB (640000000 bytes), 0 objects; [0-9.]* MiB were there from an earlier call$" "$scratch/done" ||
            fail "what was continued: $(cat "$scratch/done")"
    fi
    [ ! -e "$scratch/killed.pt.partial" ] || fail "something is left beside what was continued"
    "$dcp" verify "$scratch/killed.pt" | grep -q "^0 faults$" || fail "what was continued is damaged"
    "$dcp" diff -q "$scratch/killed.safetensors" "$scratch/killed.pt" || fail "what was continued differs"
    rm "$scratch/killed.pt"
    begin_and_kill "$scratch/killed" --to dcp --ranks 16
    if [ ! -e "$scratch/killed" ]; then
        "$dcp" convert "$scratch/killed.safetensors" "$scratch/killed" --to dcp --ranks 16 --resume --no-sync >"$scratch/done" 2>&1
        grep -q "; [0-9.]* MiB were there from an earlier call$" "$scratch/done" || fail "what was continued: $(cat "$scratch/done")"
    fi
    [ ! -e "$scratch/killed.partial" ] || fail "something is left beside a directory that was continued"
    "$dcp" verify "$scratch/killed" | grep -q "^0 faults$" || fail "a directory that was continued is damaged"
    "$dcp" diff -q "$scratch/killed.safetensors" "$scratch/killed" || fail "a directory that was continued differs"
    rm -r "$scratch"/killed*
fi

# ---- signals ----

if [ "$zstd" = 1 ]; then # of zeros a compressed result is small, however long it takes
    make_file "$scratch/long.safetensors" 1000000
    "$dcp" convert "$scratch/long.safetensors" "$scratch/long" --to dcp --zstd --quiet --no-sync 2>"$scratch/said" &
    sleep 0.5
    kill -TERM $!
    status=0
    wait $! || status=$?
    [ $status -eq 143 ] || fail "interrupted, it ends with $status"
    [ ! -e "$scratch/long" ] || fail "interrupted, it leaves something"
    [ "$(cat "$scratch/said")" = "dcp convert: interrupted" ] || fail "interrupted, it says: $(cat "$scratch/said")"
    rm "$scratch/long.safetensors"
fi

# ---- memory: 64 MiB more than the program itself ----

[ -z "$sanitized" ] || exit 0
base=4096
until (ulimit -v $base && "$dcp" --version >/dev/null 2>&1); do base=$((base + 2048)); done
make_file "$scratch/large.safetensors" 6000
# One arena: of another, glibc takes 64 MiB of address space for a moment, and there is none for anything else meanwhile.
limited() { (export MALLOC_ARENA_MAX=1; ulimit -v $((base + 65536)) && exec "$dcp" convert --quiet --no-sync --threads 4 "$@"); }
limited "$scratch/large.safetensors" "$scratch/large.pt" || fail "192 MB to a .pt file in 64 MiB"
# What is written goes to the disk meanwhile, around the page cache or close behind, and not at the end, where progress would
# stand still and signals wait.
if command -v strace >/dev/null && strace -f -e trace=openat -o "$scratch/calls" "$dcp" --version >/dev/null 2>&1; then
    strace -f -e trace=openat,sync_file_range -o "$scratch/calls" "$dcp" convert -q "$scratch/large.pt" "$scratch/synced.safetensors"
    grep -q 'synced.*O_WRONLY.*O_DIRECT.*= [0-9]' "$scratch/calls" || [ "$(grep -c WAIT_AFTER "$scratch/calls")" -gt 10 ] ||
        fail "the disk was waited for at the end alone: $(wc -l <"$scratch/calls")"
    rm "$scratch/synced.safetensors"
fi
limited "$scratch/large.pt" "$scratch/large" --to dcp || fail "192 MB to a DCP directory in 64 MiB"
# Of many ranks some are written at a time, and nothing is kept for a tensor of each but its place.
if [ "$zstd" = 1 ]; then
    limited "$scratch/large.safetensors" "$scratch/ranks" --to dcp --zstd --ranks 64 || fail "192 MB compressed by 64 ranks in 64 MiB"
    rm -r "$scratch/ranks"
fi
make_many "$scratch/many.safetensors" 2000
limited "$scratch/many.safetensors" "$scratch/many" --to dcp --ranks 64 || fail "2000 tensors by 64 ranks in 64 MiB"
[ "$("$dcp" ls "$scratch/many" | grep -c "layers.*\[64, 16\]")" = 2000 ] || fail "2000 tensors are there"
rm -r "$scratch/many"
limited "$scratch/large" "$scratch/model" --to hf || fail "192 MB to a Hugging Face directory in 64 MiB"
limited "$scratch/model" "$scratch/back.safetensors" --dtype fp16 || fail "192 MB converted in 64 MiB"
rm -rf "$scratch"
