// Claim: a switch over a char (index zero-extended from a byte, table without bound check when all
// values are covered) is exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

static const char text[] = "The quick brown fox jumps over the lazy dog; (a+b)*c-[d/e]{42}.";

NOINLINE int kind(unsigned char c) {
  volatile int k;
  switch (c) {
    case 'a': case 'e': case 'i': case 'o': case 'u': k = 1; break;
    case 'b': case 'c': case 'd': case 'f': k = 2; break;
    case '0' ... '9': k = 3; break;
    case '(': case ')': k = 4; break;
    case '+': k = 5; break;
    case '-': k = 6; break;
    case '*': k = 7; break;
    case '/': k = 8; break;
    case ' ': k = 9; break;
    default: k = 0;
  }
  return k;
}

NOINLINE int low_bits(unsigned char c) {
  volatile int r;
  switch (c & 7) {
    case 0: r = 3; break;
    case 1: r = 1; break;
    case 2: r = 4; break;
    case 3: r = 15; break;
    case 4: r = 9; break;
    case 5: r = 2; break;
    case 6: r = 6; break;
    case 7: r = 5; break;
    default: __builtin_unreachable();
  }
  return r;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long counts[10] = {0}, sum = 0;
  for (const char* p = text; *p; p++) {
    counts[kind((unsigned char)*p)]++;
    sum += low_bits((unsigned char)*p);
  }
  for (int i = 0; i < 10; i++) print_number("kind", counts[i]);
  print_number("sum", sum);
  return 0;
}
