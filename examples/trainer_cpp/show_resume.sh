#!/bin/sh
# Trains 100 steps at once, and again with a stop after 50 of them, and compares every loss: show_resume.sh TRAINER DIRECTORY
set -eu
trainer=$1 directory=$2
rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"

"$trainer" at_once 100 >at_once.log
"$trainer" stopped 50 >stopped.log
rm stopped/step_40/.metadata # as a save that was interrupted leaves it
"$trainer" stopped 100 >resumed.log
grep -qx 'resumed after step 20' resumed.log

tail -n +21 at_once.log >expected.log
tail -n +2 resumed.log | cmp expected.log -
tail -n 1 resumed.log
echo "PASSED: the losses after resuming are those of the run that was not stopped, to the last bit"
