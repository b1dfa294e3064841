// What a subcommand of `tally` looks like.
//
// Each file in this room offers one function of type `Registrar`.  It adds its subcommand to the
// CLI11 application, and the subcommand's callback leaves what happened in the shared outcome:
//
//   void register_report(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
//     CLI::App* sub = app.add_subcommand("report", "What a profile says");
//     sub->callback([=] { outcome->status = run_report(*options); });
//   }
//
// main.cpp calls the registrars, parses, prints an error in one line and chooses the exit status
// from `status` (or `exit_code`, where the command succeeded but has a status to pass on, such as
// the target's).  No other file prints errors or exits.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>

#include "base/result.h"

namespace tally::report {
class Output;
}

namespace tally::cli {

struct CommandOutcome {
  Status status = Ok{};
  int exit_code = 0;  // meaningful when `status` is ok
  int signal = 0;     // the target died of this signal; main dies of it too
};

using Registrar = void (*)(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

// Runs `produce` with an output that goes to stdout, and flushes it.  A reader that went away
// (`tally report x | head`) ends the output quietly; any other failed write is an error.
Status write_to_stdout(const std::function<Status(report::Output&)>& produce);
// The same to stderr, where the program under observation owns stdout.
Status write_to_stderr(const std::function<Status(report::Output&)>& produce);

}  // namespace tally::cli
