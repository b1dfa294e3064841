// After the run: from counters and ledger to a profile.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/code_cache.h"
#include "engine/ledger.h"
#include "engine/perf_map.h"
#include "profile/model.h"

namespace tally::engine {

// The units are given back on the way: with many of them, both forms at once are too much memory.
// `counters` holds the sums over all threads, by counter number; `names` names generated code.
void build_profile(CodeCache& cache, const ModuleMap& modules, const Ledger& ledger,
                   const std::vector<uint64_t>& counters, const PerfMap& names,
                   profile::Profile& profile);

}  // namespace tally::engine
