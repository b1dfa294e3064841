// `tally recover`: a profile from the file of `tally profile --keep-counters`, when Tally was
// killed.
#pragma once

#include "cli/command.h"

namespace tally::cli {

void register_recover(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

}  // namespace tally::cli
