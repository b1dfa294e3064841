#include "base/check.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tally {
namespace {
std::function<void(std::ostream&)>& dump_hook() {
  static std::function<void(std::ostream&)> hook;
  return hook;
}
}  // namespace

void set_check_dump_hook(std::function<void(std::ostream&)> hook) {
  dump_hook() = std::move(hook);
}

namespace internal {

CheckFailure::CheckFailure(const char* condition, const char* file, int line) {
  stream_ << "tally: internal error: CHECK(" << condition << ") failed at " << file << ":" << line
          << ": ";
}

CheckFailure::~CheckFailure() {
  // Move the hook out first: a CHECK inside the hook must not run it again.
  if (auto hook = std::exchange(dump_hook(), nullptr)) {
    stream_ << "\n";
    hook(stream_);
  }
  stream_ << "\ntally: this is a bug in Tally; please report it with the lines above\n";
  std::string text = stream_.str();
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::abort();
}

}  // namespace internal
}  // namespace tally
