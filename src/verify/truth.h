// What really happened, whoever counted it: for judging profiles that are not made of our blocks.
//
// Problem.  Other tools claim counts of instructions, branches, lines; their blocks are not ours.
//
// Idea.  Both engines' results are brought to the same three things: how often each instruction was
// executed, how often control went from one instruction to another, and how often each procedure
// was entered.  Claims of any form are compared with these.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "claims/claims.h"
#include "profile/model.h"
#include "verify/checkers.h"

namespace tally::verify {

struct TruthEdge {
  LinkAddr from_begin;  // the block
  LinkAddr from_last;   // its last instruction
  std::string to_module;
  LinkAddr to;
  EdgeRole role = EdgeRole::kUnknown;
  uint64_t count = 0;
};

struct TruthInstruction {
  int64_t count = 0;
  bool repeated = false;  // rep: other tools count repetitions
};

struct TruthModule {
  std::map<uint64_t, TruthInstruction> instructions;
  std::map<uint64_t, uint64_t> blocks;  // arrivals, by where they begin
  std::unordered_map<uint64_t, std::vector<TruthEdge>> by_last;
  std::unordered_map<uint64_t, std::vector<TruthEdge>> by_begin;
  std::unordered_map<uint64_t, uint64_t> arrivals;  // at an instruction by calls, or out of turn
  std::map<uint64_t, SignalPlace> signal_places;    // but those of signals of its own
  std::map<uint64_t, uint64_t> interrupting;        // of `instructions`, within such handlers
  std::shared_ptr<elf::Image> image;                // nullptr: no file
};

struct Truth {
  std::unordered_map<std::string, TruthModule> modules;
  uint64_t executed = 0;
  bool knows_interruptions = false;
  void add(const profile::Profile& profile);
  void add(const Code& code, const BlockChecker& blocks, const EdgeChecker& edges,
           const InterruptionChecker& interruptions);
  const TruthModule* module(const std::string& path) const;

 private:
  void add_edge(const std::string& name, TruthEdge edge);
  void add_handlers(const profile::Profile& profile);
};

// For following calls: a module and where a procedure begins; stubs of a linkage table are
// procedures.
using Procedure = std::pair<std::string, uint64_t>;
Procedure procedure_at(const Truth& truth, const std::string& path, LinkAddr address);
std::string name_of(const Truth& truth, const Procedure& procedure);
// Of what begins there, without its version; empty: nothing that has a name.
std::string symbol_name(const TruthModule* module, LinkAddr address);

// What the stub that begins there calls, by the file; empty: it is none.
std::string called_by_stub(const elf::Image& image, LinkAddr stub);

// Of samples only; `judge` calls it.
void judge_shares(const claims::Claims& claims, const Truth& truth, double overlap_min,
                  Judgement& judgement);
// Of forms that have all edges: those that were taken and are not in the profile.
void judge_missing(const claims::Claims& claims, const Truth& truth, Judgement& judgement);
// `overlap_min`: what two distributions have to have in common.
void judge(const claims::Claims& claims, const Truth& truth, double overlap_min, bool complete,
           Judgement& judgement);

}  // namespace tally::verify
