// Standard input, output and error: what they were in the profile's run, and making them so again.
//
// Problem.  Programs look at them (tracee/descriptor.h).  A profile made with `> file` is right,
// and a run with `> /dev/null` counts something else; and a program that is run a second time must
// not print everything twice.
//
// Idea.  Our own profiles say what they were.  Where they are others now, the run that judges gets
// such as were then, if that can be had:
//
//   /dev/null now    from the first run on: nobody misses what is thrown away
//   anything else    the first run is what was asked for; when counts differ, the program is run
//                    once more, with its output thrown away, and that run judges
//   not to be had    what was read then, a closed one: what differs is not held against the profile
//
// Output that is thrown away goes to a file without a name, a pipe, a socket or a terminal that is
// emptied all the time.  Input from a file can be had through a pipe as well.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "claims/claims.h"
#include "tracee/descriptor.h"

namespace tally::verify {

using tracee::Descriptor;
using tracee::DescriptorKind;

// By number; unset: stays what it is.
using Wanted = std::array<std::optional<Descriptor>, 3>;

// While it lives, our standard descriptors are others; what is written to them is thrown away.
class Redirection {
 public:
  explicit Redirection(const Wanted& wanted);
  ~Redirection();
  Redirection(const Redirection&) = delete;
  Redirection& operator=(const Redirection&) = delete;
  bool ok() const { return ok_; }

 private:
  class Mover;
  int make(size_t number, const Descriptor& wanted);
  int moved(size_t number, int inner, int outer);

  bool ok_ = true;
  std::array<int, 3> saved_ = {-1, -1, -1};
  std::vector<std::unique_ptr<Mover>> movers_;
};

class Descriptors {
 public:
  explicit Descriptors(const claims::Claims& claims);

  // The profile says what they were.
  bool known() const { return known_; }
  // For the first run.
  Wanted for_first_run() const;
  // For a run that is judged in place of the first; nothing when that one was as good.
  std::optional<Wanted> as_then() const;
  // Such a run is judged.
  void go_on_as_then() { as_then_ = true; }
  // For runs after the one that is judged.
  Wanted for_further_run() const;
  // The same with standard output of another kind, by the number of the attempt.
  Wanted with_other_output(size_t attempt, std::string& words) const;

  // What is other and is made as it was, in words; empty: nothing.
  std::string made_alike() const;
  // What is other and stays so; empty: nothing.  Who does not look at its input does not depend on
  // it.
  std::string unlike(bool with_input) const;
  // Of that, what should be said before a run.
  std::string warning() const;
  // The input can be had a second time.
  bool input_usable() const;
  void rewind() const;

 private:
  bool is_alike(size_t number) const;
  bool can_be_had(size_t number) const;
  bool is_had_from_the_start(size_t number) const;
  bool is_made(size_t number) const;
  std::string difference(size_t number) const;

  bool known_ = false;
  bool as_then_ = false;
  std::array<Descriptor, 3> then_;
  std::array<Descriptor, 3> now_;
};

}  // namespace tally::verify
