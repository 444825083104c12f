#!/bin/sh
# Everything on a fresh Debian 12: installs what is missing, builds, trains on 4 MPI ranks until killed in the middle
# of a save, resumes on 2 ranks, and shows that the loss goes on as if nothing had happened.
#
# usage: examples/run_main_job.sh [BUILD_DIRECTORY]
set -eu
tree=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$tree/build/main_job}

"$tree/cmake/install_packages.sh" build-essential cmake ninja-build pkg-config \
    libdeflate-dev libxxhash-dev libcjson-dev libzstd-dev liburing-dev libopenmpi-dev openmpi-bin
cmake -S "$tree" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DDCP_BUILD_TESTS=OFF -DDCP_MPI=ON
cmake --build "$build" --target trainer_mpi dcp_command
"$tree/examples/trainer_mpi/show_resume.sh" "$build/bin/trainer_mpi" "$build/bin/dcp" "$build/training"
