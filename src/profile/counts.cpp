// See counts.h.  Partial runs are added by a sweep over their ends, so a block with very many of
// them costs no more than reading them.
#include "profile/counts.h"

namespace tally::profile {

std::vector<__int128> instruction_counts(const Block& block) {
  const size_t size = block.instruction_sizes.size();
  std::vector<__int128> steps(size + 1, 0);
  for (const PartialRun& run : block.partial) {
    steps[run.first_instruction] += run.delta;
    steps[run.last_instruction] -= run.delta;
  }
  std::vector<__int128> counts(size, 0);
  __int128 running = block.count;
  for (size_t i = 0; i < size; ++i) {
    running += steps[i];
    counts[i] = running;
  }
  return counts;
}

WideCount instructions_executed(const Block& block) {
  if (block.source == CountSource::kUnknown) return 0;
  __int128 sum = static_cast<__int128>(block.count) * block.instruction_sizes.size();
  for (const PartialRun& run : block.partial) {
    sum += static_cast<__int128>(run.delta) * (run.last_instruction - run.first_instruction);
  }
  return static_cast<WideCount>(sum);
}

}  // namespace tally::profile
