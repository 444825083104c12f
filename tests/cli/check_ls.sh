#!/bin/sh
# dcp ls: what is chosen, in which order, as a tree, by files, as totals; dcp cat: slices, text and files of NumPy.
#     check_ls.sh DCP FIXTURES DIRECTORY
set -u
dcp=$1 fixtures=$2 directory=$3
adam=$fixtures/fsdp2_adam_w2/ckpt dtypes=$fixtures/dtypes/ckpt
rm -rf "$directory" && mkdir -p "$directory"

fail() {
    echo "check_ls.sh: $*" >&2
    exit 1
}

# has WORDS ARGUMENT...: a line of what is printed is as the expression says.
has() {
    words=$1
    shift
    "$dcp" "$@" >"$directory/out" 2>"$directory/err" || fail "dcp $*: $(cat "$directory/err")"
    grep -Eq -e "$words" "$directory/out" || fail "dcp $*: no \"$words\" in: $(cat "$directory/out")"
}

# is TEXT ARGUMENT...: what is printed is the text, line breaks as commas.
is() {
    text=$1
    shift
    got=$("$dcp" "$@" 2>&1 | tr '\n' ',')
    [ "$got" = "$text" ] || fail "dcp $*: expected $text, found $got"
}

# ---- ls ----
has '^DCP checkpoint$' ls "$adam"
has '^safetensors$' ls "$fixtures/hf_single/ckpt"
has '^file of torch.save$' ls "$fixtures/pt_state_dict/ckpt.pt"
printf '\2\0\0\0\0\0\0\0{}' >"$directory/none.safetensors"
"$dcp" convert -q "$directory/none.safetensors" "$directory/none.pt" --no-sync || fail "no empty file"
has '^file of torch.save$' ls "$directory/none.pt"
has '^\{"form": "safetensors", "entries": \[$' ls --json "$directory/none.safetensors"
"$dcp" ls "$adam" app.model 2>"$directory/err" && fail "a name in the place of a checkpoint"
grep -q 'several paths are taken for parts of one checkpoint$' "$directory/err" || fail "$(cat "$directory/err")"
has '^27 tensors, 1\.2 KiB \(1260 bytes\), 13 objects$' ls "$adam"
has '^app.model.down.weight +float32 +140 B  \[5, 7\] in 2 chunks$' ls "$adam"
has '^2 tensors, 160 bytes, 0 objects$' ls "$adam" -i app.model.down
has '^3 tensors, 60 bytes, 0 objects$' ls "$adam" --include 'app.model.*' -x '*.weight' -x app.model.up --exclude '*num_*' \
    -x app.model.norm.running_mean
has '^9 tensors, ' ls -i 'app.optim.state.[du]*.[bw]*.exp_avg*' -i app.model.norm.bias "$adam"
"$dcp" ls "$adam" -i nothing.of.it >"$directory/out" 2>"$directory/err" && fail "a pattern that matches nothing"
grep -q '^dcp ls: no name matches nothing.of.it; ' "$directory/err" || fail "$(cat "$directory/err")"
order() {
    "$dcp" ls "$adam" -i app.model "$@" | sed -n 's/^\(app[^ ]*\) .*/\1/p' | tr '\n' ' '
}
[ "$(order --sort size | cut -d' ' -f1-3)" = "app.model.up.weight app.model.down.weight app.model.up.bias" ] || fail "$(order --sort size)"
[ "$(order -s name -r | cut -d' ' -f1)" = app.model.up.weight ] || fail "$(order -s name -r)"
[ "$(order --sort dtype -r | cut -d' ' -f1)" = app.model.norm.num_batches_tracked ] || fail "$(order --sort dtype -r)"
has '^     444 B    model  9 names$' ls --tree "$adam"
has '^     140 B        weight  float32 \[5, 7\]$' ls --tree "$adam"
[ "$("$dcp" ls --tree --depth 2 "$adam" | wc -l)" -eq 6 ] || fail "depth of a tree: $("$dcp" ls --tree --depth 2 "$adam")"
has '^     816 B        18 tensors      12 objects  app.optim$' ls --totals --depth 2 "$adam"
has '^       8 B         1 tensor        0 objects  int64$' ls --totals "$adam"
has '^__1_0.distcp: .* in [0-9]* items$' ls --files "$adam"
has '^ +1641 .*  app.model.up.bias from \[0\] \[4\]$' ls --files "$adam"
has '^  \{"name": "app.model.up.bias", "offset": 1641, "length": ' ls --files --json "$adam"
has '^ \{"prefix": "app.model", "tensors": 9, "bytes": 444, "objects": 0\}' ls -jT -d2 "$adam"
has '^\{"form": "dcp", "entries": \[' ls --json "$adam"
"$dcp" ls --tree --files "$adam" 2>"$directory/err"
[ $? -eq 2 ] || fail "two lists at once"

