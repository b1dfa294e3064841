// Claim: the same as asm_jump_by_index, in so few instructions that each can be ended at
// (e2e/killed_at_each_step).
// build: gcc O0 pie,nopie nolibc
#define ROUNDS 2
#define INDEXES 2
#define WIDE_INDEXES 2
#include "asm_jump_by_index.S"
