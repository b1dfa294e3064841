// Memory whose contents last: what a loader has relocated and then made read-only.
//
// A program that is linked with -z now, as most distributions link theirs, has all pointers of its
// linkage tables there (PT_GNU_RELRO), and so has code without linkage tables (-fno-plt, Rust). A
// branch through such a pointer leads to one place as long as nobody can write it, and needs no
// comparison:
//
//   mmap     libz.so        rw-p   relocated by the loader
//   mprotect its relro      r--p   branches that are first taken from here on are led directly ...
//   mprotect its relro      rw-p   ... and from here on compared again
//
// Whether the memory is read-only, and nobody else's, is asked of the kernel when a branch is first
// taken; from then on the program's calls that change memory are looked at, before the thread
// that made them goes on.
//
// Not handled: memory that is written though it is read-only, through /proc/PID/mem or by a
// debugger, or given back to the file that it comes from (madvise).
#pragma once

#include <optional>

#include "cache/modules.h"
#include "cache/ranges.h"
#include "tracee/process.h"

namespace tally::engine {

class SealedMemory {
 public:
  SealedMemory(tracee::Process& process, const ModuleMap& modules)
      : process_(process), modules_(modules) {}

  // Whether the pointer at `slot` lies in memory that the module's loader makes read-only, now or
  // later.
  static bool may_hold(const Module& module, TargetAddr slot);
  // Whether it is there to last by now; false if the kernel cannot be asked.
  bool holds(const Module& module, TargetAddr slot);
  // What is there; nullopt if it cannot be read.
  std::optional<TargetAddr> pointer_at(TargetAddr slot) const;
  // Memory was mapped, unmapped or protected.  True if something was sealed there, which it no
  // longer is.
  bool changed(TargetRange range);

 private:
  void look();

  tracee::Process& process_;
  const ModuleMap& modules_;
  RangeSet sealed_;
  RangeSet looked_at_;  // relocated memory, sealed or not
};

}  // namespace tally::engine
