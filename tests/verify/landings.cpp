// Exceptions of each kind: caught where they are thrown to, passed through destructors, thrown by
// one of two calls that share a landing pad, through virtual and recursive calls, thrown again.
// With one argument also longjmp, with two a child that goes on behind the same call.
#include <csetjmp>
#include <cstdio>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace {

int cleaned = 0;

struct Guard {
  explicit Guard(int& count) : count_(count) {}
  __attribute__((noinline)) ~Guard() { ++count_; }
  int& count_;
};

struct Shape {
  virtual ~Shape() = default;
  virtual int area(int n) = 0;
};
struct Square : Shape {
  __attribute__((noinline)) int area(int n) override {
    if (n % 5 == 0) throw n;
    return n * n;
  }
};
struct Line : Shape {
  __attribute__((noinline)) int area(int n) override { return n; }
};

__attribute__((noinline)) int may_throw(int n) {
  if (n % 7 == 0) throw std::runtime_error("seven");
  return n + 1;
}

__attribute__((noinline)) int harmless(int n) {
  return n ^ 1;
}

// Each call has its own counter, and both land at the same place.
__attribute__((noinline)) int two_calls(int n) {
  try {
    const int first = may_throw(n);
    return first + may_throw(first + harmless(n));
  } catch (const std::runtime_error&) {
    return -1;
  }
}

// The exception passes; the destructor runs on both ways.
__attribute__((noinline)) int passes(int n) {
  Guard guard(cleaned);
  const int value = may_throw(n);
  return value + harmless(value);
}

__attribute__((noinline)) int deep(int n, int depth) {
  Guard guard(cleaned);
  if (depth == 0) return may_throw(n);
  return deep(n, depth - 1) + 1;
}

__attribute__((noinline)) int again(int n) {
  try {
    return passes(n);
  } catch (const std::exception&) {
    if (n % 14 == 0) throw;
    return -2;
  }
}

__attribute__((noinline)) int by_pointer(Shape* shape, int n) {
  try {
    return shape->area(n);
  } catch (int value) {
    return -value;
  }
}

jmp_buf target;

__attribute__((noinline)) void jumps(int n) {
  if (n % 3 == 0) longjmp(target, n);
}

int jumped = 0;

__attribute__((noinline)) void with_longjmp(int n) {
  if (setjmp(target) == 0) {
    jumps(n);
  } else {
    ++jumped;
  }
}

__attribute__((noinline)) void with_child(const char* text) {
  const pid_t child = fork();
  if (child == 0) _exit(harmless(text[0]) != 0 ? 0 : 1);
  waitpid(child, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  long sum = 0;
  Square square;
  Line line;
  for (int i = 1; i <= 300; ++i) {
    sum += two_calls(i);
    sum += by_pointer(i % 2 == 0 ? static_cast<Shape*>(&square) : &line, i);
    try {
      sum += again(i);
      sum += deep(i, i % 4);
    } catch (const std::runtime_error&) {
      sum += 1000;
    }
    if (argc > 1) with_longjmp(i + 1);
  }
  if (argc > 2) with_child(argv[1]);
  std::printf("%ld %d %d\n", sum, cleaned, jumped);
  return 0;
}
