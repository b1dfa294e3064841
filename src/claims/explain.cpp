// From equations that fail to findings: one wrong count breaks several equations.
//
// The order of the explanations is that of check.h, from the most telling to the least; an
// imbalance that one of them accounts for is not told again.  Differences are exact, so a match by
// amount is strong evidence: two unrelated faults of the same size between neighbours are rare.
#include <algorithm>

#include "claims/equations.h"

namespace tally::claims {
namespace {

constexpr Wide kWrap = Wide{1} << 32;

// What is missing at one address: positive where the flow falls short of the count.
struct Gap {
  Place place = {};
  Wide in = 0;
  Wide out = 0;
  Wide calls = 0;
  Wide entries = 0;
  uint64_t count = 0;  // of the block
  uint64_t entries_claimed = 0;
  bool empty() const { return in == 0 && out == 0 && calls == 0 && entries == 0; }
};

class Explainer {
 public:
  explicit Explainer(Inspection& inspection)
      : inspection_(inspection), claims_(inspection.claims), nodes_(inspection.nodes) {}

  void run() {
    for (const Imbalance& imbalance : inspection_.imbalances) enter(imbalance);
    for (auto& [place, gap] : gaps_) explain_edge(gap, true);
    for (auto& [place, gap] : gaps_) explain_wrapped_call(gap);
    for (auto& [place, gap] : gaps_) explain_wrap(gap);
    for (auto& [place, gap] : gaps_) explain_missing_block(gap);
    for (auto& [place, gap] : gaps_) explain_edge(gap, false);
    for (auto& [place, gap] : gaps_) explain_missing_edge(gap);
    for (auto& [place, gap] : gaps_) explain_missing_call(gap);
    for (auto& [place, gap] : gaps_) explain_entries(gap);
    for (auto& [place, gap] : gaps_) explain_rest(gap);
  }

 private:
  void enter(const Imbalance& imbalance) {
    // What is no code needs no second finding.
    const Bytes bytes = inspection_.code.kind_of(imbalance.place);
    if (bytes != Bytes::kCode && bytes != Bytes::kUnknown) return;
    Gap& gap = gaps_[imbalance.place];
    gap.place = imbalance.place;
    switch (imbalance.rule) {
      case Rule::kIn:
        gap.in = imbalance.missing();
        gap.count = imbalance.count;
        break;
      case Rule::kOut:
        gap.out = imbalance.missing();
        gap.count = imbalance.count;
        break;
      case Rule::kCalls:
        gap.calls = imbalance.missing();
        if (gap.count == 0) gap.count = imbalance.count;
        break;
      case Rule::kEntries:
        gap.entries = imbalance.missing();
        gap.entries_claimed = imbalance.count;
        break;
    }
  }

  Gap* gap_at(const Place& place) {
    const auto found = gaps_.find(place);
    return found == gaps_.end() ? nullptr : &found->second;
  }

  // An edge whose source and target both miss (or exceed by) the same amount has a wrong count.
  void explain_edge(Gap& gap, bool wraps_only) {
    for (const bool call : {false, true}) {
      const Wide missing = call ? gap.calls : gap.out;
      if (missing == 0 || (wraps_only && missing % kWrap != 0)) continue;
      for (const size_t index : edges_out_of(gap.place)) {
        const EdgeClaim& edge = claims_.edges[index];
        if (is_call(edge.role) != call) continue;
        Gap* target = gap_at(edge.to);
        if (target == nullptr || target->in != missing) continue;
        const Wide implied = static_cast<Wide>(edge.count) + missing;
        if (implied < 0) continue;
        say(missing % kWrap == 0 ? FaultKind::kOverflow32 : FaultKind::kFlow, gap.place, edge.count,
            implied, inspection_.record_of(RecordKind::kEdge, edge.record),
            fmt::format("the edge to {} claims {}, the counts around it imply {}{}",
                        inspection_.code.name_of(edge.to), edge.count, to_text(implied),
                        missing % kWrap == 0 ? ": a counter of 32 bits wrapped" : ""));
        (call ? gap.calls : gap.out) = 0;
        if (target->entries == missing) target->entries = 0;
        target->in = 0;
        break;
      }
    }
  }

