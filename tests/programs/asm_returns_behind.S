// Claim: the same, and a return that pops what its block has pushed is a jump, also to behind a call
// that it did not make.  (Which is entered out of turn then, so that its block's count is higher;
// e2e/random_programs.py compares instructions.)
// build: gcc,clang O0 pie,nopie nolibc
// oracle: output
#define BEHIND_A_CALL
#include "asm_returns_changed.S"
