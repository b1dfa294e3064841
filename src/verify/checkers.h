// The three checkers: edge counts, block counts, procedure and call counts.
//
// Problem.  A profile asserts counts of edges, blocks and procedures; the monitor tells of single
// events.
//
// Idea (the paper's, section 3.1).  Each claim is a counter; an event takes one from it; what is
// left over when the program has ended is the residue.  Claimed and taken are kept apart here, so
// that a report can show both; their difference is the residue.
//
//   a block that the profile lacks      is reported; the block it is in the middle of is split
//   an edge that the profile lacks      is reported
//   a residue                           is reported, with claim and count
//
// When a block is split, all that passed through it passed through both parts: the lower part
// inherits the count, and a new edge between the two gets it, too.
//
// A checker of your own needs less than 50 lines: tests/unit/verify_checker_example.cpp is one, and
// docs/verify.md walks through it.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "claims/claims.h"
#include "verify/judgement.h"
#include "verify/monitor.h"
#include "verify/own_profile.h"

namespace tally::verify {

// The blocks of a profile among those of the code, and how the profile's places are found there.
class ClaimedBlocks {
 public:
  // Tells `code` where the profile's blocks begin.
  ClaimedBlocks(Code& code, const claims::Claims& claims);
  // From now on counts are those of first instructions, not of blocks; see own_profile.h.
  void correct(const std::vector<Correction>& corrections);
  int64_t correction(BlockId id) const;
  bool by_first_instruction() const { return by_first_instruction_; }
  // Call once, after the run: splits the profile's blocks as the code is.
  void settle();

  bool known_module(uint32_t module) const { return module < known_.size() && known_[module]; }
  bool claimed(BlockId id) const { return counts_.contains(id); }
  const std::unordered_map<BlockId, uint64_t>& counts() const { return counts_; }
  // Fallthroughs between parts of blocks that were split.
  const std::unordered_map<uint64_t, uint64_t>& inner() const { return inner_; }
  bool unsure(BlockId id) const;
  // Where the edges of the block that begins there leave it; kNoBlock when no such block exists.
  BlockId source(const claims::EdgeClaim& edge) const;
  BlockId at(const claims::Place& place) const;
  uint32_t module_of(const claims::Place& place) const { return modules_[place.module]; }
  claims::Record record(BlockId id) const;
  uint32_t procedure(BlockId id) const;

 private:
  Code& code_;
  const claims::Claims& claims_;
  std::vector<uint32_t> modules_;  // of the claims -> of the code
  std::vector<bool> known_;
  std::unordered_map<BlockId, uint64_t> counts_;
  // A block as one row of the profile has it; runs may have cut the code differently.
  struct Row {
    BlockId block = 0;
    uint64_t size_bytes = 0;
    uint64_t count = 0;
  };
  std::vector<Row> rows_;
  std::unordered_map<BlockId, uint64_t> sizes_;  // of the longest
  std::unordered_map<BlockId, claims::Record> records_;
  std::unordered_map<BlockId, uint32_t> procedures_;
  std::unordered_map<BlockId, bool> unsure_;
  std::unordered_map<uint64_t, uint64_t> inner_;
  std::unordered_map<BlockId, int64_t> corrections_;
  std::unordered_map<BlockId, int64_t> through_;
  bool by_first_instruction_ = false;
};

// Of a run that was not followed to its end: blocks whose counts are complete all the same.
struct Coverage {
  std::unordered_set<BlockId> watched;
  uint64_t edges_complete = 0;
  uint64_t executions_claimed = 0;
};

struct EdgeKey {
  BlockId from = 0;
  BlockId to = 0;
  EdgeRole role = EdgeRole::kUnknown;
  auto operator<=>(const EdgeKey&) const = default;
};
struct EdgeKeyHash {
  size_t operator()(const EdgeKey& k) const noexcept {
    const uint64_t ends = uint64_t{k.from} << 32 | k.to;
    return static_cast<size_t>((ends ^ static_cast<uint64_t>(k.role) << 61) *
                               0x9E3779B97F4A7C15ull);
  }
};
using EdgeCounts = std::unordered_map<EdgeKey, uint64_t, EdgeKeyHash>;

class EdgeChecker : public Checker {
 public:
  explicit EdgeChecker(Code& code) : code_(code) {}
  void edge_taken(BlockId from, BlockId to, EdgeRole role) override { ++taken_[{from, to, role}]; }
  void block_entered(BlockId block) override;
  void block_split(BlockId upper, BlockId lower) override;
  const EdgeCounts& taken() const { return taken_; }
  // After the run.  Where it was not complete, only what is too much is wrong.
  void judge(const claims::Claims& claims, const ClaimedBlocks& blocks, bool complete,
             Judgement& judgement, Coverage* coverage = nullptr) const;

 private:
  Code& code_;
  EdgeCounts taken_;
  std::vector<uint64_t> entered_;
};

class BlockChecker : public Checker {
 public:
  explicit BlockChecker(Code& code) : code_(code) {}
  void block_entered(BlockId block) override;
  void block_cut_short(BlockId block, LinkAddr at) override { cut_[{block, at}]++; }
  void block_split(BlockId upper, BlockId lower) override;
  uint64_t entered(BlockId block) const { return block < entered_.size() ? entered_[block] : 0; }
  // Times its first instruction was executed.
  uint64_t executed(BlockId block) const;
  // By block and the first instruction that was not executed.
  const std::map<std::pair<BlockId, LinkAddr>, uint64_t>& cut() const { return cut_; }
  void judge(const claims::Claims& claims, const ClaimedBlocks& blocks, bool complete,
             Judgement& judgement, const Coverage* coverage = nullptr) const;

 private:
  Code& code_;
  std::vector<uint64_t> entered_;
  std::map<std::pair<BlockId, LinkAddr>, uint64_t> cut_;
};

// What was executed by handlers of signals that come at a time of their own (interruptions.h).
class InterruptionChecker : public Checker {
 public:
  void signal_place(BlockId block, SignalPlace what) override {
    SignalPlace& most = places_[block];
    most = std::max(most, what);
  }
  void interrupting_block(BlockId block) override { ++entered_[block]; }
  void block_split(BlockId upper, BlockId lower) override;
  uint64_t entered(BlockId block) const;
  const std::map<BlockId, SignalPlace>& places() const { return places_; }

 private:
  std::map<BlockId, SignalPlace> places_;
  std::unordered_map<BlockId, uint64_t> entered_;
};

class ProcedureChecker : public Checker {
 public:
  explicit ProcedureChecker(Code& code) : code_(code) {}
  void procedure_called(BlockId from, BlockId entry) override {
    (void)from;
    ++called_[entry];
  }
  void procedure_left(BlockId from, BlockId to) override {
    (void)to;
    ++left_[from];
  }
  uint64_t called(BlockId entry) const;
  // Entries are calls, jumps from other procedures, and what began there out of turn: all arrivals
  // but those by branches from within.
  void judge(const claims::Claims& claims, const ClaimedBlocks& blocks, const EdgeChecker& edges,
             const BlockChecker& arrivals, bool complete, Judgement& judgement) const;

 private:
  Code& code_;
  std::unordered_map<BlockId, uint64_t> called_;
  std::unordered_map<BlockId, uint64_t> left_;
};

}  // namespace tally::verify
