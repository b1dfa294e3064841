// Claim: exceptions that libstdc++ throws, and others that pass through qsort in C, rethrown by a
// catch and by current_exception, keep every block balanced.
// build: gcc O2 pie,nopie static
// ci: gcc O2 pie static
// limit: 6000000
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

static int destroyed;
struct Guard {
  ~Guard() { destroyed++; }
};

// Thrown by libstdc++ itself, four frames down.
__attribute__((noinline)) static int library(int n) {
  Guard guard;
  std::vector<int> few(3);
  if (n % 3 == 0) return few.at(static_cast<size_t>(n) + 5);
  if (n % 3 == 1) return std::stoi("none");
  return static_cast<int>(std::string("short").substr(9).size());
}

__attribute__((noinline)) static int again(int n) {
  Guard guard;
  try {
    return library(n);
  } catch (...) {
    Guard inner;
    throw;
  }
}

__attribute__((noinline)) static int kept(int n) {
  std::exception_ptr pointer;
  try {
    again(n);
  } catch (...) {
    pointer = std::current_exception();
  }
  std::rethrow_exception(pointer);
}

static int compare(const void* a, const void* b) {
  Guard guard;
  const int x = *static_cast<const int*>(a);
  const int y = *static_cast<const int*>(b);
  if (x == 13 || y == 13) throw x;
  return x - y;
}

int main() {
  int caught = 0;
  for (int i = 0; i < 6; i++) {
    try {
      kept(i);
    } catch (const std::out_of_range&) {
      caught += 1;
    } catch (const std::invalid_argument&) {
      caught += 100;
    }
  }
  int numbers[] = {5, 13, 2, 9};
  for (int i = 0; i < 2; i++) {
    try {
      qsort(numbers, 4, sizeof numbers[0], compare);
    } catch (int) {
      caught += 10000;
    }
  }
  std::printf("%d %d\n", caught, destroyed > 10);
  return 0;
}
