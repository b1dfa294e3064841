// Breakpoints in a target's text.  See watch.h.
#include <vector>

#include "tracee/watch.h"

namespace tally::tracee {
namespace {
constexpr uint8_t kInt3 = 0xcc;
}

bool Breakpoints::insert(const Process& process, TargetAddr at) {
  if (contains(at)) return true;
  uint8_t byte = 0;
  if (!process.read_memory(at, &byte, 1) || !process.write_memory(at, &kInt3, 1)) return false;
  original_.emplace(at.value(), byte);
  retired_.erase(at.value());
  return true;
}

bool Breakpoints::remove(const Process& process, TargetAddr at) {
  const auto it = original_.find(at.value());
  if (it == original_.end()) return true;
  const bool written = process.write_memory(at, &it->second, 1);
  original_.erase(it);
  return written;
}

void Breakpoints::forget(TargetRange range) {
  std::erase_if(original_, [&](const auto& b) { return range.contains(TargetAddr(b.first)); });
  std::erase_if(retired_, [&](uint64_t at) { return range.contains(TargetAddr(at)); });
}

void Breakpoints::hide(TargetAddr begin, uint8_t* bytes, size_t size_bytes) const {
  if (size_bytes <= 64) {
    for (size_t i = 0; i < size_bytes; ++i) {
      const auto it = original_.find(begin.value() + i);
      if (it != original_.end()) bytes[i] = it->second;
    }
    return;
  }
  for (const auto& [address, byte] : original_) {
    if (address - begin.value() < size_bytes) bytes[address - begin.value()] = byte;
  }
}

void Breakpoints::take_out(const Process& process, TargetRange range) {
  std::vector<uint64_t> places;
  for (const auto& [address, byte] : original_) {
    if (range.contains(TargetAddr(address))) places.push_back(address);
  }
  for (const uint64_t address : places) {
    uint8_t byte = 0;
    // Memory that is new by now bears no breakpoint of ours.
    const bool ours = process.read_memory(TargetAddr(address), &byte, 1) && byte == kInt3;
    if (ours) remove(process, TargetAddr(address));
    original_.erase(address);
  }
}

void Breakpoints::retire(const Process& process, TargetAddr at) {
  if (!contains(at)) return;
  remove(process, at);
  retired_.insert(at.value());
}

void Breakpoints::retire_all_but(const Process& process, const std::unordered_set<uint64_t>& kept) {
  std::vector<uint64_t> places;
  for (const auto& [address, byte] : original_) {
    if (!kept.contains(address)) places.push_back(address);
  }
  for (const uint64_t address : places) retire(process, TargetAddr(address));
}

void Breakpoints::remove_all(const Process& process) {
  take_out(process, {TargetAddr(0), TargetAddr(UINT64_MAX)});
}

}  // namespace tally::tracee
