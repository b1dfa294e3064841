// What becomes of translated code when memory is mapped, protected and unmapped.  See generated.h.
#include "cache/generated.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

namespace tally::engine {

Status GeneratedCode::mapped(TargetRange range, uint64_t protection, uint64_t flags) {
  unmapped(range);
  if ((protection & PROT_EXEC) == 0) return Ok{};
  modules_.expect_code(range);
  const bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;
  if (flags & MAP_ANONYMOUS) {
    modules_.add_generated(range, (protection & PROT_WRITE) != 0, shared);
    return Ok{};
  }
  return modules_.refresh(range);
}

void GeneratedCode::unmapped(TargetRange range) {
  if (!modules_.has_code_in(range)) return;
  for (Module* module : modules_.meeting(range)) {
    if (!module->from_memory) continue;
    for (const uint32_t id : cache_.units_in(*module, range)) discard(*module, id);
  }
  bool files = false;
  for (const Module* module : modules_.meeting(range)) files |= !module->from_memory;
  modules_.forget(range);
  if (files) cache_.cut(range);
}

Status GeneratedCode::moved(TargetRange from, TargetRange to) {
  std::vector<std::pair<TargetRange, bool>> moving;
  bool shared = false;
  for (const Module* module : modules_.meeting(from)) {
    for (const TargetRange& r : module->executable) {
      if (!overlaps(r, from)) continue;
      const TargetRange part = intersection(r, from);
      moving.push_back({part, module->writable.contains(part.begin)});
      shared |= module->shared.contains(part.begin);
    }
  }
  unmapped(from);
  unmapped(to);
  for (const auto& [part, writable] : moving) {
    const uint64_t begin = static_cast<uint64_t>(part.begin - from.begin);
    const uint64_t end = static_cast<uint64_t>(part.end - from.begin);
    // Memory at the end of a range that grows has the protection of the rest.
    const TargetAddr new_end = part.end == from.end ? to.end : std::min(to.begin + end, to.end);
    if (to.begin + begin < new_end) {
      modules_.expect_code({to.begin + begin, new_end});
      modules_.add_generated({to.begin + begin, new_end}, writable, shared);
    }
  }
  return Ok{};
}

Status GeneratedCode::protection_changed(TargetRange range, uint64_t protection) {
  if (protection & PROT_EXEC) return made_executable(range, protection);
  made_data(range, (protection & PROT_WRITE) != 0);
  return Ok{};
}

Status GeneratedCode::made_executable(TargetRange range, uint64_t protection) {
  const bool writable = (protection & PROT_WRITE) != 0;
  modules_.expect_code(range);
  if (!modules_.covers(range)) TRY(modules_.refresh(range));
  for (Module* module : modules_.meeting(range)) {
    const TargetRange part = intersection(range, module->mapped);
    const bool stable = !writable && !module->shared.meets(part);
    if (!stable && !module->from_memory) modules_.read_from_memory(*module);
    module->executable.add(part);
    if (!module->from_memory) continue;
    if (stable) {
      module->writable.remove(part);
      discard_changed(*module, part);
    } else {
      module->writable.add(part);
      discard_unchecked(*module, part);
    }
  }
  return Ok{};
}

void GeneratedCode::made_data(TargetRange range, bool writable) {
  if (!modules_.has_code_in(range)) return;
  bool cut_files = false;
  for (Module* module : modules_.meeting(range)) {
    if (!module->executable.meets(range)) continue;
    if (!module->from_memory && writable) {
      // Text relocations, or a program that patches itself.
      cache_.keep_sources(*module);
      modules_.read_from_memory(*module);
    }
    if (module->from_memory) {
      module->executable.remove(range);
      module->writable.remove(range);
    } else {
      cut_files = true;
    }
  }
  if (!cut_files) return;
  modules_.forget(range);
  cache_.cut(range);
}

// Units that are no longer what is in memory.
void GeneratedCode::discard_changed(Module& module, TargetRange range) {
  for (const uint32_t id : cache_.units_in(module, range)) {
    if (!cache_.unit(id).checked && !cache_.is_as_translated(id)) discard(module, id);
  }
}

// Units that do not look at their own bytes, though these may change from now on.
void GeneratedCode::discard_unchecked(Module& module, TargetRange range) {
  for (const uint32_t id : cache_.units_in(module, range)) {
    if (!cache_.unit(id).checked) discard(module, id);
  }
}

void GeneratedCode::discard(Module& module, uint32_t unit) {
  if (!cache_.unit(unit).replaceable && doubt_.empty()) {
    doubt_ = fmt::format(
        "code of {} was changed after it had run; calls that were open then may be off by one",
        module.path);
  }
  cache_.invalidate(unit);
}

}  // namespace tally::engine
