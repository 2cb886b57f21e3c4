// Preloaded into programs of rooms.sh: pretends that the machine has 1 GiB of memory. Each rank
// reserves as much address space per peer as the machine has memory. QEMU before 8.0 allocates 6
// MiB per reserved GiB, which it does not free.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

long sysconf(int name) {
  long (*const real)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
  return name == _SC_PHYS_PAGES ? (1L << 30) / real(_SC_PAGESIZE) : real(name);
}
