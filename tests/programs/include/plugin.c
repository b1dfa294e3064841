// The shared object of dl_shared_object.c.
#include <stdio.h>

extern long host_add(long a, long b);
static long started;

__attribute__((constructor)) static void begin(void) {
  started = 100;
  puts("constructed");
}
__attribute__((destructor)) static void end(void) { puts("destroyed"); }

long plugin_run(long n) {
  switch (n) {
    case 0: return host_add(started, 1);
    case 1: return 7;
    case 2: return host_add(n, n) * 3;
    case 3: return started++;
    case 4: return -n;
    case 5: return n << 4;
    case 6: return host_add(n, started);
    default: return 1;
  }
}
