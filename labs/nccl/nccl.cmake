# libringsmith_nccl.so: NCCL's interface on our rings. Compiles the required part of the runtime
# again, as position-independent code. On the emulator, it also compiles kernels/vgpu again, as a
# separate shared library, because the program's kernels and ours must use the same instance.
#
# All files for building a program are in one folder of the build, with nccl-tests' layout:
#     nccl/include/nccl.h   nccl/lib/libnccl.so -> libringsmith_nccl.so
#     nccl/cuda/{bin/nvcc,include,lib64/libcudart.so}     the emulator as a CUDA toolkit
set(NCCL ${PROJECT_BINARY_DIR}/nccl)
set(COMM ${PROJECT_SOURCE_DIR}/runtime/comm)
set(JOB ${PROJECT_SOURCE_DIR}/runtime/job)
file(GLOB_RECURSE NCCL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/runtime/base/*.cpp
     ${PROJECT_SOURCE_DIR}/runtime/device/*.cpp ${COMM}/types/*.cpp ${COMM}/schedule/*.cpp ${COMM}/failure/*.cpp
     ${COMM}/transport/*.cpp ${JOB}/store/*.cpp)
file(GLOB NCCL_OWN CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp ${CMAKE_CURRENT_LIST_DIR}/*.cu)
list(APPEND NCCL_SOURCES ${NCCL_OWN} ${JOB}/exchange.cpp ${JOB}/place.cpp
     ${JOB}/threads.cpp ${COMM}/device/device_memory.cpp ${COMM}/device/whereabouts.cpp ${COMM}/device/ring.cu
     ${COMM}/device/direct.cu)
add_library(ringsmith_nccl SHARED EXCLUDE_FROM_ALL ${NCCL_SOURCES})
ringsmith_unity(ringsmith_nccl)
set_target_properties(ringsmith_nccl PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${NCCL}/lib)
target_compile_options(ringsmith_nccl PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fvisibility=hidden>")
target_link_libraries(ringsmith_nccl PRIVATE ringsmith_headers nlohmann_json::nlohmann_json OpenSSL::Crypto ibverbs
                      ${CMAKE_DL_LIBS})
target_link_options(ringsmith_nccl PRIVATE LINKER:--no-undefined)

if(RINGSMITH_CUDA STREQUAL "vgpu")
  ringsmith_vgpu_library(ringsmith_vgpu_shared SHARED)
  target_compile_definitions(ringsmith_vgpu_shared PUBLIC VGPU_SHARED)
  set_target_properties(ringsmith_vgpu_shared PROPERTIES OUTPUT_NAME ringsmith_vgpu LIBRARY_OUTPUT_DIRECTORY ${NCCL}/lib)
  target_link_libraries(ringsmith_nccl PRIVATE ringsmith_vgpu_shared)
  set(NCCL_KERNELS ${NCCL_SOURCES})
  list(FILTER NCCL_KERNELS INCLUDE REGEX "\\.cu$")
  set_source_files_properties(${NCCL_KERNELS} PROPERTIES LANGUAGE CXX)
  target_compile_options(ringsmith_nccl PRIVATE -Wno-unknown-pragmas -g1 ${RINGSMITH_VGPU_CHECKS})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/nvcc.in ${NCCL}/cuda/bin/nvcc @ONLY
                 FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  # Links to the headers, and to the folder that they include from. Those of toolkit/ come last, because
  # they replace a header of the same name.
  file(MAKE_DIRECTORY ${NCCL}/cuda/include ${NCCL}/cuda/lib64)
  file(GLOB HEADERS ${PROJECT_SOURCE_DIR}/kernels/vgpu/include/*)
  file(GLOB TOOLKIT ${PROJECT_SOURCE_DIR}/kernels/vgpu/toolkit/*)
  list(APPEND HEADERS ${TOOLKIT})
  foreach(HEADER ${HEADERS} ${PROJECT_SOURCE_DIR}/kernels)
    get_filename_component(NAME ${HEADER} NAME)
    file(CREATE_LINK ${HEADER} ${NCCL}/cuda/include/${NAME} SYMBOLIC)
  endforeach()
  file(CREATE_LINK ../../lib/libringsmith_vgpu.so ${NCCL}/cuda/lib64/libcudart.so SYMBOLIC)
else()
  target_link_libraries(ringsmith_nccl PRIVATE ringsmith_cuda)
  target_compile_options(ringsmith_nccl PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${RINGSMITH_NVCC_FLAGS}>")
endif()
file(MAKE_DIRECTORY ${NCCL}/include ${NCCL}/lib)
file(CREATE_LINK ${CMAKE_CURRENT_LIST_DIR}/nccl.h ${NCCL}/include/nccl.h SYMBOLIC)
file(CREATE_LINK libringsmith_nccl.so ${NCCL}/lib/libnccl.so SYMBOLIC)
file(CREATE_LINK libringsmith_nccl.so ${NCCL}/lib/libnccl.so.2 SYMBOLIC)
set_property(GLOBAL APPEND PROPERTY RINGSMITH_CUDA_SOURCES ${CMAKE_CURRENT_LIST_DIR}/messages.cu)
