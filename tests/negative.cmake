# Controls over the whole service; those over the lane and the emit alone stand with their areas.
mw_test(negative service_off_pool LINK mw-service mw-test-support SOURCES pools/thread_starts.c)
# what the libraries call must be found in the test first
set_target_properties(negative_service_off_pool_test PROPERTIES ENABLE_EXPORTS ON)
set_property(TEST negative.service_off_pool APPEND PROPERTY
  ENVIRONMENT "MW_WORKER=$<TARGET_FILE:millwright-worker>")
add_dependencies(negative_service_off_pool_test millwright-worker)
