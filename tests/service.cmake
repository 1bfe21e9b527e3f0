# The tests of service/: of its parts, and of the real program over a unix socket.
mw_test(service settings LINK mw-commands mw-test-support)
mw_test(service wire LINK mw-service)
mw_test(service meta LINK mw-service)
mw_test(service json_read LINK mw-service)
foreach(name compile_endpoint bad_input flow many cli lanes remote packages outputs)
  mw_test(service ${name} TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
    SOURCES service/support.c service/swarm.c)
endforeach()
mw_test(service pools TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON PkgConfig::SQLITE
  SOURCES service/support.c service/swarm.c)
mw_test(service probe_cli TIMEOUT 600 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c)

# What other caches answer wrongly, and its controls, which make keys and stores of their own.
mw_test(service wrong_hits TIMEOUT 600
  LINK millwright-compile mw-test-support PkgConfig::JANSSON PkgConfig::SQLITE
  SOURCES service/support.c service/swarm.c compile/folder.c)
target_include_directories(service_wrong_hits_test PRIVATE ${PROJECT_SOURCE_DIR}/compile)
mw_test(service sources TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c)
target_compile_definitions(service_sources_test PRIVATE MW_LLVM_PREFIX="${MW_LLVM_prefix}")

mw_test(service isolation TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON PkgConfig::SECCOMP
  SOURCES service/support.c service/swarm.c)

mw_test(service preamble TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c)
mw_test(service kills TIMEOUT 600 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c)

# What strangers send. The second is the first's sources among many others: a few hundred here, and
# 20,000 compiles for check --all.
mw_test(service hostile TIMEOUT 600 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c service/hostile_sources.c)
mw_test(service soak TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c service/hostile_sources.c)
mw_test(service slot TIMEOUT 600 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c)
add_test(NAME service.slot_long COMMAND service_slot_test)
set_tests_properties(service.slot_long PROPERTIES TIMEOUT 3600 LABELS "service;long"
  ENVIRONMENT "MW_PROGRAM=$<TARGET_FILE:millwright-program>;MW_SLOT_TRIALS=21")
add_test(NAME service.soak_long COMMAND service_soak_test)
set_tests_properties(service.soak_long PROPERTIES TIMEOUT 7200 LABELS "service;long"
  ENVIRONMENT "MW_PROGRAM=$<TARGET_FILE:millwright-program>;MW_SOAK_COMPILES=20000")
