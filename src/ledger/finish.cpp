// Solving every unit and writing down what came out.  See finish.h.
//
// For each unit the static graph is built again, and what was seen at run time is added as measured
// edges: pairs of its indirect jumps, arrivals from elsewhere.  The ledger's terms make it balance.
//
// Where control arrived in the middle of a block, the profile has two blocks ("pieces"): those runs
// that began in the middle count for the later pieces only.
//
// A procedure that was translated again while the program ran has several units: each is solved for
// itself, and the profile has their sums.
#include "ledger/finish.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "ledger/left_to_callers.h"
#include "ledger/not_exact.h"
#include "ledger/rests.h"
#include "ledger/unit_flow.h"
#include "ledger/wanted_blocks.h"

namespace tally::engine {

using profile::AbnormalKind;
using profile::CountSource;
using translate::kNoCounter;

namespace {

CountSource source_of(placement::Origin origin) {
  switch (origin) {
    case placement::Origin::kMeasured:
      return CountSource::kMeasured;
    case placement::Origin::kDerived:
      return CountSource::kDerived;
    case placement::Origin::kUnknown:
      break;
  }
  return CountSource::kUnknown;
}

class Builder {
 public:
  Builder(const FinishRequest& request, profile::Profile& out)
      : cache_(request.translated),
        ledger_(request.ledger),
        counters_(request.counters),
        request_(request),
        flows_(request.translated, request.ledger, request.counters),
        left_to_callers_(request.translated),
        rests_(request.translated, request.ledger, flows_, request.counters),
        entries_(request.translated.units().size(), 0),
        out_(out) {}

  void build() {
    out_.modules = request_.modules;
    number_blocks();
    index_runtime_facts();
    for (const auto& unit : cache_.units()) {
      if (!unit->renews && !unit->left_to_callers()) build_procedure(members_of(*unit));
    }
    for (const uint32_t id : left_to_callers_.units()) build_procedure({&cache_.unit(id)});
    pair_returns();
    add_moves();
    add_returns_from_elsewhere();
    name_impossible(out_);
    std::erase_if(out_.abnormal,
                  [](const profile::Abnormal& term) { return term.entered + term.left == 0; });
    for (const profile::Issue& issue : ledger_.issues()) out_.issues.push_back(issue);
  }

 private:
  // The units that a procedure has had, the oldest first.
  using Members = std::vector<const Unit*>;
  struct Piece {
    uint32_t first_insn = 0;
    uint32_t id = 0;
  };

  uint64_t counter(uint32_t index) const {
    CHECK(index < counters_.size()) << "counter " << index;
    return counters_[index];
  }
  uint32_t number(BlockRef ref) const { return first_block_[ref.unit] + ref.block; }
  uint32_t number(const Unit& unit, uint32_t block) const { return first_block_[unit.id] + block; }
  // The profile's block in which control that comes to `ref` begins.
  uint32_t block_id(BlockRef ref) const {
    const uint32_t n = number(ref);
    if (ref.insn == 0) return n;
    for (const Piece& piece : pieces_.at(n)) {
      if (piece.first_insn == ref.insn) return piece.id;
    }
    CHECK(false) << "no piece begins at instruction " << ref.insn;
    return n;
  }
  // The piece that holds the block's last instruction: its ways out start there.
  uint32_t last_id(const Unit& unit, uint32_t b) const {
    const uint32_t n = number(unit, b);
    return is_cut_[n] ? pieces_.at(n).back().id : n;
  }

  // Flow by a direct branch, but for what pairs have counted.
  void enter(const Unit& from, LinkAddr target, uint64_t times) {
    if (const Unit* to = left_to_callers_.entered_by(from, target)) entries_[to->id] += times;
  }

  Members members_of(const Unit& first) const {
    Members members{&first};
    while (members.back()->renewed_by) members.push_back(&cache_.unit(*members.back()->renewed_by));
    return members;
  }

