// `tally explain FILE ADDR`: where one count comes from.
#pragma once

#include "cli/command.h"

namespace tally::cli {

void register_explain(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

}  // namespace tally::cli
