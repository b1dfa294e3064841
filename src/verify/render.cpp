// Verdicts as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "claims/counts.h"
#include "claims/read.h"
#include "verify/verify.h"

namespace tally::verify {
namespace {

std::string grouped(uint64_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

// Profiles of other tools may hold negative counts.
std::string claimed_text(uint64_t n) {
  return claims::is_impossible(n) ? std::to_string(static_cast<int64_t>(n)) : grouped(n);
}

std::string line_of(const Tally& t) {
  return fmt::format("{} claimed, {} judged, {} wrong; {} executions", grouped(t.claims),
                     grouped(t.judged), grouped(t.wrong), grouped(t.executions));
}

std::string text_of(const Finding& f) {
  std::string out =
      fmt::format("  {:16} {:22} {}", to_string(f.reason), to_string(f.kind), f.where);
  if (!f.to.empty()) out += fmt::format(" -> {} ({})", f.to, to_string(f.role));
  if (!f.name.empty()) out += fmt::format(" [{}]", f.name);
  out += fmt::format(": profile {}, counted {}", claimed_text(f.claimed), grouped(f.counted));
  if (!f.record.empty()) out += fmt::format("; {}", f.record);
  if (!f.evidence.empty()) out += fmt::format("; {}", f.evidence);
  return out + "\n";
}

// What is said of the profile as a whole.
std::string verdict_of(const Verdict& v) {
  if (v.verified) return "verified";
  if (!v.outcome.complete) return "not done";
  const auto accuses = [](const Finding& f) {
    return f.reason == Reason::kWrong || f.reason == Reason::kStructure ||
           f.reason == Reason::kOwnOutput;
  };
  return std::ranges::any_of(v.judgement.findings, accuses) ? "WRONG" : "not verified";
}

// Beside "not verified": nobody has to look for a fault of the profile.
std::string comment_on(const std::string& verdict, const Verdict& v) {
  if (verdict != "not verified") return {};
  if (v.judgement.findings.empty()) return ", as control was lost";
  return fmt::format("; no count is known to be wrong, {} differ", v.judgement.findings.size());
}

double per(double a, uint64_t b) {
  return b == 0 ? 0 : a / static_cast<double>(b);
}

std::string end_of(const Outcome& o) {
  if (!o.complete) return o.why_incomplete;
  return o.exited ? fmt::format("status {}", o.exit_status) : fmt::format("signal {}", o.signal);
}

std::string cost_lines(const Outcome& o) {
  std::string out = fmt::format("Program               ended with {}; {} processes, {} threads\n",
                                end_of(o), o.processes, o.threads);
  out += fmt::format("Blocks executed       {}, {:.1f}% of them emulated\n", grouped(o.blocks),
                     100 * per(static_cast<double>(o.emulated), o.blocks));
  out += fmt::format(
      "Stops                 {}: {} breakpoints, {} system calls, {} steps, {} signals, {} other\n",
      grouped(o.stops()), grouped(o.breakpoint_stops), grouped(o.system_call_stops),
      grouped(o.steps), grouped(o.signal_stops), grouped(o.other_stops));
  out += fmt::format("Cost                  {:.3f} stops per block, {:.1f} us per stop, {:.2f} s\n",
                     per(static_cast<double>(o.stops()), o.blocks), per(o.seconds * 1e6, o.stops()),
                     o.seconds);
  return out;
}

std::string translated_lines(const Outcome& o) {
  return fmt::format("Program               ended with {}; {:.2f} s\n", end_of(o), o.seconds);
}

const char* name_of(Engine engine) {
  return engine == Engine::kTrap ? "trap" : "translate";
}

nlohmann::json json_of(const Tally& t) {
  return {
      {"claims", t.claims}, {"judged", t.judged}, {"wrong", t.wrong}, {"executions", t.executions}};
}

nlohmann::json json_of(const Finding& f) {
  nlohmann::json j = {{"reason", to_string(f.reason)},
                      {"kind", to_string(f.kind)},
                      {"where", f.where},
                      {"module", f.module},
                      {"address", fmt::format("{:#x}", f.address.value())},
                      {"claimed", f.claimed},
                      {"counted", f.counted}};
  if (!f.to.empty()) j["to"] = f.to, j["role"] = to_string(f.role);
  if (!f.name.empty()) j["name"] = f.name;
  if (!f.record.empty()) j["record"] = f.record;
  if (!f.evidence.empty()) j["evidence"] = f.evidence;
  return j;
}

}  // namespace

std::string render_text(const claims::Claims& claims, const Verdict& v, size_t listed_max) {
  const Judgement& j = v.judgement;
  const std::string verdict = verdict_of(v);
  std::string out = fmt::format("{}: {}{}\n", claims.file, verdict, comment_on(verdict, v));
  out += fmt::format("Profile               {} ({}); engine {}\n", claims::to_string(claims.form),
                     claims.producer, name_of(v.engine));
  out += fmt::format("Edges                 {}\n", line_of(j.edges));
  out += fmt::format("Blocks                {}\n", line_of(j.blocks));
  out += fmt::format("Procedures            {}\n", line_of(j.procedures));
  if (j.instructions.claims != 0) {
    out += fmt::format("Instructions          {}\n", line_of(j.instructions));
  }
  if (j.lines.claims != 0) out += fmt::format("Lines                 {}\n", line_of(j.lines));
  out += v.engine == Engine::kTrap ? cost_lines(v.outcome) : translated_lines(v.outcome);
  if (!v.outcome.complete) {
    out += fmt::format("Not complete          {}: only counts that are too small show\n",
                       v.outcome.why_incomplete);
  }
  if (v.outcome.lost != 0) {
    out += fmt::format("Lost                  {} times; first: {}\n", v.outcome.lost,
                       v.outcome.first_lost);
  }
  for (const std::string& n : v.outcome.notes) out += "Note                  " + n + "\n";
  for (const std::string& r : j.remarks) out += "Note                  " + r + "\n";
  if (j.findings.empty()) return out;
  std::map<std::string, uint64_t> reasons;
  for (const Finding& f : j.findings) ++reasons[to_string(f.reason)];
  out += "Findings             ";
  for (const auto& [reason, count] : reasons) out += fmt::format(" {} {};", grouped(count), reason);
  out.back() = '\n';
  for (size_t i = 0; i < j.findings.size() && i < listed_max; ++i) out += text_of(j.findings[i]);
  if (j.findings.size() > listed_max) {
    out += fmt::format("  ... and {} more\n", grouped(j.findings.size() - listed_max));
  }
  return out;
}

std::string render_json(const claims::Claims& claims, const Verdict& v) {
  const Outcome& o = v.outcome;
  nlohmann::json j = {{"verified", v.verified},
                      {"verdict", verdict_of(v)},
                      {"profile", claims.file},
                      {"format", claims::to_string(claims.form)},
                      {"producer", claims.producer},
                      {"engine", name_of(v.engine)},
                      {"complete", o.complete},
                      {"edges", json_of(v.judgement.edges)},
                      {"blocks", json_of(v.judgement.blocks)},
                      {"procedures", json_of(v.judgement.procedures)},
                      {"instructions", json_of(v.judgement.instructions)},
                      {"lines", json_of(v.judgement.lines)},
                      {"cost",
                       {{"blocks_executed", o.blocks},
                        {"blocks_emulated", o.emulated},
                        {"stops", o.stops()},
                        {"breakpoint_stops", o.breakpoint_stops},
                        {"system_call_stops", o.system_call_stops},
                        {"steps", o.steps},
                        {"signal_stops", o.signal_stops},
                        {"stops_per_block", per(static_cast<double>(o.stops()), o.blocks)},
                        {"microseconds_per_stop", per(o.seconds * 1e6, o.stops())},
                        {"seconds", o.seconds}}},
                      {"ended", end_of(o)},
                      {"processes", o.processes},
                      {"threads", o.threads},
                      {"lost", o.lost},
                      {"notes", o.notes},
                      {"remarks", v.judgement.remarks},
                      {"silences", claims.silences},
                      {"admissions", claims.admissions}};
  if (v.judgement.overlap >= 0) j["overlap"] = v.judgement.overlap;
  if (!o.complete) j["why_incomplete"] = o.why_incomplete;
  if (o.lost != 0) j["first_lost"] = o.first_lost;
  nlohmann::json findings = nlohmann::json::array();
  for (const Finding& f : v.judgement.findings) findings.push_back(json_of(f));
  j["findings"] = std::move(findings);
  return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tally::verify
