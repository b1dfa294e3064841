// Running and judging.  See verify.h.
#include "verify/verify.h"

#include <algorithm>
#include <array>
#include <map>

#include "claims/check.h"
#include "profile/file.h"
#include "verify/checkers.h"
#include "verify/descriptors.h"
#include "verify/explain.h"
#include "verify/truth.h"

namespace tally::verify {
namespace {

// Some lines more for whoever counts them, then pages more for whoever reads by the page.
unsigned more_mappings(size_t attempt) {
  constexpr unsigned kFirst = 5;
  constexpr unsigned kTimes = 8;
  constexpr size_t kGrowthsMax = 2;
  unsigned count = kFirst;
  for (size_t i = 0; i < std::min(attempt - 1, kGrowthsMax); ++i) count *= kTimes;
  return count;
}

// Threads that take longer or shorter turns meet elsewhere.
uint64_t turn_blocks(size_t run) {
  constexpr std::array<uint64_t, 5> kBlocks = {20000, 300, 3000, 1, 50};
  return kBlocks[(run - 1) % kBlocks.size()];
}

uint64_t distance(const Finding& f) {
  return f.claimed > f.counted ? f.claimed - f.counted : f.counted - f.claimed;
}

// The builds have to be the same, or every address means something else.
Status check_builds(const claims::Claims& claims, Code& code, Judgement& judgement) {
  for (const claims::Module& m : claims.modules) {
    const CodeModule& module = code.module(m.path);
    if (!module.image || m.build_id.empty() || module.build_id.empty()) continue;
    if (m.build_id == module.build_id) continue;
    const std::string words =
        fmt::format("{}: the profile is of another build (build-id {}, the file has {})", m.path,
                    m.build_id, module.build_id);
    if (m.main_program) return make_error(ErrorKind::kMismatch, "{}", words);
    judgement.remarks.push_back(words);
  }
  return Ok{};
}

void sort_findings(std::vector<Finding>& findings) {
  std::stable_sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) {
    if (a.reason != b.reason) return a.reason < b.reason;
    if (distance(a) != distance(b)) return distance(a) > distance(b);
    return std::tie(a.where, a.to) < std::tie(b.where, b.to);
  });
}

}  // namespace

namespace {

// Blocks as the profile has them: our own profile and the plain form.
bool is_of_blocks(const claims::Claims& claims) {
  return claims.form == claims::Form::kTally || claims.form == claims::Form::kPlain;
}

// Blocks with the least still to come by what is claimed, as many as the stops will do for.
std::vector<BlockId> coldest(const claims::Claims& claims, const ClaimedBlocks& blocks,
                             const BlockChecker& entered, uint64_t stops) {
  std::map<BlockId, uint64_t> counts(blocks.counts().begin(), blocks.counts().end());
  // A profile of edges alone says of a block how often it was left.
  if (claims.blocks.empty()) {
    for (const claims::EdgeClaim& e : claims.edges) {
      const BlockId from = blocks.source(e);
      if (from != kNoBlock) counts[from] += e.count;
    }
  }
  std::vector<std::pair<uint64_t, BlockId>> order;
  for (const auto& [id, claimed] : counts) {
    const uint64_t done = entered.entered(id);
    order.emplace_back(claimed > done ? claimed - done : 0, id);
  }
  std::sort(order.begin(), order.end());
  std::vector<BlockId> chosen;
  uint64_t sum = 0;
  for (const auto& [left, id] : order) {
    sum += left;
    if (sum > stops) break;
    chosen.push_back(id);
  }
  return chosen;
}

// After half of the budget only cold blocks were watched: their counts are complete, others are
// lower bounds.
void judge_partly(Code& code, const claims::Claims& claims, ClaimedBlocks& blocks,
                  const EdgeChecker& edges, const BlockChecker& entered, Verdict& verdict) {
  Coverage coverage;
  for (const BlockId id : verdict.outcome.watched) coverage.watched.insert(id);
  blocks.settle();
  edges.judge(claims, blocks, verdict.outcome.complete, verdict.judgement, &coverage);
  entered.judge(claims, blocks, verdict.outcome.complete, verdict.judgement, &coverage);
  const auto share = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 100.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  };
  verdict.judgement.remarks.push_back(
      fmt::format("budget: everything was followed for {:.1f} s, then {} cold blocks; {:.1f}% of "
                  "the edges were "
                  "verified completely, {:.2f}% of their executions were seen",
                  verdict.outcome.followed_seconds, coverage.watched.size(),
                  share(coverage.edges_complete, verdict.judgement.edges.judged),
                  share(verdict.judgement.edges.executions, coverage.executions_claimed)));
  (void)code;
}

