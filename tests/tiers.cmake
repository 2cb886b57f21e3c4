# The two tiers of tests (tests/README.md has the reason for each choice), and the targets that every entry needs.
#   quick   `make test`: entries that the processor, kernel, MPI, network, users or limits of a machine can break
#   all     `make test-all`: every entry
# A subset of a program's cases is a separate entry, NAME_quick, and NAME has the other cases, so that none runs
# twice. tests/support/tiers_test.py checks that.
set(QUICK_ENTRIES
    base kernels tensor autograd nn optim amp data checkpoint parallel comm comm_tcp job reference  # this processor
    device                                                                        # keys and pages of this kernel
    multi_1 multi_2 multi_3 multi_4 multi_tcp_2 multi_tcp_3                       # processes, MPI, loopback
    apps_quick launch_quick                                                       # doctor, training, every launcher
    fault_quick fault_tcp_quick                                                   # kills, limits, other users
    surroundings_one-core surroundings_ranks-64 surroundings_docker-shm surroundings_no-shm surroundings_no-ptrace
    surroundings_no-ipv6 surroundings_only-ipv6 surroundings_host-name surroundings_other-user surroundings_memory
    tiers)

# Entries that mostly wait, for deadlines and for programs that start (apps keeps a third of two cores busy).
# CTest only supports whole numbers, so run_tests.py counts half cores: --parallel 2 (N + 1) on N cores; these entries take
# 1, the others 2 for each of their PROCESSORS, and at most the machine's cores, so that a waiting entry runs concurrently
# with them. Entries that take all cores start first: at the end, when the short ones are done, no entry would be left to
# run with them.
set(WAITING_ENTRIES apps apps_quick apps_resume front launch launch_quick
    fault fault_quick fault_tcp fault_tcp_quick nodes_heal)

# ringsmith_needs(REGEX TARGETS...): entries whose names match need these targets; the first matching row counts.
# TARGETS: - for none; % is the expression's group. Without a row: tests_ENTRY if it exists, otherwise all targets.
# A test program's own dependencies (add_dependencies) are the programs that it starts.
set(NEEDS_ROWS 0)
function(ringsmith_needs REGEX)
  math(EXPR ROW "${NEEDS_ROWS} + 1")
  set(NEEDS_ROWS ${ROW} PARENT_SCOPE)
  set(NEEDS_REGEX_${ROW} "${REGEX}" PARENT_SCOPE)
  set(NEEDS_TARGETS_${ROW} "${ARGN}" PARENT_SCOPE)
endfunction()
ringsmith_needs("^comm_tcp$" tests_comm)
ringsmith_needs("^lone_setenv_" lone_setenv_planted)
ringsmith_needs("^(front|make_targets|hooks_test|systems_.*)$" -)
ringsmith_needs("^device_(without_keys|guarded_by_pages)$" tests_device)
ringsmith_needs("^vgpu_large_pages$" tests_vgpu)
ringsmith_needs("^gpu_predictions$" step_counts)
ringsmith_needs("^kernels_cuda_libm$" tests_kernels_cuda)
ringsmith_needs("^(comm|parallel)_cuda_(one_device|driver_waits)$" tests_%_cuda)
ringsmith_needs("^apps(_resume|_on_device)?$" tests_apps ringrun schedule_player scaling flight_reader dp_vs_ddp async_vs_ddp kernel_bench train_bench
                train_report all_reduce_perf all_gather_perf reduce_scatter_perf broadcast_perf reduce_perf alltoall_perf
                gather_perf scatter_perf sendrecv_perf)
ringsmith_needs("^(.*)_on_device$" tests_%)
ringsmith_needs("^apps_report$" train_mlp)
ringsmith_needs("^(apps|launch|fault)_" tests_%)
ringsmith_needs("^multi_" tests_multi)
ringsmith_needs("^nodes_" tests_multi elastic_train train_gpt all_reduce_perf ringrun)
ringsmith_needs("^slurm$" train_gpt ringrun)
ringsmith_needs("^rdma_" vm_tests_multi vm_tests_rdma vm_tests_fault vm_train_gpt vm_all_reduce_perf vm_ringrun)
ringsmith_needs("^surroundings_" train_mlp all_reduce_perf ringrun)
ringsmith_needs("^package_page$" ringrun installed)
ringsmith_needs("^package_" installed)
ringsmith_needs("^(nccl_|vgpu_nvcc$)" nccl_client)
ringsmith_needs("^fuzz_store$" fuzz_store)
ringsmith_needs("^one_file$" train_mlp ringrun)
ringsmith_needs("^book_programs$" book_strides book_tape book_buckets book_race)
# The programs of these entries are built elsewhere, by the tests themselves, or not at all.
ringsmith_needs("^(torch|tiers|labs?_.*|core_path|ledger_references|lessons_(text|spelling|checks))$" -)

