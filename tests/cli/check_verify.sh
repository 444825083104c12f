#!/bin/sh
# dcp verify, stat and diff of what is large: damage is found by threads and told in order; a signal ends them; many tensors,
# a huge sparse file, and nothing at all: check_verify.sh DCP DIRECTORY
set -u
dcp=$1 directory=$2
rm -rf "$directory" && mkdir -p "$directory"

fail() {
    echo "check_verify.sh: $*" >&2
    exit 1
}

# sparse FILE COUNT BYTES: a safetensors file of so many tensors of zeros, which takes no room.
sparse() {
    awk -v count="$2" -v bytes="$3" 'BEGIN {
        text = "{"
        for (i = 0; i < count; i++)
            text = text sprintf("%s\"layers.%d.w%d\":{\"dtype\":\"F32\",\"shape\":[%d],\"data_offsets\":[%.0f,%.0f]}",
                i ? "," : "", i / 10, i % 10, bytes / 4, i * bytes, (i + 1) * bytes)
        text = text "}"
        while (length(text) % 8) text = text " "
        size = length(text)
        for (i = 0; i < 8; i++) { printf "\\%03o", size % 256; size = int(size / 256) }
        printf "\n%s", text }' >"$1.header"
    # shellcheck disable=SC2059
    { head -n 1 "$1.header" | { read -r size && printf "$size"; } && tail -n +2 "$1.header"; } >"$1"
    rm "$1.header"
    truncate -s $(($(stat -c %s "$1") + $2 * $3)) "$1"
}

# expect STATUS WORDS ARGUMENT...
expect() {
    status=$1 words=$2
    shift 2
    "$dcp" "$@" >"$directory/out" 2>&1
    got=$?
    [ $got -eq "$status" ] || fail "dcp $*: status $got, expected $status: $(tail -n 3 "$directory/out")"
    grep -q -e "$words" "$directory/out" || fail "dcp $*: no \"$words\" in: $(tail -n 3 "$directory/out")"
}

