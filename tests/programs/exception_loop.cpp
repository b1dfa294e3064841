// Claim: C++ exceptions thrown through frames with destructors, caught by type, rethrown, in a loop
// keep every block balanced.
// build: gcc,clang O0,O2 pie static,dynamic
// dynamic: -static-libstdc++ -static-libgcc
// ci: gcc O2 pie static; clang O0 pie static; gcc O2 pie dynamic
#include <cstdio>
#include <stdexcept>

static int destroyed;
struct Guard {
  ~Guard() { destroyed++; }
};

__attribute__((noinline)) static void bottom(int n) {
  Guard g;
  if (n % 4 == 1) throw n;
  if (n % 4 == 2) throw std::runtime_error("two");
  if (n % 4 == 3) throw 'c';
}
__attribute__((noinline)) static void middle(int n) {
  Guard g;
  try {
    bottom(n);
  } catch (char) {
    destroyed += 100;
    throw;
  }
}
__attribute__((noinline)) static int top(int n) {
  Guard g;
  try {
    middle(n);
  } catch (int v) {
    return v;
  } catch (const std::exception& e) {
    return 1000 + e.what()[0];
  } catch (...) {
    return -1;
  }
  return 0;
}

int main() {
  int sum = 0;
  for (int i = 0; i < 8; i++) sum += top(i);
  printf("%d %d\n", sum, destroyed);
  return 0;
}
