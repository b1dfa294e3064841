// See return_targets.h.
#include "cache/return_targets.h"

#include <algorithm>
#include <cmath>

namespace tally::engine {

using profile::EdgeKind;
using translate::Returns;

namespace {

// So many taken branches hide a call from what foretells the return.
constexpr double kHiding = 4;

// What makes returns hard to foretell, of what a run has called.
class Calls {
 public:
  explicit Calls(const CallsMade& made)
      : made_(made), to_entry_(made.entries, 0), to_(made.branches.size(), 0) {
    for (const CallsMade::Call& call : made.calls) {
      to_entry_[call.entry] += call.count;
      to_[call.to] += call.count;
      total_ += call.count;
    }
  }

  double total() const { return total_; }

  // Of all calls to procedures in which they are hidden.
  double bits() const {
    const std::vector<double> taken = taken_until_return();
    double result = 0;
    for (const CallsMade::Call& call : made_.calls) {
      if (taken[call.to] < kHiding) continue;
      result += call.count * std::log2(to_entry_[call.entry] / call.count);
    }
    return result;
  }

 private:
  // By procedure: branches that a call of it takes, its return and all that it calls included; what
  // is beyond `kHiding` does not matter.
  std::vector<double> taken_until_return() const {
    std::vector<double> own(to_.size(), 0);
    for (size_t p = 0; p < own.size(); ++p) {
      if (to_[p] > 0) own[p] = 1 + made_.branches[p] / to_[p];
    }
    std::vector<double> result = own;
    // As deep as calls must be looked into at most, since each of them is a branch itself.
    for (int depth = 0; depth < static_cast<int>(kHiding); ++depth) {
      std::vector<double> next = own;
      for (const CallsMade::Call& call : made_.calls) {
        if (to_[call.from] == 0) continue;
        next[call.from] += call.count / to_[call.from] * result[call.to];
      }
      for (double& taken : next) taken = std::min(taken, kHiding);
      result = std::move(next);
    }
    return result;
  }

  const CallsMade& made_;
  std::vector<double> to_entry_;
  std::vector<double> to_;
  double total_ = 0;
};

bool is_call(const profile::Edge& edge) {
  return edge.kind == EdgeKind::kCall || edge.kind == EdgeKind::kIndirectCall;
}

bool is_taken(const profile::Edge& edge) {
  return edge.kind == EdgeKind::kTaken || edge.kind == EdgeKind::kJump ||
         edge.kind == EdgeKind::kIndirectJump;
}

}  // namespace

Recollection::Returns measure_returns(const CallsMade& made) {
  const Calls calls(made);
  if (calls.total() == 0) return {};
  const double millibits = 1000 * calls.bits() / calls.total();
  constexpr double kCallsMax = 1e18;  // more have not been made but by mistake
  return {static_cast<uint64_t>(std::min(calls.total(), kCallsMax)),
          static_cast<uint32_t>(std::lround(millibits))};
}

Recollection::Returns measure_returns(const profile::Profile& profile) {
  CallsMade made;
  made.entries = profile.blocks.size();
  made.branches.assign(profile.procedures.size(), 0);
  for (const profile::Edge& edge : profile.edges) {
    if (edge.count == 0) continue;
    const auto count = static_cast<double>(edge.count);
    const uint32_t from = profile.blocks[edge.from_block].procedure_id;
    if (is_call(edge)) {
      made.calls.push_back(
          {from, profile.blocks[edge.to_block].procedure_id, edge.to_block, count});
    } else if (is_taken(edge)) {
      made.branches[from] += count;
    }
  }
  return measure_returns(made);
}

bool are_hard(const Recollection::Returns& returns) {
  // Measured: of 27 programs none has between 550 and 770.
  constexpr uint32_t kHardMillibits = 650;
  return returns.millibits >= kHardMillibits;
}

Returns choose_returns(const Recollection::Returns& before, const CodeSizes& sizes) {
  // Measured: from about here on the processor no longer knows the targets of all returns.
  constexpr uint64_t kLargeProgramBytes = 3ull << 20;
  // Most of a library is not for this program.  Compilers' are larger, and ask for pairs; ffmpeg's
  // and octave's (25 to 28 MB) do not.
  constexpr uint64_t kLargeLibrariesBytes = 40ull << 20;
  const bool large =
      sizes.program_bytes >= kLargeProgramBytes || sizes.libraries_bytes >= kLargeLibrariesBytes;
  const bool paired = before.calls > 0 ? are_hard(before) : large;
  return paired ? Returns::kPaired : Returns::kJump;
}

Recollection::Returns better_known(const Recollection::Returns& before,
                                   const Recollection::Returns& now) {
  constexpr uint64_t kMuchSmaller = 16;
  return now.calls < before.calls / kMuchSmaller ? before : now;
}

}  // namespace tally::engine