  // Indexes of edges that leave the block, whatever the form calls their origin.
  std::vector<size_t> edges_out_of(const Place& place) {
    std::vector<size_t> result;
    const auto take = [&](const Place& from) {
      const auto edges = inspection_.edges_from.find(from);
      if (edges == inspection_.edges_from.end()) return;
      result.insert(result.end(), edges->second.begin(), edges->second.end());
    };
    take(place);
    const Ending& ending = inspection_.ending_of(place);
    if (ending.insn.size != 0 && ending.last != place.address) take({place.module, ending.last});
    return result;
  }

  void explain_wrap(Gap& gap) {
    const auto wrapped = [](Wide missing) { return missing != 0 && missing % kWrap == 0; };
    if (gap.entries != 0 && wrapped(gap.entries) && !wrapped(gap.in)) {
      say_gap(FaultKind::kOverflow32, gap, gap.entries_claimed,
              static_cast<Wide>(gap.entries_claimed) - gap.entries, "a counter of 32 bits wrapped");
      return;
    }
    if (!wrapped(gap.in) && !wrapped(gap.out) && !wrapped(gap.calls)) return;
    const Wide missing = wrapped(gap.in) ? gap.in : wrapped(gap.out) ? gap.out : gap.calls;
    say_gap(FaultKind::kOverflow32, gap, gap.count, static_cast<Wide>(gap.count) - missing,
            "a counter of 32 bits wrapped");
  }

  struct Successors {
    std::vector<Place> places;
    bool any = false;  // an indirect branch: anywhere
  };

  // Where the code leads from the end of the block; `call` asks for callees.
  Successors successors(const Place& place, bool call) {
    Successors result;
    const Ending& ending = inspection_.ending_of(place);
    if (ending.insn.size == 0) return {{}, true};
    const Place next{place.module, ending.end};
    const Place target{place.module, LinkAddr(ending.insn.target)};
    const isa::Flow flow = ending.insn.flow;
    if (call) {
      if (flow == isa::Flow::kCall) result.places = {target};
      result.any = flow == isa::Flow::kIndirectCall;
      return result;
    }
    if (flow == isa::Flow::kJump) result.places = {target};
    if (flow == isa::Flow::kConditional || flow == isa::Flow::kCountedJump) {
      result.places = {target, next};
    }
    if (flow == isa::Flow::kNone || flow == isa::Flow::kCall || flow == isa::Flow::kIndirectCall ||
        flow == isa::Flow::kSystemCall || flow == isa::Flow::kTrap) {
      result.places = {next};
    }
    result.any = flow == isa::Flow::kIndirectJump;
    return result;
  }

  bool known(const Place& place) const {
    const auto found = nodes_.find(place);
    return found != nodes_.end() && (found->second.claimed || claims_.blocks.empty());
  }

  // Flow that goes where no block is.
  void explain_missing_block(Gap& gap) {
    if (claims_.blocks.empty()) return;
    if (gap.entries > 0 && !known(gap.place)) {
      missing_block(gap.place, gap.entries);
      gap.entries = 0;
    }
    for (const bool call : {false, true}) {
      Wide& missing = call ? gap.calls : gap.out;
      if (missing <= 0) continue;
      for (const Place& next : successors(gap.place, call).places) {
        if (known(next) || inspection_.code.kind_of(next) != Bytes::kCode) continue;
        if (missing == 1 && ends_open(gap.place) && !lacks_behind(next)) continue;
        missing_block(next, missing);
        missing = 0;
        break;
      }
    }
  }

  // A call or system call may have been the last thing that happened.
  bool ends_open(const Place& place) {
    const isa::Flow flow = inspection_.ending_of(place).insn.flow;
    return flow == isa::Flow::kCall || flow == isa::Flow::kIndirectCall ||
           flow == isa::Flow::kSystemCall;
  }

