// Which procedures may leave it to their callers to say how often they were entered.
//
// Problem.  Counters alone say how often a procedure was entered only if each path through it is
// counted at least once, also where it is a straight line.  Yet every way into it is known already:
// blocks that call or jump there have counts of their own, and indirect branches, returns from
// elsewhere and threads that the monitor sends there have counters.
//
// Idea.  If the number of entries is known, EXIT -> root is an edge whose count comes for free
// (placement.h, kMeasured).  The spanning tree then has room for one more edge, the heaviest that
// was counted: a procedure that is a straight line counts nothing, a loop counts once for each time
// it is entered no more.
//
//     f:  ... call h ...     100 times     h:  one block, no counter
//     g:  ... call h ...      20 times         100 + 20, and 3 by a pointer to it, are 123
//
// So h is solved when f and g are (ledger/left_to_callers.h), and procedures that call each other
// cannot wait for each other.  Each that leaves its entries to callers has a rank.  Direct branches
// of procedures of a lower rank, and of those that count for themselves, enter it as they are;
// those of all others have counters of their own (`LinkPair`).
//
//     f (rank 1) <--> g (rank 2)            g's call of f has a counter, f's of g has none
//     h --> h                               has a counter; h counts for itself if it is taken often
//
// Indirect branches have counters for each target but one, which enters as it is under the same
// condition (rest.cpp), so ways to where they lead most are in the order as well.
//
// Where procedures lead to each other, the branches between them that were taken least are those
// with counters.  The parts that lead to each other whatever was taken are ordered first; within
// such a part, branches that were never taken are left out, then those that were taken less than 4
// times, less than 16 times, until no two are left that lead to each other.  (What is best is hard:
// a feedback arc set.)
//
// It is decided at the end of a run, for those of its procedures that it leaves weights of, and is
// on record with these (recall.h).  Any ranks do: what a record of another program says of a
// library that both have, or a damaged one, costs speed and no count.
//
// The price is a check.  Where callers and counters both say how often a procedure was entered, and
// do not agree, there is a way out of it that Tally does not know (profile/checks.h, kEntries);
// here they agree by construction.  So it is done only if the run that leaves the record balanced,
// each procedure by its own counters or the other way round, and no longer if one does not that
// could still tell.
//
// Not handled: code that may be replaced; runs with kept counters; the first run of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tally::engine {

class EntryCallers {
 public:
  struct Branch {  // direct, to the address of an entry or anywhere
    uint64_t target = 0;
    uint64_t times = 0;  // taken
  };
  // A procedure, how often it was entered, and where it leads.  `may`: nothing else speaks against
  // it.
  void add(uint32_t module, uint64_t entry, bool may, uint64_t entries,
           std::span<const Branch> branches);
  // Of two that were added, by their numbers from 0 on: an indirect branch of the one leads to the
  // other most.  It enters as it is if the ranks are so (rest.cpp), and has a counter otherwise, as
  // ever.
  void lead(uint32_t from, uint32_t to, uint64_t times) {
    led_.push_back({from, {to, times, true}});
  }
  // For each that was added, in that order, its rank; 0: it counts for itself.
  std::vector<uint32_t> ranks() const;

  struct Way {  // to another that was added
    uint32_t to = 0;
    uint64_t times = 0;
    bool by_pointer = false;
  };
  using Ways = std::vector<std::vector<Way>>;  // by procedure

 private:
  struct Graph {
    std::vector<bool> may;
    Ways ways;
  };
  Graph graph() const;
  std::vector<bool> choose(const Graph& graph, std::span<const uint32_t> order,
                           std::span<const uint32_t> place) const;
  struct Procedure {
    uint32_t module = 0;
    uint64_t entry = 0;
    bool may = false;
    uint64_t entries = 0;
    size_t branches_end = 0;  // in `branches_`, behind those of the one before
  };
  struct Led {
    uint32_t from = 0;
    Way way;
  };
  std::vector<Led> led_;
  std::vector<Procedure> procedures_;
  std::vector<Branch> branches_;
};

}  // namespace tally::engine
