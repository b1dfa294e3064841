// A profiling session: a command, all processes it makes, and the profiles that come out.
//
//   main thread      ptrace events of all processes, each handed to the image run it belongs to
//   service thread   misses (service_thread.h)
//   finisher         image runs that are over become profiles, one by one (finisher.h)
//
//   fork             an image run for the child, which goes on in mid-run
//   vfork            the child is a thread of its parent's image run until it execs
//   exec             the old image run is over, a new one begins
//
// The session ends when the last process that is followed has ended, also one that outlives the
// command (a daemon): its counts would be wrong otherwise.  Its exit status is the command's.
//
// A program that cannot be followed (32-bit, damaged) goes on natively and is named in the profile
// of the run that became it.  What is not supported at all ends the session early and by name (see
// docs/exactness.md).
#pragma once

#include <optional>

#include "base/result.h"
#include "engine/run_options.h"
#include "profile/model.h"

namespace tally::engine {

struct RunResult {  // how the command ended
  bool exited = true;
  int exit_status = 0;
  int signal = 0;  // when not exited
  // Tally could not go on with the command and ended it; what was counted until then is kept, and
  // its run says so.
  std::optional<Error> failure;
};

Result<RunResult> run(const RunOptions& options);

}  // namespace tally::engine
