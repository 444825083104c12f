#!/bin/bash
# What needs a GPU: builds, runs the tests of devices, CUDA and NCCL, the real ones among them, and measures. Prints a
# table with the date and the device. Exits with 77 where there is no GPU.
#
# usage: tests/device/run.sh [BUILD [DIRECTORY]]              DIRECTORY, on the disk to be measured, needs 5 GiB
#        tests/device/run.sh --dry-run BUILD [DIRECTORY]      measures the stand-in for a GPU in a folder that is built: shows
#                                                             that all of this works, and nothing of a GPU
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
dry=
if [ "${1:-}" = --dry-run ]; then
    dry=yes
    shift
fi
build=${1:-$root/build/device}
directory=${2:-$build}
tests='cuda|nccl|device|staging'

if [ -n "$dry" ]; then
    gpus="none: a dry run over the stand-in"
elif ! gpus=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null) || [ -z "$gpus" ]; then
    echo "skipped: there is no GPU here"
    exit 77
fi

if [ -z "$dry" ]; then
    mkdir -p "$build"
    found=$("$root/tests/cuda/setup" "$build/cuda") || echo "without NCCL, if this machine has none: it could not be had"
    eval "$found"
    cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DDCP_CUDA=ON >"$build/configure.log" || { cat "$build/configure.log"; exit 1; }
    cmake --build "$build" -j "$(nproc)" >"$build/build.log" 2>&1 || { tail -40 "$build/build.log"; exit 1; }
fi
echo "$(date -u '+%Y-%m-%d %H:%M UTC'), $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo 'no git'), $(uname -r)"
echo "$gpus"
status=0
if [ -z "$dry" ]; then
    ctest --test-dir "$build" --output-on-failure -R "$tests" || status=$?
    bench=("$build/tests/cuda/gpu_bench" "$directory")
else
    ctest --test-dir "$build" -N -R "$tests"
    bench=("$build/tests/cuda/gpu_bench_stand_in" "$directory" 64)
fi
echo
"${bench[@]}" || status=$?
rm -rf "$directory/gpu_bench.checkpoint"
exit "$status"
