// See explain.h.
#include "verify/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <tuple>

#include "verify/clocks.h"
#include "verify/interruptions.h"
#include "verify/scheduling.h"

namespace tally::verify {
namespace {

using Key = std::tuple<FindingKind, std::string, std::string, claims::EdgeRole>;

Key key_of(const Finding& f) {
  // A count that is missing in one run may be there in the other.
  const FindingKind kind = f.kind == FindingKind::kMissingEdge    ? FindingKind::kEdgeCount
                           : f.kind == FindingKind::kMissingBlock ? FindingKind::kBlockCount
                                                                  : f.kind;
  return {kind, f.where, f.to, f.role};
}

// A count that a run may confirm or not.  One that no run can have needs none, nor do shares.
bool is_of_counts(const Finding& f) {
  return f.kind != FindingKind::kShare && f.kind != FindingKind::kContradiction &&
         !claims::is_impossible(f.claimed);
}

// Walks through variables, mapped objects (the unwinder, too), or what the processor can do.
bool is_startup(const Finding& f) {
  return f.module.find("/ld-linux") != std::string::npos ||
         f.module.find("/ld.so") != std::string::npos ||
         f.module.find("/libc.so") != std::string::npos ||
         f.module.find("/libgcc_s.so") != std::string::npos || f.module == "[vdso]";
}

bool profiler_writes(claims::Form form) {
  return form == claims::Form::kGcov || form == claims::Form::kLlvmCoverage ||
         form == claims::Form::kFdata;
}

bool is_output(const std::string& name) {
  for (const char* part : {"gcov", "llvm_profile", "write", "open", "close", "lseek", "fcntl",
                           "mmap", "bolt_", "fdopen", "fwrite", "fread", "getenv", "exit"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  return false;
}

// What another run counted; `runs` with this one.
void compare_runs(const Verdict& another, size_t runs, Judgement& judgement) {
  std::map<Key, uint64_t> counted;
  for (const Finding& f : another.judgement.findings) counted[key_of(f)] = f.counted;
  for (Finding& f : judgement.findings) {
    if (f.reason == Reason::kNondeterministic || !is_of_counts(f)) continue;
    const auto it = counted.find(key_of(f));
    const uint64_t other = it == counted.end() ? f.claimed : it->second;
    if (other == f.counted) {
      if (f.reason == Reason::kWrong) {
        f.evidence = runs == 2 ? "two runs agree" : fmt::format("{} runs agree", runs);
      }
      continue;
    }
    f.reason = Reason::kNondeterministic;
    f.evidence = fmt::format("another run counts {}", other);
  }
}

// Where one count of a procedure differs by itself, another one that does not did so by chance.
void spread(Judgement& judgement) {
  std::set<std::pair<std::string, LinkAddr>> unsteady;
  for (const Finding& f : judgement.findings) {
    const bool known = f.procedure != LinkAddr();
    if (known && f.reason == Reason::kNondeterministic) unsteady.insert({f.module, f.procedure});
  }
  for (Finding& f : judgement.findings) {
    if (f.reason != Reason::kWrong || !is_of_counts(f)) continue;
    if (!unsteady.contains({f.module, f.procedure})) continue;
    f.reason = Reason::kNondeterministic;
    f.evidence = "other counts of its procedure differ from run to run";
  }
}

// No other processor time is left while this lives: threads of other programs are interrupted where
// they would not be, and wait for each other longer or not at all.  The program cannot see it.
class Load {
 public:
  Load() {
    const unsigned processors = std::max(1U, std::thread::hardware_concurrency());
    for (unsigned i = 0; i < 2 * processors; ++i) {
      threads_.emplace_back([this] {
        while (!over_.load(std::memory_order_relaxed)) {
        }
      });
    }
  }
  ~Load() {
    over_.store(true);
    for (std::thread& thread : threads_) thread.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

bool is_interrupted(const VerifyOptions& options) {
  return options.watch.interrupted != nullptr && options.watch.interrupted->load();
}

// It would be held against the profile, and a run may say something else.
bool accuses(const Finding& f) {
  const bool missing = f.kind == FindingKind::kMissingEdge || f.kind == FindingKind::kMissingBlock;
  return is_of_counts(f) &&
         (f.reason == Reason::kWrong || (missing && f.reason == Reason::kStructure));
}

bool any_wrong(const Judgement& judgement) {
  return std::any_of(judgement.findings.begin(), judgement.findings.end(), accuses);
}

bool is_generated(const Finding& f) {
  return f.module == kGenerated;
}

// Procedures with a count that was as claimed, and is not in another run.
std::set<std::pair<std::string, LinkAddr>> newly_different(const Verdict& another,
                                                           const Judgement& judgement) {
  std::set<Key> known;
  for (const Finding& f : judgement.findings) known.insert(key_of(f));
  std::set<std::pair<std::string, LinkAddr>> procedures;
  for (const Finding& f : another.judgement.findings) {
    if (f.procedure != LinkAddr() && is_of_counts(f) && !known.contains(key_of(f))) {
      procedures.insert({f.module, f.procedure});
    }
  }
  return procedures;
}

// What a run in other surroundings counted.
void compare_elsewhere(const Verdict& another, const Variation& variation, Judgement& judgement) {
  std::map<Key, uint64_t> counted;
  for (const Finding& f : another.judgement.findings) counted[key_of(f)] = f.counted;
  std::set<std::pair<std::string, LinkAddr>> dependent = newly_different(another, judgement);
  for (Finding& f : judgement.findings) {
    if (!accuses(f)) continue;
    const auto it = counted.find(key_of(f));
    const uint64_t other = it == counted.end() ? f.claimed : it->second;
    if (other == f.counted && !(variation.addresses && is_generated(f))) continue;
    f.reason = Reason::kEnvironment;
    f.evidence = is_generated(f) ? "code made at run time lies elsewhere in other surroundings"
                                 : fmt::format("a run with {} counts {}", variation.words(), other);
    if (f.procedure != LinkAddr()) dependent.insert({f.module, f.procedure});
  }
  for (Finding& f : judgement.findings) {
    if (!accuses(f)) continue;
    if (!dependent.contains({f.module, f.procedure})) continue;
    f.reason = Reason::kEnvironment;
    f.evidence = fmt::format("with {} other counts of its procedure change", variation.words());
  }
}

// As long as any count would be called wrong: is it right elsewhere?
void run_elsewhere(const VerifyOptions& options, const Descriptors& descriptors,
                   const Surroundings& surroundings, const AnotherRun& again, Verdict& verdict) {
  Variation variation = surroundings.unlike();
  // Whoever counts inside the program maps memory of its own, which such a program sees.
  variation.mappings = verdict.outcome.reads_mappings;
  variation.output = !descriptors.known();
  // Each has addresses of its own; what depends on few of their bits shows in few runs.
  constexpr size_t kAttemptsMin = 3;
  constexpr size_t kAttemptsMax = 12;
  constexpr double kSecondsMax = 5;
  double seconds = 0;
  for (size_t attempt = 1; attempt <= kAttemptsMax; ++attempt) {
    if (attempt > kAttemptsMin && seconds > kSecondsMax) return;
    if (!variation.any() || !any_wrong(verdict.judgement) || is_interrupted(options)) return;
    descriptors.rewind();
    const Redirection redirection(variation.output
                                      ? descriptors.with_other_output(attempt, variation.output_is)
                                      : descriptors.for_further_run());
    if (!redirection.ok()) {
      verdict.judgement.remarks.emplace_back(
          "no run in other surroundings: its output would be seen twice; send it to a file");
      return;
    }
    const OneVariableMore variable(variation.variables, attempt);
    variation.attempt = attempt;
    const Result<Verdict> another = again(variation);
    if (!another || !another->outcome.complete) {
      verdict.judgement.remarks.push_back(
          fmt::format("a run with {} is not compared: {}", variation.words(),
                      another ? another->outcome.why_incomplete : another.error().message));
      return;
    }
    seconds += another->outcome.seconds;
    compare_elsewhere(*another, variation, verdict.judgement);
  }
}

// What the build that the profile was taken of executes as often as claimed, or now so, now so.
// Two functions of one name (`static` ones of different files) are not told apart: nothing is said
// of them.
bool excuse_by_maker(const Verdict& another, std::map<std::string, uint64_t>& before,
                     Judgement& judgement) {
  std::set<std::string> differs;
  const auto is_one = [&](const std::string& name) {
    const auto it = another.judgement.named.find(name);
    return it != another.judgement.named.end() && it->second == 1;
  };
  for (const Finding& f : another.judgement.findings) {
    const std::string name = name_in_source(f);
    const auto [it, is_first] = before.try_emplace(name, f.counted);
    if (!name.empty() && it->second != f.counted) differs.insert(name);
  }
  for (Finding& f : judgement.findings) {
    const std::string name = name_in_source(f);
    if (!accuses(f) || !is_one(name)) continue;
    if (!another.judgement.confirmed.contains(name) && !differs.contains(name)) continue;
    f.reason = Reason::kEnvironment;
    f.evidence = differs.contains(name)
                     ? "two runs of the program that the profile was taken of differ there"
                     : "the program that the profile was taken of executes it as often as claimed";
  }
  return any_wrong(judgement);
}

// A program that the profiler was compiled into may behave otherwise than the one without it: then
// the profile is right of what it was taken of.  What was lost on the way is not in these runs.
void run_maker(const VerifyOptions& options, const Descriptors& descriptors,
               const AnotherRun& again, Verdict& verdict) {
  constexpr size_t kAttempts = 8;  // where its addresses were in the profile's run, nobody knows
  if (options.made_by == nullptr) return;
  std::map<std::string, uint64_t> before;
  bool more = any_wrong(verdict.judgement);
  for (size_t attempt = 1; more && attempt <= kAttempts && !is_interrupted(options); ++attempt) {
    descriptors.rewind();
    const Redirection redirection(descriptors.for_further_run());
    Variation variation;
    variation.made_by = true;
    variation.addresses = attempt > 1;
    const Result<Verdict> another =
        redirection.ok() ? again(variation) : make_error("its output would be seen twice");
    if (!another || !another->outcome.complete) {
      verdict.judgement.remarks.push_back(
          fmt::format("a run of {} is not compared: {}", options.made_by->program,
                      another ? another->outcome.why_incomplete : another.error().message));
      return;
    }
    more = excuse_by_maker(*another, before, verdict.judgement);
  }
}

// Runs the program again, with threads as often as it takes, every other time under load.  Returns
// why it could not.
std::string run_again(const VerifyOptions& options, const Descriptors& descriptors,
                      const AnotherRun& again, Verdict& verdict) {
  if (!options.second_run) return "it was not wanted";
  if (!descriptors.input_usable() && verdict.outcome.looks_at_input) {
    return "its input cannot be read twice";
  }
  const bool threads = verdict.outcome.threads > 1 && !verdict.outcome.cold_only;
  const size_t runs_max = threads ? std::max(2U, options.runs_with_threads) : 2;
  for (size_t runs = 2; runs <= runs_max; ++runs) {
    if (runs > 2 && !any_wrong(verdict.judgement)) break;
    if (is_interrupted(options)) return runs == 2 ? "interrupted" : "";
    descriptors.rewind();
    const Redirection redirection(descriptors.for_further_run());
    if (!redirection.ok()) return "its output would be seen twice; send it to a file";
    std::optional<Load> load;
    if (runs > 2 && runs % 2 == 1) load.emplace();
    Variation alike;
    alike.run = runs;
    const Result<Verdict> another = again(alike);
    if (!another || !another->outcome.complete) {
      std::string why = another ? "another run was not complete" : another.error().message;
      if (runs == 2) return why;
      verdict.judgement.remarks.push_back(fmt::format("run {} is not compared: {}", runs, why));
      break;
    }
    compare_runs(*another, runs, verdict.judgement);
    spread(verdict.judgement);
  }
  return {};
}

// What several runs counted alike by chance.
void settle_threads(Verdict& verdict) {
  if (verdict.truth == nullptr || verdict.outcome.threads < 2) return;
  const Scheduling scheduling(*verdict.truth, verdict.judgement);
  for (Finding& f : verdict.judgement.findings) {
    if (!accuses(f)) continue;
    const std::string why = scheduling.why(f);
    if (why.empty() && f.reason == Reason::kStructure) continue;
    if (why.empty()) {
      f.evidence += ", and nothing that was executed in its procedure looks at other threads";
      continue;
    }
    f.reason = Reason::kScheduling;
    f.evidence += (f.evidence.empty() ? "the runs agree, but " : ", but ") + why;
  }
}

void settle_clocks(Verdict& verdict) {
  if (verdict.truth == nullptr || !any_wrong(verdict.judgement)) return;
  const Clocks clocks(*verdict.truth);
  for (Finding& f : verdict.judgement.findings) {
    if (!accuses(f)) continue;
    const std::string why = clocks.why(f);
    if (why.empty()) continue;
    f.reason = Reason::kNondeterministic;
    f.evidence += (f.evidence.empty() ? "the runs agree, but " : ", but ") + why;
  }
}

void settle_interruptions(Verdict& verdict) {
  if (verdict.truth == nullptr || !any_wrong(verdict.judgement)) return;
  const Interruptions interruptions(*verdict.truth, verdict.judgement);
  for (Finding& f : verdict.judgement.findings) {
    if (!accuses(f)) continue;
    const std::string why = interruptions.why(f);
    if (why.empty()) continue;
    f.reason = Reason::kNondeterministic;
    f.evidence += (f.evidence.empty() ? "the runs agree, but " : ", but ") + why;
  }
}

// What was other and could not be made as it was.
void settle_descriptors(const std::string& unlike, Judgement& judgement) {
  if (unlike.empty()) return;
  for (Finding& f : judgement.findings) {
    if (!accuses(f)) continue;
    f.reason = Reason::kEnvironment;
    f.evidence = unlike;
  }
}

void set_unexplained(Judgement& judgement, const std::string& why) {
  for (Finding& f : judgement.findings) {
    if (!accuses(f)) continue;
    f.reason = Reason::kUnexplained;
    f.evidence = "one run only: " + why;
  }
}

}  // namespace

void explain(const claims::Claims& claims, const VerifyOptions& options,
             const Descriptors& descriptors, const Surroundings& surroundings,
             const AnotherRun& again, Verdict& verdict) {
  Judgement& judgement = verdict.judgement;
  if (judgement.findings.empty()) return;
  for (Finding& f : judgement.findings) {
    if (claims::is_impossible(f.claimed)) f.evidence = "nothing is executed so often";
  }
  const std::string why_not = verdict.outcome.complete
                                  ? run_again(options, descriptors, again, verdict)
                                  : "the run is not complete";
  if (!why_not.empty()) {
    judgement.remarks.push_back("no second run to tell what differs by itself: " + why_not);
  }
  if (why_not.empty()) run_elsewhere(options, descriptors, surroundings, again, verdict);
  if (why_not.empty()) run_maker(options, descriptors, again, verdict);
  const std::string& environment = surroundings.difference();
  for (Finding& f : judgement.findings) {
    if (f.reason != Reason::kWrong) continue;
    if (profiler_writes(claims.form) && f.claimed > f.counted && is_output(f.name)) {
      f.reason = Reason::kOwnOutput;
      f.evidence = "a profiler inside the program runs this to write its counts";
    } else if (!environment.empty() && is_startup(f)) {
      f.reason = Reason::kEnvironment;
      f.evidence = environment;
    }
  }
  if (why_not.empty()) {
    settle_descriptors(descriptors.unlike(verdict.outcome.looks_at_input), judgement);
    settle_clocks(verdict);
    settle_interruptions(verdict);
    settle_threads(verdict);
  } else {
    set_unexplained(judgement, why_not);
  }
}

}  // namespace tally::verify
