// Which counts may depend on when signals came?
//
// Problem.  A timer, another process or another thread sends a signal at a time of its own.  What
// its handler does depends on where it struck, and how often it comes on how long the program took:
// runs may agree, and the profile's was another.
//
// Idea.  As for threads and clocks (scheduling.h, clocks.h), by what was executed.  A signal comes
// at a time of its own unless an instruction of the thread caused it (a fault), or a call by which
// the thread sent it to itself.  A procedure is marked if
//
//   it is:       a handler of such a signal, whether or not it was entered in this run;
//   it began:    where such a handler changed its way back to (Go's asyncPreempt);
//   it executed: while such a handler had not returned;
//   it was called: by a marked one, more often than counted (of one that began: other than that).
//
// What is marked for being executed only, can lack at most what was executed so: if the profile
// claims less than all the rest, that is wrong.  Under translation nobody knows what was executed
// within a handler, and only handlers and what they are claimed to call are marked.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include "verify/judgement.h"
#include "verify/truth.h"

namespace tally::verify {

class Interruptions {
 public:
  Interruptions(const Truth& truth, const Judgement& judgement);
  // Why the count of this finding may depend on signals; empty: nothing says that it does.
  std::string why(const Finding& finding) const;

 private:
  struct Mark {
    std::string why;
    bool any_count = false;  // what it executed may be more or less
  };
  void mark_handlers();
  void mark_called(const Judgement& judgement);
  void mark_executed();

  const Truth& truth_;
  std::map<Procedure, Mark> marks_;
};

}  // namespace tally::verify