  // Units of one procedure share its numbers.
  void number_blocks() {
    uint32_t total = 0, procedures = 0;
    first_block_.resize(cache_.units().size());
    procedure_.resize(cache_.units().size());
    for (const auto& unit : cache_.units()) {
      first_block_[unit->id] = unit->renews ? first_block_[*unit->renews] : total;
      procedure_[unit->id] = unit->renews ? procedure_[*unit->renews] : procedures;
      has_renewals_ = has_renewals_ || unit->renews;
      if (unit->renews) continue;
      total += static_cast<uint32_t>(unit->procedure.blocks.size());
      ++procedures;
    }
    // Later pieces get numbers behind all others.
    std::map<uint32_t, std::set<uint32_t>> cuts;
    auto note = [&](const BlockRef& ref) {
      if (ref.insn != 0) cuts[number(ref)].insert(ref.insn);
    };
    for (const ArrivalStub& arrival : cache_.arrivals()) note(arrival.to);
    for (const SiteState& site : cache_.sites()) {
      for (const Pair& pair : site.pairs) note(pair.to);
    }
    for (const LinkPair& pair : cache_.link_pairs()) note(pair.to);
    for (const auto& [block, insns] : cuts) {
      for (const uint32_t insn : insns) pieces_[block].push_back({insn, total++});
    }
    is_cut_.assign(total, false);
    for (const auto& [block, insns] : cuts) is_cut_[block] = true;
    out_.blocks.resize(total);
    out_.edges.reserve(edges_at_most(total));
    out_.procedures.resize(procedures);
    wanted_.expect(total);
    for (const auto& unit : cache_.units()) wanted_.want_targets_of(*unit);
    for (const auto& unit : cache_.units()) {
      for (uint32_t b = 0; b < unit->procedure.blocks.size(); ++b) {
        wanted_.show(*unit->module, unit->address_of(b), {unit->id, b, 0});
      }
    }
    const auto show = [&](const BlockRef& to) {
      if (to.insn == 0) return;
      const Module& module = *cache_.unit(to.unit).module;
      wanted_.show(module, module.to_link(cache_.address_of(to)), to);
    };
    for (const ArrivalStub& arrival : cache_.arrivals()) show(arrival.to);
    for (const LinkPair& pair : cache_.link_pairs()) show(pair.to);
    arrival_count_.assign(total, 0);
  }

  // Each edge of a graph, each pair, each call, each cut of a block in two.
  size_t edges_at_most(uint32_t blocks_total) const {
    size_t edges = blocks_total;
    for (const auto& unit : cache_.units()) {
      edges += unit->procedure.edges.size() + unit->code.links.size();
    }
    for (const SiteState& site : cache_.sites()) edges += site.pairs.size();
    return edges;
  }

  // Ways in that were seen at run time.
  void index_runtime_facts() {
    for (const ArrivalStub& arrival : cache_.arrivals()) {
      arrival_count_[block_id(arrival.to)] += counter(arrival.counter);
    }
    for (const LinkPair& pair : cache_.link_pairs()) pairs_of_link_[pair.link].push_back(&pair);
  }

  // What the pairs of a block's branch leave of its count.
  struct OfPairs {
    uint64_t rest = 0;
    bool any = false;
  };
  // Writes the edges of the pairs of those links down that are wanted, which end block `b`.  Seldom
  // any: only branches into and out of code that is replaced, and into the middle of other
  // procedures, have such pairs.
  template <class IsWanted>
  OfPairs add_link_pairs(const Members& members, const IsWanted& is_wanted, uint32_t b,
                         profile::EdgeKind kind, uint64_t count) {
    std::map<uint32_t, uint64_t> times;  // by block they lead to
    for (const Unit* unit : members) {
      auto it = pairs_of_link_.lower_bound(unit->first_link);
      for (; it != pairs_of_link_.end(); ++it) {
        const uint32_t index = it->first - unit->first_link;
        if (index >= unit->code.links.size()) break;
        if (!is_wanted(unit->code.links[index])) continue;
        for (const LinkPair* pair : it->second) times[block_id(pair->to)] += counter(pair->counter);
      }
    }
    const Unit& unit = *members.front();
    uint64_t sum = 0;
    for (const auto& [to, led] : times) {
      sum += led;
      emit_edge(last_id(unit, b), to, kind, led, CountSource::kMeasured);
    }
    if (sum > count) {
      out_.issues.push_back({fmt::format("{}+{:#x}", unit.module->path, unit.address_of(b).value()),
                             "a branch was taken more often than its block was run", sum - count});
    }
    return {count - std::min(sum, count), !times.empty()};
  }

