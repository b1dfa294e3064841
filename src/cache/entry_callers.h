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
// So h is solved when f and g are (ledger/left_to_callers.h).  That must come to an end: none of
// those whose callers are asked may lead to itself by direct branches, through others or at once.
// Whatever may is left as it is.  All direct branches are looked at, whether they have ever been
// taken or not.
//
// It is decided at the end of a run, for those of its procedures that it leaves weights of, and is
// on record with these (recall.h).  A procedure that is not on record asks nobody, so what it leads
// to does not matter.
//
// The price is a check.  Where callers and counters both say how often a procedure was entered, and
// do not agree, there is a way out of it that Tally does not know (profile/checks.h, kEntries);
// here they agree by construction.  So it is done only if the run that leaves the record balanced,
// each procedure by its own counters or the other way round, and no longer if one does not that
// could still tell.
//
// Not handled: procedures that call themselves, for which a way to break each circle would be
// needed; code that may be replaced; runs with kept counters; the first run of a program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tally::engine {

class EntryCallers {
 public:
  // A procedure, and where its direct branches lead.  `may`: nothing else speaks against it.
  void add(uint32_t module, uint64_t entry, bool may, const std::vector<uint64_t>& targets);
  // For each that was added, in that order.
  std::vector<bool> choose() const;

 private:
  struct Procedure {
    uint32_t module = 0;
    uint64_t entry = 0;
    bool may = false;
    size_t targets_end = 0;  // in `targets_`, behind those of the one before
  };
  std::vector<std::vector<uint32_t>> ways() const;

  std::vector<Procedure> procedures_;
  std::vector<uint64_t> targets_;
};

}  // namespace tally::engine
