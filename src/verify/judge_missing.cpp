// What was executed and the profile does not have, when another engine than the traps counted.
//
// Only forms that have all edges can lack one.  The plain form may leave a kind of edge out (calls,
// say): a kind is expected when the profile has any of it.
#include <fmt/format.h>

#include <array>
#include <map>
#include <set>

#include "claims/read.h"
#include "verify/truth.h"

namespace tally::verify {
namespace {

using claims::Form;
using claims::Place;

class Missing {
 public:
  Missing(const claims::Claims& claims, const Truth& truth, Judgement& judgement)
      : claims_(claims), truth_(truth), judgement_(judgement), own_(claims.form == Form::kTally) {
    for (uint32_t i = 0; i < claims.modules.size(); ++i) numbers_[claims.modules[i].path] = i;
    for (const claims::BlockClaim& b : claims.blocks) {
      begins_.insert(b.begin);
      if (b.unsure) unsure_.insert(b.begin);
    }
    for (const claims::EdgeClaim& e : claims.edges) {
      claimed_.insert({e.from, e.to, role_for(e.role)});
      begins_.insert(e.from);
      begins_.insert(e.to);
    }
  }

  void run() {
    for (const auto& [path, module] : truth_.modules) {
      if (path == kGenerated || !numbers_.contains(path)) continue;
      for (const auto& [begin, edges] : module.by_begin) {
        for (const TruthEdge& edge : edges) note_role(path, edge);
      }
    }
    for (const auto& [path, module] : truth_.modules) {
      if (path == kGenerated || !numbers_.contains(path)) continue;
      std::map<std::pair<Place, Place>, std::map<EdgeRole, TruthEdge>> sums;
      for (const auto& [begin, edges] : module.by_begin) {
        for (const TruthEdge& edge : edges) add(path, edge, sums);
      }
      for (const auto& [ends, by_role] : sums) {
        for (const auto& [role, edge] : by_role) report(path, ends.first, ends.second, edge);
      }
    }
  }

 private:
  using Key = std::tuple<Place, Place, EdgeRole>;

  // As the traps' checker has it: what is a call and what a jump is a matter of taste.
  EdgeRole role_for(EdgeRole role) const {
    if (!own_) return EdgeRole::kUnknown;
    return role == EdgeRole::kCall ? EdgeRole::kBranch : role;
  }
  std::optional<Place> place(const std::string& path, LinkAddr address) const {
    const auto number = numbers_.find(path);
    if (number == numbers_.end() || path == kGenerated) return std::nullopt;
    return Place{number->second, address};
  }
  bool is_claimed(const Place& from, const Place& to, EdgeRole role) const {
    return claimed_.contains({from, to, role_for(role)});
  }

  void note_role(const std::string& path, const TruthEdge& edge) {
    const auto from = place(path, edge.from_begin);
    const auto to = place(edge.to_module, edge.to);
    if (!from || !to || edge.count == 0) return;
    if (is_claimed(*from, *to, edge.role)) covered_[static_cast<size_t>(edge.role)] = true;
  }

  // Only between blocks that the profile knows: what lies within one of its blocks is no edge to
  // it.
  bool is_expected(const Place& from, const Place& to, EdgeRole role) const {
    if (own_) return !unsure_.contains(from) && !unsure_.contains(to);
    const bool goes_on = role == EdgeRole::kFallthrough || role == EdgeRole::kCallReturn;
    return covered_[static_cast<size_t>(role)] && begins_.contains(from) &&
           (!goes_on || begins_.contains(to));
  }

  void add(const std::string& path, const TruthEdge& edge,
           std::map<std::pair<Place, Place>, std::map<EdgeRole, TruthEdge>>& sums) const {
    const auto from = place(path, edge.from_begin);
    const auto to = place(edge.to_module, edge.to);
    if (!from || !to || edge.count == 0 || is_claimed(*from, *to, edge.role)) return;
    if (!is_expected(*from, *to, edge.role)) return;
    const auto [slot, fresh] = sums[{*from, *to}].try_emplace(role_for(edge.role), edge);
    if (!fresh) slot->second.count += edge.count;
  }

  void report(const std::string& path, const Place& from, const Place& to, const TruthEdge& edge) {
    const auto name = [&](const std::string& of, const Place& at) {
      return fmt::format("{}+{:#x}", of.substr(of.rfind('/') + 1), at.address.value());
    };
    Finding f;
    f.kind = FindingKind::kMissingEdge;
    f.reason = Reason::kStructure;
    f.where = name(path, from);
    f.to = name(edge.to_module, to);
    f.role = edge.role;
    f.counted = edge.count;
    f.module = path;
    f.address = from.address;
    f.to_module = edge.to_module;
    f.to_address = to.address;
    if (const auto& image = truth_.module(path)->image) {
      if (const elf::Symbol* symbol = image->symbol_at(from.address)) f.name = symbol->name;
      f.procedure = procedure_around(*image, from.address);
    }
    ++judgement_.edges.wrong;
    judgement_.findings.push_back(std::move(f));
  }

  const claims::Claims& claims_;
  const Truth& truth_;
  Judgement& judgement_;
  bool own_;
  std::map<std::string, uint32_t> numbers_;
  std::set<Key> claimed_;
  std::set<Place> begins_;
  std::set<Place> unsure_;
  std::array<bool, 8> covered_{};
};

}  // namespace

void judge_missing(const claims::Claims& claims, const Truth& truth, Judgement& judgement) {
  if (claims.form != Form::kTally && claims.form != Form::kPlain) return;
  Missing(claims, truth, judgement).run();
}

}  // namespace tally::verify
