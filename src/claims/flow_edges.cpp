// Conservation of flow where the profile has edges only (plain, .fdata).
//
// Every address that an edge leads to, and every one that a block-to-block edge comes from, begins
// a block.  Its end is found as the paper does (section 3.1): disassemble up to a branch or up to
// where the next block begins.  What flows in then has to flow out:
//
//     sum(edges to it) + entered from elsewhere  =  sum(edges from its end)
//
// and no call in its middle was made more often than that.  A loop of a single block without calls
// enters and leaves alike, so that its count cannot be judged.
//
// Open, and counted as such: blocks that return, are entered or left by ways that the form does not
// record, lie in a function from within which the profile has no record (BOLT does not instrument
// all), or may be left in their middle by a call that does not come back (then only more flow out
// than in is a fault).
#include <algorithm>

#include "claims/equations.h"

namespace tally::claims {
namespace {

constexpr int kInstructionsMax = 100'000;  // of one block, whatever the bytes pretend

class Checker {
 public:
  explicit Checker(Inspection& inspection)
      : inspection_(inspection), claims_(inspection.claims), nodes_(inspection.nodes) {}

  void run() {
    add_edges();
    std::vector<Place> leaders;
    for (const auto& [place, node] : nodes_) leaders.push_back(place);
    std::sort(leaders.begin(), leaders.end());
    for (const Place& place : leaders) find_end(place);
    for (const Place& place : leaders) take_call_returns(place);
    for (const Place& place : leaders) check(place);
  }

 private:
  static bool by_block(const EdgeClaim& edge) { return edge.origin == EdgeOrigin::kBlockBegin; }

  void add_edges() {
    for (size_t i = 0; i < claims_.edges.size(); ++i) {
      const EdgeClaim& edge = claims_.edges[i];
      nodes_[edge.to].in += edge.count;
      inspection_.edges_to[edge.to].push_back(i);
      inspection_.edges_from[edge.from].push_back(i);
      if (by_block(edge)) nodes_.try_emplace(edge.from);
    }
    for (const AbnormalClaim& term : claims_.abnormal) {
      if (term.left != 0) {
        left_at_[term.block] += term.left;
        continue;
      }
      Node& node = nodes_[term.block];
      node.entered += term.entered;
      node.in += term.entered;
    }
  }

  bool is_leader(const Place& place) const { return nodes_.contains(place); }

  void find_end(const Place& begin) {
    Ending& ending = inspection_.endings[begin];
    Place at = begin;
    for (int i = 0; i < kInstructionsMax; ++i) {
      const isa::Insn insn = inspection_.code.insn_at(at);
      if (insn.size == 0) return;  // said by the check of structure
      ending.insn = insn;
      ending.last = at.address;
      ending.end = at.address + insn.size;
      ending.repeats = ending.repeats || insn.repeated;
      const Place next{at.module, ending.end};
      if (ends_block(begin, at, next, insn)) break;
      if (may_not_come_back(insn.flow)) {
        ending.calls = true;
        add_calls(begin, at);
      }
      at = next;
    }
    Node& node = nodes_[begin];
    node.size_bytes = ending.end.value() - begin.address.value();
    node.returns = ending.insn.flow == isa::Flow::kReturn;
    for (const size_t index : out_edges(begin, ending)) add_out(node, ending, claims_.edges[index]);
    take_left(node, {begin.module, ending.last}, ending.insn.flow);
    take_other_way(node, {begin.module, ending.end}, ending.insn.flow);
  }

  // What leaves for a place that the form does not name: a procedure linkage stub.
  void take_left(Node& node, const Place& last, isa::Flow flow) {
    const auto left = left_at_.find(last);
    if (left != left_at_.end()) (may_not_come_back(flow) ? node.calls : node.out) += left->second;
  }

  // BOLT takes a conditional branch and the jump right behind it for one block's two ways out: the
  // way to the jump is no edge of its own, unless something else leads there.
  void take_other_way(Node& node, const Place& jump, isa::Flow flow) {
    if (claims_.form != Form::kFdata || is_leader(jump)) return;
    if (flow != isa::Flow::kConditional && flow != isa::Flow::kCountedJump) return;
    if (inspection_.code.insn_at(jump).flow != isa::Flow::kJump) return;
    const auto edges = inspection_.edges_from.find(jump);
    if (edges != inspection_.edges_from.end()) {
      for (const size_t index : edges->second) node.out += claims_.edges[index].count;
    }
    take_left(node, jump, isa::Flow::kJump);
  }

  // Calls made in the block's middle: at most one for each time it was entered.
  void add_calls(const Place& begin, const Place& at) {
    const auto edges = inspection_.edges_from.find(at);
    if (edges == inspection_.edges_from.end()) return;
    Wide calls = 0;
    for (const size_t index : edges->second) calls += claims_.edges[index].count;
    Node& node = nodes_[begin];
    node.calls = std::max(node.calls, calls);
  }

  static bool may_not_come_back(isa::Flow flow) {
    return flow == isa::Flow::kCall || flow == isa::Flow::kIndirectCall ||
           flow == isa::Flow::kSystemCall;
  }

  bool ends_block(const Place& begin, const Place& at, const Place& next,
                  const isa::Insn& insn) const {
    if (is_leader(next)) return true;
    if (insn.flow == isa::Flow::kNone) return false;
    if (!may_not_come_back(insn.flow)) return true;
    // A call ends a block in forms that name blocks; in the others only if an edge goes on from it.
    if (inspection_.edges_from.contains(begin) && by_block_from(begin)) return true;
    const auto edges = inspection_.edges_from.find(at);
    return edges != inspection_.edges_from.end() &&
           std::any_of(edges->second.begin(), edges->second.end(),
                       [&](size_t index) { return claims_.edges[index].to == next; });
  }

