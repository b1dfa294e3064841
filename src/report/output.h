// Where rendered text goes: a file descriptor or a string, buffered, errors kept for the end.
//
// Dumps run to hundreds of megabytes, so they are streamed.  Writing never fails in the middle of a
// renderer: `closed` tells long loops to stop, `finish` says what went wrong.  A reader that went
// away (EPIPE) is no error.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace tally::report {

enum class Format : uint8_t { kText, kJson, kCsv };

class Output {
 public:
  // To a descriptor that stays the caller's.  `color` permits terminal escapes.
  Output(int descriptor, bool color) : descriptor_(descriptor), color_(color) {}
  // To a string that outlives this; for tests.
  explicit Output(std::string& sink) : sink_(&sink) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text);
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
    flush_if_full();
  }
  // Text that stands out on a terminal.
  void heading(std::string_view text) { styled("\x1b[1m", text); }
  void good(std::string_view text) { styled("\x1b[32m", text); }
  void bad(std::string_view text) { styled("\x1b[31m", text); }

  // Nobody reads any more, or writing failed.
  bool closed() const { return error_ != 0; }
  Status finish();

 private:
  static constexpr size_t kBufferBytes = 1 << 16;
  void styled(std::string_view escape, std::string_view text);
  void flush_if_full() {
    if (buffer_.size() >= kBufferBytes) flush();
  }
  void flush();

  int descriptor_ = -1;
  std::string* sink_ = nullptr;
  bool color_ = false;
  int error_ = 0;
  std::string buffer_;
};

}  // namespace tally::report