  placement::Solution solve(const Unit& unit) {
    UnitEquations equations =
        unit.left_to_callers() ? flows_.equations_of(unit, entries_[unit.id] + flows_.entered(unit))
                               : flows_.equations_of(unit);
    settle_returns(unit, equations.measured, equations.abnormal);
    auto solution = placement::propagate(equations.graph, equations.measured, equations.abnormal);
    CHECK(solution.ok()) << "solving " << unit.module->path << "+" << unit.procedure.entry.value()
                         << ": " << solution.error().message;
    rests_.settle(unit, *solution, equations.rest, out_.issues);
    lead_on(unit);
    return std::move(*solution);
  }

  // Flow by indirect branches that is not counted.
  void lead_on(const Unit& unit) {
    for (const SiteState* site : flows_.sites_of(unit)) {
      if (!site->rest) continue;
      const Pair& pair = site->pairs[*site->rest];
      const uint64_t times = rests_.times(*site, pair);
      entries_[pair.to.unit] += times;
      if (request_.rest) request_.rest(pair, times);
    }
  }

  // Calls in code that is replaced may come back to the code that replaced it: more returns than
  // calls there, and fewer in the code that was there before.  Compilers at run time also build
  // frames for calls that were never made, when optimized code gives up.
  void settle_returns(const Unit& unit, placement::Measured& measured,
                      std::vector<placement::AbnormalFlow>& abnormal) {
    if (!unit.open_calls) return;
    for (uint32_t e = 0; e + 1 < unit.procedure.edges.size(); ++e) {
      const cfg::Edge& back = unit.procedure.edges[e];
      const cfg::Edge& away = unit.procedure.edges[e + 1];
      const bool open = back.kind == cfg::EdgeKind::kCallReturn &&
                        away.kind == cfg::EdgeKind::kNoReturn && away.from == back.from;
      if (!open || !measured.edges[e] || !measured.nodes[back.from]) continue;
      uint64_t calls = *measured.nodes[back.from];
      for (const placement::AbnormalFlow& flow : abnormal) {
        if (flow.node == back.from) calls -= std::min(calls, flow.left);
      }
      if (*measured.edges[e] <= calls) continue;
      const uint64_t excess = *measured.edges[e] - calls;
      measured.edges[e] = calls;
      abnormal.push_back({back.to, excess, 0});
      returned_from_before_.push_back(
          {unit.module->key_of(unit.end_of(back.from)), number(unit, back.to), excess});
    }
  }

  // The sums over all units of a procedure, as if it had had but one.
  placement::Solution solve_all(const Members& members) {
    placement::Solution sum;
    for (const Unit* unit : members) {
      placement::Solution solution = solve(*unit);
      name_imbalances(*unit, solution, out_.issues);
      for (uint32_t b = 0; b < unit->procedure.blocks.size(); ++b) {
        uint64_t& value = solution.nodes[b].value;
        value -= std::min(value, flows_.handed_to({unit->id, b}));
      }
      if (unit == members.front()) {
        sum = std::move(solution);
        continue;
      }
      add_up(solution.nodes, sum.nodes);
      // What was seen at run time is behind the edges of the procedure and the virtual one.
      add_up(std::span(solution.edges).first(unit->procedure.edges.size() + 1), sum.edges);
    }
    return sum;
  }

  static void add_up(std::span<const placement::Count> more, std::vector<placement::Count>& sum) {
    for (size_t i = 0; i < more.size(); ++i) {
      sum[i].value += more[i].value;
      sum[i].origin = std::max(sum[i].origin, more[i].origin);
    }
  }

  void build_procedure(const Members& members) {
    const Unit& unit = *members.front();
    const placement::Solution solution = solve_all(members);
    if (request_.solved)
      request_.solved(*members.back(), solution, rests_.led_most(*members.back()));
    const size_t first_edge = out_.edges.size();
    add_procedure(members, solution);
    for (uint32_t b = 0; b < unit.procedure.blocks.size(); ++b) add_block(members, b, solution);
    for (uint32_t e = 0; e < unit.procedure.edges.size(); ++e) add_edge(members, e, solution);
    const size_t first_pair = out_.edges.size();
    add_pairs(members);
    if (has_renewals_) sum_up_edges(members.size() > 1 ? first_edge : first_pair);
    add_terms(members);
    name_shared_landings(unit, solution, out_.issues);
    for (const Unit* member : members) cache_.release(member->id);
  }