  bool by_block_from(const Place& begin) const {
    const auto& edges = inspection_.edges_from.at(begin);
    return by_block(claims_.edges[edges.front()]);
  }

  std::vector<size_t> out_edges(const Place& begin, const Ending& ending) const {
    std::vector<size_t> result;
    const auto take = [&](const Place& place, bool blocks) {
      const auto edges = inspection_.edges_from.find(place);
      if (edges == inspection_.edges_from.end()) return;
      for (const size_t index : edges->second) {
        if (by_block(claims_.edges[index]) == blocks) result.push_back(index);
      }
    };
    take(begin, true);
    take({begin.module, ending.last}, false);
    return result;
  }

  // An edge that leads from a call to anywhere but behind it is the call itself.
  void add_out(Node& node, const Ending& ending, const EdgeClaim& edge) {
    const bool from_call = may_not_come_back(ending.insn.flow);
    if (is_call(edge.role) || (from_call && edge.to.address != ending.end)) {
      node.calls += edge.count;
      node.has_calls = true;
      return;
    }
    node.out += edge.count;
    if (from_call) call_returns_recorded_ = true;
  }

  // Behind a call whose return is not an edge, flow comes in unrecorded.
  void take_call_returns(const Place& place) {
    const Ending& ending = inspection_.endings[place];
    if (ending.insn.size == 0 || !may_not_come_back(ending.insn.flow)) return;
    const auto next = nodes_.find({place.module, ending.end});
    if (!call_returns_recorded_ && next != nodes_.end()) next->second.unsure = true;
  }

  // Libraries and the kernel enter here; a form without such records cannot say how often.
  bool entered_from_elsewhere(const Place& place) const {
    if (claims_.form == Form::kFdata) return false;
    const elf::Image* image = inspection_.code.image(place.module);
    if (image == nullptr) return true;
    const elf::Symbol* symbol = image->symbol_at(place.address);
    const auto range = image->unwind_range_at(place.address);
    return image->entry() == place.address ||
           (symbol != nullptr && symbol->range.begin == place.address) ||
           (range && range->begin == place.address);
  }

  void check(const Place& place) {
    Node& node = nodes_[place];
    const Ending& ending = inspection_.endings[place];
    const bool leaves_unseen =
        node.returns || ending.insn.size == 0 || ending.insn.flow == isa::Flow::kTrap ||
        ending.insn.flow == isa::Flow::kUnsupported ||
        (may_not_come_back(ending.insn.flow) && !call_returns_recorded_) || jumps_away(ending);
    if (node.unsure || ending.insn.size == 0 || !instrumented(place)) {
      ++inspection_.report.open;
      return;
    }
    const bool may_lose = leaves_unseen || ending.calls || may_not_come_back(ending.insn.flow);
    const bool may_gain =
        entered_from_elsewhere(place) || (ending.calls && has_landings(place.module));
    if (may_lose && may_gain) {
      ++inspection_.report.open;
      return;
    }
    ++inspection_.report.equations;
    node.count = node.in;
    if (node.in > node.out && !may_lose) {
      inspection_.compare(Rule::kOut, place, node.in, node.out);
    }
    // Calls in its middle say that it ran more often than edges do.
    if (node.calls > node.in && node.in == node.out && !may_gain) {
      inspection_.compare(Rule::kIn, place, node.calls, node.in);
      inspection_.compare(Rule::kOut, place, node.calls, node.out);
    }
    if (node.out > node.in && !may_gain) {
      inspection_.compare(Rule::kIn, place, node.out, node.in);
    }
  }

  // Behind a call an exception may land, which no form of edges records.
  bool has_landings(uint32_t module) const {
    const elf::Image* image = inspection_.code.image(module);
    if (image == nullptr) return true;
    const auto& sections = image->sections();
    return std::any_of(sections.begin(), sections.end(), [](const elf::Section& section) {
      return section.name == ".gcc_except_table";
    });
  }

  // Some record comes from within the function around `place`.
  bool instrumented(const Place& place) {
    if (claims_.form != Form::kFdata) return true;
    const elf::Image* image = inspection_.code.image(place.module);
    const elf::Symbol* symbol = image == nullptr ? nullptr : image->symbol_at(place.address);
    if (symbol == nullptr || symbol->range.empty()) return false;
    if (sources_.empty()) {
      for (const EdgeClaim& edge : claims_.edges) sources_.insert(edge.from);
    }
    const auto first = sources_.lower_bound({place.module, symbol->range.begin});
    return first != sources_.end() && *first < Place{place.module, symbol->range.end};
  }

  // A jump to where no edge of this form can lead: a procedure linkage stub, another module.
  static bool jumps_away(const Ending& ending) {
    return ending.insn.flow == isa::Flow::kIndirectJump;
  }

  Inspection& inspection_;
  const Claims& claims_;
  PlaceMap<Node>& nodes_;
  std::set<Place> sources_;
  PlaceMap<Wide> left_at_;
  bool call_returns_recorded_ = false;
};

}  // namespace

void check_edge_flow(Inspection& inspection) {
  const Claims& claims = inspection.claims;
  if (claims.blocks.empty() && claims.instructions.empty() && !claims.edges.empty()) {
    Checker(inspection).run();
  }
}

}  // namespace tally::claims
