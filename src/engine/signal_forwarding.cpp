// See signal_forwarding.h.
#include "engine/signal_forwarding.h"

namespace tally::engine {
namespace {

volatile pid_t forwarding_to = 0;

void forward_signal(int number, siginfo_t* info, void*) {
  if (forwarding_to == 0) {
    signal(number, SIG_DFL);
    raise(number);
  } else if (info->si_code != SI_KERNEL) {
    kill(forwarding_to, number);
  }
}

}  // namespace

SignalForwarding::SignalForwarding(pid_t to) {
  forwarding_to = to;
  struct sigaction forward {};
  forward.sa_sigaction = forward_signal;
  forward.sa_flags = SA_SIGINFO | SA_RESTART;
  for (size_t i = 0; i < kNumbers.size(); ++i) {
    sigaction(kNumbers[i], nullptr, &before_[i]);
    // What we were started to ignore (nohup), we and the command ignore.
    if (before_[i].sa_handler != SIG_IGN) sigaction(kNumbers[i], &forward, nullptr);
  }
}

SignalForwarding::~SignalForwarding() {
  for (size_t i = 0; i < kNumbers.size(); ++i) sigaction(kNumbers[i], &before_[i], nullptr);
}

void SignalForwarding::end() {
  forwarding_to = 0;
}

}  // namespace tally::engine
