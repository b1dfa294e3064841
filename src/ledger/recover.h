// From the files of a killed monitor to profiles: `tally recover`.  See keeper.h.
//
// The journal is read back into what the code cache and the ledger held, and the profile is solved
// from it as at any end of a run.  What the monitor would have learned from the threads' registers
// is not known: the procedure each thread was in is named, and nothing else is off.
//
// Every byte is checked: files may be damaged, torn, or made to hurt.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "profile/model.h"

namespace tally::engine {

// Calls `keep` with the profile of each run of the session, in the order in which they began.
// Errors: no kept file, a damaged one, one whose run is still going on.
Status recover(const std::string& path, const std::function<Status(profile::Profile)>& keep);

}  // namespace tally::engine
