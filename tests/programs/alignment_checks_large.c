// Claim: the same of a program so large that its calls and returns are paired.
// build: gcc O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// flags: -D_GNU_SOURCE -mno-sse -fno-optimize-sibling-calls
__asm__(".text\n.skip 4 << 20, 0xcc\n");
#include "alignment_checks.c"
