#!/bin/sh
# Trains on all GPUs until killed in the middle of an asynchronous save, resumes on as many and on one, and compares with a
# run that was never killed: show_resume.sh TRAINER DCP DIRECTORY [GPUS]. Exits with 77 where there is no GPU.
set -eu
trainer=$1 dcp=$2 directory=$3 gpus=${4:-}
steps=60 save_every=10 die_in_save=3 doomed=30

train() { # arguments of the trainer
    "$trainer" --steps $steps --save-every $save_every "$@"
}

say() {
    printf '\n== %s\n' "$*"
}

rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"

say "${gpus:-all} GPUs, never killed"
train --dir reference ${gpus:+--gpus "$gpus"} >reference.log || { status=$?; cat reference.log; exit $status; }
tail -n 2 reference.log

say "killed without warning in the middle of the save after step $doomed"
attempt=1
while train --dir run ${gpus:+--gpus "$gpus"} --die-in-save $die_in_save >killed.log 2>&1; do
    if [ $attempt = 5 ]; then
        echo "FAILED: $attempt times the save was committed before it could be interrupted"
        exit 1
    fi
    attempt=$((attempt + 1))
    rm -rf run
done
ls -A run run/step_$doomed
if "$dcp" ls run/step_$doomed; then
    echo "FAILED: a half-written directory was taken for a checkpoint"
    exit 1
fi
cp -R run alone

say "resumed from the newest whole checkpoint, on as many GPUs and on one"
train --dir run ${gpus:+--gpus "$gpus"} | tee resumed.log
train --dir alone --gpus 1 | tee alone.log

say "comparing loss and parameters, to the last bit, and the last checkpoints, byte by byte"
for other in resumed alone; do
    grep -q "^resuming from .*/step_$((doomed - save_every)) " $other.log
    [ "$(tail -n 1 $other.log)" = "$(tail -n 1 reference.log)" ] || { echo "FAILED: $other ends otherwise"; exit 1; }
done
names=$("$dcp" ls --json reference/step_$steps | grep -o '"name": *"[^"]*"' | sed 's/.*: *"//; s/"$//')
count=0
for name in $names; do
    "$dcp" cat reference/step_$steps "$name" >expected.bin
    for other in run alone; do
        "$dcp" cat $other/step_$steps "$name" | cmp - expected.bin
    done
    count=$((count + 1))
done
[ $count -gt 0 ]

say "PASSED: killed in the middle of a save, resumed, and the $count entries are identical"
