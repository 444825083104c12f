#!/bin/sh
# Manual pages have the options that --help prints and no others, and groff has nothing to complain of.
#     check_man.sh DCP PAGES
set -u
dcp=$1 pages=$2
status=0

options() {
    grep -o -e '--[a-z][a-z-]*' | sort -u
}

# Of the page, what has an entry of its own: a line in bold at its beginning.
documented() {
    sed -n 's/\\-/-/g; s/^\.B[I]* --/--/p' "$1" | options
}

fault() {
    echo "$*" >&2
    status=1
}

check() { # page, words of the command, options that every command takes
    page=$pages/$1.1
    help=$("$dcp" $2 --help) || fault "dcp $2 --help fails"
    printed=$( (echo "$help" | sed 's/\[[^]]*\]//' && echo "$3") | options) # not of the summaries
    [ "$printed" = "$(documented "$page")" ] ||
        fault "$page: options are $(documented "$page" | tr '\n' ' ')and --help has $(echo "$printed" | tr '\n' ' ')"
    [ -z "$2" ] || grep -q "^\.B dcp $2\$" "$page" || fault "$page: no synopsis of dcp $2"
    grep -q "dcp(1)" "$page" || grep -q '^\.BR dcp (1)' "$page" || [ -z "$2" ] || fault "$page does not name dcp(1)"
    if command -v groff >/dev/null; then
        said=$(groff -ww -man -Tutf8 -z "$page" 2>&1)
        [ -z "$said" ] || fault "$said"
    fi
}

check dcp "" ""
pages_expected=1
for command in $("$dcp" --help | sed -n 's/^  dcp \([a-z]*\) .*/\1/p'); do
    check "dcp-$command" "$command" --help
    pages_expected=$((pages_expected + 1))
    grep -q "BR dcp\\\\-$command (1)" "$pages/dcp.1" || fault "dcp.1 does not name dcp-$command"
done
[ "$(ls "$pages" | wc -l)" -eq "$pages_expected" ] || fault "pages of other commands: $(ls "$pages")"
exit $status
