#!/bin/bash
# Everything that must hold, from a fresh Debian 12 on: installs what is missing, builds, and runs all tests.
#
# usage: tests/run.sh [STEP ...]      all steps in this order, or only those named:
#   format     clang-format finds nothing to change
#   docs       Doxygen finds nothing to complain of in the public headers
#   clang      builds with clang, warnings are errors; clang-tidy and cppcheck find nothing
#   all-off    builds and passes its tests without any optional part
#   tsan       tests that use threads, under ThreadSanitizer
#   asan       all tests that need no Python, under AddressSanitizer and UndefinedBehaviorSanitizer
#   release    builds with gcc, warnings are errors; all tests, those against PyTorch included
#   mutation   breaks a few promises of the sources on purpose; tests must notice
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc)
test_jobs=$(((3 * jobs + 1) / 2)) # some wait, for the disk or for a rank that never comes
venv=$PWD/build/venv

install_packages() {
    cmake/install_packages.sh build-essential cmake ninja-build ccache pkg-config git \
        libdeflate-dev libxxhash-dev libcjson-dev libzstd-dev liburing-dev libopenmpi-dev openmpi-bin iproute2 libcmocka-dev \
        clang clang-tidy clang-format cppcheck doxygen python3-venv strace file groff-base \
        rustc bindgen golang-go chromium
}

# CUDA and NCCL; without them, and without a network to get them by, what stands on them is left out, and the end says so.
find_cuda() {
    local found
    if found=$(tests/cuda/setup build/cuda); then
        eval "$found"
    else
        left_out="libdcp_cuda and libdcp_nccl: CUDA or NCCL could not be had"
    fi
}

configure() { # preset, cmake options
    cmake --preset "$@" >"build/$1.log" || { cat "build/$1.log"; return 1; }
}

build() { # preset, cmake options
    configure "$@" && cmake --build --preset "$1" -j "$jobs"
}

# No more than the preset's tests need: other steps build the rest.
build_for_tests() { # preset
    local programs
    configure "$1" && programs=$(tests/programs.py "$1") || return 1
    # shellcheck disable=SC2086
    ninja -C "build/$1" -j "$jobs" $programs
}

sources() {
    git ls-files -- "$@" | grep -E '\.(c|h|cpp|hpp)$'
}

step_format() {
    sources include src tests examples | xargs clang-format --dry-run -Werror
}

step_docs() {
    doxygen cmake/Doxyfile
}

step_clang() {
    local unoptimized="-O0 -DNDEBUG" # nothing of it runs
    build clang "-DCMAKE_C_FLAGS_RELEASE=$unoptimized" "-DCMAKE_CXX_FLAGS_RELEASE=$unoptimized" || return 1
    # A third of the steps of the analyzer's default: what it looks at beyond takes it most of its time.
    sources src examples tests/bench | grep '\.c$' | xargs run-clang-tidy -quiet -p build/clang -j "$jobs" \
        -extra-arg=-Xclang -extra-arg=-analyzer-config -extra-arg=-Xclang -extra-arg=max-nodes=75000 >build/clang-tidy.log 2>&1 || {
        grep -E 'error:|warning:' build/clang-tidy.log
        return 1
    }
    cppcheck --quiet --std=c11 --enable=warning,portability,performance --inline-suppr --error-exitcode=1 \
        --suppressions-list=cmake/cppcheck.txt -D_GNU_SOURCE -DDCP_HAVE_ZSTD=1 -DDCP_HAVE_URING=1 -I include -I src -j "$jobs" src
}

# Tests of a preset, whose output is kept for the summary at the end.
run_tests() { # preset, options of ctest
    ctest --preset "$@" -j "$test_jobs" | tee -a "build/$1.tests"
}

# With files in memory, if it has room and takes direct transfers as a disk does. What a disk and its file system add is
# the same in every build: the step "release" shows it.
in_memory() { # command
    local memory status
    memory=$(mktemp -d /dev/shm/dcp.XXXXXX) || { "$@"; return; }
    if [ "$(df --output=avail --block-size=1G "$memory" | tail -n 1)" -ge 4 ] &&
        dd if=/dev/zero of="$memory/probe" bs=4096 count=1 oflag=direct status=none; then
        TMPDIR=$memory "$@"
    else
        "$@"
    fi
    status=$?
    rm -rf "$memory"
    return $status
}

step_all-off() {
    build all-off && in_memory run_tests all-off
}

step_tsan() {
    build_for_tests tsan && in_memory run_tests tsan
}

step_asan() {
    build asan && in_memory run_tests asan
}

step_release() {
    local elsewhere='^storages\.(memory|awkward|bare|objects|tar)\.' status=0
    tests/interop/setup "$venv" && build release -DDCP_PYTHON="$venv/bin/python" || return 1
    run_tests release --exclude-regex "$elsewhere" || status=1
    in_memory run_tests release --tests-regex "$elsewhere" || status=1 # the same tests, but not over files of the system
    return $status
}

step_mutation() {
    tests/mutation/run.py --sample 12 --seconds 100 --passing --seed 1 --jobs "$jobs"
}

# What several steps compile alike is compiled once; other clones of the tree find it, too.
use_ccache() {
    command -v ccache >/dev/null || return 0
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
}

steps=("$@")
[ $# -gt 0 ] || steps=(format docs clang all-off tsan asan release mutation)
mkdir -p build
rm -f build/*.tests
install_packages || exit 1
use_ccache
left_out=
case " ${steps[*]} " in *" clang "* | *" tsan "* | *" asan "* | *" release "*) find_cuda ;; esac

failed=() times=()
for step in "${steps[@]}"; do
    printf '\n==== %s\n' "$step"
    started=$SECONDS
    "step_$step" || failed+=("$step")
    times+=("$step $((SECONDS - started)) s")
done

printf '\n==== '
printf '%s, ' "${times[@]}"
printf '%s failed\n' "${failed[*]:-nothing}"
[ -z "$left_out" ] || printf 'left out: %s\n' "$left_out"
for step in "${steps[@]}"; do
    [ ! -f "build/$step.tests" ] || { echo "$step:" && sed -n '/tests passed/,/^Test project/{/^Test project/!p}' "build/$step.tests"; }
done
[ ${#failed[@]} = 0 ]
