# RDMA in a VM with soft-RoCE devices (run.sh). Its emulated processor has no 512-bit vectors, so
# its programs are this build's objects with recompiled CPU kernels, in build/*/vm/bin.
if(NOT COMMON_ARCH STREQUAL "x86-64-v3" OR RINGSMITH_SANITIZE OR NOT RINGSMITH_CUDA STREQUAL "vgpu")
  ringsmith_not_run("the VM needs programs for x86-64-v3, not sanitized and not built by nvcc" rdma_2 rdma_train rdma_kill rdma_faults)
  return()
endif()
ringsmith_cpu_kernels(ringsmith_vm_kernels x86-64-v3)

add_executable(tests_rdma EXCLUDE_FROM_ALL rdma/faults_test.cpp)
target_link_libraries(tests_rdma PRIVATE catch_main ibverbs)

foreach(PROGRAM tests_multi tests_rdma tests_fault train_gpt all_reduce_perf ringrun)
  add_executable(vm_${PROGRAM} $<TARGET_OBJECTS:${PROGRAM}>)
  set_target_properties(vm_${PROGRAM} PROPERTIES OUTPUT_NAME ${PROGRAM} RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/vm/bin)
  get_target_property(LIBRARIES ${PROGRAM} LINK_LIBRARIES)
  # Linked whole and first, so that no definition of ringsmith_kernels is used.
  target_link_libraries(vm_${PROGRAM} PRIVATE -Wl,--whole-archive $<TARGET_FILE:ringsmith_vm_kernels>
                        $<TARGET_FILE:ringsmith_vm_kernels_fast> -Wl,--no-whole-archive ${LIBRARIES})
  add_dependencies(vm_${PROGRAM} ringsmith_vm_kernels ringsmith_vm_kernels_fast)
endforeach()

# Adds the test WHAT of guest.sh. Exit status 77: not run, with the reason. Tests with a configuration are for
# `make test-rdma` (ctest -C rdma), because the emulated processor needs a minute or two per additional rank. All run
# alone, because the VM keeps all cores busy, and its deadline would count the time that other tests take from it.
function(ringsmith_rdma_test WHAT DEVICES SECONDS)
  add_test(NAME rdma_${WHAT} ${ARGN}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/rdma/run.sh ${WHAT} ${DEVICES} ${CMAKE_BINARY_DIR}/vm)
  math(EXPR LIMIT "${SECONDS} + 20")
  set_tests_properties(rdma_${WHAT} PROPERTIES LABELS rdma TIMEOUT ${LIMIT} SKIP_RETURN_CODE 77 RUN_SERIAL TRUE
                       ENVIRONMENT RINGSMITH_VM_SECONDS=${SECONDS})
endfunction()
ringsmith_rdma_test(2 2 280)
ringsmith_rdma_test(train 2 280)
ringsmith_rdma_test(kill 2 280)
ringsmith_rdma_test(faults 2 280)
ringsmith_rdma_test(3 2 600 CONFIGURATIONS rdma)
ringsmith_rdma_test(4 4 1200 CONFIGURATIONS rdma)
ringsmith_rdma_test(8 4 2400 CONFIGURATIONS rdma)
ringsmith_rdma_test(link 2 600 CONFIGURATIONS rdma)
ringsmith_rdma_test(large 2 600 CONFIGURATIONS rdma)
