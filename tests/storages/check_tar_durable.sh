#!/bin/sh
# A tar archive that is new, and the directories made for it, are made durable in those that they lie in.
# usage: check_tar_durable.sh SAVE_ANYWHERE FOLDER
save=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder"
strace -qq -o "$folder/trace" true 2>"$folder/denied" || { echo "strace may not trace here"; exit 77; }
strace -qq -f -y -e trace=fsync -o "$folder/trace" "$save" "tar://$folder/runs/step_1000" || exit 1
for directory in "$folder" "$folder/runs"; do
    grep -q "fsync([0-9]*<$(realpath "$directory")>) *= 0" "$folder/trace" || {
        echo "$directory was not synced after what was made in it; synced were:"
        cat "$folder/trace"
        exit 1
    }
done
