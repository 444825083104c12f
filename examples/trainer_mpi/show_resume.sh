#!/bin/sh
# Trains on 4 ranks until all of them are killed in the middle of a save, resumes on 2 ranks, and compares every loss with
# that of a run that was never killed: show_resume.sh TRAINER DCP DIRECTORY [trainer options ...]
set -eu
trainer=$1 dcp=$2 directory=$3
shift 3
steps=60 save_every=10 die_in_save=3 doomed=30

# Open MPI asks for these; others do not look: to run as root, with more ranks than cores, where a rank that waits lets the
# others run.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none

launch() { # ranks, arguments of the trainer
    ranks=$1
    shift
    mpirun -n "$ranks" "$trainer" --steps $steps --save-every $save_every "$@"
}

losses() {
    grep -h '^step ' "$@"
}

say() {
    printf '\n== %s\n' "$*"
}

rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"

say "4 ranks, killed without warning in the middle of the save after step $doomed"
attempt=1
while launch 4 --dir run --die-in-save $die_in_save "$@" >killed.log 2>killed.err; do
    if [ $attempt = 5 ]; then
        echo "FAILED: $attempt times the save was committed before the ranks could be killed"
        exit 1
    fi
    attempt=$((attempt + 1))
    rm -rf run
done
tail -n 3 killed.log
grep -h 'signal 9' killed.err || { cat killed.err; exit 1; }

say "what the interrupted save left: data, but no .metadata, so it is no checkpoint"
ls -A run/step_$doomed
if "$dcp" ls run/step_$doomed; then
    echo "FAILED: a half-written directory was taken for a checkpoint"
    exit 1
fi

say "2 ranks, resumed from the newest whole checkpoint"
launch 2 --dir run "$@" >resumed.log
grep -v '^step ' resumed.log
losses resumed.log | tail -n 2

say "4 ranks, never killed"
launch 4 --dir reference "$@" >reference.log
losses reference.log | tail -n 2

say "comparing losses, to the last bit"
for run in killed resumed reference; do
    losses $run.log >$run.losses
done
done_before=$(wc -l <killed.losses) # training went on beside the save that was interrupted
[ "$done_before" -ge $doomed ]
head -n "$done_before" reference.losses | cmp - killed.losses
tail -n +$((doomed - save_every + 1)) reference.losses | cmp - resumed.losses
echo "the $steps losses are identical"

say "comparing the last checkpoints, byte by byte"
"$dcp" verify run/step_$steps
names=$("$dcp" ls --json run/step_$steps | grep -o '"name": *"[^"]*"' | sed 's/.*: *"//; s/"$//')
count=0
for name in $names; do
    "$dcp" cat run/step_$steps "$name" >ours.bin
    "$dcp" cat reference/step_$steps "$name" | cmp - ours.bin
    count=$((count + 1))
done
[ $count -gt 0 ]
echo "the $count entries are identical"

say "dcp ls $directory/run/step_$steps"
"$dcp" ls run/step_$steps

say "PASSED: killed in the middle of a save on 4 ranks, resumed on 2, and nothing changed"
