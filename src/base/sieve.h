// Says of most keys that are not in a set that they are not, in a few bits a key.
//
// A large set is a hash table that misses the processor's caches.  Where nearly all that is asked
// for is not in it, a bit for each hash is asked first.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tally {

class Sieve {
 public:
  // For about so many keys; more only make it less of a help.
  explicit Sieve(size_t keys = 0) { reset(keys); }
  void reset(size_t keys) {
    const auto bits = static_cast<unsigned>(std::bit_width(keys)) + 1;
    shift_ = 64 - bits;
    set_.assign(size_t{1} << bits, false);
  }
  void add(uint64_t key) { set_[place(key)] = true; }
  // False: it was not added.
  bool may_have(uint64_t key) const { return set_[place(key)]; }

 private:
  size_t place(uint64_t key) const { return key * 0x9E3779B97F4A7C15ull >> shift_; }

  unsigned shift_ = 63;
  std::vector<bool> set_;
};

}  // namespace tally
