#!/bin/sh
# What README.md and the pages of .github name is there: functions, types, options, files.
# usage: check_readme.sh SOURCE_DIRECTORY
set -eu
cd "$1"
status=0
for page in README.md .github/CONTRIBUTING.md .github/SECURITY.md; do
    for name in $(grep -oE '\b(dcp|DCP)_[A-Za-z0-9_]+' "$page" | sort -u); do
        grep -rqw -e "$name" -e "${name}_sized" include cmake examples ||
            { [ "$name" = dcp_to_torch_save ]; } || { echo "$page: there is no $name"; status=1; }
    done
    for link in $(sed '/^```/,/^```/d' "$page" | grep -oE '\]\([^)#]+' | cut -c3- | sort -u); do
        [ -e "$(dirname "$page")/$link" ] || { echo "$page: there is no $link"; status=1; }
    done
done
exit $status
