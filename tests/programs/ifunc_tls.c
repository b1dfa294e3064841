// Claim: ifuncs (resolvers run while relocating), thread-local variables of both models,
// constructors and destructors with priorities.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static; clang O2 pie static; gcc O0 pie dynamic
#include <stdio.h>

static long plain(long x) { return x + 1; }
static long (*choose(void))(long) { return plain; }
long chosen(long x) __attribute__((ifunc("choose")));

static __thread long local = 40;
__thread long global_tls __attribute__((tls_model("global-dynamic"))) = 2;
static char order[8];
static int at;
__attribute__((constructor(201))) static void first(void) { order[at++] = '1'; }
__attribute__((constructor(202))) static void second(void) { order[at++] = '2'; }
__attribute__((destructor)) static void last(void) { printf("end %ld\n", local); }

int main(void) {
  for (int i = 0; i < 10; i++) local = chosen(local);
  printf("%s %ld %ld\n", order, local, global_tls);
  return 0;
}
