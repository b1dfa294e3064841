// Which counts may depend on the time of day, or on random numbers?
//
// Problem.  Runs agree where the clock happened to say the same: the seconds of a difference were
// not borrowed from, a timeout was not over.  A profile that says otherwise need not be wrong.
//
// Idea.  As for threads (scheduling.h), by what was executed.  A procedure is marked if it
//
//   reads:     executed rdtsc, rdrand or rdseed, or called what reads a clock or random numbers, by
//              name (clock_gettime, getrandom);
//   is told:   called such a procedure of its own module, whose result it has;
//   is handed: is called by one that reads, is told or is handed, and makes no calls, or only to
//              such as make none.
//
// What is decided by such a value is decided once for each, so that only counts are excused that
// are not larger, claimed or counted, than the number of its module's readings: a loop of the same
// procedure over a million bytes is not.
#pragma once

#include <map>
#include <set>
#include <string>

#include "verify/judgement.h"
#include "verify/truth.h"

namespace tally::verify {

// By its name, a function that reads a clock or random numbers.
bool is_about_chance(const std::string& name);

class Clocks {
 public:
  explicit Clocks(const Truth& truth);
  // Why the count of this finding may depend on time; empty: nothing says that it does.
  std::string why(const Finding& finding) const;

 private:
  void mark_readers(const std::string& path, const TruthModule& module);
  void note_calls(const std::string& path, const TruthModule& module);
  void mark_told();
  std::set<Procedure> mark_handed(const std::set<Procedure>& callers);
  bool is_shallow(const Procedure& procedure) const;

  const Truth& truth_;
  std::map<Procedure, std::string> why_;
  std::map<Procedure, std::set<Procedure>> callers_;
  std::map<Procedure, std::set<Procedure>> callees_;
  std::map<std::string, uint64_t> readings_;  // by module
};

}  // namespace tally::verify
