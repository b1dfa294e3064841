// Comparing shares (samples) with the truth, by procedure.  See truth.h.
//
// Two distributions have in common, of each procedure, the smaller one of its two shares; the sum
// of these is their overlap.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "verify/truth.h"

namespace tally::verify {
namespace {

using Shares = std::map<std::string, double>;

class ShareJudge {
 public:
  ShareJudge(const claims::Claims& claims, const Truth& truth, Judgement& judgement)
      : claims_(claims), truth_(truth), judgement_(judgement) {}

  void run(double overlap_min) {
    Shares claimed;
    Shares counted;
    std::set<std::string> modules;
    for (const claims::InstructionClaim& i : claims_.instructions) {
      ++judgement_.instructions.claims;
      const TruthModule* module = module_of(i.at);
      if (module == nullptr) continue;
      ++judgement_.instructions.judged;
      modules.insert(path_of(i.at));
      claimed[path_of(i.at) + ":" + procedure_at(*module, i.at.address)] +=
          static_cast<double>(i.count);
    }
    if (claims_.instructions.empty()) {
      for (const claims::ProcedureClaim& p : claims_.procedures) {
        ++judgement_.procedures.claims;
        if (p.entry.module >= claims_.modules.size()) continue;
        const TruthModule* module = module_of(p.entry);
        if (module == nullptr) continue;
        ++judgement_.procedures.judged;
        modules.insert(path_of(p.entry));
        claimed[path_of(p.entry) + ":" + procedure_at(*module, p.entry.address)] +=
            static_cast<double>(p.count);
      }
    }
    for (const std::string& path : modules) {
      const TruthModule& module = *truth_.module(path);
      for (const auto& [address, i] : module.instructions) {
        if (i.count <= 0) continue;
        counted[path + ":" + procedure_at(module, LinkAddr(address))] +=
            static_cast<double>(i.count);
      }
    }
    compare_shares(claimed, counted, overlap_min);
  }

 private:
  const std::string& path_of(const claims::Place& place) const {
    return claims_.modules[place.module].path;
  }
  const TruthModule* module_of(const claims::Place& place) const {
    return truth_.module(path_of(place));
  }

  static std::string procedure_at(const TruthModule& module, LinkAddr address) {
    if (!module.image) return "";
    const elf::Symbol* symbol = module.image->symbol_at(address);
    return symbol == nullptr ? fmt::format("{:#x}", address.value() & ~0xfffull) : symbol->name;
  }

  static void normalize(Shares& shares) {
    double sum = 0;
    for (const auto& [name, share] : shares) sum += share;
    for (auto& [name, share] : shares) share = sum > 0 ? share / sum : 0;
  }

  void compare_shares(Shares& claimed, Shares& counted, double overlap_min) {
    normalize(claimed);
    normalize(counted);
    double overlap = 0;
    for (const auto& [name, share] : claimed) {
      const auto it = counted.find(name);
      if (it != counted.end()) overlap += std::min(share, it->second);
    }
    judgement_.overlap = overlap;
    judgement_.remarks.push_back(
        fmt::format("shares of procedures overlap by {:.1f}% (samples are of {}, the truth is of "
                    "instructions)",
                    100 * overlap, claims_.form == claims::Form::kLlvmSamples ? "lines" : "time"));
    if (overlap >= overlap_min) return;
    Finding f;
    f.kind = FindingKind::kShare;
    f.where = "all procedures";
    f.evidence = fmt::format("overlap {:.3f}, wanted {:.3f}", overlap, overlap_min);
    judgement_.findings.push_back(std::move(f));
  }

  const claims::Claims& claims_;
  const Truth& truth_;
  Judgement& judgement_;
};

}  // namespace

void judge_shares(const claims::Claims& claims, const Truth& truth, double overlap_min,
                  Judgement& judgement) {
  ShareJudge(claims, truth, judgement).run(overlap_min);
}

}  // namespace tally::verify