# damage FILE OFFSET
damage() {
    printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# ---- damage in 80 MiB, which several threads check ----

sparse "$directory/large.safetensors" 10 8388608
"$dcp" convert -q "$directory/large.safetensors" "$directory/large" --to dcp --no-sync || fail "no checkpoint"
rm "$directory/large.safetensors"
expect 0 '^0 faults$' verify "$directory/large"
cp "$directory/large/__0_0.distcp" "$directory/good"
for place in 78000000 5000000 40000000; do
    damage "$directory/large/__0_0.distcp" $place
done
expect 1 '^6 faults$' verify "$directory/large"
sed -n 's/^__0_0.distcp:\([0-9]*\): \([^:]*\): \([^ ]*\) .*/\1 \2 \3/p' "$directory/out" >"$directory/faults"
[ "$(awk '{ print $2, $3 }' "$directory/faults" | tr '\n' ' ')" = \
    "- block layers.0.w0 zip - block layers.0.w4 zip - block layers.0.w9 zip " ] || fail "faults: $(cat "$directory/out")"
truncate -s 41943040 "$directory/large/__0_0.distcp"
expect 1 ' faults$' verify "$directory/large"
mv "$directory/good" "$directory/large/__0_0.distcp"
expect 0 '^0 faults$' verify "$directory/large"
rm -r "$directory/large"

# ---- one tensor of 80 MiB, which several threads check, in a file with sums of blocks and in a .pt file ----

sparse "$directory/one.safetensors" 1 83886080
for place in 90000 16777216 50000000 83886100; do
    damage "$directory/one.safetensors" $place
done
for form in dcp pt; do
    one="$directory/one.$form"
    "$dcp" convert -q "$directory/one.safetensors" "$one" --to $form --no-sync || fail "no checkpoint in the form $form"
    expect 0 '^0 faults$' verify "$one"
done
damage "$directory/one.pt" 20000000
expect 1 '"data/0" has CRC-32' verify "$directory/one.pt"
expect 1 '^1 fault$' verify "$directory/one.pt"
damage "$directory/one.dcp/__0_0.distcp" 20000000
damage "$directory/one.dcp/__0_0.distcp" 70000000
expect 1 '^3 faults$' verify "$directory/one.dcp"
[ "$(sed -n 's/^__0_0.distcp:\([0-9]*\): .*/\1/p' "$directory/out" | tr '\n' ' ')" = "19996672 69996544 3990 " ] ||
    fail "faults of a large tensor: $(cat "$directory/out")"
rm -r "$directory"/one.*

# ---- a signal ----

# interrupt ARGUMENT...: it ends by the signal, says so, and leaves nothing.
interrupt() {
    "$dcp" "$@" >"$directory/out" 2>"$directory/err" &
    process=$!
    sleep 0.3
    kill -TERM $process 2>/dev/null
    wait $process
    got=$?
    [ $got -eq 143 ] || fail "dcp $*: status $got after a signal: $(cat "$directory/err")"
    [ "$(cat "$directory/err")" = "dcp $1: interrupted" ] || fail "dcp $* says: $(cat "$directory/err")"
    [ "$(ls "$directory")" = "$before" ] || fail "dcp $* has left $(ls "$directory")"
}

sparse "$directory/huge.safetensors" 64 1073741824
: >"$directory/out"
: >"$directory/err"
before=$(ls "$directory")
interrupt stat "$directory/huge.safetensors"
interrupt diff "$directory/huge.safetensors" "$directory/huge.safetensors"
expect 0 '^64 tensors, 64.0 GiB (68719476736 bytes), 0 objects$' ls "$directory/huge.safetensors"
[ "$("$dcp" cat --slice 268435450:268435454 "$directory/huge.safetensors" layers.6.w3 | wc -c)" -eq 16 ] || fail "a slice"
rm "$directory/huge.safetensors"
sparse "$directory/unsummed.safetensors" 2 2147483648
expect 0 '^note: .* no checksums' verify "$directory/unsummed.safetensors"
rm "$directory/unsummed.safetensors"

# ---- many tensors ----

sparse "$directory/many.safetensors" 10000 1024
"$dcp" convert -q "$directory/many.safetensors" "$directory/many" --to dcp --no-sync || fail "no checkpoint of 10,000"
expect 0 '^10000 tensors, 9.8 MiB' ls "$directory/many"
expect 0 '^10000 tensors, 9.8 MiB' ls --tree "$directory/many"
expect 0 '10000 items$' ls --files "$directory/many"
expect 0 '^0 faults$' verify "$directory/many"
expect 0 '  2560000  all of them$' stat "$directory/many"
[ "$(wc -l <"$directory/out")" -eq 10002 ] || fail "lines of stat: $(wc -l <"$directory/out")"
expect 0 '^0 of 10000 names differ$' diff "$directory/many" "$directory/many.safetensors"
damage "$directory/many/__0_0.distcp" 9000000
expect 1 ' has XXH3 ' verify "$directory/many"

# ---- nothing ----

printf '\2\0\0\0\0\0\0\0{}' >"$directory/none.safetensors"
"$dcp" convert -q "$directory/none.safetensors" "$directory/none" --to dcp --no-sync || fail "no empty checkpoint"
for form in none none.safetensors; do
    expect 0 '^0 tensors, 0 bytes, 0 objects$' ls "$directory/$form"
    expect 0 '^\[$' stat --json "$directory/$form"
    expect 0 '^0 faults$' verify "$directory/$form"
    expect 0 '^0 of 0 names differ$' diff "$directory/none" "$directory/$form"
    expect 1 'x: not in the checkpoint' cat "$directory/$form" x
done
mkdir "$directory/bare"
: >"$directory/empty.pt"
for command in ls stat verify; do
    expect 1 'no checkpoint: looked for .metadata' $command "$directory/bare"
    expect 1 'not a torch.save file' $command "$directory/empty.pt"
done
expect 1 'no shard file with a valid footer' verify --repair "$directory/bare"
[ -z "$(ls -A "$directory/bare")" ] || fail "something was left in an empty directory"
rm -rf "$directory"
