# Finds what the library stands on. Sets DCP_HAVE_<PART> for the optional parts.
include(FeatureSummary)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(libdeflate REQUIRED IMPORTED_TARGET libdeflate)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(cjson REQUIRED IMPORTED_TARGET libcjson)

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

if(NOT DCP_ZSTD STREQUAL "OFF")
    pkg_check_modules(zstd IMPORTED_TARGET libzstd)
endif()
dcp_decide(ZSTD "zstd_FOUND")

if(NOT DCP_MPI STREQUAL "OFF")
    find_package(MPI COMPONENTS C)
endif()
dcp_decide(MPI "MPI_C_FOUND")