  // Times the entry block was entered out of turn (program start): no edge of the graph says so.
  uint64_t abnormal_entries(const Unit& unit) const {
    uint64_t sum = 0;
    const uint32_t entry = unit.procedure.entry_block;
    auto it = ledger_.terms().lower_bound({unit.id, entry, AbnormalKind{}, 0});
    for (; it != ledger_.terms().end() && std::get<0>(it->first) == unit.id &&
           std::get<1>(it->first) == entry;
         ++it) {
      sum += it->second.entered;
    }
    return sum;
  }

  // Indirect jumps from one unit of a procedure to the beginning of another do not enter it.
  uint64_t entries_from_within(const Members& members) const {
    if (members.size() == 1) return 0;
    uint64_t sum = 0;
    for (const Unit* unit : members) {
      for (const SiteState* site : flows_.sites_of(*unit)) {
        for (const Pair& pair : site->pairs) {
          const bool leaves =
              !site->site.call && pair.to.unit != unit->id && cache_.is_entry(pair.to);
          if (leaves && procedure_[pair.to.unit] == procedure_[unit->id])
            sum += rests_.times(*site, pair);
        }
      }
    }
    return sum;
  }

  void add_procedure(const Members& members, const placement::Solution& solution) {
    const Unit& unit = *members.front();
    profile::Procedure p;
    p.id = procedure_[unit.id];
    p.module_id = unit.module->id;
    p.entry = unit.procedure.entry;
    const LinkAddr end = unit.end_of(static_cast<uint32_t>(unit.procedure.blocks.size() - 1));
    p.size_bytes = end > p.entry ? static_cast<uint64_t>(end - p.entry) : 0;
    p.name = request_.name_of(unit);
    p.provenance = unit.provenance;
    const placement::Count& entries = solution.edges[unit.procedure.edges.size()];
    p.entries = entries.value - entries_from_within(members);
    for (const Unit* member : members) p.entries += abnormal_entries(*member);
    p.entries_source = source_of(entries.origin);
    if (unit.left_to_callers()) p.entries_source = CountSource::kDerived;
    out_.procedures[p.id] = std::move(p);
  }

  void add_block(const Members& members, uint32_t b, const placement::Solution& solution) {
    const Unit& unit = *members.front();
    const cfg::Block& block = unit.procedure.blocks[b];
    profile::Block& out = out_.blocks[number(unit, b)];
    out.id = number(unit, b);
    out.procedure_id = procedure_[unit.id];
    out.address = unit.address_of(b);
    out.instruction_sizes = std::span(unit.insn_sizes).subspan(block.first_insn, block.insn_count);
    out.count = solution.nodes[b].value;
    out.source = source_of(solution.nodes[b].origin);
    out.provenance = b == unit.procedure.entry_block ? unit.provenance
                     : block.from_jump_table         ? profile::Provenance::kJumpTable
                                                     : profile::Provenance::kFlow;
    out.returns = block.end == isa::Flow::kReturn;
    if (unit.plan.block_counter[b] >= 0 && members.size() == 1) {
      out.counter = static_cast<uint32_t>(unit.plan.block_counter[b]);
    }
    for (const Unit* member : members) add_partial_runs(*member, b, out);
    if (!is_cut_[out.id]) return;
    std::map<uint32_t, uint64_t> begun;
    for (const Unit* member : members) {
      for (const auto& [insn, times] : flows_.begun_inside({member->id, b})) begun[insn] += times;
    }
    split(out.id, begun);
  }

  void add_partial_runs(const Unit& unit, uint32_t b, profile::Block& out) const {
    auto it = ledger_.partials().lower_bound({unit.id, b, 0, 0});
    for (; it != ledger_.partials().end(); ++it) {
      const auto& [u, blk, first, last] = it->first;
      if (u != unit.id || blk != b) break;
      out.partial.push_back({first, last, it->second});
    }
  }

