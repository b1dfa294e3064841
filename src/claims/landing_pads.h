// Where exceptions land, and how many can have; private to this room.
//
// Problem.  Control arrives at a landing pad from the unwinder, and no form of edges records that
// (BOLT's own check leaves landing pads out).  What leaves a pad therefore comes from nowhere; a
// check that took that for a fault would call correct profiles wrong, one that lets it pass would
// take any number.
//
// Idea.  An exception lands only where a call it left was covered (.gcc_except_table says by which
// pad), and such a call did not come back.  In a block every call is made at most as often as
// what is in front of it, so between two counts that are known, what the later one lacks did not
// come back from the calls between:
//
//     entered 9 | call a, 9 times | call b, 7 times | left 6 times      lost: 0, 2 by a, 1 by b
//
//     arrivals at a pad  <=  sum(lost by the calls that it covers)
//     arrivals at all pads of a procedure  <=  sum(lost by calls that any of them covers)
//
// Calls of procedures that make no calls themselves lose nothing.
//
// That what was lost has to land somewhere is not an equation: exit, longjmp and exceptions that
// nobody here catches leave the procedure for good.
//
// Exceptions from instructions that are no calls (-fnon-call-exceptions: a load or a division that
// faults, and whose signal's handler throws) have no counts.  Compilers let a covered stretch end
// behind a call unless they mean such an instruction; where any stretch of a module ends otherwise,
// pads that cover more than calls are left open there, and the report says how many are.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "claims/equations.h"

namespace tally::claims {

struct CallMade {
  LinkAddr at = {};
  LinkAddr last_byte = {};  // what a stretch of the exception table has to cover
  Wide count = 0;           // 0: never, or the form does not say
  LinkAddr target = {};     // 0: indirect
  bool twice = false;       // may come back more often than it was made
};

class LandingPads {
 public:
  explicit LandingPads(Inspection& inspection);

  const std::set<Place>& places() const { return places_; }
  // All of the module's pads are known.
  bool known(uint32_t module) const;
  // Any load or division in the module may throw, so that its block is left there.
  bool others_throw(uint32_t module) const { return other_throwers_.contains(module); }

  // A block with its calls in their order; nullopt: how often it was entered or left is unknown.
  void add_block(const Place& begin, const std::vector<CallMade>& calls, std::optional<Wide> in,
                 std::optional<Wide> out);
  // The flow of this pad's procedure is recorded: its arrivals can be compared.
  void judge(const Place& pad) { judged_.insert(pad); }
  // After the last block: compares the arrivals at each pad, which `nodes` imply.
  void check();

 private:
  // What calls may have lost to one or more pads.
  struct Lost {
    Wide count = 0;
    bool unknown = false;
    void add(const std::optional<Wide>& more);
  };
  struct Pad {
    std::vector<LinkRange> covered = {};
    Place procedure = {};
    Lost lost = {};
    bool calls = false;  // covers calls
    bool more = false;   // ... and other instructions
  };

  // The pad of a call; nullptr: what it throws is passed on, or it throws nothing.
  Pad* pad_of(uint32_t module, const CallMade& call);
  // The procedure makes no calls and leaves by nothing but returns.
  bool is_leaf(const Place& procedure);
  bool scan_leaf(const Place& procedure);
  void lose(uint32_t module, const std::vector<const CallMade*>& calls,
            const std::optional<Wide>& lost);
  // Notes what the stretch holds; true: it ends behind a call, or cannot be read.
  bool look_into(uint32_t module, LinkRange covered, Pad& pad);
  // Exceptions come to it from nothing but calls.
  bool only_from_calls(const Place& place, const Pad& pad) const;
  Wide arrivals(const Place& place) const;
  void check_pad(const Place& place, const Pad& pad);
  void check_procedures();

  Inspection& inspection_;
  std::set<Place> places_;
  std::set<uint32_t>
      other_throwers_;  // modules with exceptions from instructions that are no calls
  std::set<Place> judged_;
  std::map<Place, bool> leaves_;
  std::set<Place> wrong_;  // procedures with a pad that was found wrong
  std::map<Place, Pad> pads_;
  std::map<Place, Lost> procedures_;  // by where the procedure begins
};

}  // namespace tally::claims
