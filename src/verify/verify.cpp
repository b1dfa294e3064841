// Running and judging.  See verify.h.
#include "verify/verify.h"

#include <algorithm>

#include "verify/checkers.h"

namespace tally::verify {
namespace {

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

Result<Verdict> verify_by_traps(const claims::Claims& claims, const VerifyOptions& options) {
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
  TRY_ASSIGN(verdict.outcome, watch(options.watch, code, {&edges, &entered, &procedures}));
  Judgement& judgement = verdict.judgement;
  TRY(check_builds(claims, code, judgement));
  blocks.settle();
  const bool complete = verdict.outcome.complete;
  edges.judge(claims, blocks, complete, judgement);
  entered.judge(claims, blocks, complete, judgement);
  procedures.judge(claims, blocks, edges, entered, complete, judgement);
  sort_findings(judgement.findings);
  verdict.verified = judgement.findings.empty() && verdict.outcome.lost == 0 && complete;
  return verdict;
}

}  // namespace tally::verify
