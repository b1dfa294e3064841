// Which procedures' counts may depend on how threads are scheduled?
//
// Problem.  Of a program with threads, some counts are chance: how often a lock was taken, how long
// a loop spun, whether a queue was empty.  A few runs that happen to agree prove nothing about
// them, so a profile that says something else need not be wrong.
//
// Idea.  Such counts arise where a thread can see what another one does.  A procedure is marked if
// in the run that counts
//
//   it executed an atomic instruction (lock, xchg with memory), a fence or `pause`;
//   it went round a loop that does nothing but look at memory;
//   it called what waits for other threads or makes them, by name (pthread_mutex_lock, sem_wait);
//   it called a marked procedure of its own module;
//   it was called by one that did any of the first three itself (which may have held a lock for
//   it); it was called by a marked one, another number of times than claimed.
//
// The last rule follows differences, not calls: what a worker computes from its input lies below
// the loop that waits for input, but is executed as often whoever takes the lock first.
//
// And what threads take from each other (a context out of a pool, used or new) decides far below
// what is done with it.  Who takes (locks, waits, or executes an atomic instruction), hands it to
// its caller; whatever that one calls, at whatever depth, may depend on it.  But what is taken once
// decides once: only counts that are not larger, claimed or counted, than the number of times that
// caller was handed something are excused so, in procedures that were not entered more often.
//
// Not seen: memory that threads share without any of these, looked at once (a race); whoever reads
// it can be called wrong.  What the marks rest on is executed code, not the whole of the program.
#pragma once

#include <map>
#include <set>
#include <string>

#include "verify/judgement.h"
#include "verify/truth.h"

namespace tally::verify {

// By its name, a function that lets one thread have what others could: locks and queues.
bool is_about_taking(const std::string& name);
// By its name, a function that waits for other threads, or starts and ends them.
bool is_about_threads(const std::string& name);

class Scheduling {
 public:
  Scheduling(const Truth& truth, const Judgement& judgement);
  // Why the count of this finding may depend on scheduling; empty: nothing says that it does.
  std::string why(const Finding& finding) const;

 private:
  void mark_by_instructions(const std::string& path, const TruthModule& module);
  bool only_looks_at_memory(const TruthModule& module, uint64_t begin, uint64_t branch) const;
  void mark_by_calls(const std::string& path, const TruthModule& module);
  void mark_callers();
  void mark_under_locks(const std::set<Procedure>& lockers);
  void mark_called(const Judgement& judgement);
  void note_taken();
  void note_below(const Procedure& caller, uint64_t times, const std::string& words);
  std::string why_taken(const Finding& finding) const;
  bool mark(const Procedure& procedure, const std::string& why) {
    return why_.try_emplace(procedure, why).second;
  }

  const Truth& truth_;
  std::map<Procedure, std::string> why_;
  std::map<Procedure, std::set<Procedure>> callers_;
  std::map<Procedure, std::map<Procedure, uint64_t>> callees_;  // how often, in the same module
  std::set<Procedure> takers_;
  // What is called below who was handed something by a taker: how often that was, most.
  struct Below {
    uint64_t times = 0;
    std::string why;
  };
  std::map<Procedure, Below> below_;
};

}  // namespace tally::verify
