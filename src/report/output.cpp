// See output.h.
#include "report/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tally::report {

void Output::write(std::string_view text) {
  buffer_ += text;
  flush_if_full();
}

void Output::styled(std::string_view escape, std::string_view text) {
  if (color_) {
    print("{}{}\x1b[0m", escape, text);
  } else {
    write(text);
  }
}

void Output::flush() {
  if (sink_ != nullptr) {
    *sink_ += buffer_;
    buffer_.clear();
    return;
  }
  std::string_view rest = buffer_;
  while (!rest.empty() && error_ == 0) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written >= 0) {
      rest.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  buffer_.clear();
}

Status Output::finish() {
  flush();
  if (error_ == 0 || error_ == EPIPE) return Ok{};
  return make_error("cannot write the output: {}", std::strerror(error_));
}

}  // namespace tally::report
