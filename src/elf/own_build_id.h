// Which build of Tally this is.
#pragma once

#include <string>

namespace tally::elf {

// The build-id of the running program, lower-case hex; empty if it was linked without one.
std::string own_build_id();

}  // namespace tally::elf
