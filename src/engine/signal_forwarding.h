// Signals that are sent to us alone are handed on to the command.
//
// While it runs, such a signal is for it, and what the terminal sends (^C, ^Z) reaches it anyway.
// Afterwards it is for us: we end, and the kernel ends what is left.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <array>

namespace tally::engine {

// They are, for as long as this lives.  One at a time.
class SignalForwarding {
 public:
  explicit SignalForwarding(pid_t to);
  ~SignalForwarding();
  SignalForwarding(const SignalForwarding&) = delete;
  SignalForwarding& operator=(const SignalForwarding&) = delete;

  // The command is gone.
  static void end();

 private:
  static constexpr std::array<int, 5> kNumbers = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP};
  std::array<struct sigaction, 5> before_{};
};

}  // namespace tally::engine
