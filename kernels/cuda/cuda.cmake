# CUDA, in two ways. The same .cu files are compiled
#   RINGSMITH_CUDA=vgpu  by the host compiler as C++, against kernels/vgpu/include, to run anywhere
#   RINGSMITH_CUDA=nvcc  by nvcc, against the toolkit, to run on NVIDIA devices
# In the first configuration, the target nvcc_check also compiles them with nvcc, to find code that
# only the host compiler accepts.
set(RINGSMITH_CUDA_ARCHITECTURES 75 80 90 CACHE STRING "compute capabilities that nvcc compiles for")
# Files with instructions that only Hopper has. If 90 is among the architectures, they are compiled for sm_90a, too, which
# a Hopper device prefers to sm_90, and with RINGSMITH_SM90A defined.
set(RINGSMITH_HOPPER_SOURCES kernels/cuda/matmul_wgmma.cu)
# --fmad=false is like -ffp-contract=off; a kernel that needs a fused multiply-add calls fmaf().
# Warning 554 is off, because View<const T> has a conversion to itself, which never runs.
set(RINGSMITH_NVCC_FLAGS --fmad=false --expt-relaxed-constexpr --extended-lambda -Werror=all-warnings --diag-suppress=554
    -Xcompiler=-Wall,-Wextra,-ffp-contract=off)

if(RINGSMITH_CUDA STREQUAL "nvcc")
  set(CMAKE_CUDA_ARCHITECTURES ${RINGSMITH_CUDA_ARCHITECTURES})
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS /usr/local/cuda/bin)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc supports C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  find_package(CUDAToolkit REQUIRED)
elseif(NOT RINGSMITH_CUDA STREQUAL "vgpu")
  message(FATAL_ERROR "RINGSMITH_CUDA=${RINGSMITH_CUDA}: use vgpu or nvcc")
endif()

# x86 traps a misaligned vector access and an integer division by zero. On processors that continue
# silently, the compiler adds checks (kernels/vgpu/fault.cpp), except in the asan preset, which has
# its own.
set(RINGSMITH_VGPU_CHECKS)
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT RINGSMITH_SANITIZE MATCHES "undefined")
  set(RINGSMITH_VGPU_CHECKS -fsanitize=alignment,integer-divide-by-zero)
endif()

