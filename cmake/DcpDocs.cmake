# What is installed to be read: manual pages of the command, what completes its lines in shells and, with DCP_DOCS, of the interface; share/doc/dcp.
install(DIRECTORY src/cli/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(FILES src/cli/completions/dcp.bash DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/bash-completion/completions RENAME dcp)
install(FILES src/cli/completions/dcp.zsh DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/zsh/site-functions RENAME _dcp)
install(FILES src/cli/completions/dcp.fish DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/fish/vendor_completions.d)
set(dcp_doc_dir ${CMAKE_INSTALL_DATAROOTDIR}/doc/dcp)
install(FILES README.md LICENSE .github/CHANGES.md DESTINATION ${dcp_doc_dir})
install(DIRECTORY examples DESTINATION ${dcp_doc_dir} USE_SOURCE_PERMISSIONS PATTERN run_main_job.sh EXCLUDE)

set(DCP_HAVE_DOCS FALSE)
if(NOT DCP_DOCS STREQUAL "OFF")
    find_package(Doxygen QUIET)
    if(DOXYGEN_FOUND)
        set(DCP_HAVE_DOCS TRUE)
    elseif(DCP_DOCS STREQUAL "ON")
        message(FATAL_ERROR "DCP_DOCS is ON, but doxygen was not found")
    endif()
endif()
add_feature_info(DOCS DCP_HAVE_DOCS "DCP_DOCS=${DCP_DOCS}")

# Pages of section 3: one for each header (dcp_save.h), struct (dcp_save_options) and function (dcp_save).
if(DCP_HAVE_DOCS)
    set(pages ${PROJECT_BINARY_DIR}/docs)
    configure_file(cmake/Doxyfile.man.in ${PROJECT_BINARY_DIR}/Doxyfile.man @ONLY)
    file(GLOB headers CONFIGURE_DEPENDS include/*.h include/dcp/*.h)
    add_custom_command(OUTPUT ${pages}/man.stamp
        COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}/man
        COMMAND ${DOXYGEN_EXECUTABLE} ${PROJECT_BINARY_DIR}/Doxyfile.man
        COMMAND ${CMAKE_COMMAND} -DPAGES=${pages}/man/man3 -P ${PROJECT_SOURCE_DIR}/cmake/rename_pages.cmake
        COMMAND ${CMAKE_COMMAND} -E touch ${pages}/man.stamp
        DEPENDS ${headers} cmake/Doxyfile cmake/Doxyfile.man.in cmake/rename_pages.cmake
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM COMMENT "Manual pages of the interface")
    add_custom_target(dcp_docs ALL DEPENDS ${pages}/man.stamp)
    install(DIRECTORY ${pages}/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR})
endif()
