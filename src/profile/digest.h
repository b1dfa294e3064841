// A 64-bit digest of everything a profile says.
//
// SQLite notices a damaged page header but not a flipped bit in a count, and a wrong count that
// looks right is the one thing a profile must never hold.  So the file carries this digest,
// computed over the model and not over the bytes of the file: copying the tables into another
// database with SQLite's own tools keeps it valid.  It guards against accidents, not against
// forgery.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "profile/model.h"

namespace tally::profile {

uint64_t content_digest(const Profile& profile);

// Of a process' environment as /proc/PID/environ has it: `Run::environment_digest`.  Tells equal
// environments from different ones, guards against nothing else.
std::string environment_digest(std::string_view variables);

}  // namespace tally::profile
