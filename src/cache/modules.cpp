// See modules.h.
#include "cache/modules.h"

#include <string.h>

#include <algorithm>
#include <utility>

namespace tally::engine {
namespace {

constexpr uint64_t kPageMask = ~uint64_t{0xfff};

bool is_special(const std::string& path) {
  return path.empty() || path[0] == '[';
}

Result<std::shared_ptr<KnownFile>> file_of(const tracee::Mapping& m, KnownFiles& files,
                                           const tracee::Process& process,
                                           const std::string& root) {
  if (m.path != "[vdso]") return files.open(root + m.path);
  std::vector<uint8_t> bytes(m.range.size_bytes());
  if (!process.read_memory(m.range.begin, bytes.data(), bytes.size())) {
    return make_error("cannot read the vdso");
  }
  return files.vdso(std::move(bytes));
}

// Whether the range lies in segments that the file says are code, at this bias.
bool is_text(const elf::Image& image, TargetRange range, uint64_t bias) {
  return std::any_of(image.segments().begin(), image.segments().end(), [&](const auto& s) {
    const uint64_t begin = (s.range.begin.value() & kPageMask) + bias;
    const uint64_t end = ((s.range.end.value() + ~kPageMask) & kPageMask) + bias;
    return s.executable && begin <= range.begin.value() && range.end.value() <= end;
  });
}

// The bias from one mapping: the segment whose file part the mapping begins in.  That need not be
// an executable one: text mapped without PROT_EXEC merges with the read-only data in front of it.
// Two segments may share a page of the file (lld lays them out so, at different addresses): of
// several biases that one is right by which what is executable is text.
bool find_bias(const elf::Image& image, const tracee::Mapping& m, TargetRange executable,
               uint64_t& bias) {
  bool found = false;
  for (const elf::Segment& s : image.segments()) {
    const uint64_t page_offset = s.offset.value() & kPageMask;
    const uint64_t page_address = s.range.begin.value() & kPageMask;
    if (page_offset > m.file_offset ||
        m.file_offset >= s.offset.value() + std::max<uint64_t>(s.file_size_bytes, 1)) {
      continue;
    }
    const uint64_t by_this = m.range.begin.value() - page_address - (m.file_offset - page_offset);
    if (!found) bias = by_this;
    found = true;
    if (is_text(image, executable, by_this)) {
      bias = by_this;
      return true;
    }
  }
  return found;
}

// What a loader maps is there as a whole.  A program may map a part of its text once more by itself
// (V8 does so near the code that it generates): around it are other things.
bool is_part(const Module& module, const tracee::Mapping& mapping,
             const std::vector<tracee::Mapping>& all) {
  const bool is_whole_segment =
      std::ranges::any_of(module.image->segments(), [&](const elf::Segment& s) {
        const TargetRange there{TargetAddr(s.range.begin.value() + module.bias),
                                TargetAddr(s.range.end.value() + module.bias)};
        return s.executable && there.begin >= mapping.range.begin && there.end <= mapping.range.end;
      });
  return !is_whole_segment && std::ranges::none_of(all, [&](const tracee::Mapping& m) {
    return m.path == mapping.path && m.range.begin != mapping.range.begin &&
           overlaps(m.range, module.mapped);
  });
}

}  // namespace

Result<std::vector<tracee::Mapping>> ModuleMap::executable_mappings() const {
  TRY_ASSIGN(std::vector<tracee::Mapping> mappings, process_.mappings());
  std::erase_if(mappings,
                [](const tracee::Mapping& m) { return !m.executable || m.path == "[vsyscall]"; });
  return mappings;
}

void ModuleMap::note_sealed(TargetRange range) {
  for (const auto& module : modules_) {
    if (module->gone || module->generated || module->image->relro().empty()) continue;
    const TargetAddr begin = module->to_target(module->image->relro().begin);
    module->sealed |= range.contains(TargetAddr(begin.value() & kPageMask));
  }
}

Status give_area(Module& module, Region& region, tracee::Process& process, const RemoteCall& call) {
  if (module.reach.empty()) module.reach = module.mapped;
  TRY_ASSIGN(module.area, region.area_for(module.reach, process, call));
  const TargetAddr base(module.area->base.value());
  module.reach = {std::min(module.reach.begin, base),
                  std::max(module.reach.end, base + translate::kAreaSizeBytes)};
  return Ok{};
}

std::string ModuleMap::name_of(TargetAddr address) const {
  const Module* module = containing(address);
  if (module == nullptr) return fmt::format("{:#x}", address.value());
  return fmt::format("{}+{:#x}", module->path, module->to_link(address).value());
}

Status ModuleMap::refresh(TargetRange executable_now) {
  const PhaseTimer timer(phases_, Phase::kModules);
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_.mappings());
  for (const tracee::Mapping& m : mappings) {
    if (m.path == "[vsyscall]") continue;
    TargetRange executable = m.executable ? m.range : TargetRange{};
    if (executable.empty()) executable = intersection(m.range, executable_now);
    if (executable.empty()) continue;
    if (m.shared && m.path.starts_with("/memfd:tally")) continue;
    if (m.path == "[stack]") expect_code_on_stack(m.range);
    if ((is_special(m.path) && m.path != "[vdso]") || m.shared) {
      add_generated(executable, m.writable || m.shared, m.shared);
      continue;
    }
    bool known = false;
    for (auto& module : modules_) {
      if (module->gone || module->generated || !overlaps(module->mapped, m.range)) continue;
      known = true;
      module->executable.add(executable);
      if (m.writable) {
        read_from_memory(*module);
        module->writable.add(executable);
      }
    }
    if (!known) TRY(add(m, mappings, executable));
  }
  return Ok{};
}

