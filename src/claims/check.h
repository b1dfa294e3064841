// Static checks: does a profile contradict itself, or the bytes of its program?  No run.
//
// Problem.  Many wrong counts need no run to be seen.  What enters a block has to leave it; a
// procedure cannot be entered more often than it is called; bytes that are no instruction were not
// executed.  BOLT's own check of this kind leaves out landing pads, recursive calls and entries;
// here each equation is taken, unless the profile's form cannot say a term of it, which is counted.
//
// Idea.  All equations that fail are collected first.  Then they are explained together, the most
// telling explanation first, since one wrong count breaks several equations:
//
//   overflow-32   a difference is a multiple of 2^32: a counter of 32 bits wrapped
//   missing-block what leaves a block is too little, and where its code goes on there is no block
//   missing-edge  what leaves one block and what enters another are too little by the same amount,
//                 and the code leads from the one to the other
//   entries       a procedure was entered more often than calls, jumps and the profile's own
//                 abnormal terms say (as of a profiler that counts its own `write`)
//   off-by-one    a single execution is missing or left over where a call or system call was open:
//                 the run's end was booked wrongly
//   flow          none of these
//
// and, from the bytes of the program alone: not-code, inside-instruction, not-a-branch,
// wrong-target, bad-block; from single numbers: impossible (counts.h), total (a sum that the
// profile states differs from its parts).
//
// Not found: what is consistent and wrong (a whole path counted too often, a chord's counter that
// wrapped before the rest was derived from it); only a run can tell (`verify/`).
#pragma once

#include <string>
#include <vector>

#include "claims/claims.h"
#include "claims/read.h"

namespace tally::claims {

enum class FaultKind : uint8_t {
  kImpossible,
  kOverflow32,
  kMissingBlock,
  kMissingEdge,
  kEntries,
  kOffByOne,
  kFlow,
  kNotCode,
  kInsideInstruction,
  kNotABranch,
  kWrongTarget,
  kBadBlock,
  kTotal,
};
inline constexpr size_t kFaultKinds = 13;
const char* to_string(FaultKind kind);

struct Finding {
  FaultKind kind = FaultKind::kFlow;
  Place place = {};          // module kNowhere: `where` says it in the words of the profile
  std::string where = {};    // "deflate+0x1c", "gzip+0x4a10", "t.c:12"
  uint64_t claimed = 0;      // what the profile says ...
  __int128 implied = 0;      // ... and what the rest of it, or the program, implies
  std::string record = {};   // where in the profile; empty when there is no such place
  std::string message = {};  // one sentence
};

// How much of a module's code the profile speaks of.
struct Known {
  uint32_t module = 0;
  uint64_t code_bytes = 0;      // in executable sections
  uint64_t known_bytes = 0;     // of them in claims
  uint64_t executed_bytes = 0;  // of them with a count above zero
};

struct CheckReport {
  static constexpr size_t kListed = 1000;
  std::vector<Finding> findings;  // the first kListed, by place
  uint64_t findings_total = 0;
  uint64_t by_kind[kFaultKinds] = {};
  uint64_t equations = 0;  // that were compared
  uint64_t open = 0;       // that could not be: a term is not in the profile or admitted unknown
  std::vector<Known> known;
  std::vector<std::string> notes;  // modules without bytes to look at, and the like
};

CheckReport check(const Claims& claims);

}  // namespace tally::claims
