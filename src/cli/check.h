// `tally check FILE`: does a profile, of whatever tool, contradict itself?
#pragma once

#include "cli/command.h"

namespace tally::cli {

void register_check(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

}  // namespace tally::cli
