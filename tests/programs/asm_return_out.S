// Claim: the same by a return, behind a call that it did not make.  (Which is entered out of turn
// then, so that its block's count is higher; killed_at_each_step_of_calls.py compares instructions.)
// build: gcc,clang O0 pie,nopie nolibc
// oracle: output
#define BY_RETURN
#include "asm_jump_out.S"
