// Claim: dlopen, dlsym, dlclose of libm, twice (at the same or another place).
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  double sum = 0;
  for (int i = 0; i < 2; i++) {
    void* library = dlopen("libm.so.6", RTLD_NOW);
    if (!library) return 1;
    double (*cube_root)(double) = (double (*)(double))dlsym(library, "cbrt");
    if (!cube_root) return 2;
    for (int k = 1; k < 6; k++) sum += cube_root(k * k * k);
    if (dlclose(library)) return 3;
  }
  printf("%.3f\n", sum);
  return 0;
}
