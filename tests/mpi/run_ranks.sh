#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run_ranks.sh MPIEXEC RANKS PROGRAM ARGUMENT...: runs a program on several ranks of this machine, as any user and on
# any number of cores. Exits with 77 (skipped) where there is no mpiexec.
mpiexec=$1
ranks=$2
shift 2
command -v "$mpiexec" >/dev/null 2>&1 || { echo "no mpiexec: skipped"; exit 77; }

# Open MPI asks for these; other implementations do not look.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_vader_single_copy_mechanism=none
# Open MPI leaves memory of modules that it unloads, which no suppression by name can catch.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
exec "$mpiexec" -n "$ranks" "$@"
