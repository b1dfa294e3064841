// After the run: from counters and ledger to a profile.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/code_cache.h"
#include "engine/ledger.h"
#include "profile/model.h"

namespace tally::engine {

// `counters` holds the sums over all threads, by counter number.
void build_profile(const CodeCache& cache, const ModuleMap& modules, const Ledger& ledger,
                   const std::vector<uint64_t>& counters, profile::Profile& profile);

}  // namespace tally::engine
