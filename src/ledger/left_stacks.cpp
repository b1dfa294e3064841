// See left_stacks.h.
#include "ledger/left_stacks.h"

#include <algorithm>
#include <iterator>

namespace tally::engine {

namespace {

uint64_t key_of(const LeftStack& stack) {
  return stack.trace.frames.front().cfa.value();
}

bool same_frames(const elf::BackTrace& a, const elf::BackTrace& b) {
  return a.end == b.end && std::equal(a.frames.begin(), a.frames.end(), b.frames.begin(),
                                      b.frames.end(), [](const elf::Frame& x, const elf::Frame& y) {
                                        return x.pc == y.pc && x.cfa == y.cfa &&
                                               x.context == y.context;
                                      });
}

// Nothing but their threads tells them apart.
bool are_alike(const LeftStack& a, const LeftStack& b) {
  const bool plain = a.interruptions.empty() && b.interruptions.empty() && a.snapshots.empty() &&
                     b.snapshots.empty();
  return plain && a.unit == b.unit && a.bottom == b.bottom && a.inherited == b.inherited &&
         same_frames(a.trace, b.trace);
}

}  // namespace

bool is_same_stack(const elf::BackTrace& trace, size_t frame, const elf::BackTrace& there) {
  const auto& left = trace.frames;
  const auto& now = there.frames;
  if (frame >= left.size() || now.empty() || now.size() < left.size() - frame) return false;
  if (now.front().cfa.value() == 0 || left[frame].cfa != now.front().cfa) return false;
  for (size_t i = 1; frame + i < left.size(); ++i) {
    // Behind the last frame that was known nothing is.
    const bool last = frame + i + 1 == left.size();
    if (left[frame + i].pc != now[i].pc) return false;
    if (!last && left[frame + i].cfa != now[i].cfa) return false;
  }
  return true;
}

void LeftStacks::add(LeftStack stack) {
  const uint64_t key = key_of(stack);
  const auto [first, last] = stacks_.equal_range(key);
  if (first != last) {
    LeftStack& newest = std::prev(last)->second;
    if (are_alike(newest, stack)) {
      newest.slots.push_back(stack.slots.front());
      return;
    }
  }
  stacks_.emplace_hint(last, key, std::move(stack));
}

bool LeftStacks::any_within(uint64_t begin, uint64_t end) const {
  const auto it = stacks_.lower_bound(begin);
  return it != stacks_.end() && it->first <= end;
}

LeftStack LeftStacks::take(Stacks::iterator it) {
  LeftStack& stack = it->second;
  if (stack.slots.size() > 1) {
    LeftStack one = stack;
    one.slots = {stack.slots.back()};
    stack.slots.pop_back();
    return one;
  }
  LeftStack one = std::move(stack);
  stacks_.erase(it);
  return one;
}

std::optional<LeftStacks::Found> LeftStacks::take_shown_by(const elf::BackTrace& there) {
  // Who goes on is at or above where the innermost frame ended, and stacks do not lie within each
  // other many times over.
  constexpr int kMost = 64;
  if (there.frames.empty()) return std::nullopt;
  auto it = stacks_.upper_bound(there.frames.front().cfa.value());
  for (int looked_at = 0; it != stacks_.begin() && looked_at < kMost; ++looked_at) {
    --it;
    const elf::BackTrace& trace = it->second.trace;
    for (size_t frame = 0; frame < trace.frames.size(); ++frame) {
      if (is_same_stack(trace, frame, there)) return Found{take(it), frame};
    }
  }
  return std::nullopt;
}

std::vector<LeftStack> LeftStacks::take_within(TargetRange range) {
  std::vector<LeftStack> taken;
  const auto first = stacks_.lower_bound(range.begin.value());
  const auto last = stacks_.lower_bound(range.end.value());
  for (auto it = first; it != last; ++it) taken.push_back(std::move(it->second));
  stacks_.erase(first, last);
  return taken;
}

std::vector<LeftStack> LeftStacks::take_interrupted(uint32_t slot) {
  std::vector<LeftStack> taken;
  for (auto it = stacks_.begin(); it != stacks_.end();) {
    // Such stacks are never alike.
    if (it->second.interruptions.empty() || it->second.slots.front() != slot) {
      ++it;
      continue;
    }
    taken.push_back(std::move(it->second));
    it = stacks_.erase(it);
  }
  return taken;
}

std::vector<LeftStack> LeftStacks::take_all() {
  std::vector<LeftStack> taken;
  for (auto& [key, stack] : stacks_) taken.push_back(std::move(stack));
  stacks_.clear();
  return taken;
}

void LeftStacks::inherit(const LeftStacks& parent) {
  stacks_ = parent.stacks_;
  for (auto& [key, stack] : stacks_) {
    stack.inherited = true;
    std::fill(stack.slots.begin(), stack.slots.end(), std::nullopt);
    for (Interruption& record : stack.interruptions) record.inherited = true;
  }
}

}  // namespace tally::engine
