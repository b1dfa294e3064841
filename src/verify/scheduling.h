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
// Not seen: memory that threads share without any of these, looked at once (a race), or two calls
// below who holds the lock; whoever reads it can be called wrong.  What the marks rest on is
// executed code, not the whole of the program.
#pragma once

#include <map>
#include <set>
#include <string>

#include "verify/judgement.h"
#include "verify/truth.h"

namespace tally::verify {

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
  bool mark(const Procedure& procedure, const std::string& why) {
    return why_.try_emplace(procedure, why).second;
  }

  const Truth& truth_;
  std::map<Procedure, std::string> why_;
  std::map<Procedure, std::set<Procedure>> callers_;
};

}  // namespace tally::verify
