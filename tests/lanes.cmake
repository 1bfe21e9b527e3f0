foreach(name lane lane_fault lane_fork lane_order lane_stress lane_wait)
  mw_test(lanes ${name} LINK millwright
    SOURCES lanes/scene.c pools/support.c pools/thread_starts.c)
  # the library's calls of pthread_create must find the one in the test
  set_target_properties(lanes_${name}_test PROPERTIES ENABLE_EXPORTS ON)
endforeach()
mw_test(lanes lane_brief LINK millwright SOURCES pools/support.c TIMEOUT 300)
mw_test(lanes lane_uv LINK millwright PkgConfig::UV SOURCES pools/support.c)
# the libraries' calls of write must find the one in the test
set_target_properties(lanes_lane_uv_test PROPERTIES ENABLE_EXPORTS ON)
# a part of the lane that is private to it
mw_test(lanes job_queue LINK millwright SOURCES ${CMAKE_SOURCE_DIR}/lanes/job_queue.c)
mw_test(lanes probe_targets LINK millwright PkgConfig::UV SOURCES pools/support.c)
mw_test(negative lane_off_pool LINK millwright SOURCES pools/support.c)

# Names, and the leak audit: without what stands in front of pthread_create, and with it.
mw_test(lanes registry LINK millwright SOURCES pools/support.c)
mw_test(lanes audit LINK millwright SOURCES pools/support.c)
mw_test(lanes audit_starts LINK millwright-audit millwright SOURCES pools/support.c)
target_link_options(lanes_audit_starts_test PRIVATE LINKER:--no-as-needed)

# The host example of docs/libuv.md.
add_subdirectory(example)