Status ModuleMap::add(const tracee::Mapping& mapping, const std::vector<tracee::Mapping>& all,
                      TargetRange executable) {
  auto file = file_of(mapping, files_, process_, root_.value_or(""));
  if (!file) {
    // No ELF file, or one that is gone by now: what is in memory counts.
    add_generated(executable, mapping.writable, false);
    return Ok{};
  }
  auto module = std::make_unique<Module>();
  module->id = static_cast<uint32_t>(modules_.size());
  module->path = mapping.path;
  module->file = *file;
  module->file->add_user();
  module->image = module->file->image();
  if (mapping.path == "[vdso]") {
    uint64_t lowest = UINT64_MAX;
    for (const elf::Segment& s : module->image->segments()) {
      lowest = std::min(lowest, s.range.begin.value() & kPageMask);
    }
    module->bias = mapping.range.begin.value() - lowest;
  } else if (!find_bias(*module->image, mapping, executable, module->bias)) {
    // A file mapped as code by other means than a loader.
    add_generated(executable, mapping.writable, false);
    return Ok{};
  }
  if (root_ && mapping.path != "[vdso]" && !is_in_memory(*module)) {
    add_generated(executable, mapping.writable, false);
    return Ok{};
  }
  uint64_t low = UINT64_MAX;
  uint64_t high = 0;
  for (const elf::Segment& s : module->image->segments()) {
    low = std::min(low, s.range.begin.value() & kPageMask);
    high = std::max(high, (s.range.end.value() + 0xfffu) & kPageMask);
  }
  module->mapped = {TargetAddr(low + module->bias), TargetAddr(high + module->bias)};
  if (mapping.path != "[vdso]" && is_part(*module, mapping, all)) module->mapped = mapping.range;
  // What is not relocated as a whole has its constant tables as the linker has made them.
  module->sealed = module->image->type() == elf::FileType::kExecutable;
  module->executable.add(executable);
  for (const tracee::Mapping& m : all) {
    if (m.executable && m.path == mapping.path && m.range.begin != executable.begin &&
        overlaps(m.range, module->mapped)) {
      module->executable.add(m.range);
    }
  }
  expect_file(*module);
  prepare_view(*module);
  if (mapping.writable) {
    module->writable.add(executable);
    read_from_memory(*module);
  }
  const bool changed = std::any_of(module->executable.begin(), module->executable.end(),
                                   [&](const TargetRange& r) { return changed_.meets(r); });
  if (changed) read_from_memory(*module);
  modules_.push_back(std::move(module));
  return Ok{};
}

