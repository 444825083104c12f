#!/bin/sh
# dcp diff: names, kinds, dtypes, shapes, objects and values, of any forms and topologies, and its exit statuses.
#     check_diff.sh DCP FIXTURES DIRECTORY
set -u
dcp=$1 fixtures=$2 directory=$3
adam=$fixtures/fsdp2_adam_w2/ckpt
rm -rf "$directory" && mkdir -p "$directory"

fail() {
    echo "check_diff.sh: $*" >&2
    exit 1
}

# differ STATUS WORDS ARGUMENT...
differ() {
    status=$1 words=$2
    shift 2
    "$dcp" diff "$@" >"$directory/out" 2>"$directory/err"
    got=$?
    [ $got -eq "$status" ] || fail "diff $*: status $got, expected $status: $(cat "$directory/out" "$directory/err")"
    cat "$directory/out" "$directory/err" | grep -q -e "$words" || fail "diff $*: no \"$words\" in: $(cat "$directory/out" "$directory/err")"
}

# ---- forms and topologies ----
differ 0 '^0 of 40 names differ$' "$adam" "$adam"
"$dcp" convert -q --no-sync "$adam" "$directory/three" --to dcp --ranks 3 || fail "converting"
"$dcp" convert -q --no-sync "$adam" "$directory/all.pt" || fail "converting"
"$dcp" convert -q --no-sync "$adam" "$directory/model.pt" -i app.model --dtype bf16 --rename app.model=m || fail "converting"
differ 0 '^0 of 40 names differ$' "$adam" "$directory/three"
differ 0 '^0 of 40 names differ$' "$directory/three" "$directory/all.pt"
differ 0 '"equal": true, "differences": \[' --json "$directory/three" "$adam"
differ 1 '^down.weight: float32 \[5, 7\] | bfloat16 \[5, 7\]$' --prefix-a app.model --prefix-b m. "$adam" "$directory/model.pt"
differ 1 '^down.bias: 5 elements differ, by at most 0.000946999, at \[2\]: -0.25680637 | -0.25585938$' -d --prefix-a app.model --prefix-b m \
    "$adam" "$directory/model.pt"
differ 0 '^0 of 9 names differ$' --any-dtype --prefix-a app.model --prefix-b m --rtol 0.01 "$adam" "$directory/model.pt"
differ 0 '^0 of 8 names differ$' -d --prefix-a app.model --prefix-b m --atol 0.0034 -x down.bias "$adam" "$directory/model.pt"
differ 1 '^norm.weight: 1 element differs' -d --prefix-a app.model --prefix-b m --atol 0.003350 "$adam" "$directory/model.pt"
differ 1 '^only in A: app.model.up.bias  float32 \[7\]$' "$adam" "$directory/model.pt"
differ 1 '^only in B: m.up.bias  bfloat16 \[7\]$' "$adam" "$directory/model.pt"
differ 1 '{"name": "m.up.bias", "kind": "only_b", "b": {"type": "tensor", "dtype": "bfloat16", "shape": \[7\]}}' -j "$adam" "$directory/model.pt"

# ---- objects, kinds and shapes, by the same names ----
one=$fixtures/torch_2.0.1_single/ckpt other=$fixtures/basic/ckpt
"$dcp" diff "$one" "$other" >"$directory/out"
[ $? -eq 1 ] || fail "different checkpoints"

