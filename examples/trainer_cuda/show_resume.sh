#!/bin/bash
# show_resume.sh TRAINER DIRECTORY: a run that stops and goes on ends with the same bits as one that does not stop.
set -euo pipefail
trainer=$1 directory=$2
rm -rf "$directory"
mkdir -p "$directory/whole" "$directory/halves"
"$trainer" "$directory/whole" 200 | tee "$directory/whole.log" || exit $?
"$trainer" "$directory/halves" 90
"$trainer" "$directory/halves" 200 | tee "$directory/halves.log"
grep -q '^resumed at step 90$' "$directory/halves.log"
[ "$(tail -1 "$directory/whole.log")" = "$(tail -1 "$directory/halves.log")" ] || { echo "the runs differ"; exit 1; }
echo "the same bits"
