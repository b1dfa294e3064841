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
// Calls that do not come back (exceptions, longjmp, exit) leave a block in its middle, which the
// form does not record; so of the calls in a block, each was made at most as often as the one in
// front of it.  What an exception took away arrives at a landing pad, which begins a block of its
// own: see landing_pads.h for what can be said of those.
//
// Open, and counted as such: blocks that return, are entered or left by ways that the form does not
// record (behind a call that returns twice, as setjmp and fork do), lie in a function from within
// which the profile has no record (BOLT does not instrument all), or may be left in their middle by
// a call that does not come back (then only more flow out than in is a fault).
#include <algorithm>
#include <array>

#include "claims/equations.h"
#include "claims/landing_pads.h"

namespace tally::claims {
namespace {

constexpr int kInstructionsMax = 100'000;  // of one block, whatever the bytes pretend

// Behind a call of these the program goes on more often than it called.  Instrumented programs
// share their counters with their children.
bool returns_twice(std::string_view name) {
  constexpr std::array kNames = {"setjmp", "_setjmp", "sigsetjmp",  "__sigsetjmp", "fork",
                                 "__fork", "_Fork",   "vfork",      "__vfork",     "forkpty",
                                 "clone",  "__clone", "getcontext", "savectx"};
  name = name.substr(0, name.find('@'));
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

class Checker {
 public:
  explicit Checker(Inspection& inspection)
      : inspection_(inspection),
        claims_(inspection.claims),
        nodes_(inspection.nodes),
        pads_(inspection) {}

  void run() {
    add_edges();
    for (const Place& pad : pads_.places()) nodes_[pad].landing_pad = true;
    std::vector<Place> leaders;
    for (const auto& [place, node] : nodes_) leaders.push_back(place);
    std::sort(leaders.begin(), leaders.end());
    for (const Place& place : leaders) find_end(place);
    for (const Place& place : leaders) take_call_returns(place);
    for (const Place& place : leaders) check(place);
    if (claims_.form == Form::kFdata) pads_.check();
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
      if (!term.target.empty()) {
        left_at_[term.block] += term.left;
        if (returns_twice(term.target)) twice_.insert(term.block);
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
        add_call(begin, at, insn, calls_made_at(at));
      }
      at = next;
    }
    Node& node = nodes_[begin];
    node.size_bytes = ending.end.value() - begin.address.value();
    node.returns = ending.insn.flow == isa::Flow::kReturn;
    Wide calls = 0;
    for (const size_t index : out_edges(begin, ending)) {
      const EdgeClaim& edge = claims_.edges[index];
      // An edge that leads from a call to anywhere but behind it is the call itself.
      const bool from_call = may_not_come_back(ending.insn.flow);
      if (is_call(edge.role) || (from_call && edge.to.address != ending.end)) {
        calls += edge.count;
        node.has_calls = true;
        continue;
      }
      node.out += edge.count;
      if (from_call) call_returns_recorded_ = true;
    }
    const Place last{begin.module, ending.last};
    const Wide left = left_at(last);
    if (may_not_come_back(ending.insn.flow)) {
      add_call(begin, last, ending.insn, calls + left);
    } else {
      node.calls = std::max(node.calls, calls);
      node.out += left;
    }
    take_other_way(node, {begin.module, ending.end}, ending.insn.flow);
  }

  // What leaves for a place that the form does not name: a procedure linkage stub.
  Wide left_at(const Place& last) const {
    const auto left = left_at_.find(last);
    return left == left_at_.end() ? 0 : left->second;
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
    node.out += left_at(jump);
  }

  Wide calls_made_at(const Place& at) const {
    Wide calls = left_at(at);
    const auto edges = inspection_.edges_from.find(at);
    if (edges == inspection_.edges_from.end()) return calls;
    for (const size_t index : edges->second) calls += claims_.edges[index].count;
    return calls;
  }

  // A call that the block makes: at most once for each time it was entered.
  void add_call(const Place& begin, const Place& at, const isa::Insn& insn, Wide count) {
    Node& node = nodes_[begin];
    node.calls = std::max(node.calls, count);
    const bool twice = goes_on_twice(at, insn);
    const bool direct =
        insn.flow == isa::Flow::kCall && insn.target != at.address.value() + insn.size;
    calls_in_[begin].push_back({.at = at.address,
                                .last_byte = at.address + (insn.size - 1u),
                                .count = count,
                                .target = direct ? LinkAddr(insn.target) : LinkAddr(),
                                .twice = twice});
    calls_recorded_ = calls_recorded_ || (direct && count != 0);
    if (twice) twice_in_.insert(begin);
  }

  // A system call may be what makes a child.
  bool goes_on_twice(const Place& at, const isa::Insn& insn) const {
    if (claims_.form != Form::kFdata) return false;
    if (insn.flow == isa::Flow::kSystemCall || twice_.contains(at)) return true;
    const elf::Image* image = inspection_.code.image(at.module);
    const elf::Symbol* symbol = image == nullptr || insn.flow != isa::Flow::kCall
                                    ? nullptr
                                    : image->symbol_at(LinkAddr(insn.target));
    return symbol != nullptr && returns_twice(symbol->name);
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
    // A landing pad that nothing is known of was not arrived at.
    if (node.landing_pad && node.in == 0 && node.out == 0 && node.calls == 0) return;
    const bool leaves_unseen =
        node.returns || ending.insn.size == 0 || ending.insn.flow == isa::Flow::kTrap ||
        ending.insn.flow == isa::Flow::kUnsupported ||
        (may_not_come_back(ending.insn.flow) && !call_returns_recorded_) || jumps_away(ending);
    if (node.unsure || ending.insn.size == 0 || !instrumented(place)) {
      ++inspection_.report.open;
      return;
    }
    if (node.landing_pad) pads_.judge(place);
    const bool may_lose = leaves_unseen || ending.calls || may_not_come_back(ending.insn.flow) ||
                          pads_.others_throw(place.module);
    const bool arrives_unseen = node.landing_pad || entered_from_elsewhere(place) ||
                                (ending.calls && !pads_.known(place.module));
    const bool twice = twice_in_.contains(place);
    const bool may_gain = arrives_unseen || twice;
    const std::vector<CallMade>& calls = calls_in_[place];
    pads_.add_block(place, calls, may_gain ? std::nullopt : std::optional(node.in),
                    leaves_unseen ? std::nullopt : std::optional(node.out));
    if (twice && !arrives_unseen) check_calls_before_gain(place, calls, node.in);
    if (may_lose && may_gain) {
      if (!node.landing_pad) ++inspection_.report.open;
      if (!twice) check_order_of_calls(place, calls, leaves_unseen ? 0 : node.out);
      return;
    }
    ++inspection_.report.equations;
    node.count = node.in;
    if (node.in > node.out && !may_lose) {
      inspection_.compare(Rule::kOut, place, node.in, node.out);
    }
    // Calls in its middle say that it ran more often than edges do.
    const Wide least = std::max(node.calls, node.out);
    if (least > node.in && !may_gain) {
      if (node.in == node.out) inspection_.compare(Rule::kOut, place, least, node.out);
      inspection_.compare(Rule::kIn, place, least, node.in);
    } else {
      check_order_of_calls(place, calls, leaves_unseen ? 0 : node.out);
    }
  }

  // Up to the call that returns twice, nothing was executed more often than the block was entered.
  void check_calls_before_gain(const Place& place, const std::vector<CallMade>& calls, Wide in) {
    Wide most = 0;
    for (const CallMade& call : calls) {
      most = std::max(most, call.count);
      if (call.twice) break;
    }
    ++inspection_.report.equations;
    if (most > in) inspection_.compare(Rule::kCalls, place, in, most);
  }

  // What the form has records of calls to.
  bool is_function(const Place& from, const CallMade& call) const {
    const elf::Image* image = inspection_.code.image(from.module);
    const elf::Symbol* symbol =
        image == nullptr || call.target == LinkAddr() ? nullptr : image->symbol_at(call.target);
    return symbol != nullptr && symbol->range.begin == call.target;
  }

  // What comes later in a block was not executed more often than what is in front of it.
  void check_order_of_calls(const Place& place, const std::vector<CallMade>& calls, Wide out) {
    if (claims_.form != Form::kFdata) return;
    Wide most = out;
    Wide too_few = -1;
    for (size_t i = calls.size(); i-- > 0;) {
      const bool known = calls[i].count != 0 || (calls_recorded_ && is_function(place, calls[i]));
      if (known && calls[i].count < most) too_few = calls[i].count;
      most = std::max(most, calls[i].count);
    }
    if (too_few >= 0) inspection_.compare(Rule::kCalls, place, most, too_few);
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
  LandingPads pads_;
  PlaceMap<Wide> left_at_;
  std::set<Place> twice_;     // calls of what returns twice
  std::set<Place> twice_in_;  // blocks with one of those
  PlaceMap<std::vector<CallMade>> calls_in_;
  bool call_returns_recorded_ = false;
  bool calls_recorded_ = false;  // direct ones
};

}  // namespace

void check_edge_flow(Inspection& inspection) {
  const Claims& claims = inspection.claims;
  if (claims.blocks.empty() && claims.instructions.empty() && !claims.edges.empty()) {
    Checker(inspection).run();
  }
}

}  // namespace tally::claims