// When all that a run shows agrees, what it does not show (which frames ended where) is left to
// the profile's own equations.
void find_contradictions(const claims::Claims& claims, Verdict& verdict) {
  if (claims.form != claims::Form::kTally || !claims.admissions.empty()) return;
  if (!verdict.judgement.findings.empty() || !verdict.outcome.complete) return;
  for (const claims::Finding& f : claims::check(claims).findings) {
    Finding contradiction;
    contradiction.kind = FindingKind::kContradiction;
    contradiction.where = f.where;
    contradiction.claimed = f.claimed;
    contradiction.counted = f.implied < 0 ? 0 : static_cast<uint64_t>(f.implied);
    contradiction.record = f.record;
    contradiction.evidence = fmt::format("{}: {}", claims::to_string(f.kind), f.message);
    contradiction.address = f.place.address;
    verdict.judgement.findings.push_back(std::move(contradiction));
  }
}

Truth truth_of(const Code& code, const BlockChecker& entered, const EdgeChecker& edges,
               const InterruptionChecker& interruptions) {
  Truth truth;
  truth.add(code, entered, edges, interruptions);
  return truth;
}

// What threads may have done to each other's counts has to be explained, and what the time may
// have.
bool has_to_explain(const Verdict& verdict) {
  return !verdict.judgement.findings.empty();
}

Result<Verdict> by_traps(const claims::Claims& claims, const VerifyOptions& options,
                         const Variation& variation) {
  Verdict verdict;
  Code code;
  ClaimedBlocks blocks(code, claims);
  if (claims.form == claims::Form::kTally) {
    TRY_ASSIGN(const auto corrections, corrections_of(claims.file, options.run));
    blocks.correct(corrections);
  }
  EdgeChecker edges(code);
  BlockChecker entered(code);
  ProcedureChecker procedures(code);
  InterruptionChecker interruptions;
  WatchOptions watch_options = options.watch;
  watch_options.turn_blocks = turn_blocks(variation.run);
  watch_options.randomize = variation.addresses;
  watch_options.upwards = variation.upwards();
  watch_options.more_mappings = variation.mappings ? more_mappings(variation.attempt) : 0;
  watch_options.choose_cold = [&](uint64_t stops) {
    return coldest(claims, blocks, entered, stops);
  };
  TRY_ASSIGN(verdict.outcome,
             watch(watch_options, code, {&edges, &entered, &procedures, &interruptions}));
  Judgement& judgement = verdict.judgement;
  TRY(check_builds(claims, code, judgement));
  const bool complete = verdict.outcome.complete;
  if (verdict.outcome.cold_only) {
    judge_partly(code, claims, blocks, edges, entered, verdict);
  } else if (is_of_blocks(claims)) {
    blocks.settle();
    edges.judge(claims, blocks, complete, judgement);
    entered.judge(claims, blocks, complete, judgement);
    procedures.judge(claims, blocks, edges, entered, complete, judgement);
  } else {
    const Truth truth = truth_of(code, entered, edges, interruptions);
    judge(claims, truth, options.overlap_min, complete, judgement);
  }
  if (watch_options.budget_seconds > 0 && !verdict.outcome.cold_only) {
    judgement.remarks.push_back("budget: not used up; everything was followed");
  }
  if (has_to_explain(verdict)) {
    verdict.truth = std::make_shared<const Truth>(truth_of(code, entered, edges, interruptions));
  }
  return verdict;
}