  // Cuts a block where control arrived in its middle.  A run that stopped short (a partial run up
  // to the end) did not enter the pieces behind; a thread born at the end entered only the last.
  // `begun`: how often it began in its middle, by instruction.
  void split(uint32_t id, const std::map<uint32_t, uint64_t>& begun) {
    const std::vector<Piece>& pieces = pieces_.at(id);
    const profile::Block whole = out_.blocks[id];
    const auto size = static_cast<uint32_t>(whole.instruction_sizes.size());
    uint64_t total = whole.count;
    for (const auto& [insn, times] : begun) total -= times;
    LinkAddr address = whole.address;
    uint32_t first = 0;
    uint32_t from = id;
    for (size_t i = 0; i <= pieces.size(); ++i) {
      const uint32_t last = i < pieces.size() ? pieces[i].first_insn : size;
      profile::Block& piece = out_.blocks[from];
      piece = whole;
      piece.id = from;
      piece.address = address;
      piece.partial.clear();
      piece.returns = whole.returns && last == size;
      piece.instruction_sizes =
          std::span<const uint8_t>(whole.instruction_sizes).subspan(first, last - first);
      if (first != 0) piece.provenance = profile::Provenance::kRunTime;
      uint64_t stopped_before = 0;
      for (const profile::PartialRun& p : whole.partial) {
        const auto runs = static_cast<uint64_t>(-p.delta);
        if (p.last_instruction == size && p.first_instruction < first) stopped_before += runs;
        if (p.first_instruction >= first && p.first_instruction < last) {
          piece.partial.push_back({p.first_instruction - first, last - first, p.delta});
        }
      }
      for (const auto& [insn, times] : begun) {
        if (insn == first) total += times;
      }
      piece.count = total - stopped_before;
      if (i < pieces.size()) {
        uint64_t through = piece.count;
        for (const profile::PartialRun& p : piece.partial)
          through -= static_cast<uint64_t>(-p.delta);
        emit_edge(from, pieces[i].id, profile::EdgeKind::kFallthrough, through, whole.source);
        from = pieces[i].id;
        for (uint32_t k = first; k < last; ++k) address += whole.instruction_sizes[k];
        first = last;
      }
    }
  }

  // How often the block's last instruction was executed: its count less the runs that stopped
  // short.
  uint64_t last_executed(const Unit& unit, uint32_t b) const {
    const profile::Block& block = out_.blocks[last_id(unit, b)];
    int64_t missing = 0;
    for (const profile::PartialRun& p : block.partial) {
      if (p.last_instruction == block.instruction_sizes.size()) missing += p.delta;
    }
    return block.count + static_cast<uint64_t>(missing);
  }

  void emit_edge(uint32_t from, uint32_t to, profile::EdgeKind kind, uint64_t count,
                 CountSource source) {
    out_.edges.push_back({from, to, kind, count, source});
  }

  void add_edge(const Members& members, uint32_t e, const placement::Solution& solution) {
    const Unit& unit = *members.front();
    const cfg::Edge& edge = unit.procedure.edges[e];
    const placement::Count& count = solution.edges[e];
    const uint32_t from = last_id(unit, edge.from);
    const CountSource source = source_of(count.origin);
    switch (edge.kind) {
      case cfg::EdgeKind::kReturn:
      case cfg::EdgeKind::kTableJump:
        return;
      case cfg::EdgeKind::kNoReturn:
        if (count.value > 0) {
          const isa::Flow flow = unit.procedure.blocks[edge.from].end;
          if (flow == isa::Flow::kCall || flow == isa::Flow::kIndirectCall) {
            never_back_[unit.module->key_of(unit.end_of(edge.from))].push_back(
                out_.abnormal.size());
          }
          out_.abnormal.push_back({from, AbnormalKind::kOther, 0, count.value,
                                   "ends here: nothing comes back behind this instruction"});
        }
        return;
      case cfg::EdgeKind::kLeave: {
        const isa::Flow flow = unit.procedure.blocks[edge.from].end;
        const bool taken =
            &edge == &unit.procedure.edges[unit.procedure.blocks[edge.from].first_edge];
        const profile::EdgeKind kind = flow == isa::Flow::kJump ? profile::EdgeKind::kJump
                                       : flow == isa::Flow::kSystemCall
                                           ? profile::EdgeKind::kSystemCall
                                       : flow == isa::Flow::kNone ? profile::EdgeKind::kFallthrough
                                       : taken                    ? profile::EdgeKind::kTaken
                                                                  : profile::EdgeKind::kFallthrough;
        const auto [rest, any] = add_link_pairs(
            members, [&](auto& link) { return link.edge == e; }, edge.from, kind, count.value);
        enter(unit, edge.target, rest);
        if (rest == 0 && (any || unit.replaceable)) return;
        const BlockRef to = wanted_.find(*unit.module, edge.target);
        if (!to.valid()) {
          if (rest > 0) {
            out_.abnormal.push_back(
                {from, AbnormalKind::kOther, 0, rest, "leaves to an address that is no code"});
          }
          return;
        }
        emit_edge(from, block_id(to), kind, rest, source);
        return;
      }
      case cfg::EdgeKind::kFallthrough:
        emit_edge(from, number(unit, edge.to), profile::EdgeKind::kFallthrough, count.value,
                  source);
        return;
      case cfg::EdgeKind::kTaken:
        emit_edge(from, number(unit, edge.to), profile::EdgeKind::kTaken, count.value, source);
        return;
      case cfg::EdgeKind::kJump:
        emit_edge(from, number(unit, edge.to), profile::EdgeKind::kJump, count.value, source);
        return;
      case cfg::EdgeKind::kCallReturn:
        emit_edge(from, number(unit, edge.to), profile::EdgeKind::kCallReturn, count.value, source);
        return;
      case cfg::EdgeKind::kSystemCall:
        emit_edge(from, number(unit, edge.to), profile::EdgeKind::kSystemCall, count.value, source);
        return;
    }
  }

