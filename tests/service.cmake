# The tests of service/: of its parts, and of the real program over a unix socket.
mw_test(service settings LINK mw-commands mw-test-support)
mw_test(service wire LINK mw-service)
mw_test(service meta LINK mw-service)
foreach(name compile_endpoint bad_input flow many cli lanes remote packages)
  mw_test(service ${name} TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
    SOURCES service/support.c service/swarm.c)
endforeach()
mw_test(service pools TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON PkgConfig::SQLITE
  SOURCES service/support.c service/swarm.c)
mw_test(service probe_cli TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c)

mw_test(service isolation TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON PkgConfig::SECCOMP
  SOURCES service/support.c service/swarm.c)

# What strangers send. The second is the first's sources among many others: a few hundred here, and
# 20,000 compiles for check --all.
mw_test(service hostile TIMEOUT 600 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c service/hostile_sources.c)
mw_test(service soak TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c service/hostile_sources.c)
add_test(NAME service.soak_long COMMAND service_soak_test)
set_tests_properties(service.soak_long PROPERTIES TIMEOUT 7200 LABELS "service;long"
  ENVIRONMENT "MW_PROGRAM=$<TARGET_FILE:millwright-program>;MW_SOAK_COMPILES=20000")
