// Claim: the same of a program so large that its calls and returns are paired.
// build: gcc O2 pie,nopie nolibc
// ci: gcc O2 nopie nolibc
__asm__(".text\n.skip 4 << 20, 0xcc\n");
#include "vdso_calls.c"
