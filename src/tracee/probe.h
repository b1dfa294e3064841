// Does this machine let us do what tracing needs?  Found out by doing it.
//
// Problem.  Containers, hardened kernels and sandboxes forbid parts of what Tally needs, and say so
// with an errno deep in a run.  Version numbers and settings do not tell: the same kernel allows
// ptrace in one container and not in the next.
//
// Idea.  Rehearse.  A child of ours is traced and put through each step once, in the order of a
// real run; each step reports on its own what it saw.  A step whose ground is missing (no ptrace,
// so no traced child) says that it was not tried.
//
// Limits: the child is a copy of this process, so what differs for a foreign program (set-uid,
// another user's process) is not found here.  Nothing is left behind: the child dies with the probe
// and every wait has a deadline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tally::tracee {

enum class ProbeState : uint8_t { kOk, kFailed, kNotTried };

struct ProbeResult {
  std::string name;  // stable, for scripts: "ptrace", "memfd", ...
  ProbeState state = ProbeState::kNotTried;
  std::string seen;    // what happened, in words
  std::string remedy;  // what to do about it, empty when ok
};

// The rehearsal.  Every result is something a run cannot do without.  Call it from a process with
// one thread.
std::vector<ProbeResult> probe_tracing();

}  // namespace tally::tracee