// The beginning of a file says which build it is.
bool ModuleMap::is_in_memory(const Module& module) const {
  constexpr size_t kBytesMax = 4096;
  if (module.image->segments().empty()) return false;
  const LinkAddr begin = module.image->segments().front().range.begin;
  std::span<const uint8_t> file = module.image->bytes_at(begin);
  file = file.first(std::min(file.size(), kBytesMax));
  std::vector<uint8_t> memory(file.size());
  const TargetAddr at(begin.value() + module.bias);
  return process_.read_memory(at, memory.data(), memory.size()) &&
         std::equal(file.begin(), file.end(), memory.begin());
}

// How discovery reads the module's code and data.
void ModuleMap::prepare_view(Module& module) const {
  const std::shared_ptr<elf::Image> shared = module.image;
  const tracee::Process* process = &process_;
  const uint64_t bias = module.bias;
  module.view.code_at = [shared](LinkAddr a) { return shared->bytes_at(a); };
  // What the program cannot write is as in the file, and needs no look at its memory.
  module.view.read_data = [process, bias, shared](LinkAddr a, void* data, size_t size_bytes) {
    if (const auto constant = shared->constant_at(a); constant.size() >= size_bytes) {
      memcpy(data, constant.data(), size_bytes);
      return true;
    }
    return process->read_memory(TargetAddr(a.value() + bias), data, size_bytes);
  };
  module.view.pointer_bias = bias;
  module.discoverer = std::make_unique<cfg::Discoverer>(module.view);
}

void ModuleMap::inherit(const ModuleMap& parent, Region& region) {
  for (const auto& theirs : parent.modules_) {
    if (theirs->gone) continue;
    auto module = std::make_unique<Module>();
    module->id = static_cast<uint32_t>(modules_.size());
    module->path = theirs->path;
    module->image = theirs->image;
    module->bias = theirs->bias;
    module->mapped = theirs->mapped;
    module->executable = theirs->executable;
    module->writable = theirs->writable;
    module->shared = theirs->shared;
    module->main_program = theirs->main_program;
    module->generated = theirs->generated;
    module->file = theirs->file;
    if (module->file != nullptr) module->file->add_user();
    if (theirs->area != nullptr) module->area = &region.areas()[theirs->area->index];
    module->reach = theirs->reach;
    if (theirs->from_memory) {
      read_from_memory(*module);
    } else {
      prepare_view(*module);
    }
    modules_.push_back(std::move(module));
  }
  stack_room_ = parent.stack_room_;
}

void ModuleMap::forget(TargetRange range) {
  for (auto& module : modules_) {
    if (module->gone || !overlaps(module->mapped, range)) continue;
    module->executable.remove(range);
    module->writable.remove(range);
    module->shared.remove(range);
    if (module->executable.empty() && !module->generated) module->gone = true;
  }
  last_ = nullptr;
}

bool ModuleMap::has_code_in(TargetRange range) const {
  for (const auto& module : modules_) {
    if (module->gone) continue;
    if (module->executable.meets(range)) return true;
    if (module->generated && overlaps(module->mapped, range)) return true;
  }
  return false;
}

Module* ModuleMap::at(TargetAddr address) {
  if (last_ != nullptr && last_->holds(address)) return last_;
  for (auto& module : modules_) {
    if (!module->gone && module->holds(address)) return last_ = module.get();
  }
  if (stack_room_.contains(address) && grow_stack(address)) return at(address);
  return nullptr;
}

const Module* ModuleMap::containing(TargetAddr address) const {
  // A file may have been mapped where generated code once was.
  for (const bool generated : {false, true}) {
    for (const auto& module : modules_) {
      if (module->generated == generated && !module->gone && module->mapped.contains(address)) {
        return module.get();
      }
    }
  }
  return nullptr;
}

// ---- code without a file -----------------------------------------------------------------------

void ModuleMap::add_generated(TargetRange range, bool writable, bool shared) {
  Module& module = generated_at(range);
  module.executable.add(range);
  if (shared) module.shared.add(range);
  if (writable || shared) {
    module.writable.add(range);
  } else {
    module.writable.remove(range);
  }
}

