// The equations of a profile and those that fail; private to this room.
//
// A `Node` is what a profile says of one address where a block begins: its count, what flows in and
// out.  The forms differ in how nodes come about (flow_blocks.cpp, flow_edges.cpp,
// flow_instructions.cpp); an equation that fails is an `Imbalance` in all of them, and explain.cpp
// turns imbalances into findings.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "claims/check.h"
#include "claims/code.h"

namespace tally::claims {

using Wide = __int128;

enum class Rule : uint8_t { kIn, kOut, kCalls, kEntries };

struct Imbalance {
  Rule rule = Rule::kIn;
  Place place = {};
  uint64_t count = 0;  // what the block, instruction or procedure claims
  Wide flow = 0;       // what flows says it is
  Wide missing() const { return static_cast<Wide>(count) - flow; }
};

struct Node {
  Wide count = 0;
  Wide in = 0;
  Wide out = 0;  // calls excepted
  Wide calls = 0;
  Wide entered = 0;
  Wide left = 0;
  Wide behind_call = 0;
  uint64_t size_bytes = 0;  // 0: not known
  Record record = 0;
  RecordKind record_kind = RecordKind::kBlock;
  uint32_t procedure = BlockClaim::kNoProcedure;
  bool shared = false;  // by several procedures
  bool has_calls = false;
  bool returns = false;
  bool unsure = false;
  bool claimed = false;  // there is a claim about this address itself
  bool landing_pad = false;
};

// How a block ends: its last instruction.
struct Ending {
  isa::Insn insn = {};  // size 0: unknown
  LinkAddr last = {};
  LinkAddr end = {};   // behind the last instruction
  bool calls = false;  // passes instructions that may not come back
  bool repeats = false;
};

struct Inspection {
  explicit Inspection(const Claims& c) : claims(c), code(c) {}
  const Claims& claims;
  Code code;
  CheckReport report;
  PlaceMap<Node> nodes;
  PlaceMap<Ending> endings;  // edge forms: of every node; else as asked for
  std::vector<Imbalance> imbalances;
  // Address -> index in claims.edges, for those that begin or end at a node.
  PlaceMap<std::vector<size_t>> edges_from;
  PlaceMap<std::vector<size_t>> edges_to;

  void compare(Rule rule, const Place& place, Wide count, Wide flow);
  void find(Finding finding);
  // The ending of the block at `place`, by its size if the profile says it.
  const Ending& ending_of(const Place& place);
  std::string record_of(RecordKind kind, Record record) const {
    return describe_record(claims.form, kind, record);
  }
};

bool is_call(EdgeRole role);
std::string to_text(Wide value);

void check_numbers(Inspection& inspection);
void check_structure(Inspection& inspection);
void check_block_flow(Inspection& inspection);
void check_edge_flow(Inspection& inspection);
void check_instruction_flow(Inspection& inspection);
void check_lines(Inspection& inspection);
void explain(Inspection& inspection);
void measure_known(Inspection& inspection);

}  // namespace tally::claims
