# Models for spin: tests/model/run <name> becomes ctest `model.<name>`. They take minutes, so
# `./dev check` leaves their label out and `./dev check --all` runs them once.
foreach(name event_count lane pool)
  add_test(NAME model.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/model/run ${name})
  set_tests_properties(model.${name} PROPERTIES
    TIMEOUT 3600 LABELS model ENVIRONMENT "MW_CC=${CMAKE_C_COMPILER}")
endforeach()
