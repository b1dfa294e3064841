// Claim: exit() from inside a catch block, static objects destroyed afterwards.
// build: gcc,clang O0,O2 pie static,dynamic
// dynamic: -static-libstdc++ -static-libgcc
// ci: gcc O2 pie static
// expect: status=5
#include <cstdio>
#include <cstdlib>
struct Object {
  const char* name;
  ~Object() { printf("destroyed %s\n", name); }
};
static Object global{"global"};

__attribute__((noinline)) static void thrower() {
  Object local{"local"};
  throw 5;
}

int main() {
  static Object inner{"function static"};
  try {
    thrower();
  } catch (int n) {
    exit(n);
  }
}
