#!/bin/sh
# Manual pages and completions of shells are what the command prints of its tables, and groff and shells have nothing to
# complain of them: check_man.sh DCP SRC_CLI [update]. With "update" they are written.
set -u
dcp=$1 room=$2 update=${3:-}
status=0

fault() {
    echo "$*" >&2
    status=1
}

printed=$(mktemp)
trap 'rm -f "$printed"' EXIT

# compare FILE WORDS...: what `dcp WORDS` prints is the file.
compare() {
    file=$1
    shift
    "$dcp" "$@" >"$printed" || fault "dcp $* fails"
    if [ -n "$update" ]; then
        cp "$printed" "$file" && chmod 644 "$file"
    elif ! cmp -s "$printed" "$file"; then
        fault "$file is not what dcp $* prints: check_man.sh $dcp $room update"
    fi
}

check_page() { # page, command
    # shellcheck disable=SC2086
    compare "$1" help --man $2
    if command -v groff >/dev/null; then
        said=$(groff -ww -man -Tutf8 -z "$1" 2>&1)
        [ -z "$said" ] || fault "$said"
    fi
}

check_help() { # command
    help=$("$dcp" "$1" --help) || fault "dcp $1 --help fails"
    [ "$help" = "$("$dcp" "$1" -h)" ] || fault "dcp $1 -h is not --help"
    [ "$help" = "$("$dcp" help "$1")" ] || fault "dcp help $1 is not --help"
    for part in Options Examples "Exit status"; do
        echo "$help" | grep -q "^$part:$" || fault "dcp $1 --help has no \"$part\""
    done
    long=$(echo "$help" | awk 'length > 79 && !/^  /')
    [ -z "$long" ] || fault "dcp $1 --help has long lines: $long"
    # shellcheck disable=SC2013
    for option in $(sed -n 's/^\\fB.*\\-\\-\([a-z\\-]*\)\\fR.*/--\1/p' "$room/man/dcp-$1.1" | tr -d '\\'); do
        echo "$help" | grep -q -e "$option" || fault "dcp $1 --help does not have $option"
        grep -q -e "l ${option#--}" "$room/completions/dcp.fish" || fault "no completion of $option"
    done
}

# completed WORDS LINE...: what bash completes the last word of a line to; an equals sign is a word of its own.
completed() {
    words=$1
    shift
    # shellcheck disable=SC2016
    got=$(bash -c '. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dcp; echo "${COMPREPLY[*]}"' bash \
        "$room/completions/dcp.bash" "$@")
    [ "$got" = "$words" ] || fault "bash completes \"$*\" to \"$got\", expected \"$words\""
}

mkdir -p "$room/man" "$room/completions"
for shell in bash zsh fish; do
    compare "$room/completions/dcp.$shell" completion $shell
    ! command -v $shell >/dev/null || $shell -n "$room/completions/dcp.$shell" || fault "$shell does not take its completion"
done
if command -v bash >/dev/null; then
    completed verify dcp ver
    completed "--help --storage --version --json" dcp latest --
    completed "dcp pt safetensors hf gguf" dcp convert --to ""
    completed gguf dcp convert --to = g
    completed "keep drop" dcp convert --tied =
    completed "stored size" dcp ls -s s
    completed "ls list latest" dcp --storage module.so l
    completed --sort dcp --storage = module.so ls --so
    completed "ls list latest" dcp help l
    completed "bash zsh fish" dcp completion ""
    completed "" dcp ls -- --
    completed "" dcp bench --threads ""
fi
if command -v fish >/dev/null; then
    got=$(fish -c 'source $argv[1]; complete -C "dcp help l"; complete -C "dcp convert --gguf-type q"' "$room/completions/dcp.fish" |
        cut -f 1 | tr '\n' ' ')
    [ "$got" = "latest list ls q8_0 " ] || fault "fish completes to: $got"
fi
check_page "$room/man/dcp.1" ""
count=1
for command in $("$dcp" --help | sed -n 's/^  dcp \([a-z]*\) .*/\1/p'); do
    check_page "$room/man/dcp-$command.1" "$command"
    check_help "$command"
    count=$((count + 1))
done
[ "$(ls "$room/man" | wc -l)" -eq $count ] || fault "pages of other commands: $(ls "$room/man")"
exit $status
