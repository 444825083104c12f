#!/bin/sh
# What is installed to be read is there: check_documentation.sh PREFIX HAVE_DOCS
set -eu
cd "$1/share"
for file in doc/dcp/README.md doc/dcp/CHANGES.md doc/dcp/LICENSE doc/dcp/examples/save_load.c \
    man/man1/dcp.1 man/man1/dcp-bench.1 man/man1/dcp-cat.1 man/man1/dcp-convert.1 man/man1/dcp-help.1 man/man1/dcp-latest.1 \
    man/man1/dcp-list.1 man/man1/dcp-ls.1 man/man1/dcp-mirror.1 man/man1/dcp-pin.1 man/man1/dcp-prune.1 man/man1/dcp-repair.1 man/man1/dcp-verify.1 \
    bash-completion/completions/dcp zsh/site-functions/_dcp fish/vendor_completions.d/dcp.fish; do
    [ -s "$file" ] || { echo "$file is missing"; exit 1; }
done
[ "$2" = TRUE ] || exit 0

# A page of a function, a struct and a header; none has a name that others may have; links lead to pages.
for page in dcp_save dcp_save_options dcp_save.h dcp.h; do
    [ -s "man/man3/$page.3" ] || { echo "man3/$page.3 is missing"; exit 1; }
done
for page in man/man3/*; do
    case ${page##*/} in
        dcp[._]*.3 | DCP_*.3) ;;
        *) echo "$page: name of somebody else's"; exit 1 ;;
    esac
done
sed -n 's/^\.so //p' man/man3/* | sort -u | while read -r page; do
    [ -s "man/$page" ] || { echo "$page is missing"; exit 1; }
done
