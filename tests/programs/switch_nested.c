// Claim: switches in a loop inside switches (an interpreter) are exact, with tables behind tables.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE long run(const unsigned char* code) {
  long a = 0, b = 1;
  for (;;) {
    switch (*code++) {
      case 0: return a;
      case 1: a += b; break;
      case 2: b += a; break;
      case 3: a ^= b; break;
      case 4: b = -b; break;
      case 5:
        switch (*code++) {
          case 0: a = 1; break;
          case 1: a = 2; break;
          case 2: a <<= 2; break;
          case 3: a = ~a; break;
          case 4: b = a; break;
          default: a = 77;
        }
        break;
      case 6: if (a & 1) code++; break;
      case 7: a -= 3; break;
      default: return -1;
    }
    BARRIER();
  }
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  static const unsigned char one[] = {1, 1, 2, 3, 5, 2, 6, 4, 1, 5, 4, 2, 7, 1, 5, 9, 0};
  static const unsigned char two[] = {1, 5, 0, 5, 1, 5, 2, 5, 3, 200};
  print_number("one", run(one));
  print_number("two", run(two));
  for (int i = 0; i < 20; i++) CHECK(run(one) == run(one + 0));
  return 0;
}
