// `tally dump cfg`: the control-flow graphs of a program file, without running it.
#pragma once

#include "cli/command.h"

namespace tally::cli {

void register_dump_cfg(CLI::App& app, std::shared_ptr<CommandOutcome> outcome);

}  // namespace tally::cli
