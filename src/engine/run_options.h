// What a profiling run is asked to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/plan.h"
#include "profile/model.h"

namespace tally::engine {

struct RunOptions {
  std::vector<std::string> command;
  PlacementKind placement = PlacementKind::kEdges;
  std::optional<profile::Profile> feedback;  // for kFeedback
};

}  // namespace tally::engine
