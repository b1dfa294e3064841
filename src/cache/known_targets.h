// Targets of indirect branches that any thread finds by itself, and what threads note down of it.
//
// Problem.  An indirect branch that goes where it has not gone before must ask: a pair (site,
// target) has a counter of its own.  In large programs that is most of what is asked (cc1: 13,400
// of 21,000 requests).  But most of these targets have long been translated, since other branches
// have gone there: cc1's 12,000 pairs of calls have 1,500 targets.
//
// Idea.  Targets of pairs stand in a table that the program can see.  A thread that comes to a
// target in it which its site has not led to yet goes on by itself, and notes the visit down:
//
//     table, by a hash of the target      the thread's notes
//       f -> code of f                      site 7 went to the code of f
//       g -> code of g                      site 9 went to the code of g
//                                           site 7 went to the code of f
//
// The notes are read when the thread asks for something else, when they are full, and when it ends.
// Each of them is one more visit of its pair: it is added to the pair's counter, while its thread
// waits or is gone.  A pair that has none yet is made then.
//
// A target may stand at either of two places.  A place belongs to its first target for good, and
// only the pointer changes: a thread that has found its target there reads the way to it, as it was
// a moment ago or as it is, or 0, which means that it has to ask.  Targets both of whose places are
// taken are asked for as ever.
//
// Not handled: code that the program may replace, and runs whose counters are kept in a file, since
// their journal must know each pair before it counts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/address.h"
#include "cache/translated.h"

namespace tally::engine {

class KnownTargets {
 public:
  // `tables`: the monitor's view of the target's; `code_bytes`: of the program, which is what the
  // size of the table is chosen by.
  void begin(uint8_t* tables, uint64_t code_bytes);
  // Threads that come to `target` go on at `code`, the beginning of block `to`; a later call for
  // the same target leads elsewhere.
  void add(TargetAddr target, BlockRef to, CacheAddr code);
  // Where targets are another block by now, threads go there.
  void move(const std::function<BlockRef(BlockRef)>& newest,
            const std::function<CacheAddr(BlockRef)>& code_of);
  // The blocks that threads may go on at.
  void for_each(const std::function<void(BlockRef)>& visit) const;
  // Threads ask about the targets that are these blocks.
  void forget_if(const std::function<bool(TargetAddr target, BlockRef to)>& is_one);

 private:
  struct Place {
    TargetAddr target;  // 0: none yet
    BlockRef to;        // not valid: forgotten
  };
  void lead(size_t index, CacheAddr code);

  uint8_t* tables_ = nullptr;
  uint32_t shift_ = 0;
  std::vector<Place> places_;
};

}  // namespace tally::engine
