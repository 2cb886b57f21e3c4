# The files that `make install` copies: the headers under their own names, all layers as one archive,
# and the programs that the author of a training program needs.
#
#   PREFIX/bin/ringrun ...     include/ringsmith/runtime/...     lib/libringsmith.a
#          lib/cmake/ringsmith/ringsmith-config.cmake            lib/pkgconfig/ringsmith.pc
#          share/ringsmith/{LICENSE,template/...,manifest.txt}   manifest.cmake: upgrades, and `make uninstall`

file(GLOB_RECURSE HEADERS CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/runtime/*.hpp
     ${PROJECT_SOURCE_DIR}/kernels/*.hpp)
list(FILTER HEADERS EXCLUDE REGEX "^kernels/(cuda|vgpu)/")  # these need CUDA's own headers, real or emulated
# Also excludes the headers that include <cuda...>, directly or through each other; user code needs none of them.
set(INSIDE)
set(FOUND -1)
while(NOT FOUND EQUAL 0)  # until a pass finds no more
  set(FOUND 0)
  foreach(HEADER ${HEADERS})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${HEADER} INCLUDES REGEX "^ *# *include")
    foreach(INCLUDE ${INCLUDES})
      string(REGEX REPLACE ".*([\"<])(.*)[\">].*" "\\2" INCLUDE ${INCLUDE})
      if(INCLUDE MATCHES "^(cuda|mma)[/._]" OR INCLUDE IN_LIST INSIDE)
        list(APPEND INSIDE ${HEADER})
        list(REMOVE_ITEM HEADERS ${HEADER})
        set(FOUND 1)
        break()
      endif()
    endforeach()
  endforeach()
endwhile()
foreach(HEADER ${HEADERS})
  cmake_path(GET HEADER PARENT_PATH FOLDER)
  install(FILES ${HEADER} DESTINATION include/ringsmith/${FOLDER})
endforeach()

# One archive, so that programs that link it need not know the layers or their order.
set(OBJECTS)
foreach(ROOM base device kernels kernels_fast kernels_cuda comm comm_device tensor train parallel job analysis beyond)
  list(APPEND OBJECTS $<TARGET_OBJECTS:ringsmith_${ROOM}>)
endforeach()
if(TARGET ringsmith_vgpu)
  list(APPEND OBJECTS $<TARGET_OBJECTS:ringsmith_vgpu>)
endif()
add_library(ringsmith_archive STATIC ${OBJECTS})
set_target_properties(ringsmith_archive PROPERTIES OUTPUT_NAME ringsmith LINKER_LANGUAGE CXX)
install(TARGETS ringsmith_archive ARCHIVE DESTINATION lib)

set(PROGRAMS ringrun flight_reader doctor train_gpt train_mlp train_bench all_reduce_perf schedule_player)
install(TARGETS ${PROGRAMS} RUNTIME DESTINATION bin)
add_custom_target(installed DEPENDS ringsmith_archive ${PROGRAMS})

# The libraries that the archive needs, by path, with their Debian packages. The installed configuration uses these
# paths instead of searching again, because a version of fmt other than the one that it was compiled with may have a
# different ABI.
find_library(RINGSMITH_IBVERBS ibverbs REQUIRED)
set(NEEDS "libssl-dev=$<TARGET_LINKER_FILE:OpenSSL::Crypto>" "libfmt-dev=$<TARGET_LINKER_FILE:fmt::fmt>"
    "libibverbs-dev=${RINGSMITH_IBVERBS}")
if(RINGSMITH_CUDA STREQUAL "nvcc")
  list(APPEND NEEDS "nvidia-cuda-toolkit=$<TARGET_LINKER_FILE:CUDA::cudart>"
       "nvidia-cuda-toolkit=$<TARGET_LINKER_FILE:CUDA::cublasLt>")
else()
  list(APPEND NEEDS "libboost-context-dev=$<TARGET_LINKER_FILE:Boost::context>")
endif()
list(TRANSFORM NEEDS REPLACE ".*=" "" OUTPUT_VARIABLE LIBRARIES)
string(JOIN " " LIBRARIES ${LIBRARIES})
string(JOIN "\"\n               \"" NEEDS ${NEEDS})

set(HERE ${CMAKE_CURRENT_LIST_DIR})
set(MADE ${PROJECT_BINARY_DIR}/install)
foreach(NAME ringsmith-config.cmake ringsmith.pc)
  configure_file(${HERE}/${NAME}.in ${MADE}/${NAME}.in @ONLY)
  file(GENERATE OUTPUT ${MADE}/${NAME} INPUT ${MADE}/${NAME}.in)
endforeach()
configure_file(${HERE}/ringsmith-config-version.cmake.in ${MADE}/ringsmith-config-version.cmake @ONLY)
install(FILES ${MADE}/ringsmith-config.cmake ${MADE}/ringsmith-config-version.cmake DESTINATION lib/cmake/ringsmith)
install(FILES ${MADE}/ringsmith.pc DESTINATION lib/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/ringsmith)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/labs/template DESTINATION share/ringsmith)
install(SCRIPT ${HERE}/manifest.cmake)  # last, because it records the files that the lines above have installed
