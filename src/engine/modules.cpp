// See modules.h.
#include "engine/modules.h"

#include <algorithm>
#include <utility>

namespace tally::engine {
namespace {

constexpr uint64_t kPageMask = ~uint64_t{0xfff};

bool overlaps(TargetRange a, TargetRange b) {
  return a.begin < b.end && b.begin < a.end;
}

TargetRange intersection(TargetRange a, TargetRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Whether two ranges meet when only the low 32 bits count.
bool low_halves_meet(uint64_t a, uint64_t a_size, uint64_t b, uint64_t b_size) {
  const auto distance = static_cast<uint32_t>(b - a);
  return distance < a_size || static_cast<uint32_t>(a - b) < b_size;
}

bool never_returns_by_name(const std::string& name) {
  static constexpr const char* kNames[] = {"abort",
                                           "exit",
                                           "_exit",
                                           "_Exit",
                                           "__assert_fail",
                                           "longjmp",
                                           "__longjmp_chk",
                                           "__stack_chk_fail",
                                           "__cxa_throw",
                                           "__cxa_rethrow",
                                           "_Unwind_Resume",
                                           "__cxa_bad_cast",
                                           "__fortify_fail",
                                           "__chk_fail",
                                           "__libc_fatal",
                                           "pthread_exit",
                                           "__cxa_throw_bad_array_new_length",
                                           "_ZSt9terminatev"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* n) { return name == n; });
}

bool is_special(const std::string& path) {
  return path.empty() || path[0] == '[';
}

Result<std::shared_ptr<elf::Image>> image_of(const tracee::Mapping& m,
                                             const tracee::Process& process) {
  if (m.path != "[vdso]") return elf::Image::open(m.path);
  std::vector<uint8_t> bytes(m.range.size_bytes());
  if (!process.read_memory(m.range.begin, bytes.data(), bytes.size())) {
    return make_error("cannot read the vdso");
  }
  return elf::Image::from_bytes("[vdso]", std::move(bytes));
}

// The bias from one mapping: the segment whose file part the mapping begins in.  That need not be
// an executable one: text mapped without PROT_EXEC merges with the read-only data in front of it.
bool find_bias(const elf::Image& image, const tracee::Mapping& m, uint64_t& bias) {
  for (const elf::Segment& s : image.segments()) {
    const uint64_t page_offset = s.offset.value() & kPageMask;
    const uint64_t page_address = s.range.begin.value() & kPageMask;
    if (page_offset <= m.file_offset &&
        m.file_offset < s.offset.value() + std::max<uint64_t>(s.file_size_bytes, 1)) {
      bias = m.range.begin.value() - page_address - (m.file_offset - page_offset);
      return true;
    }
  }
  return false;
}

}  // namespace

Result<std::vector<TargetRange>> ModuleMap::executable_ranges() const {
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_.mappings());
  std::vector<TargetRange> ranges;
  for (const tracee::Mapping& m : mappings) {
    if (m.executable && m.path != "[vsyscall]") ranges.push_back(m.range);
  }
  return ranges;
}

Status ModuleMap::refresh(TargetRange executable_now) {
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_.mappings());
  for (const tracee::Mapping& m : mappings) {
    if (m.path == "[vsyscall]") continue;
    TargetRange executable = m.executable ? m.range : TargetRange{};
    if (executable.empty()) executable = intersection(m.range, executable_now);
    if (executable.empty()) continue;
    if (m.shared && m.path.starts_with("/memfd:tally")) continue;
    if (is_special(m.path) && m.path != "[vdso]") {
      generated_.push_back(executable);
      continue;
    }
    bool known = false;
    for (auto& module : modules_) {
      if (module->gone || !overlaps(module->mapped, m.range)) continue;
      known = true;
      if (!module->holds(executable.begin)) module->executable.push_back(executable);
    }
    if (!known) TRY(add(m, mappings, executable));
  }
  return Ok{};
}

