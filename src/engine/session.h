// One run: a target, its translation, its ledger, and the profile that comes out.
//
//   spawn -> map the region -> make text non-executable -> translate the entry -> go
//   main thread: ptrace events (threads, signals, exits)   service thread: misses
//   end -> stop the service -> solve every unit -> profile
//
// What is not supported ends the run early and by name (see docs/exactness.md); children are let go
// natively and named in the profile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/plan.h"
#include "profile/model.h"

namespace tally::engine {

struct RunOptions {
  std::vector<std::string> command;
  PlacementKind placement = PlacementKind::kEdges;
  std::optional<profile::Profile> feedback;  // for kFeedback
};

struct RunResult {
  profile::Profile profile;
  bool exited = true;
  int exit_status = 0;
  int signal = 0;  // when not exited
};

Result<RunResult> run(const RunOptions& options);

}  // namespace tally::engine
