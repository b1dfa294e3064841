// Pages of code of which little is left, put together in one page of memory.
//
// Problem.  Memory of the code cache is given back by whole pages (compact.cpp).  What cannot be
// moved, what a thread is in, what was not understood, is seldom more than some hundred bytes, but
// each keeps a page of four kilobytes: one code page in five, for the rest of the run.
//
// Idea.  Code cannot move, but what its page is mapped to can.  Pages whose living bytes lie at
// different places within the page share one page of memory (a frame):
//
//     page 0x1000  ..AAAA..........
//     page 0x5000  .......BB..BB...      one frame  ..AAAA.BB..BB.CC
//     page 0x9000  ..............CC      mapped at 0x1000, 0x5000 and 0x9000
//
// Whatever else was in the frame is overwritten by instructions that trap, so a way that was
// overlooked does not end in another's code unseen.
//
// A frame is known by the page that had it first, its home.  Once shared, it goes into another one
// as a whole, or stays; it is free when the last of its pages has left.
//
// Which frames are put together is decided first fit, those with most living bytes first.
//
// Not handled: code that comes later.  Where some may be added to a page, its caller says of that
// part that it lives.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/address.h"

namespace tally::engine {

class SharedPages {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  using Bytes = std::bitset<kPageBytes>;

  struct Living {
    CacheAddr page;
    Bytes lives;
  };
  // A page that is to be mapped to the frame of another.
  struct Move {
    CacheAddr page, to;
    Bytes lives;
  };
  // A frame that others come to, and what of it lives before they do.
  struct Host {
    CacheAddr home;
    Bytes lives;
  };
  struct Plan {
    std::vector<Host> hosts;
    std::vector<Move> moves;
  };

  // Pages with more living bytes than this are seldom joined by another.
  static constexpr size_t kLivingMax = kPageBytes * 7 / 8;
  // Each page that moves is a mapping of its own, of which a process may have 65,530.
  static constexpr size_t kMovesMax = 2048;

  // Which of these pages, all that live, are to share.  From now on nothing else of them lives.
  Plan plan(const std::vector<Living>& pages);
  // A page has been mapped to the frame of which `to` is the home.  The home of the one that it
  // leaves, if nobody is left there.
  std::optional<CacheAddr> move(CacheAddr page, CacheAddr to);
  // A page has been given back.  The home of its frame, if nobody is left there.
  std::optional<CacheAddr> leave(CacheAddr page);
  CacheAddr frame_of(CacheAddr page) const;
  // Whether it is on a page that shares, and nothing that lives is there.
  bool is_dead(CacheAddr code) const;
  // Pages that are mapped to another's frame.
  size_t size() const { return frames_.size(); }

 private:
  std::optional<CacheAddr> leave_frame(CacheAddr home);

  std::map<CacheAddr, CacheAddr> frames_;  // by page, where it is not its own
  std::map<CacheAddr, uint32_t> users_;    // by home, where it is not one
  std::map<CacheAddr, Bytes> lives_;       // by page, of those that share
};

}  // namespace tally::engine
