// `tally dump instructions|edges|blocks|profile FILE`: counts for other programs to check.
#pragma once

#include "cli/command.h"

namespace tally::cli {

// The `dump` subcommand itself, created on first use, so that several files can add to it.
CLI::App* dump_parent(CLI::App& app);

void register_dump_profile(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

}  // namespace tally::cli
