// What a verification found: which claims hold, which do not, and why not.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "claims/claims.h"
#include "claims/counts.h"
#include "elf/image.h"
#include "verify/code.h"

namespace tally::verify {

enum class FindingKind : uint8_t {
  kEdgeCount,       // taken another number of times
  kMissingEdge,     // taken, and not in the profile
  kBlockCount,      // entered another number of times
  kMissingBlock,    // control arrived where the profile has no block
  kInside,          // begins in the middle of an instruction that was executed
  kProcedureCount,  // entered another number of times
  kCallCount,       // a procedure was called another number of times
  kInstructionCount,
  kLineCount,
  kShare,          // two distributions overlap too little
  kContradiction,  // an equation of the profile's own does not hold
};
const char* to_string(FindingKind kind);

// Why a claim does not hold.
enum class Reason : uint8_t {
  kWrong,             // two runs agree, and the profile says something else
  kNondeterministic,  // differs from run to run by itself
  kScheduling,        // runs agree, but may differ: the code depends on other threads
  kEnvironment,       // of code that depends on the environment, which is not that of the profile
  kOwnOutput,         // of code that the profiler itself runs, to write what it counted
  kStructure,         // the profile's blocks are not the program's
  kUnexplained,       // one run says something else, and there was no second one
};
const char* to_string(Reason reason);

struct Finding {
  FindingKind kind = FindingKind::kEdgeCount;
  Reason reason = Reason::kWrong;
  std::string where;  // "gzip+0x4a10"
  std::string to;     // edges
  claims::EdgeRole role = claims::EdgeRole::kUnknown;
  uint64_t claimed = 0;
  uint64_t counted = 0;
  std::string record;    // where in the profile: "row 12 of edges"
  std::string evidence;  // for the reason
  std::string name;      // symbol
  LinkAddr procedure;    // where the procedure around it begins, as far as that is known
  // For finding it again in another run.
  std::string module;
  LinkAddr address;
  LinkAddr to_address;
  std::string to_module;
};

// Where the run was cut off, the program has not done yet what it lacks; but no count is negative.
inline bool differs(uint64_t claimed, uint64_t counted, bool complete) {
  return complete ? claimed != counted : counted > claimed || claims::is_impossible(claimed);
}

struct Tally {
  uint64_t claims = 0;  // of this kind in the profile
  uint64_t judged = 0;  // compared
  uint64_t wrong = 0;
  uint64_t executions = 0;  // sum of what was counted for those compared
};

struct Judgement {
  Tally edges, blocks, procedures, calls, instructions, lines;
  std::vector<Finding> findings;
  std::vector<std::string> remarks;       // what was not judged, and why
  double overlap = -1;                    // of shares; negative: none were judged
  std::set<std::string> confirmed;        // lines and functions with the counts that are claimed
  std::map<std::string, unsigned> named;  // how many that were judged have this name
};

const char* to_string(claims::EdgeRole role);

// Of a line or a function, whichever build it is in; empty: of anything else.
std::string name_in_source(const Finding& finding);

// Where the procedure around an address begins, by symbol (Go has no unwind information) or else by
// unwind information; a stub of a linkage table is a procedure.  0: nobody knows.
LinkAddr procedure_around(const elf::Image& image, LinkAddr address);

}  // namespace tally::verify
