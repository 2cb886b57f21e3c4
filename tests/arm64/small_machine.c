// Preloaded into programs of rooms.sh: pretends that the machine has 1 GiB of memory. Each rank
// reserves address space of that size for each other rank, and QEMU before 8.0 allocates 6 MiB for
// every GiB of it and never frees it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

long sysconf(int name) {
  long (*const real)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  return name == _SC_PHYS_PAGES ? (1L << 30) / real(_SC_PAGESIZE) : real(name);
}
