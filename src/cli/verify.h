// `tally verify`: runs the original program again and says where a profile of it is wrong.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace tally::cli {

void register_verify(CLI::App& app, std::shared_ptr<CommandOutcome> outcome,
                     const std::vector<std::string>& command);

}  // namespace tally::cli
