# What can be chosen. AUTO takes what is found, ON makes a missing one an error, OFF leaves it out.
foreach(part MPI ZSTD)
    set(DCP_${part} AUTO CACHE STRING "Build with ${part}: AUTO, ON or OFF")
    set_property(CACHE DCP_${part} PROPERTY STRINGS AUTO ON OFF)
    if(NOT DCP_${part} MATCHES "^(AUTO|ON|OFF)$")
        message(FATAL_ERROR "DCP_${part} is \"${DCP_${part}}\", expected AUTO, ON or OFF")
    endif()
endforeach()

option(DCP_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(DCP_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(DCP_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)
set(DCP_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")
option(DCP_COVERAGE "Instrument for coverage" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