# tensors FILE SHAPE DTYPE WIDTH: two of them, of 16 MiB zeros and of one
tensors() {
    mkdir -p "$directory/$1"
    header=$(printf '{"w":{"dtype":"%s","shape":%s,"data_offsets":[0,16777216]},"x":{"dtype":"I64","shape":[],"data_offsets":[16777216,16777224]}}' "$3" "$2")
    printf "\\$(printf %03o ${#header})\0\0\0\0\0\0\0%s" "$header" >"$directory/$1/model.safetensors"
    truncate -s $((8 + ${#header} + 16777224)) "$directory/$1/model.safetensors"
}
patch() { # FILE BYTE BYTES
    printf "$3" | dd of="$directory/$1/model.safetensors" bs=1 seek=$((8 + ${#header} + $2)) conv=notrunc 2>/dev/null
}
tensors a '[2048,2048]' F32 4
tensors b '[2048,2048]' F32 4
differ 0 '^0 of 2 names differ$' "$directory/a" "$directory/b"
patch b 4000 '\0\0\200\077'
patch b 9000000 '\0\0\0\300'
patch b 16000000 '\0\0\0\100'
patch b 16777215 '\200'
patch b 16777216 '\001'
for threads in 1 4; do
    differ 1 '^w: 4 elements differ, by at most 2, at \[1098, 1296\]: 0 | -2$' --threads $threads "$directory/a" "$directory/b"
    differ 1 '^x: 1 element differs, by at most 1, at \[\]: 0 | 1$' --threads $threads "$directory/a" "$directory/b"
done
differ 1 '"different": 4, "largest": 2, "at": \[1098, 1296\], "a": 0, "b": -2}' --json "$directory/a" "$directory/b"
differ 1 '^w: 2 elements differ' --atol 1 "$directory/a" "$directory/b"
differ 1 '^w: 2 elements differ' --rtol 1 --atol 1 -x x "$directory/b" "$directory/a"
differ 0 '^0 of 2 names differ$' --rtol 1 "$directory/a" "$directory/b"
differ 0 '^0 of 2 names differ$' --names-only "$directory/a" "$directory/b"
[ -z "$("$dcp" diff -q "$directory/a" "$directory/b")" ] || fail "--quiet prints something"
patch a 8 '\0\0\300\177'
patch b 8 '\0\0\300\177'
patch b 12 '\0\0\300\177'
differ 1 '^w: 5 elements differ' "$directory/a" "$directory/b"
differ 1 '^w: 1 element differs, at\|^w: 1 element differs, by' --atol 9 "$directory/a" "$directory/b"
tensors b '[1024,4096]' F32 4
differ 1 '^w: float32 \[2048, 2048\] | float32 \[1024, 4096\]$' "$directory/a" "$directory/b"
tensors b '[2048,2048]' I32 4
differ 1 '^w: float32 \[2048, 2048\] | int32 \[2048, 2048\]$' "$directory/a" "$directory/b"

# ---- large compressed tensors, all of whose elements differ, are not decompressed again for each block ----
# was_read: bytes that this shell and its children have read.
was_read() {
    awk '/^rchar/ { print $2 }' /proc/$$/io 2>/dev/null
}
header='{"w":{"dtype":"BF16","shape":[16777216],"data_offsets":[0,33554432]}}'
for side in a b; do
    { printf "\\$(printf %03o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" && head -c 33554432 /dev/urandom; } >"$directory/$side.safetensors"
    "$dcp" convert -q --zstd --no-sync "$directory/$side.safetensors" "$directory/zstd_$side" --to dcp 2>/dev/null
done
if [ -d "$directory/zstd_b" ] && [ -n "$(was_read)" ]; then
    before=$(was_read)
    differ 1 '^w: [0-9]* elements differ, ' --threads 4 "$directory/zstd_a" "$directory/zstd_b"
    "$dcp" stat --threads 4 "$directory/zstd_a" >"$directory/out" || fail "stat of a compressed tensor"
    bytes=$(($(was_read) - before))
    [ $bytes -lt 268435456 ] || fail "$bytes bytes were read of 3 times 33554432"
fi

# ---- trouble ----
differ 2 'no such file' "$adam" "$directory/none"
differ 2 'cannot be -1' --atol -1 "$adam" "$adam"
differ 2 'usage: dcp diff' "$adam"
truncate -s 10000000 "$directory/b/model.safetensors"
differ 2 '^dcp diff: ' -d "$directory/a" "$directory/b"
[ "$(wc -l <"$directory/err")" -eq 1 ] || fail "more than a line: $(cat "$directory/err")"
rm -rf "$directory"
