// A loop that differs from run to run by itself.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

volatile int sum;

int main(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  int turns = 10 + (int)(now.tv_nsec / 100 % 997) + getpid() % 7;
  for (int i = 0; i < turns; i++) sum += i;
  puts("done");
  return 0;
}
