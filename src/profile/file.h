// A profile as a file: complete or not there at all.
//
// The file is written under another name in the same folder, synced, and renamed at the end, so
// that whatever happens (disk full, killed, power lost) the name holds either the older profile or
// the new one, never half of one.
#pragma once

#include <string>

#include "base/result.h"
#include "profile/model.h"

namespace tally::profile {

// Writes `profile` to `path`, replacing an older file of that name only when all is safely written.
Status save(const Profile& profile, const std::string& path);

// Reads and validates a profile.  Whatever is not one is refused by one line naming the path.
Result<Profile> load(const std::string& path);

// Finds out before a long run whether `save` to `path` could work: the folder exists and takes
// files, and what is there now may be replaced.
Status check_writable(const std::string& path);

}  // namespace tally::profile
