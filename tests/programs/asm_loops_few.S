// Claim: the same as asm_loops, in so few instructions that each can be ended at
// (e2e/killed_at_each_step_of_calls).
// build: gcc O0 pie,nopie nolibc
#define ROUNDS 3
#include "asm_loops.S"
