// The modules mapped into the target, as they come and go.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "cfg/procedure.h"
#include "elf/image.h"
#include "engine/region.h"
#include "profile/model.h"
#include "tracee/process.h"

namespace tally::engine {

struct Module {
  uint32_t id = 0;
  std::string path;
  std::shared_ptr<elf::Image> image;
  uint64_t bias = 0;  // target address = link address + bias
  TargetRange mapped;
  std::vector<TargetRange> executable;  // what the program believes executable
  bool main_program = false;
  bool gone = false;     // unmapped (dlclose)
  Area* area = nullptr;  // once something of it is translated
  cfg::CodeView view;
  std::unique_ptr<cfg::Discoverer> discoverer;
  std::unordered_set<uint64_t> never_return;  // link addresses of abort, exit, ...

  bool holds(TargetAddr address) const {
    for (const TargetRange& r : executable) {
      if (r.contains(address)) return true;
    }
    return false;
  }
  LinkAddr to_link(TargetAddr address) const { return LinkAddr(address.value() - bias); }
  TargetAddr to_target(LinkAddr address) const { return TargetAddr(address.value() + bias); }
};

class ModuleMap {
 public:
  explicit ModuleMap(tracee::Process& process) : process_(process) {}

  // Reads /proc/PID/maps and adds the modules that are new.  `executable_now` (a range, may be
  // empty) has just been mapped executable for the program, though the kernel was not told so.
  // Errors: a file that is mapped executable but cannot be read as ELF.
  Status refresh(TargetRange executable_now);
  // The kernel's view at the start: the ranges that are executable now.
  Result<std::vector<TargetRange>> executable_ranges() const;
  // Forgets what lies in a range that was unmapped or overwritten.
  void forget(TargetRange range);

  // True when code of two modules may be alike in the low 32 bits of its addresses; the libraries
  // still to come are expected within `below_bytes` below the loader.
  bool low_halves_may_collide(uint64_t below_bytes) const;
  // From now on a new module that collides is an error.
  void forbid_collisions() { collisions_forbidden_ = true; }
  // True when any module has executable memory in the range.
  bool has_code_in(TargetRange range) const;

  // The module that holds code at `address`; nullptr when none does.
  Module* at(TargetAddr address);
  // The same for any mapped address of a module (for unwinding).
  const Module* containing(TargetAddr address) const;
  // True when `address` lies in memory made executable that belongs to no module.
  bool is_generated_code(TargetAddr address) const;

  std::vector<std::unique_ptr<Module>>& all() { return modules_; }
  const std::vector<std::unique_ptr<Module>>& all() const { return modules_; }

 private:
  Status add(const tracee::Mapping& mapping, const std::vector<tracee::Mapping>& all,
             TargetRange executable);

  tracee::Process& process_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<TargetRange> generated_;
  Module* last_ = nullptr;
  bool collisions_forbidden_ = false;
};

}  // namespace tally::engine
