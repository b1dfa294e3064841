// Modules and breakpoints of one address space.  See space.h.
#include "verify/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tally::verify {
namespace {

// The link address of what is mapped at the mapping's beginning.
std::optional<LinkAddr> link_of(const elf::Image& image, uint64_t file_offset) {
  for (const elf::Segment& s : image.segments()) {
    const uint64_t begin = s.offset.value() & ~0xfffull;
    if (!s.executable || file_offset < begin) continue;
    if (file_offset >= s.offset.value() + s.file_size_bytes) continue;
    return LinkAddr(file_offset - s.offset.value() + s.range.begin.value());
  }
  return {};
}

bool is_file(const std::string& path) {
  return !path.empty() && path[0] == '/' && !path.starts_with("/memfd:") &&
         !path.starts_with("/dev/zero") && !path.ends_with(" (deleted)");
}

}  // namespace

bool Space::read(uint64_t address, void* data, size_t size_bytes) {
  const pid_t pid = process_->pid();
  return cache_.active() ? cache_.read(pid, address, data, size_bytes)
                         : MemoryCache::read_now(pid, address, data, size_bytes);
}

bool Space::write(uint64_t address, const void* data, size_t size_bytes) {
  const pid_t pid = process_->pid();
  return cache_.active() ? cache_.write(pid, address, data, size_bytes)
                         : MemoryCache::write_now(pid, address, data, size_bytes);
}

const Mapped* Space::at(uint64_t address) const {
  auto it = std::upper_bound(mapped_.begin(), mapped_.end(), address,
                             [](uint64_t a, const auto& m) { return a < m.range.begin.value(); });
  if (it == mapped_.begin()) return nullptr;
  --it;
  return it->range.contains(TargetAddr(address)) ? &*it : nullptr;
}

const Mapped* Space::mapping_of(uint32_t module, LinkAddr address) const {
  const auto holds = [&](const Mapped& m) {
    return m.module == module && m.range.contains(TargetAddr(address.value() + m.bias));
  };
  if (last_ < mapped_.size() && holds(mapped_[last_])) return &mapped_[last_];
  for (last_ = 0; last_ < mapped_.size(); ++last_) {
    if (holds(mapped_[last_])) return &mapped_[last_];
  }
  return nullptr;
}

bool Space::meets_code(TargetRange range) const {
  return std::any_of(mapped_.begin(), mapped_.end(), [&](const Mapped& m) {
    return m.range.begin < range.end && range.begin < m.range.end;
  });
}

void Space::inherit(const Space& parent) {
  breakpoints = parent.breakpoints;
  mapped_ = parent.mapped_;
  once_writable_ = parent.once_writable_;
}

bool Space::was_mapped(const Mapped& mapped) const {
  return std::any_of(mapped_.begin(), mapped_.end(), [&](const Mapped& m) {
    return m.module == mapped.module && m.range.begin == mapped.range.begin;
  });
}

Status Space::refresh(std::vector<std::string>& notes) {
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process_->mappings());
  std::vector<Mapped> now;
  for (const tracee::Mapping& m : mappings) {
    if (!m.executable || m.path == "[vsyscall]") continue;
    const std::optional<Mapped> mapped = map(m, notes);
    if (!mapped) continue;
    now.push_back(*mapped);
  }
  for (const Mapped& old : mapped_) {
    const bool stays = std::any_of(now.begin(), now.end(), [&](const Mapped& m) {
      return m.range.begin <= old.range.begin && old.range.end <= m.range.end &&
             m.changing == old.changing;
    });
    if (!stays) breakpoints.take_out(*process_, old.range);
  }
  mapped_ = std::move(now);
  return Ok{};
}

bool Space::load_image(CodeModule& module, const tracee::Mapping& m,
                       std::vector<std::string>& notes) {
  if (module.image) return true;
  if (m.path == "[vdso]") {
    std::vector<uint8_t> bytes(m.range.size_bytes());
    if (!process_->read_memory(m.range.begin, bytes.data(), bytes.size())) return false;
    auto image = elf::Image::from_bytes(m.path, std::move(bytes));
    if (image) module.image = *image;
    return image.ok();
  }
  auto image = elf::Image::open(m.path);
  if (!image) {
    notes.push_back(fmt::format("{}: followed step by step, its file cannot be read: {}", m.path,
                                image.error().message));
    return false;
  }
  module.image = *image;
  module.build_id = module.image->build_id();
  return true;
}

std::optional<Mapped> Space::map(const tracee::Mapping& m, std::vector<std::string>& notes) {
  const bool vdso = m.path == "[vdso]";
  Mapped mapped;
  mapped.range = m.range;
  bool& writable = once_writable_[m.range.begin.value()];
  writable = writable || m.writable;
  mapped.changing = writable || m.shared;
  if (vdso || is_file(m.path)) {
    CodeModule& module = code_.module(m.path);
    if (load_image(module, m, notes)) {
      const uint64_t offset = vdso ? module.image->segments()[0].offset.value() : m.file_offset;
      if (const auto link = link_of(*module.image, offset)) {
        mapped.module = module.id;
        mapped.bias = m.range.begin.value() - link->value();
        if (!mapped.changing && !was_mapped(mapped)) compare(module, mapped, notes);
        return mapped;
      }
    }
  }
  mapped.module = code_.module(kGenerated).id;
  mapped.changing = true;
  return mapped;
}

// Text is read from the file from now on, so memory has to be the same.
void Space::compare(CodeModule& module, const Mapped& mapped, std::vector<std::string>& notes) {
  const LinkAddr begin(mapped.range.begin.value() - mapped.bias);
  std::span<const uint8_t> file = module.code_at(begin);
  file = file.first(std::min<size_t>(file.size(), mapped.range.size_bytes()));
  std::vector<uint8_t> memory(file.size());
  if (!process_->read_memory(mapped.range.begin, memory.data(), memory.size())) return;
  breakpoints.hide(mapped.range.begin, memory.data(), memory.size());
  if (std::memcmp(memory.data(), file.data(), file.size()) == 0) return;
  if (!module.differs) {
    notes.push_back(
        fmt::format("{}: its text in memory is not that of the file; memory counts", module.path));
  }
  module.differs = true;
  module.from_memory[begin.value()] = std::move(memory);
}

}  // namespace tally::verify
