// See command.h.
#include "cli/command.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "report/output.h"

namespace tally::cli {
namespace {

bool colors_wanted() {
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* terminal = std::getenv("TERM");
  if (terminal == nullptr || std::string_view(terminal) == "dumb") return false;
  return ::isatty(STDOUT_FILENO) == 1;
}

// Without SIGPIPE a reader that went away is an error of write, which Output takes as the end.
// Restored afterwards: a target that is started later must not inherit it.
class IgnoredPipeSignal {
 public:
  IgnoredPipeSignal() {
    struct sigaction ignore = {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &before_);
  }
  ~IgnoredPipeSignal() { ::sigaction(SIGPIPE, &before_, nullptr); }
  IgnoredPipeSignal(const IgnoredPipeSignal&) = delete;
  IgnoredPipeSignal& operator=(const IgnoredPipeSignal&) = delete;

 private:
  struct sigaction before_ = {};
};

}  // namespace

namespace {

Status write_to(int descriptor, const std::function<Status(report::Output&)>& produce) {
  const IgnoredPipeSignal no_signal;
  report::Output output(descriptor, colors_wanted());
  Status produced = produce(output);
  Status finished = output.finish();
  return produced ? finished : produced;
}

}  // namespace

Status write_to_stdout(const std::function<Status(report::Output&)>& produce) {
  return write_to(STDOUT_FILENO, produce);
}

Status write_to_stderr(const std::function<Status(report::Output&)>& produce) {
  return write_to(STDERR_FILENO, produce);
}

}  // namespace tally::cli
