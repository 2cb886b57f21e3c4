// Preloaded into a program (LD_PRELOAD). Ends it with a line on stderr if it changes its
// environment while another thread may read it. setenv() may free the array that getenv() in
// another thread reads. The crash occurs once in several hundred runs; this library reports the
// cause in every run.
//
//   - the program itself may call setenv(), putenv(), unsetenv() and clearenv() only while it has
//     one thread;
//   - a library (Open MPI in MPI_Init) may also call them while its own threads run, which the
//     program cannot prevent, but not while threads of the program run.
//
// A thread is the program's if pthread_create() is called by the program or by libstdc++
// (std::thread).
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static atomic_int threads_of_program;

static int is_in_program(void* address) {
  Dl_info program, there;
  return dladdr((void*)getauxval(AT_PHDR), &program) != 0 && dladdr(address, &there) != 0 &&
         (there.dli_fbase == program.dli_fbase || strstr(there.dli_fname, "ringsmith") != NULL);
}

static int is_libstdcxx(void* address) {
  Dl_info there;
  return dladdr(address, &there) != 0 && strstr(there.dli_fname, "libstdc++") != NULL;
}

static int threads(void) {
  DIR* const tasks = opendir("/proc/self/task");
  if (tasks == NULL) return 1;
  int found = 0;
  for (struct dirent* entry; (entry = readdir(tasks)) != NULL;) found += entry->d_name[0] != '.';
  closedir(tasks);
  return found;
}

// True if this is the only thread. A joined thread may remain in the list for a moment, so the list
// is read again for up to 100 ms while no thread of the program is counted.
static int is_alone(void) {
  for (int again = 0; again < 100; ++again) {
    if (threads() == 1) return 1;
    if (atomic_load(&threads_of_program) != 0) return 0;
    usleep(1000);
  }
  return 0;
}

static void look(const char* call, const char* name, void* caller) {
  const int own = is_in_program(caller), beside = atomic_load(&threads_of_program);
  if (own ? is_alone() : beside == 0) return;
  fprintf(stderr, "lone_setenv: %s(%s) by %s while %d threads run, %d of them the program's own\n",
          call, name, own ? "the program" : "a library", threads(), beside);
  abort();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int setenv(const char* name, const char* value, int replace) {
  look("setenv", name, __builtin_return_address(0));
  return REAL(setenv)(name, value, replace);
}
int unsetenv(const char* name) {
  look("unsetenv", name, __builtin_return_address(0));
  return REAL(unsetenv)(name);
}
int putenv(char* text) {
  look("putenv", text, __builtin_return_address(0));
  return REAL(putenv)(text);
}
int clearenv(void) {
  look("clearenv", "", __builtin_return_address(0));
  return REAL(clearenv)();
}

struct start {
  void* (*run)(void*);
  void* argument;
};

static void ended(void* unused) {
  (void)unused;
  atomic_fetch_sub(&threads_of_program, 1);
}

static void* run_counted(void* given) {
  const struct start start = *(struct start*)given;
  free(given);
  void* result = NULL;
  pthread_cleanup_push(ended, NULL);
  result = start.run(start.argument);
  pthread_cleanup_pop(1);
  return result;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  void* const caller = __builtin_return_address(0);
  struct start* start = NULL;
  if (!is_in_program(caller) && !is_libstdcxx(caller))
    return REAL(pthread_create)(thread, attributes, run, argument);
  if ((start = malloc(sizeof *start)) == NULL) return 11;  // EAGAIN
  *start = (struct start){run, argument};
  atomic_fetch_add(&threads_of_program, 1);
  const int code = REAL(pthread_create)(thread, attributes, run_counted, start);
  if (code != 0) {
    ended(NULL);
    free(start);
  }
  return code;
}

static void forget_threads(void) { atomic_store(&threads_of_program, 0); }  // fork() copies one thread

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, forget_threads); }