  void add_pairs(const Members& members) {
    for (const Unit* member : members) {
      for (const SiteState* site : flows_.sites_of(*member)) {
        for (const Pair& pair : site->pairs) {
          emit_edge(
              last_id(*member, site->site.block), block_id(pair.to),
              site->site.call ? profile::EdgeKind::kIndirectCall : profile::EdgeKind::kIndirectJump,
              rests_.times(*site, pair),
              pair.rest ? CountSource::kDerived : CountSource::kMeasured);
        }
      }
    }
    const Unit& unit = *members.front();
    for (const translate::Link& link : unit.code.links) {
      if (link.edge != translate::Link::kCallLink) continue;
      const auto is_it = [&](const translate::Link& other) {
        return other.edge == translate::Link::kCallLink && other.block == link.block;
      };
      auto [count, any] = add_link_pairs(members, is_it, link.block, profile::EdgeKind::kCall,
                                         last_executed(unit, link.block));
      if (unit.replaceable) continue;  // all its calls are counted in pairs
      const BlockRef to = wanted_.find(*unit.module, link.target);
      if (!to.valid()) continue;  // never executed
      for (const Unit* member : members) {
        const auto it = ledger_.unarrived().find({member->id, link.block});
        if (it != ledger_.unarrived().end()) count -= it->second;
      }
      enter(unit, link.target, count);
      if (count == 0 && any) continue;
      emit_edge(last_id(unit, link.block), block_id(to), profile::EdgeKind::kCall, count,
                out_.blocks[last_id(unit, link.block)].source);
    }
  }

  // The piece in which a term's flow ends or begins.
  uint32_t piece_of_term(const Unit& unit, uint32_t b, uint32_t insn) const {
    uint32_t id = number(unit, b);
    auto it = pieces_.find(id);
    if (it == pieces_.end()) return id;
    for (const Piece& piece : it->second) {
      if (piece.first_insn <= insn) id = piece.id;
    }
    return id;
  }

  using Rows = std::map<std::pair<uint32_t, AbnormalKind>, profile::Abnormal>;

  void add_terms(const Members& members) {
    Rows rows;
    for (const Unit* unit : members) add_terms(*unit, rows);
    for (auto& [key, row] : rows) out_.abnormal.push_back(std::move(row));
  }

  void add_terms(const Unit& unit, Rows& rows) const {
    auto begin = ledger_.terms().lower_bound({unit.id, 0, AbnormalKind{}, 0});
    for (auto it = begin; it != ledger_.terms().end() && std::get<0>(it->first) == unit.id; ++it) {
      const auto& [u, b, kind, insn] = it->first;
      const uint32_t id = piece_of_term(unit, b, insn);
      profile::Abnormal& row =
          rows.try_emplace({id, kind}, profile::Abnormal{id, kind, 0, 0, it->second.detail})
              .first->second;
      row.entered += it->second.entered;
      row.left += it->second.left;
    }
  }