# Gives every entry of this folder its tier and its cost (the longest start first), writes the table
# that run_tests.py reads, and adds the target quick_tests. CMake calls it at the end of this
# folder, when all entries exist.
cmake_language(DEFER CALL ringsmith_tiers)
function(ringsmith_tiers)
  set(DURATIONS ${CMAKE_CURRENT_SOURCE_DIR}/support/durations.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${DURATIONS})
  file(STRINGS ${DURATIONS} ROWS REGEX "^[A-Za-z]")
  cmake_host_system_information(RESULT MOST QUERY NUMBER_OF_LOGICAL_CORES)
  math(EXPR MOST "2 * ${MOST}")
  foreach(ROW ${ROWS})
    string(REGEX MATCH "^([^ ]+) +([0-9.]+)" ROW "${ROW}")
    set(COST_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  endforeach()

  get_property(ENTRIES DIRECTORY PROPERTY TESTS)
  foreach(ENTRY ${QUICK_ENTRIES})
    if(NOT ENTRY IN_LIST ENTRIES)
      message(FATAL_ERROR "tests/tiers.cmake: there is no entry '${ENTRY}'")
    endif()
  endforeach()
  add_custom_target(quick_tests)
  add_custom_target(nothing)  # for entries that need no program
  set(TABLE)
  foreach(ENTRY ${ENTRIES})
    set(TARGETS)
    foreach(ROW RANGE 1 ${NEEDS_ROWS})
      if(ENTRY MATCHES "${NEEDS_REGEX_${ROW}}")
        set(ROOM "${CMAKE_MATCH_1}")
        foreach(NEEDED ${NEEDS_TARGETS_${ROW}})
          string(REPLACE % "${ROOM}" NEEDED ${NEEDED})
          list(APPEND TARGETS ${NEEDED})
        endforeach()
        break()
      endif()
    endforeach()
    if(NOT TARGETS AND TARGET tests_${ENTRY})
      set(TARGETS tests_${ENTRY})
    elseif(NOT TARGETS)
      set(TARGETS all)
    endif()
    set(TIER all)
    if(ENTRY IN_LIST QUICK_ENTRIES)
      set(TIER quick)
      set_property(TEST ${ENTRY} APPEND PROPERTY LABELS quick)
      if(TARGETS STREQUAL "all")
        message(FATAL_ERROR "tests/tiers.cmake: the quick entry '${ENTRY}' needs a row of ringsmith_needs()")
      endif()
    endif()
    get_test_property(${ENTRY} PROCESSORS HALVES)
    if(ENTRY IN_LIST WAITING_ENTRIES)
      set(HALVES 1)
    elseif(HALVES)
      math(EXPR HALVES "2 * ${HALVES}")
    else()
      set(HALVES 2)
    endif()
    if(NOT DEFINED COST_${ENTRY})
      set(COST_${ENTRY} 5)
    endif()
    if(HALVES GREATER_EQUAL MOST)
      set(HALVES ${MOST})
      set(COST_${ENTRY} 1000${COST_${ENTRY}})
    endif()
    set_tests_properties(${ENTRY} PROPERTIES PROCESSORS ${HALVES} COST ${COST_${ENTRY}})
    foreach(NEEDED ${TARGETS})
      if(NEEDED STREQUAL "-")
        set(TARGETS nothing)
      elseif(NOT NEEDED STREQUAL "all" AND NOT TARGET ${NEEDED})
        list(REMOVE_ITEM TARGETS ${NEEDED})  # not on this machine: the entry reports it
      elseif(TIER STREQUAL "quick")
        add_dependencies(quick_tests ${NEEDED})
      endif()
    endforeach()
    list(JOIN TARGETS " " TARGETS)
    string(APPEND TABLE "${ENTRY} ${TIER} ${TARGETS}\n")
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/entries.txt CONTENT "${TABLE}")
endfunction()

# ringsmith_not_run(REASON ENTRIES...): adds entries that this build cannot run; they report the
# reason instead of being absent.
function(ringsmith_not_run REASON)
  foreach(ENTRY ${ARGN})
    add_test(NAME ${ENTRY} COMMAND sh -c "echo 'NOT RUN: ${REASON}'; exit 77")
    set_tests_properties(${ENTRY} PROPERTIES SKIP_RETURN_CODE 77 LABELS absent)
  endforeach()
endfunction()
