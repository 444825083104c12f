# How the libraries for others are made of our objects.
include(GNUInstallDirs)

# dcp_library(NAME PARTS target... MAP file EXPORT name [USES library] LINKS target... PUBLIC_LINKS target...)
#
# Makes lib<NAME>, shared (target NAME) and static (target NAME_static), out of the objects of PARTS. USES is the library
# below it. Both show the same names: the shared one through its export map, the static one because it holds a single
# object in which everything hidden has become local, so that our internal names never meet the caller's.
function(dcp_library name)
    cmake_parse_arguments(LIBRARY "" "MAP;EXPORT;USES" "PARTS;LINKS;PUBLIC_LINKS" ${ARGN})
    list(TRANSFORM LIBRARY_PARTS REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
    get_filename_component(map ${LIBRARY_MAP} ABSOLUTE)

    add_library(${name} SHARED ${objects})
    set_target_properties(${name} PROPERTIES
        VERSION ${PROJECT_VERSION} SOVERSION ${dcp_soversion}
        LINKER_LANGUAGE C LINK_DEPENDS ${map})
    target_link_options(${name} PRIVATE LINKER:--version-script=${map})
    if(NOT DCP_SANITIZE)
        target_link_options(${name} PRIVATE LINKER:-z,defs)
    endif()
    target_link_libraries(${name} PUBLIC ${LIBRARY_USES} ${LIBRARY_PUBLIC_LINKS}
        PRIVATE ${LIBRARY_LINKS} $<BUILD_INTERFACE:dcp_settings>)

    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    # objcopy needs machine code, also where the caller's flags ask for link-time optimization.
    set(lto_off $<$<STREQUAL:${CMAKE_C_COMPILER_ID},GNU>:-flinker-output=nolto-rel>)
    add_custom_command(OUTPUT ${object}
        COMMAND ${CMAKE_C_COMPILER} -r -nostdlib ${lto_off} -o ${object} ${objects}
        COMMAND ${CMAKE_OBJCOPY} --localize-hidden ${object}
        DEPENDS ${LIBRARY_PARTS} COMMAND_EXPAND_LISTS VERBATIM COMMENT "Joining lib${name}.a into one object")
    add_library(${name}_static STATIC ${object})
    set_target_properties(${name}_static PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE C)
    if(LIBRARY_USES)
        set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN")
        target_link_libraries(${name}_static PUBLIC ${LIBRARY_USES}_static)
    endif()
    target_link_libraries(${name}_static PUBLIC ${LIBRARY_PUBLIC_LINKS} PRIVATE ${LIBRARY_LINKS})

    foreach(suffix "" _static)
        set_target_properties(${name}${suffix} PROPERTIES EXPORT_NAME ${LIBRARY_EXPORT}${suffix})
        add_library(dcp::${LIBRARY_EXPORT}${suffix} ALIAS ${name}${suffix})
        target_include_directories(${name}${suffix} INTERFACE
            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    endforeach()
endfunction()

# dcp_objects(NAME SOURCES ... LINKS target...): the objects of a library that stands on public headers alone.
function(dcp_objects name)
    cmake_parse_arguments(OBJECTS "" "" "SOURCES;LINKS" ${ARGN})
    add_library(${name} STATIC ${OBJECTS_SOURCES})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${name} PRIVATE dcp_settings ${OBJECTS_LINKS})
endfunction()