  // The code of the missing block, up to where it branches.
  std::vector<Place> behind(const Place& begin) {
    Place at = begin;
    for (int i = 0; i < kInstructionsMax; ++i) {
      const isa::Insn insn = inspection_.code.insn_at(at);
      if (insn.size == 0) return {};
      const Place next{at.module, at.address + insn.size};
      if (insn.flow == isa::Flow::kNone && !known(next)) {
        at = next;
        continue;
      }
      const Place target{at.module, LinkAddr(insn.target)};
      switch (insn.flow) {
        case isa::Flow::kJump:
          return {target};
        case isa::Flow::kConditional:
        case isa::Flow::kCountedJump:
        case isa::Flow::kCall:
          return {target, next};
        default:
          return {next};
      }
    }
    return {};
  }

  bool lacks_behind(const Place& missing) {
    for (const Place& place : behind(missing)) {
      const Gap* gap = gap_at(place);
      if (gap != nullptr && gap->in > 0) return true;
    }
    return false;
  }

  void missing_block(const Place& place, Wide missing) {
    // What the block led to lacks it; how much of it came from there is not known.
    for (const Place& next : behind(place)) {
      Gap* gap = gap_at(next);
      if (gap == nullptr || gap->in <= 0) continue;
      if (gap->entries == gap->in) gap->entries = 0;
      gap->in = 0;
    }
    Gap* entry = gap_at(place);
    if (entry != nullptr) entry->entries = 0;
    const auto [slot, is_new] = said_.insert(place);
    if (!is_new) return;
    say(FaultKind::kMissingBlock, place, 0, missing, {},
        fmt::format("no block begins here, but {} executions lead here", to_text(missing)));
  }

  // Flow that leaves one block and enters another, over an edge that the profile does not have.
  void explain_missing_edge(Gap& gap) {
    for (const bool call : {false, true}) {
      Wide& missing = call ? gap.calls : gap.out;
      if (missing <= 0) continue;
      const Successors next = successors(gap.place, call);
      Gap* target = nullptr;
      for (const Place& place : next.places) {
        Gap* candidate = gap_at(place);
        if (candidate != nullptr && candidate->in == missing) target = candidate;
      }
      if (target == nullptr && next.any) target = gap_lacking(missing, gap.place.module, call);
      if (target == nullptr) target = only_unlisted(gap.place, next, missing);
      if (target == nullptr && !call) target = only_left(next);
      if (target == nullptr) continue;
      missing_edge(gap.place, target->place, missing);
      missing = 0;
      if (target->entries > 0) target->entries = 0;
      target->in = 0;
    }
  }

  // How many more calls a block may have made: some of its executions may have been left before the
  // call, so that nothing need be missing on the caller's side.
  Wide room_for_calls(const Place& place) const {
    const auto node = nodes_.find(place);
    return node == nodes_.end() ? 0 : node->second.count - node->second.calls;
  }

  // A procedure lacks entries by a multiple of 2^32, and one caller has room for them.
  void explain_wrapped_call(Gap& gap) {
    if (gap.in <= 0 || gap.in % kWrap != 0) return;
    const auto edges = inspection_.edges_to.find(gap.place);
    if (edges == inspection_.edges_to.end()) return;
    const EdgeClaim* found = nullptr;
    for (const size_t index : edges->second) {
      const EdgeClaim& edge = claims_.edges[index];
      if (!is_call(edge.role) || room_for_calls(edge.from) < gap.in) continue;
      if (found != nullptr) return;
      found = &edge;
    }
    if (found == nullptr) return;
    const Wide implied = static_cast<Wide>(found->count) + gap.in;
    say(FaultKind::kOverflow32, found->from, found->count, implied,
        inspection_.record_of(RecordKind::kEdge, found->record),
        fmt::format("the calls of {} claim {}, its entries imply {}: a counter of 32 bits wrapped",
                    inspection_.code.name_of(gap.place), found->count, to_text(implied)));
    Gap* caller = gap_at(found->from);
    if (caller != nullptr && caller->calls > 0) caller->calls = 0;
    if (gap.entries == gap.in) gap.entries = 0;
    gap.in = 0;
  }

