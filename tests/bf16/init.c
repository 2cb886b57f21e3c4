// The first process of the emulated machine: runs /test with the words of /arguments, reports how
// it ended, and powers the machine off.
//
// Its threads run under SCHED_FIFO, so that none preempts another. Under Bochs 3.0, Linux does not
// notice the first use of tiles (XFD), and does not save them when it switches threads.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  char words[512] = "";
  char* list[32] = {"/test"};
  FILE* const file = fopen("/arguments", "r");
  if (file != NULL && fgets(words, sizeof words, file) != NULL) {
    int n = 1;
    for (char* word = strtok(words, "\n\t"); word != NULL && n < 31; word = strtok(NULL, "\n\t"))
      list[n++] = word;
  }
  const struct sched_param priority = {.sched_priority = 1};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0) perror("sched_setscheduler");
  const pid_t child = fork();
  if (child == 0) {
    execv(list[0], list);
    perror(list[0]);
    _exit(127);
  }
  int status = -1;
  waitpid(child, &status, 0);
  printf("ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  fflush(stdout);
  sync();
  reboot(RB_POWER_OFF);
  return 1;
}
