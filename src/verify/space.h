// One address space of the watched program: which module is mapped where, and its breakpoints.
//
// Text is read from the files; when a module is mapped first, its memory is compared with the
// file, and where they differ the memory is what counts, and the difference is named.  Code that
// may change while it runs (writable, or without a file) is volatile: no breakpoint is put there,
// threads go through it step by step.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tracee/process.h"
#include "tracee/watch.h"
#include "verify/code.h"
#include "verify/memory_cache.h"

namespace tally::verify {

// Whose turn it is (turns.cpp).
struct Turns {
  pid_t runner = 0;
  std::deque<tracee::Event> waiting;  // events of threads that are held
  uint64_t blocks_before = 0;         // executed when the turn began
  bool over = false;                  // it waits for another one
  uint64_t reports = 0;
  uint64_t reports_seen = 0;  // when it was looked after last
};

struct Mapped {
  uint32_t module = 0;
  uint64_t bias = 0;  // target address = link address + bias
  TargetRange range;  // executable
  bool changing = false;
};

class Space : public isa::Memory {
 public:
  Space(Code& code, std::unique_ptr<tracee::Process> process)
      : code_(code), process_(std::move(process)) {}

  // Reads /proc/PID/maps.  Names of what differs from its file are added to `notes`.
  Status refresh(std::vector<std::string>& notes);
  // The memory in the range is about to be unmapped, or is new.
  void forget(TargetRange range) { breakpoints.forget(range); }
  // What a forked child begins with.
  void inherit(const Space& parent);
  // The executable mapping that holds the address; nullptr when there is none.
  const Mapped* at(uint64_t address) const;
  // Where code of a module is mapped; nullptr when it is not.
  const Mapped* mapping_of(uint32_t module, LinkAddr address) const;
  bool meets_code(TargetRange range) const;

  bool read(uint64_t address, void* data, size_t size_bytes) override;
  bool write(uint64_t address, const void* data, size_t size_bytes) override;
  // The process stands still, and nobody else writes its memory (memory_cache.h).
  void hold() { cache_.begin(); }
  // Before it goes on.  False when a store got lost.
  bool release() { return !cache_.active() || cache_.end(process_->pid()); }

  tracee::Process& process() { return *process_; }
  tracee::Breakpoints breakpoints;
  unsigned threads = 0;
  Turns turns;

 private:
  std::optional<Mapped> map(const tracee::Mapping& mapping, std::vector<std::string>& notes);
  bool load_image(CodeModule& module, const tracee::Mapping& mapping,
                  std::vector<std::string>& notes);
  void compare(CodeModule& module, const Mapped& mapped, std::vector<std::string>& notes);
  bool was_mapped(const Mapped& mapped) const;

  Code& code_;
  std::unique_ptr<tracee::Process> process_;
  MemoryCache cache_;
  std::vector<Mapped> mapped_;              // sorted
  mutable size_t last_ = 0;                 // found by the last mapping_of
  std::map<uint64_t, bool> once_writable_;  // by begin of the mapping
};

}  // namespace tally::verify
