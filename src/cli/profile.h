// `tally profile`: run a program and write its exact profile.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace tally::cli {

// `command` is the target's command line, already separated from our own options by
// split_command_line.
void register_profile(CLI::App& app, std::shared_ptr<CommandOutcome> outcome,
                      const std::vector<std::string>& command);

// gzip -> gzip.tally, in the current folder.
std::string default_output(const std::string& program);

// Separates `tally profile [options] [--] prog args`: our arguments and the target's.  `tally prog
// args` becomes `tally profile -- prog args`.
struct SplitCommandLine {
  std::vector<std::string> ours;
  std::vector<std::string> command;
};
SplitCommandLine split_command_line(const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& subcommands);

}  // namespace tally::cli
