// Conservation of flow where the profile has blocks with counts and edges between their begins.
//
// The equations are those of profile/checks.h, taken by address: blocks that several procedures
// share are added up.  Where that leaves open to which procedure an entry belongs, the equation is
// not taken but counted as open.
#include <algorithm>

#include "claims/equations.h"

namespace tally::claims {
namespace {

class Checker {
 public:
  explicit Checker(Inspection& inspection)
      : inspection_(inspection), claims_(inspection.claims), nodes_(inspection.nodes) {}

  void run() {
    add_blocks();
    add_edges();
    for (const BlockClaim& block : claims_.blocks) check_block(block.begin);
    for (const auto& [entry, count] : entries()) check_entries(entry, count);
  }

 private:
  void add_blocks() {
    for (const BlockClaim& block : claims_.blocks) {
      Node& node = nodes_[block.begin];
      node.shared = node.claimed && node.procedure != block.procedure;
      if (!node.claimed || block.count > 0) node.record = block.record;
      node.claimed = true;
      node.count += block.count;
      node.size_bytes = std::max(node.size_bytes, block.size_bytes);
      node.procedure = block.procedure;
      node.returns = node.returns || block.returns;
      node.unsure = node.unsure || block.unsure;
    }
    for (const AbnormalClaim& term : claims_.abnormal) {
      Node& node = nodes_[term.block];
      node.entered += term.entered;
      node.left += term.left;
      node.behind_call += term.behind_call;
    }
  }

  void add_edges() {
    for (size_t i = 0; i < claims_.edges.size(); ++i) {
      const EdgeClaim& edge = claims_.edges[i];
      inspection_.edges_from[edge.from].push_back(i);
      inspection_.edges_to[edge.to].push_back(i);
      Node& from = nodes_[edge.from];
      if (is_call(edge.role)) {
        from.calls += edge.count;
        from.has_calls = true;
      } else {
        from.out += edge.count;
      }
      nodes_[edge.to].in += edge.count;
    }
  }

  void check_block(const Place& place) {
    Node& node = nodes_[place];
    if (!checked_.insert(place).second) return;
    if (node.unsure) {
      ++inspection_.report.open;
      return;
    }
    ++inspection_.report.equations;
    inspection_.compare(Rule::kIn, place, node.count, node.in + node.entered);
    const Wide out = node.out + node.left;
    if (!node.returns || out > node.count) {
      ++inspection_.report.equations;
      inspection_.compare(Rule::kOut, place, node.count, out);
    }
    check_calls(place, node);
  }

  // A block that ends in a call made one each time it was run to its end.
  void check_calls(const Place& place, Node& node) {
    if (!node.has_calls && node.count > 0) {
      const Ending& end = inspection_.ending_of(place);
      // A call of the next instruction is how 32-bit habits ask for the address; an indirect one
      // may lead to where nothing is counted (the vsyscall page).
      node.has_calls = end.insn.flow == isa::Flow::kCall && LinkAddr(end.insn.target) != end.end;
    }
    if (!node.has_calls) return;
    ++inspection_.report.equations;
    const Wide least = node.count - node.left - node.behind_call;
    if (node.calls < least || node.calls > node.count) {
      // The smaller of the two differences: what is certainly missing.
      const Wide expected = node.calls > node.count ? node.count : least;
      inspection_.compare(Rule::kCalls, place, expected, node.calls);
    }
  }

  std::map<Place, Wide> entries() {
    std::map<Place, Wide> result;
    for (const ProcedureClaim& procedure : claims_.procedures) {
      if (procedure.unsure) {
        ++inspection_.report.open;
        unsure_.insert(procedure.entry);
      }
      result[procedure.entry] += procedure.count;
      ++procedures_at_[procedure.entry];
    }
    return result;
  }

  void check_entries(const Place& entry, Wide count) {
    if (claims_.blocks.empty() || unsure_.contains(entry)) return;
    const auto found = nodes_.find(entry);
    if (found == nodes_.end() || !found->second.claimed) {
      if (count > 0) inspection_.compare(Rule::kEntries, entry, count, 0);
      return;
    }
    const Node& node = found->second;
    if (node.shared || node.unsure || procedures_at_[entry] > 1) {
      ++inspection_.report.open;
      return;
    }
    Wide least = node.entered;
    Wide most = node.entered;
    const auto edges = inspection_.edges_to.find(entry);
    if (edges != inspection_.edges_to.end()) {
      for (const size_t index : edges->second) {
        const EdgeClaim& edge = claims_.edges[index];
        const Node& from = nodes_[edge.from];
        const bool call = is_call(edge.role);
        if (call || (!from.shared && from.procedure != node.procedure)) least += edge.count;
        if (call || from.shared || from.procedure != node.procedure) most += edge.count;
      }
    }
    ++inspection_.report.equations;
    if (count < least) inspection_.compare(Rule::kEntries, entry, count, least);
    if (count > most) inspection_.compare(Rule::kEntries, entry, count, most);
  }

  Inspection& inspection_;
  const Claims& claims_;
  PlaceMap<Node>& nodes_;
  std::set<Place> checked_;
  std::set<Place> unsure_;
  std::map<Place, int> procedures_at_;
};

}  // namespace

void check_block_flow(Inspection& inspection) {
  if (!inspection.claims.blocks.empty()) Checker(inspection).run();
}

}  // namespace tally::claims
