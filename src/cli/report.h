// `tally report FILE`: what a profile says.
#pragma once

#include "cli/command.h"

namespace tally::cli {

void register_report(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

}  // namespace tally::cli
