// Calls everything an Image offers and checks what must hold for any input, however damaged.
// Shared by the unit tests and the fuzzer.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "elf/dependencies.h"
#include "elf/image.h"
#include "elf/unwind.h"

namespace tally::elf {

// Every answer of a walk over memory full of random words must end, with frames in order.
inline std::string walk_random_memory(const std::shared_ptr<const Image>& image, LinkAddr pc,
                                      std::mt19937_64& random) {
  UnwindRegisters registers;
  for (size_t i = 0; i < kDwarfRegisterCount; ++i) {
    registers.value[i] = 0x7ffc00000000 + random() % 0x10000 * 8;
    registers.known[i] = true;
  }
  registers.value[kDwarfPc] = pc.value();
  const auto& ranges = image->unwind_ranges();
  UnwindTarget target;
  target.module_at = [&](TargetAddr) { return UnwindModule{image, 0}; };
  target.read_memory = [&](TargetAddr address, void* bytes, size_t size_bytes) {
    if (random() % 64 == 0) return false;
    auto* out = static_cast<uint8_t*>(bytes);
    for (size_t i = 0; i + 8 <= size_bytes; i += 8) {
      uint64_t word = random();
      if (word % 3 == 0) word = address.value() + word % 256;
      if (word % 3 == 1 && !ranges.empty()) {
        word = ranges[word / 3 % ranges.size()].begin.value() + 1;
      }
      std::memcpy(out + i, &word, sizeof(word));
    }
    return true;
  };
  constexpr size_t kFramesMax = 40;
  const BackTrace trace = unwind(registers, target, kFramesMax);
  if (trace.frames.size() > kFramesMax) return "too many frames";
  if (trace.end == TraceEnd::kOutermost) return {};
  if (trace.detail.empty()) return "an incomplete trace without a reason";
  for (size_t i = 1; i + 1 < trace.frames.size(); ++i) {
    if (!trace.frames[i].signal_frame && trace.frames[i].cfa <= trace.frames[i - 1].cfa) {
      return "CFA does not grow";
    }
  }
  return {};
}

// The first thing that is wrong, or nothing.
inline std::string exercise(const std::shared_ptr<const Image>& image, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto& segments = image->segments();
  if (segments.empty()) return "no segments";
  const auto executable_at = [&](LinkRange range) {
    for (const Segment& segment : segments) {
      if (segment.executable && segment.range.begin <= range.begin &&
          range.end <= segment.range.end) {
        return true;
      }
    }
    return false;
  };
  uint64_t sum = image->entry().value() + image->path().size() + image->build_id().size() +
                 image->interpreter().value_or("").size() + image->dependencies().names.size();
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i > 0 && segments[i].range.begin < segments[i - 1].range.end) return "segments overlap";
    const auto bytes = image->bytes_at(segments[i].range.begin);
    if (bytes.size() != segments[i].file_size_bytes) return "bytes_at: wrong size";
    for (size_t at = 0; at < bytes.size(); at += 512) sum += bytes[at];
    if (!bytes.empty()) sum += bytes.back();
    if (!image->bytes_at(segments[i].range.end - 1).empty() &&
        segments[i].file_size_bytes != segments[i].range.size_bytes()) {
      return "bytes_at: bytes behind the file part";
    }
  }
  for (const Section& section : image->sections()) sum += section.name.size();
  const auto& ranges = image->unwind_ranges();
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].empty() || !executable_at(ranges[i])) return "unwind range outside code";
    if (i > 0 && ranges[i].begin < ranges[i - 1].end) return "unwind ranges overlap";
    if (image->unwind_range_at(ranges[i].end - 1) != ranges[i]) return "unwind_range_at";
  }
  for (const CallSite& site : image->exception_tables().call_sites) {
    if (site.covered.end < site.covered.begin) return "call site ends before it begins";
    if (site.covered.begin < site.procedure.begin || site.procedure.end < site.covered.end) {
      return "call site outside its procedure";
    }
    if (!executable_at({site.landing_pad, site.landing_pad + 1})) return "landing pad";
  }
  const auto& symbols = image->symbols();
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].name.empty() || symbols[i].range.end < symbols[i].range.begin) return "symbol";
    if (i > 0 && symbols[i].range.begin < symbols[i - 1].range.begin) return "symbols unsorted";
    const Symbol* found = image->symbol_at(symbols[i].range.begin);
    if (found == nullptr) return "symbol_at: its own begin is not found";
    if (!found->range.empty() && !found->range.contains(symbols[i].range.begin)) return "symbol_at";
    if (image->symbol_named(symbols[i].name) == nullptr) return "symbol_named";
    if (i < 100) sum += demangle(symbols[i].name).size();
  }
  for (int i = 0; i < 8; ++i) {
    const Segment& segment = segments[random() % segments.size()];
    LinkAddr address = segment.range.begin + random() % segment.range.size_bytes();
    if (!ranges.empty() && i % 2 == 0) address = ranges[random() % ranges.size()].begin + i / 2;
    if (const auto line = image->line_at(address)) sum += line->file.size();
    const std::string complaint = walk_random_memory(image, address, random);
    if (!complaint.empty()) return complaint;
  }
  sum += image->debug_file().value_or("").size() + (image->cfi() != nullptr ? 1 : 0);
  return sum == 0 ? "nothing was read" : "";
}

}  // namespace tally::elf
