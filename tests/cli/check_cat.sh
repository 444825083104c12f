#!/bin/sh
# dcp cat: a file that shrinks while it is read is an error, not a crash, and so is a reader that goes away.
#     check_cat.sh DCP DIRECTORY
set -u
dcp=$1 directory=$2
bytes=100663296
rm -rf "$directory"
mkdir -p "$directory"

fail() {
    echo "$*" >&2
    exit 1
}

# One tensor of several blocks, in a file of safetensors: the length of its header, 128, the header, and zeros.
make() {
    {
        printf '\200\0\0\0\0\0\0\0'
        printf '%-128s' "{\"w\":{\"dtype\":\"U8\",\"shape\":[$bytes],\"data_offsets\":[0,$bytes]}}"
    } >"$directory/model.safetensors"
    truncate -s $((136 + bytes)) "$directory/model.safetensors"
}

make
count=$("$dcp" cat "$directory" w | wc -c)
[ "$count" -eq $bytes ] || fail "$count bytes of $bytes"

{
    "$dcp" cat "$directory" w 2>"$directory.err"
    echo $? >"$directory.status"
} | {
    head -c 1000000 >/dev/null
    truncate -s 1000 "$directory/model.safetensors"
    cat >/dev/null
}
[ "$(cat "$directory.status")" -eq 1 ] || fail "cut short while it was read: status $(cat "$directory.status")"
grep -q "model.safetensors" "$directory.err" || fail "cut short while it was read: $(cat "$directory.err")"

make
{
    (trap '' PIPE && "$dcp" cat "$directory" w 2>"$directory.err")
    echo $? >"$directory.status"
} | head -c 1000000 >/dev/null
[ "$(cat "$directory.status")" -eq 1 ] || fail "nobody reads: status $(cat "$directory.status")"
[ ! -s "$directory.err" ] || fail "nobody reads: $(cat "$directory.err")"
rm -rf "$directory" "$directory.err" "$directory.status"
