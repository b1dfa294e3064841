// The command: subcommands, errors in one line, exit statuses.  The only place that exits.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string_view>

#include "cli/annotate.h"
#include "cli/check.h"
#include "cli/doctor.h"
#include "cli/dump_cfg.h"
#include "cli/dump_profile.h"
#include "cli/explain.h"
#include "cli/profile.h"
#include "cli/recover.h"
#include "cli/report.h"
#include "cli/verify.h"

namespace {

int status_of(tally::ErrorKind kind) {
  switch (kind) {
    case tally::ErrorKind::kUsage:
      return 2;
    case tally::ErrorKind::kNotExecutable:
      return 126;
    case tally::ErrorKind::kNotFound:
      return 127;
    case tally::ErrorKind::kMismatch:
      return 1;
    case tally::ErrorKind::kFailure:
      break;
  }
  return 125;
}

// Dies the way the target died, without a core of our own.
void die_by(int signal_number) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(signal_number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal_number);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal_number);
}

// Before any object is made, of which the first would not survive it: jemalloc falls over where
// there is no room for its own beginnings (below 26 MB, in a process that takes 20).
[[gnu::constructor(101)]] void check_address_space() {
  constexpr rlim_t kLeastBytes = 64 << 20;
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur >= kLeastBytes) return;
  constexpr std::string_view kWords =
      "tally: less than 64 MB of address space; raise the limit (ulimit -v)\n";
  // Who cannot be told learns it from the status.
  [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, kWords.data(), kWords.size());
  _exit(125);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Exact execution profiles of unmodified Linux x86-64 programs.", "tally");
  app.set_version_flag("--version", "tally " TALLY_VERSION);
  app.require_subcommand(1);
  auto outcome = std::make_shared<tally::cli::CommandOutcome>();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto split = tally::cli::split_command_line(
      arguments, {"profile", "recover", "report", "annotate", "explain", "check", "verify", "dump",
                  "doctor", "help"});
  tally::cli::register_profile(app, outcome, split.command);
  tally::cli::register_recover(app, outcome);
  tally::cli::register_report(app, outcome);
  tally::cli::register_annotate(app, outcome);
  tally::cli::register_dump_profile(app, outcome);
  tally::cli::register_dump_cfg(app, outcome);
  tally::cli::register_explain(app, outcome);
  tally::cli::register_check(app, outcome);
  tally::cli::register_doctor(app, outcome);
  tally::cli::register_verify(app, outcome, split.command);
  std::vector<std::string> reversed(split.ours.rbegin(), split.ours.rend());
  if (reversed.size() == 1 && reversed[0] == "help") reversed[0] = "--help";
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    // Help and version come this way, too.
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "tally: %s; try tally --help\n", error.what());
    return 2;
  }
  if (!outcome->status) {
    std::fprintf(stderr, "tally: %s\n", outcome->status.error().message.c_str());
    return status_of(outcome->status.error().kind);
  }
  if (outcome->signal != 0) {
    die_by(outcome->signal);
    return 128 + outcome->signal;  // a signal that does not kill us after all
  }
  return outcome->exit_code;
}
