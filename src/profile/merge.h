// The sum of several runs.
//
// Problem.  A session profiles many runs of few programs: two hundred times sh.  Who asks where the
// time went wants the sum, over all runs that executed an instruction.
//
// Idea.  Modules are the same when path and build-id are; procedures when module and entry are;
// blocks when procedure, address and instructions are.  Runs may have cut code into blocks
// differently (control arrived in the middle of a block in one and not in the other); then both
// kinds of blocks are in the sum, as overlapping code is.  Conservation of flow holds for sums.
//
// A sum is unknown if a part of it is.  Addresses in memory are those of the first run that had the
// module.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "profile/model.h"

namespace tally::profile {

class Merger {
 public:
  void add(const Profile& profile);
  // The facts are those of the run with the lowest number; times, counters and free facts that are
  // numbers are sums.
  Profile result();

 private:
  uint32_t module_of(const Module& module);
  uint32_t procedure_of(const Procedure& procedure, uint32_t module);
  uint32_t block_of(const Block& block, uint32_t procedure);
  void add_facts(const Run& run);

  Profile sum_;
  bool empty_ = true;
  std::map<std::pair<std::string, std::string>, uint32_t> modules_;  // path, build-id
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> procedures_;     // module, entry
  std::map<std::tuple<uint32_t, uint64_t, std::vector<uint8_t>>, uint32_t> blocks_;
  std::map<std::tuple<uint32_t, uint32_t, EdgeKind>, size_t> edges_;
  std::map<std::tuple<uint32_t, AbnormalKind, std::string>, size_t> abnormal_;
  std::map<std::pair<std::string, std::string>, size_t> issues_;
};

}  // namespace tally::profile
