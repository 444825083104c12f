#!/bin/sh
# dcp stat: numbers of every dtype, names and prefixes, NaN and infinities, and the same whatever the threads.
#     check_stat.sh DCP FIXTURES DIRECTORY
set -u
dcp=$1 fixtures=$2 directory=$3
adam=$fixtures/fsdp2_adam_w2/ckpt dtypes=$fixtures/dtypes/ckpt
rm -rf "$directory" && mkdir -p "$directory"

fail() {
    echo "check_stat.sh: $*" >&2
    exit 1
}

# json WORDS ARGUMENT...
json() {
    words=$1
    shift
    "$dcp" stat --json "$@" >"$directory/out" 2>"$directory/err" || fail "$*: $(cat "$directory/err")"
    grep -q -e "$words" "$directory/out" || fail "$*: no $words in: $(cat "$directory/out")"
}

# What PyTorch says of the same bytes.
json '"elements": 15, "min": 0, "max": 1, "mean": 0.6, "norm": 3, "nan": 0, "inf": 0, "zero": 6}' "$dtypes" bool.m
json '"min": -7762568190028361448, "max": 9213174058682429474, ' "$dtypes" int64.m
json '"min": 531816119323801384, "max": 18027201031534930499, ' "$dtypes" uint64.m
json '"min": -2048, "max": 57344, "mean": 4456.27' "$dtypes" float8_e5m2fnuz.m
json '"max": 0.21875, .*"nan": 1, "inf": 0' "$dtypes" float8_e5m2.m
json '"dtype": "complex32", .*"max": 11680.00.*"nan": 1, ' "$dtypes" complex32.m
json '"elements": 30, "min": -6, "max": 6, ' "$dtypes" float4_e2m1fn_x2.m
json '"elements": 0, "min": null, "max": null, "mean": null, "norm": 0, ' "$dtypes" float32.e

# Names, prefixes, and all of them.
[ "$("$dcp" stat "$adam" app.model.down 'app.model.up.*' | wc -l)" -eq 6 ] || fail "four lines, a head and a sum"
[ "$("$dcp" stat "$adam" app.model -x '*.bias' -x 'app.model.norm.*' | wc -l)" -eq 4 ] || fail "what is excluded"
json '"name": "app.optim", "dtype": "float32", "tensors": 18, "elements": 204, ' -d 2 "$adam"
json '"name": "app.model", "dtype": null, "tensors": 9, ' --depth=2 "$adam"
"$dcp" stat "$adam" nothing 2>"$directory/err" && fail "a name that is not there"
grep -q "^dcp stat: no name matches nothing; " "$directory/err" || fail "$(cat "$directory/err")"

# 64 MiB in 16 blocks: ones, a NaN, an infinity and a 3. What is found does not depend on threads.
{
    header='{"w":{"dtype":"F32","shape":[4096,4096],"data_offsets":[0,67108864]}}'
    printf "\\$(printf %03o ${#header})\0\0\0\0\0\0\0%s" "$header"
    head -c 67108864 /dev/zero
} >"$directory/model.safetensors"
patch() { # element, bytes
    printf "$2" | dd of="$directory/model.safetensors" bs=1 seek=$((8 + ${#header} + 4 * $1)) conv=notrunc 2>/dev/null
}
header='{"w":{"dtype":"F32","shape":[4096,4096],"data_offsets":[0,67108864]}}'
patch 5 '\0\0\300\177'
patch 4000000 '\0\0\200\377'
patch 16777215 '\0\0\100\100'
patch 9000000 '\0\0\200\277'
for threads in 1 3; do
    json '"elements": 16777216, "min": -1, "max": 3, "mean": 1.1920930376163766e-07, "norm": 3.1622776601683795, "nan": 1, "inf": 1, "zero": 16777212}' \
        --threads $threads "$directory"
done
truncate -s 30000000 "$directory/model.safetensors"
"$dcp" stat "$directory" >"$directory/out" 2>"$directory/err"
[ $? -eq 1 ] && [ "$(wc -l <"$directory/err")" -eq 1 ] || fail "a file that is cut short: $(cat "$directory/err")"
rm -rf "$directory"
