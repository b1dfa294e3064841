// `tally annotate FILE --function=X`: instructions with their counts.
#pragma once

#include "cli/command.h"

namespace tally::cli {

void register_annotate(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

}  // namespace tally::cli
