// CHECK(condition) << context: our own bugs, on in release.
//
// A failed check prints the condition, the place and the context, runs the dump hook (the engine
// installs one that shows the target's state) and aborts.  It is never used for bad input.
#pragma once

#include <functional>
#include <sstream>

namespace tally {

// Installs a function that appends the state of the target to a failing CHECK's report.  At most
// one is active; pass nullptr to remove it.
void set_check_dump_hook(std::function<void(std::ostream&)> hook);

namespace internal {

class CheckFailure {
 public:
  CheckFailure(const char* condition, const char* file, int line);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Lets the conditional operator below have type void on both sides.
struct Voidify {
  void operator&(std::ostream&) const {}
};

}  // namespace internal
}  // namespace tally

#define CHECK(condition)                              \
  (__builtin_expect(static_cast<bool>(condition), 1)) \
      ? static_cast<void>(0)                          \
      : ::tally::internal::Voidify() &                \
            ::tally::internal::CheckFailure(#condition, __FILE__, __LINE__).stream()