# Sets TO to true if SOURCE needs code for sm_90a.
function(ringsmith_needs_hopper SOURCE TO)
  cmake_path(ABSOLUTE_PATH SOURCE BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  cmake_path(RELATIVE_PATH SOURCE BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(SOURCE IN_LIST RINGSMITH_HOPPER_SOURCES AND 90 IN_LIST RINGSMITH_CUDA_ARCHITECTURES)
    set(${TO} TRUE PARENT_SCOPE)
  else()
    set(${TO} FALSE PARENT_SCOPE)
  endif()
endfunction()

# Adds the emulator's library, which is STATIC unless ARGN says SHARED (labs/nccl/nccl.cmake).
function(ringsmith_vgpu_library NAME)
  file(GLOB SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/vgpu/*.cpp)
  set(KIND STATIC)
  if(ARGN)
    set(KIND ${ARGN})
  endif()
  add_library(${NAME} ${KIND} EXCLUDE_FROM_ALL ${SOURCES})
  # Only these sources need Boost::context's flags.
  target_link_libraries(${NAME} PUBLIC ringsmith_headers PRIVATE Boost::context)
  target_include_directories(${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/kernels/vgpu/include)
  target_compile_definitions(${NAME} PUBLIC RINGSMITH_VGPU)
  if(RINGSMITH_VGPU_CHECKS)
    target_compile_definitions(${NAME} PRIVATE VGPU_CHECKS)
  endif()
  ringsmith_unity(${NAME})
endfunction()

# The library ringsmith_cuda: the CUDA runtime API, real or emulated.
function(ringsmith_cuda_library)
  add_library(ringsmith_cuda INTERFACE)
  if(RINGSMITH_CUDA STREQUAL "nvcc")
    target_link_libraries(ringsmith_cuda INTERFACE ringsmith_headers CUDA::cudart)
    # nvcc finds <cuda/atomic> itself, but host files include it too. CUDA 13 keeps it in a separate
    # folder.
    find_path(RINGSMITH_LIBCUDACXX cuda/atomic REQUIRED NO_DEFAULT_PATH
              PATHS ${CUDAToolkit_INCLUDE_DIRS}/cccl ${CUDAToolkit_INCLUDE_DIRS})
    target_include_directories(ringsmith_cuda SYSTEM INTERFACE ${RINGSMITH_LIBCUDACXX})
    return()
  endif()
  if(POLICY CMP0167)
    cmake_policy(SET CMP0167 NEW)  # uses Boost's package file, because newer CMake has no module for Boost
  endif()
  find_package(Boost QUIET COMPONENTS context)
  if(NOT TARGET Boost::context)
    # `make train` does not install Boost.Context, because CPU programs do not link the emulator and the headers would
    # be a quarter of what dpkg unpacks. A build that needs the library fails in ninja with the location below.
    message(STATUS "Boost.Context was not found: only programs for CPUs can be built (apt install libboost-context-dev)")
    add_library(Boost::context UNKNOWN IMPORTED GLOBAL)
    set_target_properties(Boost::context PROPERTIES IMPORTED_LOCATION "Boost.Context, of libboost-context-dev")
  endif()
  ringsmith_vgpu_library(ringsmith_vgpu)
  ringsmith_vgpu_library(ringsmith_vgpu_tsan)
  if(RINGSMITH_SANITIZE STREQUAL "thread")
    target_compile_definitions(ringsmith_vgpu PUBLIC VGPU_TSAN)
  endif()
  target_compile_definitions(ringsmith_vgpu_tsan PUBLIC VGPU_TSAN)
  target_compile_options(ringsmith_vgpu_tsan PUBLIC -fsanitize=thread -O1 -g)
  target_link_options(ringsmith_vgpu_tsan PUBLIC -fsanitize=thread)
  target_link_libraries(ringsmith_cuda INTERFACE ringsmith_vgpu)
endfunction()

# RINGSMITH_HAVE_TSAN is off with AddressSanitizer, and where the compiler lacks the library (clang, cross-compiling).
set(RINGSMITH_HAVE_TSAN OFF)
if(NOT RINGSMITH_SANITIZE MATCHES "address")
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_FLAGS -fsanitize=thread)
  check_cxx_source_compiles("int main() { return 0; }" TSAN_LINKS)
  unset(CMAKE_REQUIRED_FLAGS)
  set(RINGSMITH_HAVE_TSAN ${TSAN_LINKS})
endif()

# ringsmith_tsan_program(NAME SOURCES...): a program under ThreadSanitizer wherever
# RINGSMITH_HAVE_TSAN is set, so that `make test` can test the detector.
function(ringsmith_tsan_program NAME)
  add_executable(${NAME} ${ARGN})
  target_link_libraries(${NAME} PRIVATE ringsmith_vgpu_tsan ringsmith_base)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
  target_compile_options(${NAME} PRIVATE -Wno-unknown-pragmas)
endfunction()

# ringsmith_cuda_sources(TARGET): sets how the target's .cu files are compiled.
function(ringsmith_cuda_sources TARGET)
  get_target_property(SOURCES ${TARGET} SOURCES)
  get_target_property(FOLDER ${TARGET} SOURCE_DIR)
  list(FILTER SOURCES INCLUDE REGEX "\\.cu$")
  if(NOT SOURCES)
    return()
  endif()
  target_link_libraries(${TARGET} PUBLIC ringsmith_cuda)
  foreach(SOURCE ${SOURCES})
    cmake_path(ABSOLUTE_PATH SOURCE BASE_DIRECTORY ${FOLDER} NORMALIZE)
    set_property(GLOBAL APPEND PROPERTY RINGSMITH_CUDA_SOURCES ${SOURCE})
  endforeach()
  if(RINGSMITH_CUDA STREQUAL "nvcc")
    target_compile_options(${TARGET} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${RINGSMITH_NVCC_FLAGS}>")
    foreach(SOURCE ${SOURCES})
      ringsmith_needs_hopper(${SOURCE} HOPPER)
      if(HOPPER)
        set_property(SOURCE ${SOURCE} APPEND PROPERTY COMPILE_OPTIONS
                     --generate-code=arch=compute_90a,code=sm_90a -DRINGSMITH_SM90A)
      endif()
    endforeach()
  else()
    # -g1, because the emulator's reports name file and line. `#pragma unroll` is for nvcc and clang
    # only.
    set_source_files_properties(${SOURCES} PROPERTIES LANGUAGE CXX)
    target_compile_options(${TARGET} PRIVATE -Wno-unknown-pragmas -g1 ${RINGSMITH_VGPU_CHECKS}
                           "SHELL:-include \"${PROJECT_SOURCE_DIR}/kernels/vgpu/api/libm.hpp\"")
  endif()
endfunction()

# Adds the target nvcc_check for all .cu files that have been registered so far.
function(ringsmith_nvcc_check)
  get_property(SOURCES GLOBAL PROPERTY RINGSMITH_CUDA_SOURCES)
  list(REMOVE_DUPLICATES SOURCES)
  find_program(RINGSMITH_NVCC nvcc PATHS /usr/local/cuda/bin)
  if(NOT RINGSMITH_NVCC)
    add_custom_target(nvcc_check COMMAND ${CMAKE_COMMAND} -E echo
                      "nvcc_check: nvcc was not found: the .cu files were NOT compiled for devices" VERBATIM)
    return()
  endif()
  set(NVCC ${RINGSMITH_NVCC})
  if(CCACHE)
    list(PREPEND NVCC ${CCACHE})
  endif()
  set(OBJECTS)
  set(CODE)
  foreach(ARCHITECTURE ${RINGSMITH_CUDA_ARCHITECTURES})
    list(APPEND CODE -gencode arch=compute_${ARCHITECTURE},code=sm_${ARCHITECTURE})
  endforeach()
  foreach(SOURCE ${SOURCES})
    cmake_path(RELATIVE_PATH SOURCE BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE NAME)
    set(OBJECT ${PROJECT_BINARY_DIR}/nvcc_check/${NAME}.o)
    cmake_path(GET OBJECT PARENT_PATH FOLDER)
    set(SAID ${PROJECT_BINARY_DIR}/nvcc_check/${NAME}.ptxas)  # registers, spills, errors
    # -no-compress, because tests/gpu/sass.py reads the instructions from the object file.
    # The PTX of the rings' kernels shows the scopes of their hand-offs, which tests/gpu/compiled.py
    # reads.
    set(PTX)
    if(NAME MATCHES "^runtime/comm/device/")
      set(PTX COMMAND ${RINGSMITH_NVCC} -std=c++20 -I${PROJECT_SOURCE_DIR} ${RINGSMITH_NVCC_FLAGS} -arch=compute_90 -ptx
                      ${SOURCE} -o ${PROJECT_BINARY_DIR}/nvcc_check/${NAME}.ptx)
    endif()
    # Here sm_90a replaces sm_90, because a cubin does not say which of them it is for.
    set(CODE_HERE ${CODE})
    ringsmith_needs_hopper(${SOURCE} HOPPER)
    if(HOPPER)
      list(TRANSFORM CODE_HERE REPLACE "_90" "_90a")
      list(APPEND CODE_HERE -DRINGSMITH_SM90A)
    endif()
    add_custom_command(OUTPUT ${OBJECT} COMMAND ${CMAKE_COMMAND} -E make_directory ${FOLDER}
                       COMMAND sh -c "\"$@\" 2> '${SAID}' || { cat '${SAID}' >&2; exit 1; }" nvcc
                               ${NVCC} -std=c++20 -I${PROJECT_SOURCE_DIR} ${RINGSMITH_NVCC_FLAGS} ${CODE_HERE} -Xptxas=-v -no-compress
                               -MD -MF ${OBJECT}.d -c ${SOURCE} -o ${OBJECT}
                       ${PTX}
                       DEPENDS ${SOURCE} DEPFILE ${OBJECT}.d COMMENT "nvcc ${NAME}" VERBATIM)
    list(APPEND OBJECTS ${OBJECT})
  endforeach()
  list(LENGTH SOURCES COUNT)
  string(JOIN " " TARGETS ${RINGSMITH_CUDA_ARCHITECTURES})
  add_custom_target(nvcc_check DEPENDS ${OBJECTS} COMMAND ${CMAKE_COMMAND} -E echo
                    "nvcc_check: ${COUNT} .cu files compiled for compute capability ${TARGETS}; compiled, not run" VERBATIM)
endfunction()
