// Claim: the same of a program so large that its calls and returns are paired.
// build: gcc O0 pie,nopie nolibc
.text
.skip 4 << 20, 0xcc
#include "asm_returns_by_jump.S"