  // Two units of a procedure have each an edge for the same branch, and an indirect branch one for
  // each unit that it led to: of the edges from `first` on, those alike become one.
  void sum_up_edges(size_t first) {
    const std::span edges = std::span(out_.edges).subspan(first);
    if (edges.size() < 2) return;
    std::ranges::stable_sort(edges, {}, key_of);
    size_t kept = 1;
    for (size_t i = 1; i < edges.size(); ++i) {
      profile::Edge& sum = edges[kept - 1];
      if (key_of(sum) == key_of(edges[i])) {
        sum.count += edges[i].count;
        sum.source = std::max(sum.source, edges[i].source);
      } else {
        edges[kept++] = edges[i];
      }
    }
    out_.edges.resize(first + kept);
  }

  static std::tuple<uint32_t, uint32_t, profile::EdgeKind> key_of(const profile::Edge& edge) {
    return {edge.from_block, edge.to_block, edge.kind};
  }

  // Returns to block `to` that no landing of its own unit explains: they are given to calls that
  // end at the address `behind` and of which their unit only knows that they did not come back
  // there.  Which of several it was cannot be told; by address they are the same.  Returns how
  // many are left.
  uint64_t pair_with_calls(uint64_t behind, uint32_t to, uint64_t times) {
    auto it = never_back_.find(behind);
    if (it == never_back_.end()) return times;
    for (const size_t row : it->second) {
      profile::Abnormal& call = out_.abnormal[row];
      const uint64_t part = std::min(times, call.left);
      if (part == 0) continue;
      emit_edge(call.block, to, profile::EdgeKind::kCallReturn, part, CountSource::kDerived);
      call.left -= part;
      times -= part;
    }
    return times;
  }

  // Calls that came back to the code that had replaced theirs.
  void pair_returns() {
    for (const ReturnsFromBefore& returns : returned_from_before_) {
      const uint64_t left = pair_with_calls(returns.behind, returns.to, returns.times);
      if (left == 0) continue;
      out_.abnormal.push_back(
          {returns.to, AbnormalKind::kOther, left, 0, "returned to without a call of this code"});
    }
  }

  // A thread that came to a block whose code had changed went on in the block that replaced it: the
  // edges it came by lead there, and the old block was not entered.  Which of several edges it was
  // cannot be told; by address they are the same.
  void add_moves() {
    if (ledger_.moves().empty()) return;
    std::map<uint32_t, std::vector<size_t>> edges_to;
    for (const auto& [move, times] : ledger_.moves()) edges_to[number(move.first)];
    for (size_t e = 0; e < out_.edges.size(); ++e) {
      if (auto it = edges_to.find(out_.edges[e].to_block); it != edges_to.end()) {
        it->second.push_back(e);
      }
    }
    for (const auto& [move, times] : ledger_.moves()) {
      const auto& [from, to] = move;
      const uint32_t id = number(from);
      if (from.insn == out_.blocks[id].instruction_sizes.size()) {
        emit_edge(id, block_id(to), profile::EdgeKind::kSystemCall, times, CountSource::kMeasured);
        settle_move(id, to, times);
      } else if (from.insn == 0 && !pieces_.contains(id)) {
        settle_move(id, to, redirect(from, to, times, edges_to[id]));
      }
    }
  }

  // Returns how much of `times` could be redirected.
  uint64_t redirect(BlockRef from, BlockRef to, uint64_t times, const std::vector<size_t>& edges) {
    const Unit& unit = cache_.unit(from.unit);
    profile::Block& block = out_.blocks[number(from)];
    uint64_t done = 0;
    for (const size_t e : edges) {
      const profile::Edge edge = out_.edges[e];
      const uint64_t part = std::min(times - done, edge.count);
      if (part == 0) continue;
      out_.edges[e].count -= part;
      emit_edge(edge.from_block, block_id(to), edge.kind, part, edge.source);
      const bool outside = out_.blocks[edge.from_block].procedure_id != procedure_[from.unit] ||
                           edge.kind == profile::EdgeKind::kCall ||
                           edge.kind == profile::EdgeKind::kIndirectCall;
      if (from.block == unit.procedure.entry_block && outside) {
        out_.procedures[procedure_[from.unit]].entries -= part;
      }
      done += part;
    }
    block.count -= done;
    const std::vector<profile::PartialRun> runs(block.partial.begin(), block.partial.end());
    block.partial.clear();
    for (profile::PartialRun run : runs) {
      if (run.first_instruction == 0 && run.last_instruction == block.instruction_sizes.size()) {
        run.delta += (done);
      }
      if (run.delta != 0) block.partial.push_back(run);
    }
    return done;
  }

