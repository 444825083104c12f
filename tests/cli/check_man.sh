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

mkdir -p "$room/man" "$room/completions"
for shell in bash zsh fish; do
    compare "$room/completions/dcp.$shell" completion $shell
    ! command -v $shell >/dev/null || $shell -n "$room/completions/dcp.$shell" || fault "$shell does not take its completion"
done
check_page "$room/man/dcp.1" ""
count=1
for command in $("$dcp" --help | sed -n 's/^  dcp \([a-z]*\) .*/\1/p'); do
    check_page "$room/man/dcp-$command.1" "$command"
    check_help "$command"
    count=$((count + 1))
done
[ "$(ls "$room/man" | wc -l)" -eq $count ] || fault "pages of other commands: $(ls "$room/man")"
exit $status