// The generated module that the range belongs to or adjoins, grown to hold it; else a new one.
Module& ModuleMap::generated_at(TargetRange range) {
  for (auto& module : modules_) {
    if (!module->generated || range.end < module->mapped.begin ||
        module->mapped.end < range.begin) {
      continue;
    }
    module->mapped = {std::min(module->mapped.begin, range.begin),
                      std::max(module->mapped.end, range.end)};
    return *module;
  }
  auto module = std::make_unique<Module>();
  module->id = static_cast<uint32_t>(modules_.size());
  module->generated = true;
  module->mapped = range;
  module->path = "[generated]";  // the name is complete when the range is known, at the end
  module->image = elf::Image::without_file(module->path);
  read_from_memory(*module);
  modules_.push_back(std::move(module));
  return *modules_.back();
}

void ModuleMap::read_from_memory(Module& module) {
  if (module.from_memory) return;
  module.from_memory = true;
  const Module* m = &module;
  const tracee::Process* process = &process_;
  const uint64_t bias = module.bias;
  module.view.code_at = [this, m](LinkAddr a) -> std::span<const uint8_t> {
    const TargetRange* range = m->executable.at(m->to_target(a));
    if (range == nullptr) return {};
    return snapshot(m->to_target(a), range->end);
  };
  module.view.read_data = [process, bias](LinkAddr a, void* data, size_t size_bytes) {
    return process->read_memory(TargetAddr(a.value() + bias), data, size_bytes);
  };
  module.view.pointer_bias = bias;
  module.discoverer = std::make_unique<cfg::Discoverer>(module.view);
}

// Code as it was when this translation began to look at it: what is decoded and what is copied
// must be the same bytes.
std::span<const uint8_t> ModuleMap::snapshot(TargetAddr address, TargetAddr end) {
  for (const auto& s : snapshots_) {
    if (s->begin <= address && address < s->begin + s->bytes.size()) {
      return std::span<const uint8_t>(s->bytes).subspan(static_cast<size_t>(address - s->begin));
    }
  }
  constexpr uint64_t kBytesMax = 256 << 10;
  auto s = std::make_unique<Snapshot>();
  s->begin = address;
  s->bytes.resize(std::min(static_cast<uint64_t>(end - address), kBytesMax));
  // Memory may end before the module does; then as many pages as there are.
  while (!s->bytes.empty() && !process_.read_memory(address, s->bytes.data(), s->bytes.size())) {
    const uint64_t last = (address + (s->bytes.size() - 1)).value() & kPageMask;
    s->bytes.resize(last > address.value() ? last - address.value() : 0);
  }
  snapshots_.push_back(std::move(s));
  return snapshots_.back()->bytes;
}

void ModuleMap::drop_snapshot() {
  snapshots_.clear();
}

Result<TargetAddr> ModuleMap::mapping_begin(TargetAddr address) const {
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_.mappings());
  for (const tracee::Mapping& m : mappings) {
    if (m.range.contains(address)) return m.range.begin;
  }
  return make_error("no memory at {:#x}", address.value());
}

bool ModuleMap::covers(TargetRange range) const {
  RangeSet missing;
  missing.add(range);
  for (const auto& module : modules_) {
    if (!module->gone) missing.remove(module->mapped);
  }
  return missing.empty();
}

std::vector<Module*> ModuleMap::meeting(TargetRange range) {
  std::vector<Module*> result;
  for (const auto& module : modules_) {
    if (!module->gone && overlaps(module->mapped, range)) result.push_back(module.get());
  }
  return result;
}

// An executable stack grows downwards all by itself.
bool ModuleMap::grow_stack(TargetAddr address) {
  auto mappings = process_.mappings();
  if (!mappings) return false;
  for (const tracee::Mapping& m : *mappings) {
    if (m.path != "[stack]" || !m.range.contains(address)) continue;
    add_generated(m.range, true, false);
    return true;
  }
  return false;
}

}  // namespace tally::engine
