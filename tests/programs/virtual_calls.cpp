// Claim: virtual calls, pointers to members, thunks of multiple inheritance, std::function, lambdas.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie static; clang O0 pie static
// dynamic: -static-libstdc++ -static-libgcc
#include <cstdio>
#include <functional>
#include <memory>

struct A {
  virtual ~A() = default;
  virtual long f(long x) = 0;
};
struct B {
  virtual ~B() = default;
  virtual long g(long x) { return x; }
};
struct C : A, B {
  long k = 3;
  long f(long x) override { return x * k; }
  long g(long x) override { return x + k; }
};
struct D : C {
  long g(long x) override { return C::g(x) - 1; }
};

__attribute__((noinline)) static long through(A& a, B& b, long n) { return a.f(n) ^ b.g(n); }

int main() {
  auto c = std::make_unique<C>();
  auto d = std::make_unique<D>();
  long sum = 0;
  long (B::*member)(long) = &B::g;
  for (long i = 0; i < 20; i++) {
    sum += through(i % 3 ? static_cast<A&>(*c) : *d, i % 2 ? static_cast<B&>(*c) : *d, i);
    sum += (d.get()->*member)(i);
  }
  std::function<long(long)> fib = [&fib](long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); };
  std::printf("%ld %ld\n", sum, fib(9));
  return 0;
}