  // What an edge says now need not be said by an abnormal exit and an abnormal entry.
  void settle_move(uint32_t id, BlockRef to, uint64_t times) {
    moved_in_[block_id(to)] += times;
    for (profile::Abnormal& term : out_.abnormal) {
      if (term.block != id || term.kind != AbnormalKind::kOther || term.entered != 0) continue;
      const uint64_t part = std::min(term.left, times);
      term.left -= part;
      times -= part;
    }
  }

  // Who was not sent there from code that has changed came by a return: from a call at the end of
  // code that was found by itself, up to what was known already; or from nowhere that a call would
  // have led from (the landing of an exception, a `push address; ret`).
  void add_returns_from_elsewhere() {
    for (const ArrivalStub& arrival : cache_.arrivals()) {
      const uint32_t id = block_id(arrival.to);
      const auto moved = moved_in_.find(id);
      const uint64_t explained = moved == moved_in_.end() ? 0 : moved->second;
      // Another arrival may be at another unit of the same procedure.
      const uint64_t count = std::exchange(arrival_count_[id], 0);
      if (count <= explained) continue;
      uint64_t rest = count - explained;
      if (const uint64_t attached = times_of(ledger_.attached(), id); attached > 0) {
        const uint64_t found = std::min(rest, attached);
        out_.abnormal.push_back(
            {id, AbnormalKind::kAttach, found, 0, "was active when Tally attached"});
        rest -= found;
      }
      const uint64_t by_handlers = std::min(rest, times_of(ledger_.sent_by_handlers(), id));
      const Module& module = *cache_.unit(arrival.to.unit).module;
      const uint64_t behind = module.key_of(out_.blocks[id].address);
      rest = by_handlers + pair_with_calls(behind, id, rest - by_handlers);
      if (rest > 0) {
        out_.abnormal.push_back({id, AbnormalKind::kNonLocalJump, rest, 0, "entered by a return"});
      }
    }
  }

  // Seldom any.
  uint64_t times_of(const std::map<BlockRef, uint64_t>& booked, uint32_t id) const {
    uint64_t sum = 0;
    for (const auto& [ref, times] : booked) sum += block_id(ref) == id ? times : 0;
    return sum;
  }

  Translated& cache_;
  const LedgerBooks& ledger_;
  const std::vector<uint64_t>& counters_;
  const FinishRequest& request_;
  UnitFlows flows_;
  LeftToCallers left_to_callers_;
  Rests rests_;
  std::vector<uint64_t> entries_;      // by unit left to callers: by branches of those solved
  std::vector<uint32_t> first_block_;  // by unit: number of its first block in the profile
  std::vector<uint32_t> procedure_;    // by unit
  bool has_renewals_ = false;          // some procedures have several
  std::map<uint32_t, std::vector<const LinkPair*>> pairs_of_link_;
  profile::Profile& out_;
  WantedBlocks wanted_;                            // what direct branches lead to
  std::map<uint32_t, std::vector<Piece>> pieces_;  // by block number: pieces behind the first
  std::vector<bool> is_cut_;                       // by block number: has such pieces
  std::map<uint32_t, uint64_t> moved_in_;          // by block id: from changed code
  struct ReturnsFromBefore {
    uint64_t behind;  // key of the address behind the call
    uint32_t to;      // block
    uint64_t times;
  };
  std::vector<ReturnsFromBefore> returned_from_before_;
  // Calls that their own unit does not see come back: rows of `abnormal`, by the address behind.
  std::map<uint64_t, std::vector<size_t>> never_back_;
  std::vector<uint64_t> arrival_count_;  // by block id: through its arrival stub
};

}  // namespace

void build_profile(const FinishRequest& request, profile::Profile& profile) {
  Builder(request, profile).build();
}

}  // namespace tally::engine
