// Keeping code apart whose addresses are alike in their low 32 bits.  See modules.h.
//
// An indirect branch compares the low halves of addresses only (Compare::kLow32) where no two
// pieces of code can be alike in them.  That is found out before the first branch; from then on
// whatever becomes executable is looked at before it is, since a branch that has met code alike to
// it would not ask.
//
//     0x55d4'1c00'3000  program            0x7f31'1c00'0000  a library: moved away, or allowed
//            ^^^^^^^^^                            ^^^^^^^^^
//
// What the program wants at an address of its own stays there, and from then on all branches look
// at whole addresses (compare_whole.cpp).
//
// An executable stack grows by itself, without a call that could be looked at: all the room that
// its limit gives it counts as code from the beginning.
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "cache/modules.h"

namespace tally::engine {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPageMask = ~(kPageBytes - 1);

// Whether two ranges are apart and yet meet when only the low 32 bits count.
bool alike(TargetRange a, TargetRange b) {
  if (a.empty() || b.empty() || overlaps(a, b)) return false;
  const auto distance = static_cast<uint32_t>(b.begin.value() - a.begin.value());
  return distance < a.size_bytes() || 0 - distance < b.size_bytes();
}

TargetRange page_at(uint64_t address) {
  return {TargetAddr(address), TargetAddr(address + kPageBytes)};
}

}  // namespace

void ModuleMap::allow_alike() {
  std::exchange(allow_alike_, nullptr)();
}

void ModuleMap::expect_code_on_stack(TargetRange stack) {
  // Without a limit it may grow down to whatever is next; more than this nobody has been seen to
  // use for code.
  constexpr uint64_t kRoomMaxBytes = 64ull << 20;
  rlimit limit{};
  if (prlimit(process_.pid(), RLIMIT_STACK, nullptr, &limit) != 0) limit.rlim_cur = RLIM_INFINITY;
  const uint64_t room_bytes =
      std::max<uint64_t>(stack.size_bytes(), std::min<uint64_t>(limit.rlim_cur, kRoomMaxBytes));
  const TargetRange room{stack.end - std::min(room_bytes, stack.end.value()), stack.end};
  if (stack_room_.contains(room.begin) && stack_room_.end == room.end) return;
  expect_code(room);
  stack_room_ = room;
}

void ModuleMap::expect_file(const Module& module) {
  if (!keeps_apart()) return;
  const bool meets_file = std::ranges::any_of(modules_, [&](const auto& other) {
    return !other->gone && !other->generated && alike(module.mapped, other->mapped);
  });
  const bool meets_made = std::ranges::any_of(translated_pages_, [&](const auto& page) {
    return alike(module.mapped, page_at(page.second));
  });
  if (meets_file || meets_made) allow_alike();
}

bool ModuleMap::low_halves_may_collide(uint64_t below_bytes) const {
  for (const auto& a : modules_) {
    const bool loader = !a->main_program && a->path != "[vdso]";
    const uint64_t below = loader ? below_bytes : 0;
    for (const auto& b : modules_) {
      if (a == b) continue;
      const TargetRange room{a->mapped.begin - below, a->mapped.end};
      // What lies in the room itself (the vdso on many kernels) differs from all else in it.
      if (alike(room, b->mapped)) return true;
    }
  }
  return std::any_of(modules_.begin(), modules_.end(),
                     [&](const auto& module) { return alike(stack_room_, module->mapped); });
}

bool ModuleMap::alike_to_code(TargetRange range) const {
  for (const auto& module : modules_) {
    if (module->gone) continue;
    if (!module->generated) {
      if (alike(range, module->mapped)) return true;
      continue;
    }
    for (const TargetRange& made : module->executable) {
      if (alike(range, made)) return true;
    }
  }
  if (alike(range, stack_room_)) return true;
  return std::any_of(translated_pages_.begin(), translated_pages_.end(),
                     [&](const auto& page) { return alike(range, page_at(page.second)); });
}

bool ModuleMap::is_near_code(TargetRange range) const {
  constexpr uint64_t kNearBytes = 4ull << 30;
  return std::any_of(modules_.begin(), modules_.end(), [&](const auto& module) {
    if (module->gone || module->generated) return false;
    const uint64_t low = std::min(range.begin.value(), module->mapped.begin.value());
    const uint64_t high = std::max(range.end.value(), module->mapped.end.value());
    return high - low < kNearBytes + range.size_bytes() + module->mapped.size_bytes();
  });
}

std::optional<TargetAddr> ModuleMap::apart_from_code(TargetRange range) const {
  if (!keeps_apart() || !alike_to_code(range)) return std::nullopt;
  const auto mappings = process_.mappings();
  if (!mappings) return std::nullopt;
  const auto will_do = [&](TargetRange there) {
    return !alike_to_code(there) &&
           std::none_of(mappings->begin(), mappings->end(),
                        [&](const auto& m) { return overlaps(m.range, there); });
  };
  constexpr uint64_t kStepBytes = 64ull << 20;
  constexpr uint64_t kFarthestBytes = 64ull << 30;
  constexpr uint64_t kLowest = 1ull << 20;
  // As well aligned as it is, if possible: some compilers try again otherwise.
  const uint64_t aligned_bytes = range.begin.value() & -range.begin.value();
  for (uint64_t step = std::clamp<uint64_t>(aligned_bytes, kStepBytes, 1ull << 30);;
       step = kStepBytes) {
    for (uint64_t down = step; down < kFarthestBytes && down + kLowest < range.begin.value();
         down += step) {
      const TargetRange lower{range.begin - down, range.end - down};
      if (will_do(lower)) return lower.begin;
    }
    if (step == kStepBytes) return std::nullopt;
  }
}

void ModuleMap::expect_code(TargetRange range) {
  constexpr uint64_t kAlikeBytes = 4ull << 30;  // apart from one another
  if (!keeps_apart()) return;
  const bool meets = std::ranges::any_of(modules_, [&](const auto& module) {
    return !module->gone && std::ranges::any_of(module->executable, [&](const TargetRange& other) {
      return alike(range, other);
    });
  });
  if (meets || alike(range, stack_room_) || range.size_bytes() > kAlikeBytes) allow_alike();
}

void ModuleMap::expect_translation(TargetRange range) {
  for (uint64_t page = range.begin.value() & kPageMask; page < range.end.value();
       page += kPageBytes) {
    if (!keeps_apart()) return;
    auto [it, fresh] = translated_pages_.try_emplace(static_cast<uint32_t>(page), page);
    bool meets = it->second != page;
    for (const auto& other : modules_) {
      if (!fresh || other->gone || other->generated) continue;
      for (const TargetRange& code : other->executable) meets |= alike(page_at(page), code);
    }
    if (meets) allow_alike();
  }
}

}  // namespace tally::engine
