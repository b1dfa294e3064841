// `tally doctor`: what this machine allows, and what to do about what it does not.
#pragma once

#include "cli/command.h"

namespace tally::cli {

void register_doctor(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

}  // namespace tally::cli
