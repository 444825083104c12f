#!/bin/sh
# What all commands have in common: how options are written, what is said of wrong ones, colours, closed pipes, full disks.
#     check_options.sh DCP FIXTURES DIRECTORY
set -u
dcp=$1 fixtures=$2 directory=$3
rm -rf "$directory" && mkdir -p "$directory"

fail() {
    echo "check_options.sh: $*" >&2
    exit 1
}

# expect STATUS WORDS ARGUMENT...: the words are in what is said, which is one line if it is an error.
expect() {
    status=$1 words=$2
    shift 2
    "$dcp" "$@" >"$directory/out" 2>"$directory/err"
    got=$?
    [ $got -eq "$status" ] || fail "dcp $*: status $got, expected $status: $(cat "$directory/err")"
    cat "$directory/out" "$directory/err" | grep -q -e "$words" || fail "dcp $*: no \"$words\" in: $(cat "$directory/out" "$directory/err")"
    [ "$status" -eq 0 ] || [ "$(wc -l <"$directory/err")" -eq 1 ] || fail "dcp $*: not one line: $(cat "$directory/err")"
}

basic=$fixtures/basic/ckpt

# ---- how options are written ----
expect 0 '^{"' ls "$basic" --json
expect 0 '^{"' ls --json "$basic"
expect 0 '^{"' ls -j "$basic"
expect 0 '^{"' ls -j -- "$basic"
expect 1 "no such file" ls -- --json
expect 0 'usage: dcp ls' ls "$basic" --help
expect 0 'usage: dcp ls' ls -jh
expect 0 'usage: dcp COMMAND' -h
expect 0 '^dcp [0-9]' --version
expect 0 '^dcp [0-9]' ls -V
expect 0 '"target": "pt"' convert -jqt pt "$basic" "$directory/a.pt" --no-sync
expect 0 '"target": "pt"' convert --json -q "$basic" -tpt "$directory/b.pt" --no-sync
expect 0 '"target": "pt"' convert --json --to=pt "$basic" "$directory/c.pt" --no-sync -q

# ---- what is said of wrong ones ----
expect 2 'no such option: --jsn; did you mean --json?' ls --jsn "$basic"
expect 2 'no such option: --frobnicate; see dcp ls --help' ls --frobnicate
expect 2 'no such option: -jZ; see dcp ls --help' ls -jZ "$basic"
expect 2 '^dcp: no such option: --helo; did you mean --help?' --helo
expect 2 '^dcp ls: --json takes no value$' ls --json=1 "$basic"
expect 2 'missing behind --to: --to FORM$' convert "$basic" x --to
expect 2 'cannot be x: expected a number from 1 to 1024$' convert --ranks x a b
expect 2 'cannot be empty' convert --include= a b
expect 2 '^dcp convert: the name of DST does not say its form: give --to; usage: ' convert "$basic" "$directory/a.zip"
expect 1 'ranks, compression and a storage are for DCP directories alone$' convert -q "$basic" "$directory/a.pt" --zstd
expect 1 'the type of matrices is for GGUF files alone$' convert -q "$basic" "$directory/a.pt" --gguf-type q8_0
expect 1 'no transform is given that an inverse or a config.json would be for$' convert -q "$basic" "$directory/a.pt" --inverse
expect 2 'cannot be maybe: it can be keep, drop$' convert --tied=maybe a b
expect 2 'nothing to work on is given; usage: dcp verify' verify
expect 2 'too many arguments; usage: dcp list' list a b
expect 2 '^dcp: no such command: lss; see dcp --help' lss
expect 2 'no such command: none' help none
expect 2 'SHELL is bash, zsh or fish' completion csh
expect 2 'dcp --storage: \|dcp: --storage: ' --storage "$directory/none.so" ls "$basic"
"$dcp" >"$directory/out" 2>"$directory/err"
[ $? -eq 2 ] && grep -q "^usage: dcp COMMAND" "$directory/err" || fail "no command at all"
[ ! -s "$directory/out" ] || fail "no command at all prints something on standard output"

# ---- output that nobody reads, or that has no room ----
[ ! -c /dev/full ] || {
    "$dcp" ls "$basic" >/dev/full 2>"$directory/err"
    [ $? -eq 1 ] && grep -q "cannot write to standard output" "$directory/err" || fail "a full disk: $(cat "$directory/err")"
}
for trap in "trap '' PIPE" :; do
    (
        eval "$trap"
        { sleep 0.2; "$dcp" ls --json "$basic" 2>"$directory/err"; } | true
    )
    [ ! -s "$directory/err" ] || fail "a closed pipe: $(cat "$directory/err")"
done

# ---- colours and progress, which are for terminals alone ----
escape=$(printf '\033')
"$dcp" ls --help | grep -q "$escape" && fail "colours in a pipe"
# terminal COMMAND...: what it prints on a terminal
terminal() {
    TERM=xterm timeout 60 script -qec "$*" /dev/null </dev/null
}
if command -v script >/dev/null && [ "$(terminal echo yes | tr -d '\r')" = yes ]; then
    terminal "'$dcp' ls --help" | grep -q "${escape}\[1mOptions:" || fail "no bold headings on a terminal"
    NO_COLOR=1 terminal "'$dcp' ls --help" | grep -q "$escape" && fail "colours with NO_COLOR"
    mkdir "$directory/long"
    header='{"w":{"dtype":"F32","shape":[1000000,1000],"data_offsets":[0,4000000000]}}'
    printf "\\$(printf %03o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" >"$directory/long/model.safetensors"
    truncate -s $((8 + ${#header} + 4000000000)) "$directory/long/model.safetensors"
    terminal "'$dcp' stat '$directory/long'" | grep -q ' %  .* of .*iB  [0-9.]* [KMG]iB/s  .* left' || fail "no progress on a terminal"
    terminal "stty cols 30; '$dcp' stat '$directory/long' >/dev/null" 2>&1 | tr '\r' '\n' | grep "$escape" | sed 's/^.\[K//' |
        awk 'length($0) > 29 { exit 1 }' || fail "progress is wider than the terminal"
    "$dcp" stat "$directory/long" 2>"$directory/err" >/dev/null
    [ ! -s "$directory/err" ] || fail "progress where it is no terminal: $(cat "$directory/err")"
    TERM=dumb terminal "TERM=dumb '$dcp' ls --help" | grep -q "$escape" && fail "colours on a dumb terminal"
fi
rm -rf "$directory"
