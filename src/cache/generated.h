// Code that the program makes or changes while it runs.
//
// Problem.  Compilers inside programs (LuaJIT, HotSpot, V8, QEMU, PCRE) write code and run it; so
// do trampolines on the stack, loaders that relocate text, and programs that patch themselves. What
// was translated from such memory is wrong as soon as its bytes change, and nobody says when.
//
// Idea.  Two kinds of memory, told apart by what the program believes of it:
//
//   executable, not writable    Cannot change without a system call, and that is seen.  The bytes
//                               each unit was made from are kept; when the memory becomes
//                               executable again, they are compared, and units that differ go.
//   executable and writable,    May change at any instruction, through another mapping too.  Each
//   or mapped shared            translated block compares its own bytes before it runs, and again
//                               behind every store in it (translate/unit.h).  Where they differ,
//                               the monitor is asked, and the unit goes.
//
// A unit that goes is cut out of every chain, link and table; its counters stay what they are: the
// counts of the code that was there.  Code at the same addresses is translated anew as a unit of
// its own (a generation), and instructions of several generations sum up by address.
//
// So that each generation's counts are exact on their own, a direct branch into or out of such code
// is counted by (branch, target unit) like an indirect one, and a call in it has a second way out:
// what it returns to may be another generation.
//
// Limits.  A store whose address comes from rsp is not taken to change the code it is in.  Memory
// that was executable and is writable for the moment can still be run by other threads, where
// natively they would fault.  Writes through /proc/PID/mem, process_vm_writev and ptrace are seen
// only by code that checks itself, as are changes of the file behind a private mapping.
#pragma once

#include <string>

#include "cache/code_cache.h"
#include "cache/modules.h"

namespace tally::engine {

class GeneratedCode {
 public:
  GeneratedCode(ModuleMap& modules, CodeCache& cache) : modules_(modules), cache_(cache) {}

  // What the program has just done to its memory.  `protection` is what it asked for.
  Status mapped(TargetRange range, uint64_t protection, uint64_t flags);
  Status protection_changed(TargetRange range, uint64_t protection);
  void unmapped(TargetRange range);
  Status moved(TargetRange from, TargetRange to);

  // Why counts of rewritten code may be off, for the profile; empty when they are not.
  const std::string& doubt() const { return doubt_; }

 private:
  Status made_executable(TargetRange range, uint64_t protection);
  void made_data(TargetRange range, bool writable);
  void discard_changed(Module& module, TargetRange range);
  void discard_unchecked(Module& module, TargetRange range);
  void discard(Module& module, uint32_t unit);

  ModuleMap& modules_;
  CodeCache& cache_;
  std::string doubt_;
};

}  // namespace tally::engine
