// Long enough for a terminal to be told how far it is.
#include <stdio.h>

static volatile int sink;

int main(void) {
  for (int i = 0; i < 6000000; ++i) sink += i % 7 == 3 ? 2 : 1;
  puts("done");
  return 0;
}
