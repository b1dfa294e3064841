// The modules mapped into the target, as they come and go.
//
// Most are ELF files.  Executable memory without a file (a compiler's output, a trampoline on the
// stack) is a module of its own kind, "[generated 0x...-0x...]", whose link addresses are those of
// the target; what adjoins it later belongs to it too.  Code that the program writes is read from
// its memory each time it is translated; see generated.h for what happens when it changes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/known_files.h"
#include "cache/phases.h"
#include "cache/ranges.h"
#include "cache/region.h"
#include "cfg/procedure.h"
#include "elf/image.h"
#include "profile/model.h"
#include "tracee/process.h"

namespace tally::engine {

struct Module {
  uint32_t id = 0;
  std::string path;
  std::shared_ptr<elf::Image> image;
  uint64_t bias = 0;  // target address = link address + bias
  TargetRange mapped;
  RangeSet executable;  // what the program believes executable
  RangeSet writable;    // the part of it that may change at any time: writable, or mapped shared
  RangeSet shared;      // mapped shared, whether executable or not
  bool main_program = false;
  bool generated = false;    // no file behind it
  bool from_memory = false;  // its code is what is in memory, not what is in the file
  bool gone = false;         // unmapped (dlclose)
  bool sealed = false;       // the loader has relocated it, and made that read-only
  Area* area = nullptr;      // once something of it is translated
  TargetRange reach;         // what holds it and all its areas, which branch to each other
  cfg::CodeView view;
  std::unique_ptr<cfg::Discoverer> discoverer;
  std::shared_ptr<KnownFile> file;  // what other image runs know of it, too; null if generated

  // Tells an address of a module from all others of the run.
  uint64_t key_of(LinkAddr address) const {
    return static_cast<uint64_t>(id) << 48 ^ address.value();
  }
  // Calls of abort, exit, ...
  bool never_returns(LinkAddr target) const {
    return file != nullptr && file->never_return().contains(target.value());
  }
  // What other image runs have found in the file; nullptr where this run's memory counts.
  KnownProcedures* shared_procedures() const {
    return file == nullptr || from_memory ? nullptr : file->procedures();
  }
  bool holds(TargetAddr address) const { return executable.contains(address); }
  LinkAddr to_link(TargetAddr address) const { return LinkAddr(address.value() - bias); }
  TargetAddr to_target(LinkAddr address) const { return TargetAddr(address.value() + bias); }
};

// Gives the module a code cache for its next units: within reach of its code, and of all others
// that it has had, since its units branch to one another.  Errors: no room, too many.
Status give_area(Module& module, Region& region, tracee::Process& process, const RemoteCall& call);

class ModuleMap {
 public:
  ModuleMap(tracee::Process& process, KnownFiles& files, PhaseTimes& phases)
      : process_(process), files_(files), phases_(phases) {}

  // Reads /proc/PID/maps and adds the modules that are new.  `executable_now` (a range, may be
  // empty) has just been mapped executable for the program, though the kernel was not told so.
  // Errors: a file that is mapped executable but cannot be read as ELF.
  Status refresh(TargetRange executable_now);
  // The process runs already, so its files may be others by now: they are found below `root`
  // (/proc/PID/root), and must be what is in memory.  Code in `changed` was changed since it was
  // mapped.  What fails the test is read from memory, without symbols.
  void expect_running(std::string root, RangeSet changed) {
    root_ = std::move(root);
    changed_ = std::move(changed);
  }
  // A fork child has its parent's modules, and the code cache's areas where its parent has them.
  void inherit(const ModuleMap& parent, Region& region);
  // The kernel's view at the start: what is executable now.
  Result<std::vector<tracee::Mapping>> executable_mappings() const;
  // Forgets what lies in a range that was unmapped or overwritten.
  void forget(TargetRange range);

  // Notes executable memory without a file; `writable`: it may change at any time.
  void add_generated(TargetRange range, bool writable, bool shared);
  // From now on the module's code is what is in the target's memory.
  void read_from_memory(Module& module);
  // Where the mapping begins that holds the address.
  Result<TargetAddr> mapping_begin(TargetAddr address) const;
  // True when every page of the range belongs to a module.
  bool covers(TargetRange range) const;
  // Modules that have, or may have, code in the range.
  std::vector<Module*> meeting(TargetRange range);
  // Bytes of code read for the last translation are read again.
  void drop_snapshot();
  // Code is about to be translated.
  void expect_translation(TargetRange range);
  // Memory is about to be executable: an indirect branch that has met code alike to it in the low
  // 32 bits of its address would go there instead, and nobody would be asked.
  void expect_code(TargetRange range);

  // True when code of two modules may be alike in the low 32 bits of its addresses; the libraries
  // still to come are expected within `below_bytes` below the loader.
  bool low_halves_may_collide(uint64_t below_bytes) const;
  // Code that would be alike to other code is kept from coming about where the program has left
  // the place to the kernel.  Where it has not, `allow` is called before it can run, once.
  void keep_apart(std::function<void()> allow) { allow_alike_ = std::move(allow); }

  // Whether a range lies as near to a file's code as rel32 branches reach, or twice that.
  bool is_near_code(TargetRange range) const;

  // Memory has become read-only: modules whose relocated part begins there are complete.
  void note_sealed(TargetRange range);
  // A better place for a new mapping whose addresses are alike to code's in their low 32 bits;
  // nothing when the one it has will do.
  std::optional<TargetAddr> apart_from_code(TargetRange range) const;
  // An address as a person looks it up: "/usr/bin/gzip+0x1f20", or the bare address.
  std::string name_of(TargetAddr address) const;

  // True when any module has executable memory in the range.
  bool has_code_in(TargetRange range) const;

  // The module that holds code at `address`; nullptr when none does.
  Module* at(TargetAddr address);
  // The same for any mapped address of a module (for unwinding).
  const Module* containing(TargetAddr address) const;

  std::vector<std::unique_ptr<Module>>& all() { return modules_; }
  const std::vector<std::unique_ptr<Module>>& all() const { return modules_; }

 private:
  Status add(const tracee::Mapping& mapping, const std::vector<tracee::Mapping>& all,
             TargetRange executable);
  Module& generated_at(TargetRange range);
  bool grow_stack(TargetAddr address);
  void expect_code_on_stack(TargetRange stack);
  void expect_file(const Module& module);
  bool keeps_apart() const { return allow_alike_ != nullptr; }
  void allow_alike();
  bool alike_to_code(TargetRange range) const;
  std::span<const uint8_t> snapshot(TargetAddr address, TargetAddr end);
  void prepare_view(Module& module) const;

  tracee::Process& process_;
  KnownFiles& files_;
  PhaseTimes& phases_;
  std::vector<std::unique_ptr<Module>> modules_;
  bool is_in_memory(const Module& module) const;

  Module* last_ = nullptr;
  std::optional<std::string> root_;
  RangeSet changed_;
  std::function<void()> allow_alike_;  // nullptr: code may be alike
  TargetRange stack_room_;             // of a stack that is executable: what it may grow to
  struct Snapshot {
    TargetAddr begin;
    std::vector<uint8_t> bytes;
  };
  std::vector<std::unique_ptr<Snapshot>> snapshots_;
  // By the low half of their address: pages of generated code that were translated.
  std::unordered_map<uint32_t, uint64_t> translated_pages_;
};

}  // namespace tally::engine
