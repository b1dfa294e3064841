// What a profiling run is asked to do.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cache/optimizations.h"
#include "cache/plan.h"
#include "cache/recall.h"
#include "profile/model.h"

namespace tally::engine {

class Keeper;

struct RunOptions {
  std::vector<std::string> command;
  // Instead of a command: a process that runs already, for so long, or until SIGINT or SIGTERM.
  std::optional<pid_t> attach_to;
  std::optional<std::chrono::nanoseconds> duration;
  std::function<void(const std::string& program, size_t threads)> attached;  // it has begun
  PlacementKind placement = PlacementKind::kEdges;
  std::optional<profile::Profile> feedback;  // for kFeedback
  Optimizations optimizations;
  bool stress_renewal = false;  // procedures are translated again whenever that can be done
  bool stress_index = false;    // jumps through tables go by the program's index from the first on
  bool stress_defer = false;    // all but the first block of each procedure is left out at first
  // Ends the program by SIGKILL after so many instructions of translated code, or of what leads to
  // it and waits for it, unless a thread, a process or a signal comes first; 0: never.
  uint64_t stress_end_steps = 0;
  RecallFolder recall;          // what earlier runs have left
  bool follow_children = true;  // else processes that are forked run natively
  // What has been counted is kept in files while it is counted; not with `attach_to`.
  Keeper* keeper = nullptr;
  // Adds what the command line says to a run's facts.
  std::function<void(profile::Run&)> label;
  // Takes the profile of each image run, one after the other, as they end.  Called from a thread of
  // the engine.
  std::function<Status(profile::Profile)> keep;
};

}  // namespace tally::engine
