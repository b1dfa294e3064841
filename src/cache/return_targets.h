// Whether calls and returns pair up, as the processor expects, or are jumps (translate/unit.h).
//
// Problem.  Returns as jumps are fewer instructions, and the processor foretells where jumps
// through registers go, but only so many of them.  Pairs of `call` and `ret` keep its stack of
// returns in step, which is never wrong, but take eight operations more.  Which is better depends
// on the program.
//
// Idea.  A return is easy to foretell if its procedure is always called from the same place, and
// hard if it is called from many.  That is the entropy of the call, given the procedure:
//
//     called from                          bits for each return
//       one place                            0
//       two, one of them 9 times in 10       0.47
//       four places alike                    2
//
// But the processor goes by the branches that were taken last.  In a procedure that takes few, the
// call itself is still among them, and tells where it returns to.  So only those count that take
// four taken branches from call to return, with all that they call.
//
// The mean over all calls of a run, those others counted as 0, is 0.8 to 3.3 in cc1, cc1plus,
// clang, gnugo and cjpeg, which take 0.80 to 0.96 of the time with pairs, and at most 0.55 in 22
// other programs, which take 0.98 to 1.11 (docs/design.md).  A run leaves it for the next
// (recall.h).  A first run goes by the size of the program and its libraries; and if it begins with
// jumps, the calls of its first tenths of a second say whether it goes on in pairs
// (engine/renewal.h).
//
// Not handled: programs that change their ways with their input, before the run after that; first
// runs of processes with threads.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/recall.h"
#include "profile/model.h"
#include "translate/unit.h"

namespace tally::engine {

// What was called, as far as that is known.
struct CallsMade {
  struct Call {
    uint32_t from = 0, to = 0;  // procedures
    uint32_t entry = 0;         // that `to` was called at
    double count = 0;
  };
  std::vector<Call> calls;
  size_t entries = 0;            // all are below
  std::vector<double> branches;  // by procedure: taken
};

// Of all calls; 0 calls where none is known.
Recollection::Returns measure_returns(const CallsMade& made);
Recollection::Returns measure_returns(const profile::Profile& profile);

// Of code that a program may execute, when it begins.
struct CodeSizes {
  uint64_t program_bytes = 0;
  uint64_t libraries_bytes = 0;  // of those that it names, as far as they are known
};

// Whether pairs are better.
bool are_hard(const Recollection::Returns& returns);

// `before`: of an earlier run.
translate::Returns choose_returns(const Recollection::Returns& before, const CodeSizes& sizes);

// What is left for the next run: a large run's are not given up for those of a small one.
Recollection::Returns better_known(const Recollection::Returns& before,
                                   const Recollection::Returns& now);

}  // namespace tally::engine
