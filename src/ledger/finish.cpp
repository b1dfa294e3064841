// Solving every unit and writing down what came out.  See finish.h.
//
// For each unit the static graph is built again, and what was seen at run time is added as measured
// edges: pairs of its indirect jumps, arrivals from elsewhere.  The ledger's terms make it balance.
//
// Where control arrived in the middle of a block, the profile has two blocks ("pieces"): those runs
// that began in the middle count for the later pieces only.
#include "ledger/finish.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <set>

#include "base/flat_map.h"
#include "ledger/perf_map.h"

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
        out_(out) {}

  void build() {
    out_.modules = request_.modules;
    number_blocks();
    index_runtime_facts();
    for (const auto& unit : cache_.units()) {
      build_unit(*unit);
      cache_.release(unit->id);
    }
    pair_returns();
    add_moves();
    add_returns_from_elsewhere();
    std::erase_if(out_.abnormal,
                  [](const profile::Abnormal& term) { return term.entered + term.left == 0; });
    for (const profile::Issue& issue : ledger_.issues()) out_.issues.push_back(issue);
  }

 private:
  struct Inflow {
    uint32_t block;
    uint32_t insn;
    uint64_t count;
  };
  struct Piece {
    uint32_t first_insn = 0;
    uint32_t id = 0;
  };

  uint64_t counter(int32_t index) const {
    CHECK(index >= 0 && static_cast<size_t>(index) < counters_.size()) << "counter " << index;
    return counters_[static_cast<size_t>(index)];
  }
  uint32_t number(BlockRef ref) const { return cache_.unit(ref.unit).first_block + ref.block; }
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
    const uint32_t n = unit.first_block + b;
    return is_cut_[n] ? pieces_.at(n).back().id : n;
  }

  // Modules that were unmapped meanwhile are found here too.
  static uint64_t key(const Module& module, LinkAddr address) {
    return static_cast<uint64_t>(module.id) << 48 ^ address.value();
  }
  BlockRef find(const Module& module, LinkAddr address) const {
    const uint64_t* found = by_address_.find(key(module, address));
    if (found == nullptr || *found == kNoBlock) return {};
    return {static_cast<uint32_t>(*found >> 44), static_cast<uint32_t>(*found >> 20 & 0xffffff),
            static_cast<uint32_t>(*found & 0xfffff)};
  }
  // Only the few addresses that somebody will ask for are looked up: a table of all blocks of a
  // large program takes longer to fill than all of its units take to solve.
  void note_wanted(const Unit& unit) {
    for (const cfg::Edge& edge : unit.procedure.edges) {
      if (edge.kind == cfg::EdgeKind::kLeave) want(*unit.module, edge.target);
    }
    for (const translate::Link& link : unit.code.links) {
      if (link.edge == translate::Link::kCallLink) want(*unit.module, link.target);
    }
  }
  void want(const Module& module, LinkAddr address) {
    by_address_.set(key(module, address), kNoBlock);
    is_wanted_[wanted_bit(module, address)] = true;
  }
  // Nearly all blocks are none of them: a few bits tell so without a look at the large table.
  size_t wanted_bit(const Module& module, LinkAddr address) const {
    return key(module, address) * 0x9E3779B97F4A7C15ull >> wanted_shift_;
  }
  void remember(const Module& module, LinkAddr address, const BlockRef& ref) {
    if (!is_wanted_[wanted_bit(module, address)]) return;
    uint64_t* found = by_address_.find(key(module, address));
    // Of several generations the first: those after it were never linked to without a pair.
    if (found == nullptr || (module.from_memory && *found != kNoBlock)) return;
    *found =
        static_cast<uint64_t>(ref.unit) << 44 | static_cast<uint64_t>(ref.block) << 20 | ref.insn;
  }

  void number_blocks() {
    uint32_t total = 0;
    for (const auto& unit : cache_.units()) {
      CHECK(unit->first_block == total) << "block numbers out of step";
      total += static_cast<uint32_t>(unit->procedure.blocks.size());
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
    out_.procedures.reserve(cache_.units().size());
    const auto wanted_bits = static_cast<unsigned>(std::bit_width(total)) + 1;
    is_wanted_.assign(size_t{1} << wanted_bits, false);
    wanted_shift_ = 64 - wanted_bits;
    for (const auto& unit : cache_.units()) note_wanted(*unit);
    for (const auto& unit : cache_.units()) {
      for (uint32_t b = 0; b < unit->procedure.blocks.size(); ++b) {
        remember(*unit->module, unit->address_of(b), {unit->id, b, 0});
      }
    }
    for (const ArrivalStub& arrival : cache_.arrivals()) {
      if (arrival.to.insn == 0) continue;
      const Module& module = *cache_.unit(arrival.to.unit).module;
      remember(module, module.to_link(cache_.address_of(arrival.to)), arrival.to);
    }
    inflow_.resize(cache_.units().size());
    sites_of_.resize(cache_.units().size());
    link_inflow_.assign(total, 0);
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

  // What flows into a unit's blocks from elsewhere, by other ways than its entry.
  void index_runtime_facts() {
    for (const SiteState& site : cache_.sites()) {
      if (!site.pairs.empty()) sites_of_[site.unit].push_back(&site);
      for (const Pair& pair : site.pairs) {
        const bool inside = pair.to.unit == site.unit && !site.site.call;
        const uint64_t count = counter(static_cast<int32_t>(pair.counter));
        if (pair.to.insn != 0) begun_inside_[number(pair.to)][pair.to.insn] += count;
        if (inside || is_entry(pair.to)) continue;
        inflow_[pair.to.unit].push_back({pair.to.block, pair.to.insn, count});
      }
    }
    for (const ArrivalStub& arrival : cache_.arrivals()) {
      const uint64_t count = counter(static_cast<int32_t>(arrival.counter));
      arrival_count_[block_id(arrival.to)] += count;
      if (arrival.to.insn != 0) begun_inside_[number(arrival.to)][arrival.to.insn] += count;
      if (is_entry(arrival.to)) continue;
      inflow_[arrival.to.unit].push_back({arrival.to.block, arrival.to.insn, count});
    }
    index_link_pairs();
  }

  // Direct branches into or out of code that is replaced have counters of their own.
  void index_link_pairs() {
    for (const LinkPair& pair : cache_.link_pairs()) {
      const uint64_t count = counter(static_cast<int32_t>(pair.counter));
      pairs_of_link_[pair.link].push_back(&pair);
      if (pair.to.insn != 0) begun_inside_[number(pair.to)][pair.to.insn] += count;
      if (is_entry(pair.to)) continue;
      inflow_[pair.to.unit].push_back({pair.to.block, pair.to.insn, count});
    }
  }

  // Writes the edges of a link's pairs down and returns what is left of `count`.
  uint64_t add_link_pairs(const Unit& unit, const translate::Link& link, profile::EdgeKind kind,
                          uint64_t count) {
    const auto id = unit.first_link + static_cast<uint32_t>(&link - unit.code.links.data());
    auto it = pairs_of_link_.find(id);
    if (it == pairs_of_link_.end()) return count;
    uint64_t sum = 0;
    for (const LinkPair* pair : it->second) {
      const uint64_t times = counter(static_cast<int32_t>(pair->counter));
      sum += times;
      emit_edge(last_id(unit, link.block), block_id(pair->to), kind, times, CountSource::kMeasured);
    }
    if (sum <= count) return count - sum;
    out_.issues.push_back(
        {fmt::format("{}+{:#x}", unit.module->path, unit.address_of(link.block).value()),
         "a branch was taken more often than its block was run", sum - count});
    return 0;
  }

  bool is_entry(BlockRef ref) const {
    return ref.insn == 0 && cache_.unit(ref.unit).procedure.entry_block == ref.block;
  }

  placement::Graph graph_of(const Unit& unit, std::vector<std::optional<uint64_t>>& known) const {
    placement::Graph graph = make_graph(unit.procedure);
    known.assign(graph.edges.size(), std::nullopt);
    for (size_t e = 0; e < unit.procedure.edges.size(); ++e) {
      if (graph.edges[e].role == placement::EdgeRole::kMeasured) known[e] = 0;
      if (unit.plan.edge_counter[e] == kNoCounter) continue;
      known[e] = counter(unit.plan.edge_counter[e]);
      auto over = ledger_.overcounted().find({unit.id, static_cast<uint32_t>(e)});
      if (over != ledger_.overcounted().end()) *known[e] -= over->second;
    }
    auto add = [&](uint32_t from, uint32_t to, uint64_t count) {
      graph.edges.push_back({from, to, placement::EdgeRole::kMeasured, 0});
      known.push_back(count);
    };
    for (const SiteState* site : sites_of_[unit.id]) {
      if (site->site.call) continue;
      for (const Pair& pair : site->pairs) {
        const bool inside = pair.to.unit == unit.id;
        add(site->site.block, inside ? pair.to.block : graph.exit,
            counter(static_cast<int32_t>(pair.counter)));
      }
    }
    for (const Inflow& in : inflow_[unit.id]) add(graph.exit, in.block, in.count);
    return graph;
  }

  placement::Solution solve(const Unit& unit, placement::Graph& graph) {
    placement::Measured measured;
    graph = graph_of(unit, measured.edges);
    measured.nodes.assign(graph.node_count, std::nullopt);
    std::vector<placement::AbnormalFlow> abnormal;
    for (uint32_t b = 0; b < unit.procedure.blocks.size(); ++b) {
      if (unit.plan.block_counter[b] == kNoCounter) continue;
      uint64_t count = counter(unit.plan.block_counter[b]);
      auto uncounted = ledger_.uncounted().find({unit.id, b});
      if (uncounted != ledger_.uncounted().end()) count += uncounted->second;
      // Runs that began behind the counter.
      if (is_cut_[unit.first_block + b]) {
        for (const auto& [insn, times] : begun_inside_[unit.first_block + b]) {
          if (unit.code.blocks[b].probe_insn <= insn) count += times;
        }
      }
      measured.nodes[b] = count;
    }
    auto begin = ledger_.terms().lower_bound({unit.id, 0, AbnormalKind{}, 0});
    for (auto it = begin; it != ledger_.terms().end() && std::get<0>(it->first) == unit.id; ++it) {
      abnormal.push_back({std::get<1>(it->first), it->second.entered, it->second.left});
    }
    settle_returns(unit, measured, abnormal);
    auto solution = placement::propagate(graph, measured, abnormal);
    CHECK(solution.ok()) << "solving " << unit.module->path << "+" << unit.procedure.entry.value()
                         << ": " << solution.error().message;
    return std::move(*solution);
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
          {key(*unit.module, unit.end_of(back.from)), unit.first_block + back.to, excess});
    }
  }

  void build_unit(const Unit& unit) {
    placement::Graph graph;
    const placement::Solution solution = solve(unit, graph);
    if (request_.solved) request_.solved(unit, solution.edges);
    add_procedure(unit, solution);
    for (uint32_t b = 0; b < unit.procedure.blocks.size(); ++b) add_block(unit, b, solution);
    for (uint32_t e = 0; e < unit.procedure.edges.size(); ++e) add_edge(unit, e, solution);
    add_pairs(unit);
    add_terms(unit);
    for (const placement::Imbalance& i : solution.imbalances) add_imbalance(unit, i);
    name_shared_landings(unit, solution);
  }

  // Two calls in overlapping code that end at the same byte come back to one landing, which cannot
  // tell them apart.  Where each call's block says how often it came back, that is no matter.  An
  // open call's does not: its counter is in the landing, and the last such edge has it.
  void name_shared_landings(const Unit& unit, const placement::Solution& solution) {
    if (!unit.open_calls) return;
    std::map<uint32_t, uint32_t> counted;  // by the block behind: the edge whose counter runs
    const std::vector<cfg::Edge>& edges = unit.procedure.edges;
    for (uint32_t e = 0; e < edges.size(); ++e) {
      if (edges[e].kind == cfg::EdgeKind::kCallReturn) counted[edges[e].to] = e;
    }
    for (uint32_t e = 0; e < edges.size(); ++e) {
      const cfg::Edge& edge = edges[e];
      if (edge.kind != cfg::EdgeKind::kCallReturn || counted[edge.to] == e) continue;
      if (solution.nodes[edge.from].value == 0) continue;  // bytes that are no code, most likely
      out_.issues.push_back(
          {fmt::format("{}+{:#x}", unit.module->path, unit.address_of(edge.to).value()),
           "two overlapping calls come back here; which of them did cannot be told", 1});
    }
  }

  void add_imbalance(const Unit& unit, const placement::Imbalance& i) {
    if (i.kind == placement::Imbalance::Kind::kUnknown) return;  // the counts say so themselves
    const bool at_exit = i.node >= unit.procedure.blocks.size();
    const LinkAddr at = at_exit ? unit.procedure.entry : unit.address_of(i.node);
    out_.issues.push_back(
        {fmt::format("{}+{:#x}", unit.module->path, at.value()),
         fmt::format("flow is not conserved at {}: {} more {}",
                     at_exit ? "the exits of this procedure" : "this block", std::abs(i.excess),
                     i.excess < 0 ? "out than in" : "in than out"),
         1});
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

  void add_procedure(const Unit& unit, const placement::Solution& solution) {
    profile::Procedure p;
    p.id = unit.id;
    p.module_id = unit.module->id;
    p.entry = unit.procedure.entry;
    const LinkAddr end = unit.end_of(static_cast<uint32_t>(unit.procedure.blocks.size() - 1));
    p.size_bytes = end > p.entry ? static_cast<uint64_t>(end - p.entry) : 0;
    p.name = request_.name_of(unit);
    p.provenance = unit.provenance;
    const placement::Count& entries = solution.edges[unit.procedure.edges.size()];
    p.entries = entries.value + abnormal_entries(unit);
    p.entries_source = source_of(entries.origin);
    out_.procedures.push_back(std::move(p));
  }

  void add_block(const Unit& unit, uint32_t b, const placement::Solution& solution) {
    const cfg::Block& block = unit.procedure.blocks[b];
    profile::Block& out = out_.blocks[unit.first_block + b];
    out.id = unit.first_block + b;
    out.procedure_id = unit.id;
    out.address = unit.address_of(b);
    out.instruction_sizes = std::span(unit.insn_sizes).subspan(block.first_insn, block.insn_count);
    out.count = solution.nodes[b].value;
    out.source = source_of(solution.nodes[b].origin);
    out.provenance = b == unit.procedure.entry_block ? unit.provenance
                     : block.from_jump_table         ? profile::Provenance::kJumpTable
                                                     : profile::Provenance::kFlow;
    out.returns = block.end == isa::Flow::kReturn;
    if (unit.plan.block_counter[b] != kNoCounter) {
      out.counter = static_cast<uint32_t>(unit.plan.block_counter[b]);
    }
    auto begin = ledger_.partials().lower_bound({unit.id, b, 0, 0});
    for (auto it = begin; it != ledger_.partials().end(); ++it) {
      const auto& [u, blk, first, last] = it->first;
      if (u != unit.id || blk != b) break;
      out.partial.push_back({first, last, it->second});
    }
    if (is_cut_[out.id]) split(out.id);
  }

  // Cuts a block where control arrived in its middle.  A run that stopped short (a partial run up
  // to the end) did not enter the pieces behind; a thread born at the end entered only the last.
  void split(uint32_t id) {
    const std::vector<Piece>& pieces = pieces_.at(id);
    const profile::Block whole = out_.blocks[id];
    const auto size = static_cast<uint32_t>(whole.instruction_sizes.size());
    uint64_t total = whole.count;
    for (const auto& [insn, times] : begun_inside_[id]) total -= times;
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
      for (const auto& [insn, times] : begun_inside_[id]) {
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

  void add_edge(const Unit& unit, uint32_t e, const placement::Solution& solution) {
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
            never_back_[key(*unit.module, unit.end_of(edge.from))].push_back(out_.abnormal.size());
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
        uint64_t rest = count.value;
        // Seldom any: only code that is replaced has such pairs.
        for (size_t i = 0; i < unit.code.links.size() && !pairs_of_link_.empty(); ++i) {
          const translate::Link& link = unit.code.links[i];
          if (link.edge == e) rest = add_link_pairs(unit, link, kind, rest);
        }
        if (rest == 0 && unit.replaceable) return;
        const BlockRef to = find(*unit.module, edge.target);
        if (!to.valid()) {
          if (rest > 0) {
            out_.abnormal.push_back(
                {from, AbnormalKind::kOther, 0, rest, "leaves to an address that is no code"});
          }
          return;
        }
        emit_edge(from, block_id(to), kind, rest, source);
        link_inflow_[block_id(to)] += rest;
        return;
      }
      case cfg::EdgeKind::kFallthrough:
        emit_edge(from, unit.first_block + edge.to, profile::EdgeKind::kFallthrough, count.value,
                  source);
        return;
      case cfg::EdgeKind::kTaken:
        emit_edge(from, unit.first_block + edge.to, profile::EdgeKind::kTaken, count.value, source);
        return;
      case cfg::EdgeKind::kJump:
        emit_edge(from, unit.first_block + edge.to, profile::EdgeKind::kJump, count.value, source);
        return;
      case cfg::EdgeKind::kCallReturn:
        emit_edge(from, unit.first_block + edge.to, profile::EdgeKind::kCallReturn, count.value,
                  source);
        return;
      case cfg::EdgeKind::kSystemCall:
        emit_edge(from, unit.first_block + edge.to, profile::EdgeKind::kSystemCall, count.value,
                  source);
        return;
    }
  }

  void add_pairs(const Unit& unit) {
    for (const SiteState* site : sites_of_[unit.id]) {
      for (const Pair& pair : site->pairs) {
        emit_edge(
            last_id(unit, site->site.block), block_id(pair.to),
            site->site.call ? profile::EdgeKind::kIndirectCall : profile::EdgeKind::kIndirectJump,
            counter(static_cast<int32_t>(pair.counter)), CountSource::kMeasured);
      }
    }
    for (const translate::Link& link : unit.code.links) {
      if (link.edge != translate::Link::kCallLink) continue;
      uint64_t count =
          add_link_pairs(unit, link, profile::EdgeKind::kCall, last_executed(unit, link.block));
      if (unit.replaceable) continue;  // all its calls are counted in pairs
      const BlockRef to = find(*unit.module, link.target);
      if (!to.valid()) continue;  // never executed
      if (auto it = ledger_.unarrived().find({unit.id, link.block});
          it != ledger_.unarrived().end()) {
        count -= it->second;
      }
      emit_edge(last_id(unit, link.block), block_id(to), profile::EdgeKind::kCall, count,
                out_.blocks[last_id(unit, link.block)].source);
      link_inflow_[block_id(to)] += count;
    }
  }

  // The piece in which a term's flow ends or begins.
  uint32_t piece_of_term(const Unit& unit, uint32_t b, uint32_t insn) const {
    uint32_t id = unit.first_block + b;
    auto it = pieces_.find(id);
    if (it == pieces_.end()) return id;
    for (const Piece& piece : it->second) {
      if (piece.first_insn <= insn) id = piece.id;
    }
    return id;
  }

  void add_terms(const Unit& unit) {
    std::map<std::pair<uint32_t, AbnormalKind>, profile::Abnormal> rows;
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
    for (auto& [key, row] : rows) out_.abnormal.push_back(std::move(row));
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
      const bool outside = out_.blocks[edge.from_block].procedure_id != from.unit ||
                           edge.kind == profile::EdgeKind::kCall ||
                           edge.kind == profile::EdgeKind::kIndirectCall;
      if (from.block == unit.procedure.entry_block && outside) {
        out_.procedures[from.unit].entries -= part;
      }
      done += part;
    }
    block.count -= done;
    const std::vector<profile::PartialRun> runs(block.partial.begin(), block.partial.end());
    block.partial.clear();
    for (profile::PartialRun run : runs) {
      if (run.first_instruction == 0 && run.last_instruction == block.instruction_sizes.size()) {
        run.delta += static_cast<int64_t>(done);
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

  // Arrivals that no direct branch explains came by a return: from a call at the end of code that
  // was found by itself, up to what was known already; or from nowhere that a call would have led
  // from (the landing of an exception, a `push address; ret`).
  void add_returns_from_elsewhere() {
    for (const ArrivalStub& arrival : cache_.arrivals()) {
      const uint32_t id = block_id(arrival.to);
      const bool entry = is_entry(arrival.to);
      // Direct branches enter a procedure's entry without passing its arrival stub.
      const auto moved = moved_in_.find(id);
      const uint64_t explained =
          (entry ? 0 : link_inflow_[id]) + (moved == moved_in_.end() ? 0 : moved->second);
      if (arrival_count_[id] <= explained) continue;
      uint64_t rest = arrival_count_[id] - explained;
      if (auto it = ledger_.attached().find(arrival.to); it != ledger_.attached().end()) {
        const uint64_t found = std::min(rest, it->second);
        out_.abnormal.push_back(
            {id, AbnormalKind::kAttach, found, 0, "was active when Tally attached"});
        rest -= found;
      }
      const auto sent = ledger_.sent_by_handlers().find(arrival.to);
      const uint64_t by_handlers =
          sent == ledger_.sent_by_handlers().end() ? 0 : std::min(rest, sent->second);
      const Module& module = *cache_.unit(arrival.to.unit).module;
      const uint64_t behind = key(module, out_.blocks[id].address);
      rest = by_handlers + pair_with_calls(behind, id, rest - by_handlers);
      if (rest > 0) {
        out_.abnormal.push_back({id, AbnormalKind::kNonLocalJump, rest, 0, "entered by a return"});
      }
    }
  }

  Translated& cache_;
  const LedgerBooks& ledger_;
  const std::vector<uint64_t>& counters_;
  const FinishRequest& request_;
  std::map<uint32_t, std::vector<const LinkPair*>> pairs_of_link_;
  profile::Profile& out_;
  static constexpr uint64_t kNoBlock = ~uint64_t{0};
  FlatMap<uint64_t> by_address_;                   // of what direct branches lead to
  std::vector<bool> is_wanted_;                    // by hash of such an address
  unsigned wanted_shift_ = 0;                      // of the hash
  std::map<uint32_t, std::vector<Piece>> pieces_;  // by block number: pieces behind the first
  std::vector<bool> is_cut_;                       // by block number: has such pieces
  std::map<uint32_t, std::map<uint32_t, uint64_t>> begun_inside_;  // block number, instruction
  std::vector<std::vector<Inflow>> inflow_;                        // by unit
  std::vector<std::vector<const SiteState*>> sites_of_;            // by unit
  std::map<uint32_t, uint64_t> moved_in_;                          // by block id: from changed code
  struct ReturnsFromBefore {
    uint64_t behind;  // key of the address behind the call
    uint32_t to;      // block
    uint64_t times;
  };
  std::vector<ReturnsFromBefore> returned_from_before_;
  // Calls that their own unit does not see come back: rows of `abnormal`, by the address behind.
  std::map<uint64_t, std::vector<size_t>> never_back_;
  std::vector<uint64_t> link_inflow_;    // by block id: by direct branches
  std::vector<uint64_t> arrival_count_;  // by block id: through its arrival stub
};

}  // namespace

void build_profile(const FinishRequest& request, profile::Profile& profile) {
  Builder(request, profile).build();
}

profile::Module describe_module(const Module& m) {
  profile::Module module;
  module.id = m.id;
  module.path = m.path;
  if (m.generated) {
    module.path =
        fmt::format("[generated {:#x}-{:#x}]", m.mapped.begin.value(), m.mapped.end.value());
  }
  module.build_id = m.image->build_id();
  module.load_bias = m.bias;
  module.mapped = m.mapped;
  module.main_program = m.main_program;
  for (const elf::Segment& s : m.image->segments()) {
    module.size_bytes = std::max(module.size_bytes, s.offset.value() + s.file_size_bytes);
  }
  return module;
}

std::vector<profile::Module> describe_modules(const ModuleMap& modules) {
  std::vector<profile::Module> result;
  for (const auto& m : modules.all()) result.push_back(describe_module(*m));
  return result;
}

std::string procedure_name(const Unit& unit, const PerfMap& generated) {
  const LinkAddr entry = unit.procedure.entry;
  if (unit.module->generated) return generated.name_at(unit.module->to_target(entry));
  const elf::Symbol* symbol = unit.module->image->symbol_at(entry);
  return symbol == nullptr ? std::string() : symbol->name;
}

}  // namespace tally::engine
