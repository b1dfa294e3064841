// Claims: what a profile, of whatever tool, asserts about one run.
//
// An execution profile is a set of assertions: this block ran m times, this edge was taken n times,
// this source line was executed k times (Moseley, Debray and Andrews, "Verifying Program Profiles",
// section 1).  Tools write them in formats that have little in common.  This room brings them into
// one form, so that one verifier and one static checker can judge them all:
//
//   BOLT .fdata --+
//   callgrind   --+                +--> check   does the profile contradict itself?   (no run)
//   gcov, LLVM  --+--> `Claims` ---+
//   perf script --+                +--> verify  does it contradict what the program does?
//   gzip.tally  --+
//
// Every claim is in the module's own ELF addresses and remembers the line of the profile it came
// from, so that a finding can point at it.  What a format cannot say is said in `silences`, so that
// "verified" never means more than was claimed.
//
// A claim is a count or a share.  Counts are compared one by one and have to be equal; shares
// (samples) say how a total is distributed and are judged by how much of two distributions
// overlaps.
//
// What this room does not do: run programs (`verify/`), or decide which of two different counts is
// right.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/address.h"

namespace tally::claims {

enum class Form : uint8_t {
  kTally,         // our own profile file
  kPlain,         // "from to count", one edge a line, as the paper's PLTO
  kFdata,         // BOLT's .fdata
  kCallgrind,     // --dump-instr=yes, with or without --collect-jumps=yes
  kGcov,          // gcov --json-format
  kLlvmCoverage,  // llvm-cov export --format=text (JSON)
  kLlvmSamples,   // LLVM sample profile, text
  kPerfScript,    // what `perf script -F ip,sym,dso` prints
};
const char* to_string(Form form);

enum class Nature : uint8_t { kCounts, kShares };

struct Module {
  std::string path;      // as the profile names it, made absolute where the profile allows
  std::string build_id;  // hex; empty when the profile does not say
  bool main_program = false;
};

struct Place {
  uint32_t module = 0;  // index in Claims::modules, or kNowhere
  LinkAddr address = {};
  auto operator<=>(const Place&) const = default;
  // The profile names a function or line only, and no program was given to look it up in.
  static constexpr uint32_t kNowhere = UINT32_MAX;
};

// Where in the profile a claim stands, from 1: line of a text, row of a table, entry of a list
// (`describe_record` in read.h says which); 0 when there is no such thing.
using Record = uint64_t;

struct BlockClaim {
  Place begin = {};
  uint64_t size_bytes = 0;  // 0: the profile does not say where the block ends
  uint64_t count = 0;       // times entered at its begin
  Record record = 0;
  uint32_t procedure = kNoProcedure;  // index in Claims::procedures, where the profile says
  bool returns = false;               // ends with a return, for which there is no edge
  // The profile admits that counts around this block are unknown (they are not among the claims):
  // its flow cannot be compared.
  bool unsure = false;
  // The profile says that control arrived at this procedure while the program ran, whatever its
  // file takes the bytes for.
  bool arrived = false;
  static constexpr uint32_t kNoProcedure = UINT32_MAX;
};

// What `EdgeClaim::from` names: formats differ.
enum class EdgeOrigin : uint8_t { kBlockBegin, kBranchInstruction };

enum class EdgeRole : uint8_t {
  kBranch,       // jump, conditional branch taken, indirect jump
  kFallthrough,  // on to the next instruction
  kCall,         // to the callee's entry
  kCallReturn,   // the call came back: from the calling block to the one behind the call
  kSystemCall,   // from a block that ends in `syscall` to the next one
  kUnknown,      // the format does not tell them apart
};

struct EdgeClaim {
  Place from = {};
  Place to = {};
  uint64_t count = 0;
  Record record = 0;
  EdgeOrigin origin = EdgeOrigin::kBranchInstruction;
  EdgeRole role = EdgeRole::kUnknown;
};

struct InstructionClaim {
  Place at = {};
  uint64_t count = 0;  // executions; kShares: samples
  Record record = 0;
};

struct ProcedureClaim {
  Place entry = {};
  std::string name = {};
  uint64_t count = 0;  // times entered; kShares: samples in it
  Record record = 0;
  bool unsure = false;    // the profile names it, but does not know its count
  std::string file = {};  // where it begins in the source, when the profile says
  uint32_t line = 0;
};

// A total that the profile states and what its own parts add up to (found by the reader): the two
// have to be equal, or the parts no larger than the whole.
struct SumClaim {
  std::string what = {};   // "instructions of part 1"
  std::string place = {};  // "main", "t.c:12"
  uint64_t claimed = 0;
  uint64_t sum = 0;
  Record record = 0;
  bool at_most = false;  // the parts need not be all there is
};

// Of a LineClaim without a file, `line` counts from the first line of `function`.
struct LineClaim {
  std::string file = {};
  uint32_t line = 0;
  std::string function = {};  // empty: the format does not say
  uint64_t count = 0;
  Record record = 0;
  // Parts of the line have counts of their own, and the format gives the line one of them.
  bool mixed = false;
};

// Flow that the profile itself declares as abnormal (exits in the middle of a call chain and the
// like), so that conservation can be checked: `entered` flows into the block from nowhere, `left`
// out of it.  Where edges come from instructions (.fdata) so does what is left: `block` is then the
// instruction that leaves.
struct AbnormalClaim {
  Place block = {};
  uint64_t entered = 0;
  uint64_t left = 0;
  uint64_t behind_call = 0;  // of `entered`: what began behind the call that ends the block
  Record record = 0;
  // Where `left` went, if the profile says so ("fork@PLT", "[unknown]"); empty: this is no such
  // record.
  std::string target = {};
};

struct Claims {
  Form form = Form::kTally;
  Nature nature = Nature::kCounts;
  std::string file;      // the profile's path
  std::string producer;  // "tally 0.1.0", "callgrind-3.19.0"; empty when the profile does not say
  std::vector<std::string> command_line;  // of the run, where the profile says
  std::vector<Module> modules;
  std::vector<BlockClaim> blocks;
  std::vector<EdgeClaim> edges;
  std::vector<InstructionClaim> instructions;
  std::vector<ProcedureClaim> procedures;
  std::vector<LineClaim> lines;
  std::vector<SumClaim> sums;
  std::vector<AbnormalClaim> abnormal;
  // What the format cannot say, one sentence each: "falls through are not recorded".
  std::vector<std::string> silences;
  // What the profile itself admits not to know ("issues" of our own), one sentence each.
  std::vector<std::string> admissions;
};

}  // namespace tally::claims
