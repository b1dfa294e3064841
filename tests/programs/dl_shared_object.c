// Claim: a shared object with constructor, destructor, calls back into the program and a jump
// table, unloaded and loaded again.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: clang O2 pie dynamic
// flags: -rdynamic
// also: shared plugin.c
#include <dlfcn.h>
#include <stdio.h>

__attribute__((used)) long host_add(long a, long b) { return a + b; }

int main(void) {
  long sum = 0;
  for (int i = 0; i < 3; i++) {
    void* library = dlopen(LIBRARY, i == 1 ? RTLD_LAZY : RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    long (*run)(long) = (long (*)(long))dlsym(library, "plugin_run");
    for (long k = 0; k < 12; k++) sum += run(k);
    dlclose(library);
  }
  printf("%ld\n", sum);
  return 0;
}
