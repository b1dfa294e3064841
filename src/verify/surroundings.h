// The surroundings of a run: addresses, variables, what else is mapped.
//
// Problem.  Runs in surroundings that are alike agree with each other also where a count depends on
// them: which way strcpy takes depends on where a string lies in its page, a hash on an address, a
// parser of /proc/self/maps on what else is mapped.  A profile that was made in other surroundings
// says something else there and is right.
//
// Idea.  First, what can be made as it was is made so: the variables that shells set by themselves
// are in our own profiles (replay below).  Second, what was other then, or is not known, is tried:
// one run more in which just that is other.  A count that changes with it depends on it
// (explain.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "claims/claims.h"
#include "tracee/process.h"

namespace tally::verify {

// In what a run differs from those that are compared with the profile.
struct Variation {
  bool addresses = false;  // random
  bool variables = false;  // one more, of a length that is another one each time
  bool mappings = false;   // memory that nobody uses
  bool output = false;     // standard output is of another kind
  std::string output_is;   // of this one
  bool made_by = false;    // the program is the one that made the profile (VerifyOptions)
  size_t attempt = 1;      // how much of that
  size_t run = 1;          // of those that are alike
  // Some systems (valgrind, too) place memory upwards: what lies behind what is other then.
  bool upwards() const { return addresses && attempt % 2 == 0; }
  bool any() const { return addresses || variables || mappings || output; }
  std::string words() const;  // "other addresses and one variable more"
};

class Surroundings {
 public:
  // Of the profile's run, as far as it says.  Takes over the variables that shells set by
  // themselves when all are as they were then, and puts them back at the end.
  Surroundings(const claims::Claims& claims, const std::vector<std::string>& command);
  ~Surroundings() { put_back(); }
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

  // What is known to have been other; empty: nothing.
  const std::string& difference() const { return difference_; }
  // The profile's run was of this one; empty: of the same, as far as known.
  const std::string& other_command() const { return other_command_; }
  const Variation& unlike() const { return unlike_; }
  // Shells' variables were taken over.
  bool replayed() const { return !put_back_.empty(); }

 private:
  void compare_own(const std::string& file, const std::vector<std::string>& command);
  bool replay(const std::vector<std::pair<std::string, std::string>>& facts,
              const std::string& digest);
  void put_back();

  std::string difference_;
  std::string other_command_;
  Variation unlike_;
  std::vector<std::pair<std::string, std::optional<std::string>>> put_back_;
};

// While it lives, our variables have one more.
class OneVariableMore {
 public:
  OneVariableMore(bool wanted, size_t attempt);
  ~OneVariableMore();
  OneVariableMore(const OneVariableMore&) = delete;
  OneVariableMore& operator=(const OneVariableMore&) = delete;

 private:
  bool wanted_;
};

// Children inherit the personality; ours is put back at the end.
class Randomization {
 public:
  Randomization(bool wanted, bool upwards);
  ~Randomization();
  Randomization(const Randomization&) = delete;
  Randomization& operator=(const Randomization&) = delete;

 private:
  int before_;
};

// Lines of /proc/self/maps that the program would not have, as under a profiler that lives in its
// address space.  Call it before the first instruction.
Status add_mappings(tracee::Process& process, unsigned count);

}  // namespace tally::verify
