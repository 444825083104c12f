# Finds NCCL: NCCL_FOUND, NCCL_VERSION, and the target NCCL::nccl. NCCL_ROOT (variable or environment) says where to look
# first; a Python package of NCCL, which has lib/libnccl.so.2 and no other name, is such a place.
find_path(NCCL_INCLUDE_DIR nccl.h)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2)

if(NCCL_INCLUDE_DIR)
    set(NCCL_VERSION "")
    foreach(part MAJOR MINOR PATCH)
        file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "#define NCCL_${part} ")
        string(REGEX REPLACE ".* ([0-9]+).*" "\\1" number "${line}")
        list(APPEND NCCL_VERSION ${number})
    endforeach()
    list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
    add_library(NCCL::nccl UNKNOWN IMPORTED)
    set_target_properties(NCCL::nccl PROPERTIES
        IMPORTED_LOCATION "${NCCL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