Result<Verdict> by_translation(const claims::Claims& claims, const VerifyOptions& options,
                               const Variation& variation) {
  Verdict verdict;
  verdict.engine = Engine::kTranslate;
  CHECK(options.translate) << "nobody translates";
  TRY_ASSIGN(const std::string counted, options.translate(variation, verdict.outcome));
  Truth truth;
  TRY_ASSIGN(profile::Reader reader, profile::Reader::open(counted));
  size_t threads = 0;
  for (size_t i = 0; i < reader.runs().size(); ++i) {
    TRY_ASSIGN(const profile::Profile profile, reader.read(i));
    for (const profile::Issue& issue : profile.issues) {
      verdict.judgement.remarks.push_back(
          fmt::format("not exact here: {}: {}", issue.scope, issue.message));
    }
    truth.add(profile);
    threads += std::max<size_t>(1, profile.threads.size());
  }
  verdict.outcome.processes = static_cast<unsigned>(reader.runs().size());
  verdict.outcome.threads = static_cast<unsigned>(threads);
  judge(claims, truth, options.overlap_min, verdict.outcome.complete, verdict.judgement);
  if (has_to_explain(verdict)) verdict.truth = std::make_shared<const Truth>(std::move(truth));
  return verdict;
}

bool accuses_any(const Judgement& judgement) {
  return std::ranges::any_of(judgement.findings, [](const Finding& f) {
    return f.reason == Reason::kWrong || f.reason == Reason::kStructure;
  });
}

Result<Verdict> run_first(const Descriptors& descriptors, const AnotherRun& run) {
  const Redirection redirection(descriptors.for_first_run());
  if (!redirection.ok()) return make_error("cannot make a file for what the program prints");
  return run({});
}

// Where counts differ and the descriptors did: a run that has them as they were then is judged in
// place of the first.
void run_as_then(const VerifyOptions& options, Descriptors& descriptors, const AnotherRun& run,
                 Verdict& verdict) {
  const std::optional<Wanted> wanted = descriptors.as_then();
  if (!wanted || verdict.judgement.findings.empty() || !verdict.outcome.complete) return;
  std::string why_not;
  if (!options.second_run) {
    why_not = "it was not wanted";
  } else if (!descriptors.input_usable() && !(*wanted)[0] && verdict.outcome.looks_at_input) {
    why_not = "its input cannot be read twice";
  } else {
    descriptors.rewind();
    const Redirection redirection(*wanted);
    Result<Verdict> another = redirection.ok() ? run({}) : make_error("none can be made");
    if (another && another->outcome.complete) {
      descriptors.go_on_as_then();
      verdict = std::move(*another);
      return;
    }
    why_not = another ? another->outcome.why_incomplete : another.error().message;
  }
  verdict.judgement.remarks.push_back(
      fmt::format("{}; no run had what it was then: {}", descriptors.unlike(true), why_not));
}

}  // namespace

Result<Verdict> verify(const claims::Claims& claims, const VerifyOptions& options) {
  Descriptors descriptors(claims);
  const Surroundings surroundings(claims, options.watch.command);
  const auto run = [&](const Variation& variation) {
    if (variation.made_by) return by_translation(options.made_by->claims, options, variation);
    return options.engine == Engine::kTrap ? by_traps(claims, options, variation)
                                           : by_translation(claims, options, variation);
  };
  if (options.warn && !descriptors.warning().empty()) options.warn(descriptors.warning());
  Result<Verdict> verdict = run_first(descriptors, run);
  if (!verdict) return verdict.error();
  run_as_then(options, descriptors, run, *verdict);
  explain(claims, options, descriptors, surroundings, run, *verdict);
  if (const std::string made = descriptors.made_alike(); !made.empty()) {
    verdict->judgement.remarks.push_back(made + "; the run that is judged had what it was then");
  }
  if (accuses_any(verdict->judgement) && !verdict->outcome.writes_to.empty()) {
    verdict->judgement.remarks.push_back(fmt::format(
        "the program writes to files ({}): where these, or others that it reads, were not there or "
        "not the same when the profile was taken, counts differ; make them as they were",
        verdict->outcome.writes_to));
  }
  if (!surroundings.other_command().empty() && !verdict->judgement.findings.empty()) {
    verdict->judgement.remarks.push_back("the profile is of another command: " +
                                         surroundings.other_command());
  }
  find_contradictions(claims, *verdict);
  sort_findings(verdict->judgement.findings);
  verdict->verified = verdict->judgement.findings.empty() && verdict->outcome.lost == 0 &&
                      verdict->outcome.complete;
  return verdict;
}

}  // namespace tally::verify
