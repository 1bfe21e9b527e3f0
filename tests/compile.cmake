# What does not talk to clang: request, flags, options, toolchain, key, store.
foreach(name request flags options)
  mw_test(compile ${name} LINK millwright-compile)
endforeach()
target_compile_definitions(compile_flags_test PRIVATE MW_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
foreach(name toolchain key store)
  mw_test(compile ${name} LINK millwright-compile SOURCES compile/folder.c TIMEOUT 300)
  target_include_directories(compile_${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
endforeach()

# What talks to clang.
foreach(name diagnostic diagnose emit)
  mw_test(compile ${name} LINK millwright-compile mw-test-support
    SOURCES compile/trial.c compile/folder.c)
endforeach()
target_include_directories(compile_emit_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
mw_test(negative emit_threads LINK millwright-compile mw-test-support
  SOURCES compile/trial.c pools/thread_starts.c)
# the libraries' calls of pthread_create must find the one in the test
set_target_properties(negative_emit_threads_test PROPERTIES ENABLE_EXPORTS ON)
