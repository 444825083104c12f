#!/bin/sh
# For building libdcp without CMake, as part of another program (README.md, "Embedding the sources"):
#
#   embed.sh sources    prints the source files of the library without its optional parts
#   embed.sh names      prints a header, for -include, that gives every internal function and variable a name of its
#                       own in object files, so that none meets a name of the program or of another library
set -eu
folder=$(cd "$(dirname "$0")/.." && pwd)/src
files() { # ending
    for room in base state format plan group device storage checkpoint run convert; do
        find "$folder/$room" -name "*.$1"
    done | sort
}

case ${1:-} in
    sources)
        files c | grep -v '/file_ring\.c$'
        ;;
    names)
        echo '/* Made by cmake/embed.sh. */'
        # clang warns of static functions that have the name of a function in another file.
        echo '#pragma GCC diagnostic ignored "-Wpragmas"'
        # Declarations with external linkage begin in the first column, and have their name on that line.
        files h | tr '\n' '\0' | xargs -0 awk '
            /^extern .*;$/ { sub(/(\[.*)?;$/, ""); print $NF; next }
            /^(static|typedef) / { next }
            /^[a-z][a-z_0-9 *]*[ *(][a-z_0-9]+\)?\(/ { sub(/^dcp_status\(/, "x "); sub(/[()].*/, ""); sub(/.*[ *]/, ""); print }
        ' | grep -v '^dcp_' | sort -u | sed 's/.*/#pragma redefine_extname & dcp_internal_&/'
        ;;
    *)
        echo "usage: $0 sources|names" >&2
        exit 2
        ;;
esac