Status ModuleMap::add(const tracee::Mapping& mapping, const std::vector<tracee::Mapping>& all,
                      TargetRange executable) {
  auto image = image_of(mapping, process_);
  if (!image) {
    return make_error("{} is mapped as code but cannot be read: {}", mapping.path,
                      image.error().message);
  }
  auto module = std::make_unique<Module>();
  module->id = static_cast<uint32_t>(modules_.size());
  module->path = mapping.path;
  module->image = *image;
  if (mapping.path == "[vdso]") {
    uint64_t lowest = UINT64_MAX;
    for (const elf::Segment& s : module->image->segments()) {
      lowest = std::min(lowest, s.range.begin.value() & kPageMask);
    }
    module->bias = mapping.range.begin.value() - lowest;
  } else if (!find_bias(*module->image, mapping, module->bias)) {
    // A file mapped as code by other means than a loader; control that gets there is refused.
    generated_.push_back(executable);
    return Ok{};
  }
  uint64_t low = UINT64_MAX;
  uint64_t high = 0;
  for (const elf::Segment& s : module->image->segments()) {
    low = std::min(low, s.range.begin.value() & kPageMask);
    high = std::max(high, (s.range.end.value() + 0xfffu) & kPageMask);
  }
  module->mapped = {TargetAddr(low + module->bias), TargetAddr(high + module->bias)};
  module->executable.push_back(executable);
  for (const tracee::Mapping& m : all) {
    if (m.executable && m.path == mapping.path && m.range.begin != executable.begin &&
        overlaps(m.range, module->mapped)) {
      module->executable.push_back(m.range);
    }
  }
  if (collisions_forbidden_) {
    for (const auto& other : modules_) {
      if (!other->gone &&
          low_halves_meet(module->mapped.begin.value(), module->mapped.size_bytes(),
                          other->mapped.begin.value(), other->mapped.size_bytes())) {
        return make_error(
            "{} and {} were mapped at addresses that are alike in their low 32 bits; run it again",
            module->path, other->path);
      }
    }
  }
  for (const elf::Symbol& symbol : module->image->symbols()) {
    if (never_returns_by_name(symbol.name)) {
      module->never_return.insert(symbol.range.begin.value());
    }
  }
  const std::shared_ptr<elf::Image> shared = module->image;
  const tracee::Process* process = &process_;
  const uint64_t bias = module->bias;
  module->view.code_at = [shared](LinkAddr a) { return shared->bytes_at(a); };
  module->view.read_data = [process, bias](LinkAddr a, void* data, size_t size_bytes) {
    return process->read_memory(TargetAddr(a.value() + bias), data, size_bytes);
  };
  module->view.pointer_bias = bias;
  module->discoverer = std::make_unique<cfg::Discoverer>(module->view);
  modules_.push_back(std::move(module));
  return Ok{};
}

void ModuleMap::forget(TargetRange range) {
  for (auto& module : modules_) {
    if (module->gone || !overlaps(module->mapped, range)) continue;
    std::vector<TargetRange> left;
    for (const TargetRange& r : module->executable) {
      if (!overlaps(r, range)) {
        left.push_back(r);
        continue;
      }
      if (r.begin < range.begin) left.push_back({r.begin, range.begin});
      if (range.end < r.end) left.push_back({range.end, r.end});
    }
    module->executable = std::move(left);
    if (module->executable.empty()) module->gone = true;
  }
  std::erase_if(generated_,
                [&](const TargetRange& r) { return range.begin <= r.begin && r.end <= range.end; });
  last_ = nullptr;
}

bool ModuleMap::low_halves_may_collide(uint64_t below_bytes) const {
  for (const auto& a : modules_) {
    const bool loader = !a->main_program && a->path != "[vdso]";
    const uint64_t below = loader ? below_bytes : 0;
    for (const auto& b : modules_) {
      if (a == b) continue;
      if (low_halves_meet(a->mapped.begin.value() - below, a->mapped.size_bytes() + below,
                          b->mapped.begin.value(), b->mapped.size_bytes())) {
        return true;
      }
    }
  }
  return false;
}

bool ModuleMap::has_code_in(TargetRange range) const {
  for (const auto& module : modules_) {
    if (module->gone) continue;
    for (const TargetRange& r : module->executable) {
      if (overlaps(r, range)) return true;
    }
  }
  return std::any_of(generated_.begin(), generated_.end(),
                     [&](const TargetRange& r) { return overlaps(r, range); });
}

Module* ModuleMap::at(TargetAddr address) {
  if (last_ != nullptr && last_->holds(address)) return last_;
  for (auto& module : modules_) {
    if (!module->gone && module->holds(address)) return last_ = module.get();
  }
  return nullptr;
}

const Module* ModuleMap::containing(TargetAddr address) const {
  for (const auto& module : modules_) {
    if (!module->gone && module->mapped.contains(address)) return module.get();
  }
  return nullptr;
}

bool ModuleMap::is_generated_code(TargetAddr address) const {
  return std::any_of(generated_.begin(), generated_.end(),
                     [&](const TargetRange& r) { return r.contains(address); });
}

}  // namespace tally::engine
