# The settings that all our code shares, and how rooms and tests are declared.
add_library(dcp_settings INTERFACE)
target_compile_features(dcp_settings INTERFACE c_std_11)
target_compile_options(dcp_settings INTERFACE
    -Wall -Wextra -Wconversion -Wshadow -Wmissing-prototypes -Wstrict-prototypes -fvisibility=hidden
    $<$<BOOL:${DCP_WARNINGS_AS_ERRORS}>:-Werror>)
target_compile_definitions(dcp_settings INTERFACE _GNU_SOURCE)
if(DCP_SANITIZE)
    target_compile_options(dcp_settings INTERFACE -fsanitize=${DCP_SANITIZE} -fno-sanitize-recover=all
        -fno-omit-frame-pointer)
    target_link_options(dcp_settings INTERFACE -fsanitize=${DCP_SANITIZE})
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # gcc follows fewer paths in instrumented code, and warns of some that cannot be taken.
        target_compile_options(dcp_settings INTERFACE -Wno-maybe-uninitialized -Wno-format-truncation)
    endif()
endif()
if(DCP_COVERAGE)
    target_compile_options(dcp_settings INTERFACE --coverage)
    target_link_options(dcp_settings INTERFACE --coverage)
endif()

# dcp_room(NAME SOURCES ... USES room... LINKS target...): one folder of src/, as a static library inside the build.
# USES are the rooms that it may include; what it does not name it cannot link in its own tests.
function(dcp_room name)
    cmake_parse_arguments(ROOM "" "" "SOURCES;USES;LINKS" ${ARGN})
    add_library(room_${name} STATIC ${ROOM_SOURCES})
    set_target_properties(room_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(room_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    list(TRANSFORM ROOM_USES PREPEND room_)
    target_link_libraries(room_${name} PUBLIC dcp_settings ${ROOM_USES} ${ROOM_LINKS})
endfunction()
