# The install target: libraries, headers, the command, CMake package and pkg-config files.
include(CMakePackageConfigHelpers)
set(dcp_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/dcp)

# Installs lib<NAME> in both forms; each form in an export set of its own, because only users of the static library need
# to find what it links.
function(dcp_install_library name set)
    install(TARGETS ${name} EXPORT dcp${set}Targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(TARGETS ${name}_static EXPORT dcp${set}StaticTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    foreach(form "" Static)
        install(EXPORT dcp${set}${form}Targets NAMESPACE dcp:: DESTINATION ${dcp_package_dir})
    endforeach()
endfunction()

function(dcp_install_pkg_config name)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# pkg-config files find their prefix from where they lie, so that an installed tree can be moved.
file(RELATIVE_PATH dcp_pc_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" dcp_pc_prefix ${dcp_pc_prefix})

dcp_install_library(dcp "")
dcp_install_pkg_config(dcp)
install(FILES include/dcp.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/dcp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} 
    PATTERN cuda.h EXCLUDE PATTERN mpi.h EXCLUDE PATTERN nccl.h EXCLUDE)
install(TARGETS dcp_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

if(DCP_HAVE_MPI)
    dcp_install_library(dcp_mpi Mpi)
    list(TRANSFORM MPI_C_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE dcp_pc_mpi_includes)
    list(JOIN dcp_pc_mpi_includes " " dcp_pc_mpi_includes)
    list(JOIN MPI_C_LIBRARIES " " dcp_pc_mpi_links)
    dcp_install_pkg_config(dcp-mpi)
    install(FILES include/dcp/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dcp)
endif()

if(DCP_HAVE_CUDA)
    dcp_install_library(dcp_cuda Cuda)
    list(TRANSFORM CUDAToolkit_INCLUDE_DIRS PREPEND -I OUTPUT_VARIABLE dcp_pc_cuda_includes)
    list(JOIN dcp_pc_cuda_includes " " dcp_pc_cuda_includes)
    get_target_property(dcp_pc_cuda_links CUDA::cudart_static IMPORTED_LOCATION)
    dcp_install_pkg_config(dcp-cuda)
    install(FILES include/dcp/cuda.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dcp)
endif()

if(DCP_HAVE_NCCL)
    dcp_install_library(dcp_nccl Nccl)
    dcp_install_pkg_config(dcp-nccl)
    install(FILES include/dcp/nccl.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dcp)
    install(FILES cmake/FindNCCL.cmake DESTINATION ${dcp_package_dir})
endif()

configure_package_config_file(cmake/dcpConfig.cmake.in ${PROJECT_BINARY_DIR}/dcpConfig.cmake
    INSTALL_DESTINATION ${dcp_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dcpConfigVersion.cmake
    COMPATIBILITY Same${dcp_interface}Version)
install(FILES ${PROJECT_BINARY_DIR}/dcpConfig.cmake ${PROJECT_BINARY_DIR}/dcpConfigVersion.cmake
    DESTINATION ${dcp_package_dir})
