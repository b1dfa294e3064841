// Looks at each variable: which way it goes for one depends on its length.
#include <stdio.h>

extern char **environ;
static int brief, wordy;

__attribute__((noinline)) static void look(void) {
  for (char **v = environ; *v; ++v) {
    const char *end = *v;
    while (*end) ++end;
    if (end - *v < 12) {
      brief += 3;
    } else {
      wordy += end[-1];
    }
  }
}

int main(void) {
  look();
  puts("done");
  return 0;
}