# ---- cat ----
is '1 1 0 1 0,1 1 1 0 1,0 0 0 1 1,' cat "$dtypes" bool.m --format text
is '240 69,' cat "$dtypes" uint8.m -s :2,-1 -f text
is '-104 23,' cat "$dtypes" int8.m --slice 1,0:2 --format=text
is '-112 7.5206595e+14,' cat "$dtypes" bfloat16.m -s 1,1:3 -f text
is '8714389032699742139,' cat "$dtypes" uint64.m -s0,1 -ftext
is '637-0.0030117035j,' cat "$dtypes" complex32.m -s 0,0 -f text
[ "$("$dcp" cat "$dtypes" int16.m -s 1: | wc -c)" -eq 20 ] || fail "bytes of a slice"
[ "$("$dcp" cat "$dtypes" int16.e -f text | wc -c)" -eq 0 ] || fail "text of nothing"
"$dcp" cat "$dtypes" int16.m | tail -c 20 >"$directory/rest"
"$dcp" cat "$dtypes" int16.m -s 1: | cmp - "$directory/rest" || fail "other bytes of a slice"
for wrong in 3 0:1,0,0 x : :,:: 0,; do
    case $wrong in :) continue ;; esac
    "$dcp" cat "$dtypes" int16.m -s "$wrong" >"$directory/out" 2>"$directory/err" && fail "the slice $wrong is none"
    grep -q '^dcp cat: --slice ' "$directory/err" || fail "$wrong: $(cat "$directory/err")"
done
npy() { # name, words of the head, bytes
    "$dcp" cat "$dtypes" "$1" -f npy >"$directory/npy" || fail "$1 as npy"
    head -c 128 "$directory/npy" | tr -d '\0' | grep -aq -e "$2" || fail "head of $1: $(head -c 128 "$directory/npy")"
    [ "$(wc -c <"$directory/npy")" -eq "$3" ] || fail "$1 as npy has $(wc -c <"$directory/npy") bytes"
}
npy int16.m "NUMPY.*{'descr': '<i2', 'fortran_order': False, 'shape': (3, 5), }" 158
npy bfloat16.m "'<f4', 'fortran_order': False, 'shape': (3, 5), }" 188
npy float64.s "'<f8', 'fortran_order': False, 'shape': (), }" 136
is '{"name": "int16.m", "type": "tensor", "dtype": "int16", "shape": [2, 2], "values": [[-19489, -29944],, [-8761, 30493]]},' \
    cat --json "$dtypes" int16.m -s :2,:2
is '{"name": "bool.m", "type": "tensor", "dtype": "bool", "shape": [5], "values": [true, true, false, true, false]},' \
    cat -j "$dtypes" bool.m -s 0
is '{"name": "complex32.m", "type": "tensor", "dtype": "complex32", "shape": [], "values": [637, -0.0030117035]},' \
    cat -j "$dtypes" complex32.m -s 0,0
is '{"name": "int16.e", "type": "tensor", "dtype": "int16", "shape": [0, 4], "values": []},' cat -j "$dtypes" int16.e
has '^\{"name": "app.optim.param_groups.0.lr", "type": "object", "value": [0-9.]+\}$' cat -j "$adam" app.optim.param_groups.0.lr
"$dcp" cat -j "$dtypes" int16.m -f text 2>/dev/null && fail "two formats at once"
"$dcp" cat "$adam" app.model 2>"$directory/err" && fail "names below a name are no tensor"
grep -q '^dcp cat: app.model: not in the checkpoint, but 9 names below it are; ' "$directory/err" || fail "$(cat "$directory/err")"

# Names that are patterns, too, and values that are no numbers.
header='{"*[a]":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"b":{"dtype":"U8","shape":[1],"data_offsets":[12,13]}}'
{
    printf "\\$(printf %03o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    printf '\0\0\300\177\0\0\200\377\0\0\200\077\0'
} >"$directory/odd.safetensors"
is '{"name": "*[a]", "type": "tensor", "dtype": "float32", "shape": [3], "values": [{"$float": "nan"}, {"$float": "-inf"}, 1]},' \
    cat -j "$directory/odd.safetensors" '*[a]'
has '^float32 +3 .*  \*\[a\]$' stat "$directory/odd.safetensors" '*[a]'
has '^1 tensor, 1 bytes?, ' ls "$directory/odd.safetensors" -x '*[a]'
"$dcp" cat "$adam" app.optim.param_groups.0.lr -s 0 2>/dev/null && fail "a slice of an object"

# Names whose characters have several bytes, and dtypes and numbers of every length: columns stay below each other.
header='{"gr\303\274n.w\303\244gt":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"I64","shape":[1],"data_offsets":[4,12]}}'
{
    # shellcheck disable=SC2059
    printf "$header" >"$directory/header"
    printf "\\$(printf %03o "$(wc -c <"$directory/header")")\\0\\0\\0\\0\\0\\0\\0" && cat "$directory/header"
    printf '\0\0\0\0\0\0\0\0\0\0\0\200'
} >"$directory/wide.safetensors"
grun=$(printf 'gr\303\274n') wagt=$(printf 'w\303\244gt')
has "^$grun.$wagt  float8_e4m3fn        4 B  \[4\]$" ls "$directory/wide.safetensors"
has '^b          int64                8 B  \[1\]$' ls "$directory/wide.safetensors"
has "^       4 B    $wagt  float8_e4m3fn \[4\]$" ls --tree "$directory/wide.safetensors"
has "^ .* objects  $grun$" ls --totals "$directory/wide.safetensors"
has "^dtype  *elements  *min  *max .*  name$" stat "$directory/wide.safetensors"
has "^float8_e4m3fn            4                    0                    0 .*  $grun.$wagt$" stat "$directory/wide.safetensors"
has "^int64                    1 -9223372036854775808 -9223372036854775808 .*  b$" stat "$directory/wide.safetensors"
has "^float8_e4m3fn .*  $grun$" stat -d 1 "$directory/wide.safetensors"
rm -rf "$directory"
