// See code.h.
#include "claims/code.h"

#include <sys/auxv.h>

#include <algorithm>

namespace tally::claims {
namespace {

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

Code::Code(const Claims& claims) : claims_(claims) {
  for (const claims::Module& module : claims.modules) {
    Module& entry = modules_.emplace_back();
    if (module.path.starts_with('[')) {
      notes_.push_back(fmt::format("{} has no file: its bytes were not looked at", module.path));
      continue;
    }
    auto image = elf::Image::open(module.path);
    if (!image) {
      notes_.push_back(fmt::format("{}; its bytes were not looked at", image.error().message));
      continue;
    }
    if (!module.build_id.empty() && (*image)->build_id() != module.build_id) {
      notes_.push_back(
          fmt::format("'{}' is of another build now (build-id {}, the profile's is "
                      "{}): its bytes were not looked at",
                      module.path, (*image)->build_id(), module.build_id));
      continue;
    }
    entry.image = std::move(*image);
    for (const elf::Section& section : entry.image->sections()) {
      if (section.executable) entry.sections.push_back(section.range);
    }
    std::sort(entry.sections.begin(), entry.sections.end(),
              [](const LinkRange& a, const LinkRange& b) { return a.begin < b.begin; });
  }
}

const elf::Image* Code::image(uint32_t module) const {
  return module < modules_.size() ? modules_[module].image.get() : nullptr;
}

Bytes Code::kind_of(const Place& place) {
  const elf::Image* image = this->image(place.module);
  if (image == nullptr) return Bytes::kUnknown;
  const auto& segments = image->segments();
  const auto segment = std::find_if(segments.begin(), segments.end(), [&](const elf::Segment& s) {
    return s.range.contains(place.address);
  });
  if (segment == segments.end()) return Bytes::kOutside;
  if (!segment->executable) return Bytes::kData;
  const auto& sections = modules_[place.module].sections;
  const bool in_section = std::any_of(sections.begin(), sections.end(), [&](const LinkRange& r) {
    return r.contains(place.address);
  });
  if (!sections.empty() && !in_section) return Bytes::kPadding;
  return insn_at(place).size == 0 ? Bytes::kNoInstruction : Bytes::kCode;
}

isa::Insn Code::insn_at(const Place& place) {
  const elf::Image* image = this->image(place.module);
  if (image == nullptr) return {};
  const auto [slot, is_new] = decoded_.try_emplace(place);
  if (is_new) slot->second = isa::decode(image->bytes_at(place.address), place.address.value());
  return slot->second;
}

std::string Code::name_of(const Place& place) const {
  if (place.module >= claims_.modules.size()) return {};
  const elf::Image* image = this->image(place.module);
  const elf::Symbol* symbol = image == nullptr ? nullptr : image->symbol_at(place.address);
  if (symbol != nullptr) {
    const int64_t offset = place.address - symbol->range.begin;
    const std::string name = elf::demangle(symbol->name);
    return offset == 0 ? name : fmt::format("{}+{:#x}", name, offset);
  }
  return fmt::format("{}+{:#x}", base_name(claims_.modules[place.module].path),
                     place.address.value());
}

}  // namespace tally::claims
