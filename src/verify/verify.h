// `tally verify`: a profile, the program it is of, and the judgement.
//
//   read the claims -> run the original program under an engine -> compare -> explain
//
// Two engines count: `kTrap`, the monitor of monitor.h on the unmodified program, and `kTranslate`,
// our own code cache, which is itself a thing to be verified, but a hundred times faster.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "claims/claims.h"
#include "verify/judgement.h"
#include "verify/monitor.h"
#include "verify/surroundings.h"
#include "verify/truth.h"

namespace tally::verify {

enum class Engine : uint8_t { kTrap, kTranslate };

// A profiler that is compiled in makes a program of its own, whose addresses are others among
// themselves.  Whether that one does what its profile says, only a run of it can tell.
struct MadeBy {
  std::string program;
  claims::Claims claims;  // the same, by the addresses of that program
};

struct VerifyOptions {
  Engine engine = Engine::kTrap;
  WatchOptions watch;
  std::optional<uint32_t> run;  // of our own profile: that run instead of all
  double overlap_min = 0.5;     // of shares
  bool second_run = true;       // to tell what differs from run to run, when anything does
  // How often a program with threads is run, at most, until a count is called wrong.
  unsigned runs_with_threads = 6;
  std::shared_ptr<const MadeBy> made_by;  // nullptr: not known
  // Told what should be known before a run that may take long.
  std::function<void(const std::string&)> warn;
  // kTranslate: runs `watch.command` under `tally profile` and returns where the profile is.
  std::function<Result<std::string>(const Variation&, Outcome&)> translate;
};

struct Verdict {
  bool verified = false;
  Engine engine = Engine::kTrap;
  Outcome outcome;
  Judgement judgement;
  std::shared_ptr<const Truth> truth;  // where anything was found
};

// `claims` are judged by running `options.watch.command` once.
Result<Verdict> verify(const claims::Claims& claims, const VerifyOptions& options);

// Text for people, or JSON.
std::string render_text(const claims::Claims& claims, const Verdict& verdict, size_t listed_max);
std::string render_json(const claims::Claims& claims, const Verdict& verdict);

}  // namespace tally::verify
