# Debian's cross compiler, and the arm64 packages that run.sh has unpacked into RINGSMITH_SYSROOT.
# RINGSMITH_CROSS=clang: the other compiler, with the same linker and libraries.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RINGSMITH_SYSROOT RINGSMITH_CROSS)

set(TRIPLE aarch64-linux-gnu)
if(RINGSMITH_CROSS STREQUAL "clang")
  set(CMAKE_C_COMPILER clang)
  set(CMAKE_CXX_COMPILER clang++)
  set(CMAKE_C_COMPILER_TARGET ${TRIPLE})
  set(CMAKE_CXX_COMPILER_TARGET ${TRIPLE})
else()
  set(CMAKE_C_COMPILER ${TRIPLE}-gcc)
  set(CMAKE_CXX_COMPILER ${TRIPLE}-g++)
endif()

set(CMAKE_SYSROOT ${RINGSMITH_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE ${TRIPLE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L ${RINGSMITH_SYSROOT})

# The values that Open MPI's own compiler script would print. It cannot run on this processor.
set(MPI_C_COMPILER ${CMAKE_C_COMPILER})
set(MPI_C_COMPILER_INCLUDE_DIRS ${RINGSMITH_SYSROOT}/usr/lib/${TRIPLE}/openmpi/include)
set(MPI_C_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${RINGSMITH_SYSROOT}/usr/lib/${TRIPLE}/openmpi/lib/libmpi.so)
