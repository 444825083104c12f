#!/bin/bash
# What needs a GPU: builds, runs the tests of devices, CUDA and NCCL, the real ones among them, and measures. Prints a
# table with the date and the device. Exits with 77 where there is no GPU.
# tests/device/run.sh [BUILD [DIRECTORY]]: DIRECTORY, on the disk to be measured, needs 5 GiB.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build/device}
directory=${2:-$build}

if ! gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) || [ -z "$gpus" ]; then
    echo "skipped: there is no GPU here"
    exit 77
fi

cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DDCP_CUDA=ON >/dev/null
cmake --build "$build" -j "$(nproc)" >"$build/build.log" 2>&1 || { tail -40 "$build/build.log"; exit 1; }
echo "$(date -u '+%Y-%m-%d %H:%M UTC'), $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo 'no git'), $(uname -r)"
echo "$gpus"
status=0
ctest --test-dir "$build" --output-on-failure -R 'cuda|nccl|device|staging' || status=$?
echo
echo "| what | state | time | rate |"
echo "| --- | --- | --- | --- |"
"$build/tests/cuda/gpu_bench" "$directory" || status=$?
rm -rf "$directory/gpu_bench.checkpoint"
exit "$status"
