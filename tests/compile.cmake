# What does not talk to clang: request, flags, options, toolchain, key, manifest, store.
foreach(name request options)
  mw_test(compile ${name} LINK millwright-compile)
endforeach()
mw_test(compile flags LINK millwright-compile SOURCES compile/clang_options.c)
target_include_directories(compile_flags_test SYSTEM PRIVATE ${MW_LLVM_includedir})
foreach(name toolchain key manifest store)
  mw_test(compile ${name} LINK millwright-compile SOURCES compile/folder.c TIMEOUT 300)
  target_include_directories(compile_${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
endforeach()

mw_test(compile preamble LINK millwright-compile SOURCES compile/folder.c)
target_include_directories(compile_preamble_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)

# What talks to clang.
foreach(name diagnostic diagnose emit preamble_bridge outputs)
  mw_test(compile ${name} LINK millwright-compile mw-test-support TIMEOUT 600
    SOURCES compile/trial.c compile/folder.c)
endforeach()
foreach(name emit outputs)
  target_include_directories(compile_${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
endforeach()
target_include_directories(compile_outputs_test SYSTEM PRIVATE ${MW_LLVM_includedir})
target_link_libraries(compile_outputs_test PRIVATE ${MW_LLVM_libdir}/libclang.so)

# What a compile may not do to others, and what others' source may not do to a host.
mw_test(compile sandbox TIMEOUT 300 LINK millwright-compile mw-test-support
  SOURCES compile/trial.c compile/folder.c)
target_include_directories(compile_sandbox_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
mw_test(compile guard LINK millwright-compile mw-test-support
  SOURCES compile/trial.c pools/thread_starts.c)
target_include_directories(compile_guard_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
set_target_properties(compile_guard_test PROPERTIES ENABLE_EXPORTS ON)
mw_test(negative emit_threads LINK millwright-compile mw-test-support
  SOURCES compile/trial.c pools/thread_starts.c)
# the libraries' calls of pthread_create must find the one in the test
set_target_properties(negative_emit_threads_test PROPERTIES ENABLE_EXPORTS ON)

# Compiles in processes of their own: what goes over the wire, and the real program.
mw_test(compile worker_wire LINK millwright-compile)
target_include_directories(compile_worker_wire_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
foreach(name isolate head_start)
  mw_test(compile ${name} LINK millwright-compile mw-test-support TIMEOUT 300
    SOURCES compile/isolate_world.c compile/trial.c)
  set_property(TEST compile.${name} APPEND PROPERTY
    ENVIRONMENT "MW_WORKER=$<TARGET_FILE:millwright-worker>")
  add_dependencies(compile_${name}_test millwright-worker)
endforeach()
target_sources(compile_head_start_test PRIVATE
  ${CMAKE_CURRENT_SOURCE_DIR}/compile/head_start_samples.c)
set_tests_properties(compile.head_start PROPERTIES TIMEOUT 600)

# What argument vectors lead a compile to do; and again with many more, for check --all.
mw_test(compile argv_fuzz LINK millwright-compile mw-test-support PkgConfig::SECCOMP TIMEOUT 600
  SOURCES compile/clang_options.c compile/watch.c compile/trial.c compile/folder.c)
target_include_directories(compile_argv_fuzz_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
target_include_directories(compile_argv_fuzz_test SYSTEM PRIVATE ${MW_LLVM_includedir})
add_test(NAME compile.argv_fuzz_long COMMAND compile_argv_fuzz_test)
set_tests_properties(compile.argv_fuzz_long PROPERTIES
  TIMEOUT 3600 LABELS "compile;long" ENVIRONMENT "MW_FUZZ_CASES=20000;MW_FUZZ_SEED=2")
mw_test(compile environment LINK millwright-compile mw-test-support TIMEOUT 300
  SOURCES compile/trial.c compile/folder.c)

# What is told beside an artifact, and what installed packages need.
mw_test(compile line_map LINK millwright-compile mw-test-support
  SOURCES compile/trial.c compile/folder.c)
mw_test(compile packages LINK millwright-compile mw-test-support
  SOURCES compile/trial.c compile/folder.c)
