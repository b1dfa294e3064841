// After the run: from counters and ledger to a profile.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cache/edge_weights.h"
#include "cache/translated.h"
#include "ledger/ledger_books.h"
#include "placement/placement.h"
#include "profile/model.h"

namespace tally::engine {

struct FinishRequest {
  // The units are given back on the way: with many of them, both forms at once are too much memory.
  Translated& translated;
  const LedgerBooks& ledger;
  std::vector<uint64_t> counters;  // the sums over all threads, by counter number
  std::vector<profile::Module> modules;
  std::function<std::string(const Unit&)> name_of;  // of a procedure; empty when it has none
  // Sees the counts of each procedure: of its edges first, in its order.  May be empty.
  std::function<void(const Unit&, const placement::Solution&, const std::vector<LedMost>&)> solved =
      {};
  // Sees how often indirect branches led where that is not counted.  May be empty.
  std::function<void(const Pair&, uint64_t times)> rest = {};
};
void build_profile(const FinishRequest& request, profile::Profile& profile);

// What a profile says of the modules of a process, and how procedures are called there.
class ModuleMap;
class PerfMap;
std::vector<profile::Module> describe_modules(const ModuleMap& modules);
profile::Module describe_module(const Module& module);
std::string procedure_name(const Unit& unit, const PerfMap& generated);

}  // namespace tally::engine
