// Is flow conserved?  Computed again from the profile alone, whoever made it.
//
// For each block, with `count` the times it was entered:
//
//     sum(in-edges) + entered  =  count  =  sum(out-edges) + left
//
// where `entered` and `left` are its abnormal terms, and
//
//   * kCall and kIndirectCall edges flow into the callee's entry block.  They do not drain the
//     block that calls: its flow goes on over the kCallReturn edge, and frames that never came back
//     are `left` terms.
//   * A jump or fallthrough into another procedure flows in and out as any edge does.
//   * No edge stands for a return, so a block that returns may lose flow, but never more than its
//     count.
//   * A block that calls has made as many calls as it was entered, less at most what it `left`
//     (a fault may strike before the call, an exit after it).
//
// For each procedure: entries = calls + jumps from other procedures into its entry block + what
// entered there abnormally.
//
// Where counts are unknown, nothing is claimed: such blocks are listed as undetermined (and still
// may not have more flow on one side than their count).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/flow_index.h"
#include "profile/model.h"

namespace tally::profile {

enum class FlowRule : uint8_t {
  kIn,       // what flows into a block
  kOut,      // what flows out of it
  kCalls,    // calls a block made
  kEntries,  // times a procedure was entered
};

// One equation that does not hold.
struct FlowFault {
  FlowRule rule = FlowRule::kIn;
  uint32_t id = 0;     // block, or procedure for kEntries
  __int128 flow = 0;   // what the edges and abnormal terms say
  uint64_t count = 0;  // what the block or procedure says
};

struct FlowReport {
  static constexpr size_t kListed = 20;
  std::vector<FlowFault> faults;  // the first kListed
  uint64_t faults_total = 0;
  std::vector<uint32_t> undetermined;  // blocks with unknown counts around them; the first kListed
  uint64_t undetermined_total = 0;
  uint64_t blocks_checked = 0;      // blocks all of whose flow is known
  uint64_t procedures_checked = 0;  // procedures whose entries could be compared
  // Every equation holds, and every count is known.
  bool balanced() const { return faults_total == 0 && undetermined_total == 0; }
};

// `profile` is valid (see validate.h).
FlowReport check_flow(const Profile& profile, const FlowIndex& index);
FlowReport check_flow(const Profile& profile);
// `check_flow(profile).faults_total`, in much less time where there are none.
uint64_t count_flow_faults(const Profile& profile);

// How often the block was entered without any of it being executed.
uint64_t runs_not_executed(const Block& block);

// "block 0x4a10: in-edges and abnormal entries give 5, its count is 6".
std::string describe(const Profile& profile, const FlowFault& fault);

}  // namespace tally::profile