  // A procedure lacks entries, and one block that ends in a call of it has no edge to it.
  void explain_missing_call(Gap& gap) {
    if (gap.in <= 0 || gap.entries != gap.in) return;
    std::optional<Place> found;
    for (const Place& caller : callers_of(gap.place)) {
      if (room_for_calls(caller) < gap.in) continue;
      if (found) return;
      found = caller;
    }
    if (!found) return;
    missing_edge(*found, gap.place, gap.in);
    Gap* caller = gap_at(*found);
    if (caller != nullptr && caller->calls > 0) caller->calls = 0;
    gap.in = gap.entries = 0;
  }

  // Blocks that ran and end in a direct call of `place`, without an edge that says so.
  std::vector<Place> callers_of(const Place& place) {
    if (!callers_known_) {
      callers_known_ = true;
      for (const auto& [begin, node] : nodes_) {
        if (!node.claimed || node.count == 0 || node.calls == node.count) continue;
        const isa::Insn& insn = inspection_.ending_of(begin).insn;
        if (insn.flow != isa::Flow::kCall) continue;
        callers_[{begin.module, LinkAddr(insn.target)}].push_back(begin);
      }
    }
    std::vector<Place> result;
    const auto callers = callers_.find(place);
    if (callers == callers_.end()) return result;
    for (const Place& caller : callers->second) {
      const auto edges = inspection_.edges_from.find(caller);
      const bool listed = edges != inspection_.edges_from.end() &&
                          std::any_of(edges->second.begin(), edges->second.end(),
                                      [&](size_t i) { return is_call(claims_.edges[i].role); });
      if (!listed) result.push_back(caller);
    }
    return result;
  }

  // Behind an indirect branch: the one block that lacks exactly this much.
  Gap* gap_lacking(Wide missing, uint32_t module, bool call) {
    Gap* found = nullptr;
    for (auto& [place, gap] : gaps_) {
      if (gap.in != missing || (!call && place.module != module)) continue;
      if (found != nullptr) return nullptr;
      found = &gap;
    }
    return found;
  }

  // The code goes on to a block whose own equation is open, and no edge leads there.
  Gap* only_unlisted(const Place& from, const Successors& next, Wide missing) {
    if (next.any || (missing == 1 && ends_open(from))) return nullptr;
    for (const Place& place : next.places) {
      const auto node = nodes_.find(place);
      if (node == nodes_.end() || !node->second.unsure) continue;
      const auto edges = edges_out_of(from);
      const bool listed = std::any_of(edges.begin(), edges.end(), [&](size_t index) {
        return claims_.edges[index].to == place;
      });
      if (listed) continue;
      Gap& gap = gaps_[place];
      gap.place = place;
      return &gap;
    }
    return nullptr;
  }

  // Where only edges tell of blocks, one without an edge to it is none; that edges leave the code
  // there shows that it ran.
  Gap* only_left(const Successors& next) {
    if (!claims_.blocks.empty()) return nullptr;
    std::optional<Place> found;
    for (const Place& place : next.places) {
      if (nodes_.contains(place) || !left_by_an_edge(place)) continue;
      if (found) return nullptr;
      found = place;
    }
    if (!found) return nullptr;
    Gap& gap = gaps_[*found];
    gap.place = *found;
    return &gap;
  }

  bool left_by_an_edge(const Place& begin) {
    Place at = begin;
    for (int i = 0; i < kInstructionsMax; ++i) {
      const isa::Insn insn = inspection_.code.insn_at(at);
      if (insn.size == 0) return false;
      if (inspection_.edges_from.contains(at)) return true;
      const Place next{at.module, at.address + insn.size};
      if (insn.flow != isa::Flow::kNone || nodes_.contains(next)) return false;
      at = next;
    }
    return false;
  }

