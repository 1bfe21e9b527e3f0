# The house itself, in POSIX sh: tests/house/<name>_test becomes ctest `house.<name>`.
set(house_tests includes names dev docs install)
if(MW_SANITIZE) # an instrumented library cannot be linked into a plain host
  list(REMOVE_ITEM house_tests install)
endif()
foreach(name ${house_tests})
  add_test(NAME house.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/house/${name}_test
           WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(house.${name} PROPERTIES
    TIMEOUT 120 LABELS house
    ENVIRONMENT "MW_BUILD=${CMAKE_BINARY_DIR};MW_CC=${CMAKE_C_COMPILER};MW_PROGRAM=$<TARGET_FILE:millwright-program>;MW_FLAGS_PAGE=$<TARGET_FILE:flags-page>")
endforeach()
