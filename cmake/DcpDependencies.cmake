# Finds what the library stands on. Sets DCP_HAVE_<PART> for the optional parts, and collects what a program that links
# the static libraries has to link as well.
include(CheckSymbolExists)
include(FeatureSummary)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# dcp_module(PREFIX MODULE required?): a dependency of libdcp by its pkg-config module, as PkgConfig::PREFIX.
macro(dcp_module prefix module)
    pkg_check_modules(${prefix} ${ARGN} IMPORTED_TARGET ${module})
    if(${prefix}_FOUND)
        list(APPEND dcp_links PkgConfig::${prefix})
        list(APPEND dcp_modules ${prefix} ${module})
        string(APPEND dcp_pc_requires " ${module}")
    endif()
endmacro()

# Decides an AUTO, ON or OFF option from what was found.
macro(dcp_decide part found)
    set(DCP_HAVE_${part} FALSE)
    if(NOT DCP_${part} STREQUAL "OFF" AND ${found})
        set(DCP_HAVE_${part} TRUE)
    elseif(DCP_${part} STREQUAL "ON")
        message(FATAL_ERROR "DCP_${part} is ON, but ${part} was not found")
    endif()
    add_feature_info(${part} DCP_HAVE_${part} "DCP_${part}=${DCP_${part}}")
endmacro()

set(dcp_links Threads::Threads)
dcp_module(libdeflate libdeflate REQUIRED)
dcp_module(xxhash libxxhash REQUIRED)
dcp_module(cjson libcjson REQUIRED)

# Some builds of xxHash choose among vector instructions when they run.
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::xxhash)
check_symbol_exists(XXH3_64bits_dispatch xxh_x86dispatch.h DCP_HAVE_XXHASH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)

if(NOT DCP_ZSTD STREQUAL "OFF")
    dcp_module(zstd libzstd)
endif()
dcp_decide(ZSTD "zstd_FOUND")

if(NOT DCP_URING STREQUAL "OFF")
    dcp_module(uring liburing)
endif()
dcp_decide(URING "uring_FOUND")

if(NOT DCP_MPI STREQUAL "OFF")
    find_package(MPI COMPONENTS C)
endif()
dcp_decide(MPI "MPI_C_FOUND")

# Since 12.5 the runtime gives functions of the driver by version.
if(NOT DCP_CUDA STREQUAL "OFF")
    find_package(CUDAToolkit 12.5 QUIET)
endif()
dcp_decide(CUDA "TARGET;CUDA::cudart_static")

if(NOT DCP_NCCL STREQUAL "OFF")
    find_package(NCCL 2.14)
endif()
dcp_decide(NCCL "NCCL_FOUND;AND;DCP_HAVE_CUDA")