  void missing_edge(const Place& from, const Place& to, Wide missing) {
    say(FaultKind::kMissingEdge, from, 0, missing, {},
        fmt::format("the edge to {} is missing: {} executions leave here and arrive there by no "
                    "other way",
                    inspection_.code.name_of(to), to_text(missing)));
  }

  void explain_entries(Gap& gap) {
    if (gap.entries == 0) return;
    const Wide implied = static_cast<Wide>(gap.entries_claimed) - gap.entries;
    const bool alone = gap.entries == gap.in;
    say(FaultKind::kEntries, gap.place, gap.entries_claimed, implied, procedure_record(gap.place),
        fmt::format(
            "entered {} times, but calls and jumps to it are {}{}", gap.entries_claimed,
            to_text(implied),
            gap.entries > 0 ? ": counts of something else than the program, or calls missed" : ""));
    gap.entries = 0;
    if (alone) gap.in = 0;
  }

  std::string procedure_record(const Place& entry) const {
    for (const ProcedureClaim& claim : claims_.procedures) {
      if (claim.entry == entry) {
        return inspection_.record_of(RecordKind::kProcedure, claim.record);
      }
    }
    return {};
  }

  void explain_rest(Gap& gap) {
    if (gap.empty()) return;
    const auto single = [](Wide missing) { return missing >= -1 && missing <= 1; };
    const auto node = nodes_.find(gap.place);
    const bool has_terms =
        node != nodes_.end() && (node->second.left > 0 || node->second.entered > 0);
    const bool one = single(gap.in) && single(gap.out) && single(gap.calls);
    if (one && (ends_open(gap.place) || has_terms)) {
      say_gap(FaultKind::kOffByOne, gap, gap.count, implied_count(gap),
              "a single execution where a run may begin or end");
      return;
    }
    const bool lands = node != nodes_.end() && node->second.landing_pad && gap.in > 0;
    say_gap(FaultKind::kFlow, gap, gap.count, implied_count(gap),
            lands ? "exceptions land here only from calls that it covers and that did not come back"
                  : "");
  }

  static Wide implied_count(const Gap& gap) {
    const Wide missing = gap.in != 0 ? gap.in : gap.out != 0 ? gap.out : gap.calls;
    return static_cast<Wide>(gap.count) - missing;
  }

  void say_gap(FaultKind kind, Gap& gap, uint64_t claimed, Wide implied, const std::string& why) {
    std::string message;
    const auto part = [&](Wide missing, const char* what) {
      if (missing == 0) return;
      message +=
          fmt::format("{}{} {} than claimed by {}", message.empty() ? "" : ", ", what,
                      missing > 0 ? "less" : "more", to_text(missing > 0 ? missing : -missing));
    };
    part(gap.in, "flows in");
    part(gap.out, "flows out");
    part(gap.calls, "calls");
    part(gap.entries, "enters");
    if (!why.empty()) message += ": " + why;
    const auto node = nodes_.find(gap.place);
    const std::string record =
        node == nodes_.end() ? std::string()
                             : inspection_.record_of(node->second.record_kind, node->second.record);
    say(kind, gap.place, claimed, implied, record, message);
    gap.in = gap.out = gap.calls = gap.entries = 0;
  }

  void say(FaultKind kind, const Place& place, uint64_t claimed, Wide implied,
           const std::string& record, const std::string& message) {
    inspection_.find({.kind = kind,
                      .place = place,
                      .claimed = claimed,
                      .implied = implied,
                      .record = record,
                      .message = message});
  }

  static constexpr int kInstructionsMax = 100'000;  // of one block

  Inspection& inspection_;
  const Claims& claims_;
  PlaceMap<Node>& nodes_;
  std::map<Place, Gap> gaps_;
  std::set<Place> said_;
  PlaceMap<std::vector<Place>> callers_;
  bool callers_known_ = false;
};

}  // namespace

void explain(Inspection& inspection) {
  Explainer(inspection).run();
}

}  // namespace tally::claims
