// See return_targets.h.
#include "cache/return_targets.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace tally::engine {

using profile::EdgeKind;
using translate::Returns;

namespace {

// So many taken branches hide a call from what foretells the return.
constexpr double kHiding = 4;

// What a run's calls were, by procedure and by block.
class Calls {
 public:
  explicit Calls(const profile::Profile& profile)
      : profile_(profile),
        to_block_(profile.blocks.size(), 0),
        to_(profile.procedures.size(), 0),
        branches_(profile.procedures.size(), 0) {
    for (const profile::Edge& edge : profile.edges) {
      const auto count = static_cast<double>(edge.count);
      if (edge.count == 0) continue;
      if (is_call(edge)) {
        calls_.push_back(&edge);
        to_block_[edge.to_block] += count;
        to_[procedure_of(edge.to_block)] += count;
        total_ += count;
      } else if (is_taken(edge)) {
        branches_[procedure_of(edge.from_block)] += count;
      }
    }
  }

  double total() const { return total_; }

  // Of all calls to procedures in which they are hidden.
  double bits() const {
    const std::vector<double> taken = taken_until_return();
    double result = 0;
    for (const profile::Edge* call : calls_) {
      if (taken[procedure_of(call->to_block)] < kHiding) continue;
      const auto count = static_cast<double>(call->count);
      result += count * std::log2(to_block_[call->to_block] / count);
    }
    return result;
  }

 private:
  static bool is_call(const profile::Edge& edge) {
    return edge.kind == EdgeKind::kCall || edge.kind == EdgeKind::kIndirectCall;
  }
  static bool is_taken(const profile::Edge& edge) {
    return edge.kind == EdgeKind::kTaken || edge.kind == EdgeKind::kJump ||
           edge.kind == EdgeKind::kIndirectJump;
  }
  uint32_t procedure_of(uint32_t block) const { return profile_.blocks[block].procedure_id; }

  // By procedure: branches that a call of it takes, its return and all that it calls included; what
  // is beyond `kHiding` does not matter.
  std::vector<double> taken_until_return() const {
    std::vector<double> own(to_.size(), 0);
    for (size_t p = 0; p < own.size(); ++p) {
      if (to_[p] > 0) own[p] = 1 + branches_[p] / to_[p];
    }
    std::vector<double> result = own;
    // As deep as calls must be looked into at most, since each of them is a branch itself.
    for (int depth = 0; depth < static_cast<int>(kHiding); ++depth) {
      std::vector<double> next = own;
      for (const profile::Edge* call : calls_) {
        const uint32_t from = procedure_of(call->from_block);
        if (to_[from] == 0) continue;
        const double share = static_cast<double>(call->count) / to_[from];
        next[from] += share * result[procedure_of(call->to_block)];
      }
      for (double& taken : next) taken = std::min(taken, kHiding);
      result = std::move(next);
    }
    return result;
  }

  const profile::Profile& profile_;
  std::vector<const profile::Edge*> calls_;
  std::vector<double> to_block_;
  std::vector<double> to_;
  std::vector<double> branches_;
  double total_ = 0;
};

}  // namespace

Recollection::Returns measure_returns(const profile::Profile& profile) {
  const Calls calls(profile);
  if (calls.total() == 0) return {};
  const double millibits = 1000 * calls.bits() / calls.total();
  constexpr double kCallsMax = 1e18;  // more have not been made but by mistake
  return {static_cast<uint64_t>(std::min(calls.total(), kCallsMax)),
          static_cast<uint32_t>(std::lround(millibits))};
}

Returns choose_returns(const Recollection::Returns& before, const CodeSizes& sizes) {
  // Measured: of 27 programs none has between 550 and 770.
  constexpr uint32_t kHardMillibits = 650;
  // Measured: from about here on the processor no longer knows the targets of all returns.
  constexpr uint64_t kLargeProgramBytes = 3ull << 20;
  // Most of a library is not for this program.  Compilers' are larger, and ask for pairs; ffmpeg's
  // and octave's (25 to 28 MB) do not.
  constexpr uint64_t kLargeLibrariesBytes = 40ull << 20;
  const bool large =
      sizes.program_bytes >= kLargeProgramBytes || sizes.libraries_bytes >= kLargeLibrariesBytes;
  const bool paired = before.calls > 0 ? before.millibits >= kHardMillibits : large;
  return paired ? Returns::kPaired : Returns::kJump;
}

Recollection::Returns better_known(const Recollection::Returns& before,
                                   const Recollection::Returns& now) {
  constexpr uint64_t kMuchSmaller = 16;
  return now.calls < before.calls / kMuchSmaller ? before : now;
}

}  // namespace tally::engine
