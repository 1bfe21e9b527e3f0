# The tests of service/: of its parts, and of the real program over a unix socket.
mw_test(service settings LINK mw-commands mw-test-support)
mw_test(service wire LINK mw-service)
foreach(name compile_endpoint bad_input flow many cli lanes isolation)
  mw_test(service ${name} TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
    SOURCES service/support.c service/swarm.c)
endforeach()
mw_test(service pools TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON PkgConfig::SQLITE
  SOURCES service/support.c service/swarm.c)
mw_test(service probe_cli TIMEOUT 300 LINK mw-test-support PkgConfig::JANSSON
  SOURCES service/support.c service/swarm.c)
