// One run: a target, its translation, its ledger, and the profile that comes out.
//
//   spawn -> map the region -> make text non-executable -> translate the entry -> go
//   main thread: ptrace events (threads, signals, exits)   service thread: misses
//   end -> stop the service -> solve every unit -> profile
//
// What is not supported ends the run early and by name (see docs/exactness.md); children are let go
// natively and named in the profile.
#pragma once

#include "base/result.h"
#include "engine/run_options.h"
#include "profile/model.h"

namespace tally::engine {

struct RunResult {
  profile::Profile profile;
  bool exited = true;
  int exit_status = 0;
  int signal = 0;  // when not exited
};

Result<RunResult> run(const RunOptions& options);

}  // namespace tally::engine
