// One procedure as bytes, and back: nothing that emission or the solver relies on is taken on
// trust.  See found_procedures.h.
#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "cache/found_procedures.h"

namespace tally::engine {

using cfg::EdgeKind;
using translate::kNoCounter;

namespace {

constexpr uint8_t kFlowBits = 0x0f, kFromTable = 0x10, kCounted = 0x20, kAdjacent = 0x40;
constexpr uint8_t kKindBits = 0x0f;  // of an edge, beside kCounted

class Writer {
 public:
  void u8(uint8_t value) { bytes.push_back(value); }
  void uleb(uint64_t value) {
    for (; value >= 0x80; value >>= 7) u8(static_cast<uint8_t>(value | 0x80));
    u8(static_cast<uint8_t>(value));
  }
  // Small where the distance is, in either direction.
  void distance(int64_t value) {
    uleb(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  std::vector<uint8_t> bytes;
};

int64_t read_distance(ByteReader& reader) {
  const uint64_t value = reader.uleb();
  return static_cast<int64_t>(value >> 1 ^ (0 - (value & 1)));
}

bool exits(EdgeKind kind) {
  return kind == EdgeKind::kReturn || kind == EdgeKind::kNoReturn || kind == EdgeKind::kLeave;
}

void put_blocks(const KnownProcedure& known, Writer& out) {
  const cfg::Procedure& p = known.procedure;
  uint32_t end = 0;
  for (size_t b = 0; b < p.blocks.size(); ++b) {
    const cfg::Block& block = p.blocks[b];
    const bool adjacent = block.offset == end;
    const bool counted = known.plan.block_counter[b] != kNoCounter;
    out.u8(static_cast<uint8_t>(static_cast<uint8_t>(block.end) |
                                (block.from_jump_table ? kFromTable : 0) |
                                (counted ? kCounted : 0) | (adjacent ? kAdjacent : 0)));
    if (!adjacent) out.distance(int64_t{block.offset} - end);
    out.u8(block.flags_live_in);
    out.u8(block.flags_live_out);
    out.uleb(block.insn_count);
    out.uleb(block.edge_count);
    end = block.offset + block.size_bytes;
  }
}

void put_edges(const KnownProcedure& known, Writer& out) {
  const cfg::Procedure& p = known.procedure;
  for (size_t e = 0; e < p.edges.size(); ++e) {
    const cfg::Edge& edge = p.edges[e];
    const bool counted = known.plan.edge_counter[e] != kNoCounter;
    out.u8(static_cast<uint8_t>(static_cast<uint8_t>(edge.kind) | (counted ? kCounted : 0)));
    if (!exits(edge.kind)) out.distance(int64_t{edge.to} - edge.from);
    if (edge.kind == EdgeKind::kLeave) out.distance(edge.target - p.range.begin);
  }
}

bool read_blocks(ByteReader& reader, size_t count, KnownProcedure& into) {
  cfg::Procedure& p = into.procedure;
  std::vector<cfg::Block>& all = p.blocks.edit();
  all.resize(count);
  into.plan.block_counter.assign(count, kNoCounter);
  uint64_t insns = 0, edges = 0;
  int64_t end = 0, begin = -1;
  for (size_t b = 0; b < count; ++b) {
    cfg::Block& block = all[b];
    const uint8_t first = reader.u8();
    const int64_t offset = (first & kAdjacent) != 0 ? end : end + read_distance(reader);
    const uint8_t flow = first & kFlowBits;
    if (offset <= begin || offset >= static_cast<int64_t>(p.range.size_bytes())) return false;
    if (flow > static_cast<uint8_t>(isa::Flow::kUnsupported)) return false;
    begin = offset;
    block.offset = static_cast<uint32_t>(offset);
    block.end = static_cast<isa::Flow>(flow);
    block.from_jump_table = (first & kFromTable) != 0;
    if ((first & kCounted) != 0) {
      into.plan.block_counter[b] = static_cast<int32_t>(into.counters++);
    }
    block.flags_live_in = reader.u8() & isa::flag::kAll;
    block.flags_live_out = reader.u8() & isa::flag::kAll;
    const uint64_t insn_count = reader.uleb();
    const uint64_t edge_count = reader.uleb();
    block.first_insn = static_cast<uint32_t>(insns);
    block.first_edge = static_cast<uint32_t>(edges);
    if (insn_count == 0 || insn_count > into.insn_sizes.size() - insns) return false;
    if (edge_count > p.edges.size() - edges) return false;
    block.insn_count = static_cast<uint32_t>(insn_count);
    block.edge_count = static_cast<uint32_t>(edge_count);
    block.size_bytes = 0;
    for (uint64_t i = insns; i < insns + insn_count; ++i) {
      if (into.insn_sizes[i] == 0 || into.insn_sizes[i] > isa::kInsnBytesMax) return false;
      block.size_bytes += into.insn_sizes[i];
    }
    insns += insn_count;
    edges += edge_count;
    end = offset + block.size_bytes;
    if (end > static_cast<int64_t>(p.range.size_bytes())) return false;
  }
  return reader.ok() && insns == into.insn_sizes.size() && edges == p.edges.size();
}

bool read_edge(ByteReader& reader, uint32_t from, size_t e, KnownProcedure& into) {
  cfg::Procedure& p = into.procedure;
  cfg::Edge& edge = p.edges.edit()[e];
  const uint8_t first = reader.u8();
  const uint8_t kind = first & kKindBits;
  if (kind > static_cast<uint8_t>(EdgeKind::kLeave)) return false;
  edge = {from, cfg::kExitBlock, static_cast<EdgeKind>(kind), LinkAddr()};
  if ((first & kCounted) != 0) into.plan.edge_counter[e] = static_cast<int32_t>(into.counters++);
  if (!exits(edge.kind)) {
    const int64_t to = int64_t{from} + read_distance(reader);
    if (to < 0 || to >= static_cast<int64_t>(p.blocks.size())) return false;
    edge.to = static_cast<uint32_t>(to);
    edge.target = p.address_of(p.blocks[edge.to]);
  }
  if (edge.kind == EdgeKind::kLeave) {
    edge.target = p.range.begin + static_cast<uint64_t>(read_distance(reader));
  }
  return reader.ok();
}

bool read_edges(ByteReader& reader, KnownProcedure& into) {
  into.plan.edge_counter.assign(into.procedure.edges.size(), kNoCounter);
  for (uint32_t b = 0; b < into.procedure.blocks.size(); ++b) {
    const cfg::Block& block = into.procedure.blocks[b];
    for (uint32_t e = block.first_edge; e < block.first_edge + block.edge_count; ++e) {
      if (!read_edge(reader, b, e, into)) return false;
    }
  }
  return true;
}

// The ways out that discovery gives a block that ends like this one.
bool leaves_as_it_must(const cfg::Procedure& p, const cfg::Block& block) {
  const std::span<const cfg::Edge> edges = p.edges_of(block);
  const auto is = [&](size_t e, EdgeKind kind) {
    if (edges[e].kind == EdgeKind::kLeave) return kind != EdgeKind::kCallReturn;
    if (edges[e].kind != kind) return false;
    const bool next = kind == EdgeKind::kFallthrough || kind == EdgeKind::kCallReturn ||
                      kind == EdgeKind::kSystemCall;
    return !next || edges[e].target == p.end_of(block);
  };
  switch (block.end) {
    case isa::Flow::kNone:
      return edges.size() == 1 && is(0, EdgeKind::kFallthrough);
    case isa::Flow::kConditional:
    case isa::Flow::kCountedJump:
      return edges.size() == 2 && is(0, EdgeKind::kTaken) && is(1, EdgeKind::kFallthrough);
    case isa::Flow::kJump:
      return edges.size() == 1 && is(0, EdgeKind::kJump);
    case isa::Flow::kSystemCall:
      return edges.size() == 1 && is(0, EdgeKind::kSystemCall);
    case isa::Flow::kReturn:
      return edges.size() == 1 && edges[0].kind == EdgeKind::kReturn;
    case isa::Flow::kTrap:
    case isa::Flow::kUnsupported:
      return edges.size() == 1 && edges[0].kind == EdgeKind::kNoReturn;
    case isa::Flow::kIndirectJump:
      return std::ranges::all_of(
          edges, [](const cfg::Edge& edge) { return edge.kind == EdgeKind::kTableJump; });
    case isa::Flow::kCall:
    case isa::Flow::kIndirectCall:
      if (edges.size() == 1 && edges[0].kind == EdgeKind::kNoReturn) return true;
      if (edges.size() == 1 && edges[0].kind == EdgeKind::kJump) {
        return block.end == isa::Flow::kCall && edges[0].target == p.end_of(block);
      }
      return (edges.size() == 1 || (edges.size() == 2 && edges[1].kind == EdgeKind::kNoReturn)) &&
             is(0, EdgeKind::kCallReturn);
  }
  return false;
}

void put_order(const translate::Plan& plan, Writer& out) {
  out.u8(plan.order.empty() ? 0 : 1);
  if (plan.order.empty()) return;
  out.uleb(plan.in_body);
  int64_t before = 0;
  for (uint32_t i = 0; i < plan.in_body; ++i) {
    out.distance(plan.order[i] - before);
    before = plan.order[i];
  }
}

// The body's blocks in their order, the others behind it.  What calls of the body come back to must
// be in the body.
bool read_order(ByteReader& reader, KnownProcedure& into) {
  const cfg::Procedure& p = into.procedure;
  translate::Plan& plan = into.plan;
  plan.order.clear();
  plan.in_body = 0;
  plan.followed.clear();
  if (reader.u8() == 0) return true;
  const uint64_t in_body = reader.uleb();
  if (in_body == 0 || in_body > p.blocks.size()) return false;
  std::vector<bool> placed(p.blocks.size(), false);
  plan.order.reserve(p.blocks.size());
  int64_t block = 0;
  for (uint64_t i = 0; i < in_body; ++i) {
    block += read_distance(reader);
    if (block < 0 || block >= static_cast<int64_t>(p.blocks.size())) return false;
    if (placed[static_cast<size_t>(block)]) return false;
    placed[static_cast<size_t>(block)] = true;
    plan.order.push_back(static_cast<uint32_t>(block));
  }
  for (const cfg::Edge& edge : p.edges) {
    if (edge.kind == EdgeKind::kCallReturn && placed[edge.from] && !placed[edge.to]) return false;
  }
  plan.in_body = static_cast<uint32_t>(in_body);
  for (uint32_t b = 0; b < p.blocks.size(); ++b) {
    if (!placed[b]) plan.order.push_back(b);
  }
  return reader.ok();
}

void put_events(const std::vector<WantedEvent>& events, Writer& out) {
  out.uleb(events.size());
  for (const WantedEvent& event : events) {
    out.u8(static_cast<uint8_t>(event.kind));
    out.uleb(event.block);
    out.uleb(event.insn_in_block);
    if (event.kind == EventKind::kReturnSlot) out.uleb(static_cast<uint32_t>(event.slot_bytes));
    if (event.kind == EventKind::kReturnChanged) out.u8(event.slot_bytes == 0 ? 0 : 1);
  }
}

bool read_events(ByteReader& reader, KnownProcedure& into) {
  const cfg::Procedure& p = into.procedure;
  for (uint64_t left = reader.uleb(); left > 0 && reader.ok(); --left) {
    WantedEvent event;
    const uint8_t kind = reader.u8();
    const uint64_t block = reader.uleb();
    const uint64_t insn = reader.uleb();
    if (kind > static_cast<uint8_t>(EventKind::kJumpByReturn)) return false;
    if (block >= p.blocks.size()) return false;
    if (insn >= p.blocks[block].insn_count) return false;
    event.kind = static_cast<EventKind>(kind);
    event.block = static_cast<uint32_t>(block);
    event.insn_in_block = static_cast<uint32_t>(insn);
    event.insn = p.blocks[block].first_insn + event.insn_in_block;
    if (event.kind == EventKind::kReturnSlot) {
      const uint64_t slot = reader.uleb();
      if (slot > INT32_MAX) return false;
      event.slot_bytes = static_cast<int32_t>(slot);
    }
    if (event.kind == EventKind::kReturnChanged) {
      const uint8_t is_popped = reader.u8();
      if (is_popped > 1) return false;
      event.slot_bytes = is_popped == 0 ? 0 : kPoppedSlotBytes;
    }
    if (!into.events.empty() && event.insn <= into.events.back().insn) return false;
    into.events.push_back(event);
  }
  return reader.ok();
}

void put_sources(const KnownProcedure& known, Writer& out) {
  out.uleb(known.sources.size());
  LinkAddr before = known.procedure.range.begin;
  for (const LinkRange& range : known.sources) {
    out.distance(range.begin - before);
    out.uleb(range.size_bytes());
    before = range.end;
  }
}

bool read_sources(ByteReader& reader, KnownProcedure& into) {
  LinkAddr before = into.procedure.range.begin;
  for (uint64_t left = reader.uleb(); left > 0 && reader.ok(); --left) {
    const LinkAddr begin = before + static_cast<uint64_t>(read_distance(reader));
    before = begin + reader.uleb();
    into.sources.push_back({begin, before});
  }
  return reader.ok();
}

// Every byte of every block must be among what the digest is of.
bool covers_blocks(const KnownProcedure& known) {
  std::vector<LinkRange> sources = known.sources;
  std::ranges::sort(sources, {}, &LinkRange::begin);
  const cfg::Procedure& p = known.procedure;
  return std::ranges::all_of(p.blocks, [&](const cfg::Block& block) {
    const auto behind =
        std::ranges::upper_bound(sources, p.address_of(block), {}, &LinkRange::begin);
    return behind != sources.begin() && p.end_of(block) <= (behind - 1)->end;
  });
}

}  // namespace

std::vector<uint8_t> encode_found(const KnownProcedure& known) {
  Writer out;
  const cfg::Procedure& p = known.procedure;
  uint32_t insns = 0, edges = 0;
  for (const cfg::Block& block : p.blocks) {
    CHECK(block.first_insn == insns && block.first_edge == edges) << "blocks that are not in order";
    insns += block.insn_count;
    edges += block.edge_count;
  }
  out.uleb(known.insn_sizes.size());
  out.uleb(p.blocks.size());
  out.uleb(p.edges.size());
  out.uleb(p.entry_block);
  out.bytes.insert(out.bytes.end(), known.insn_sizes.begin(), known.insn_sizes.end());
  put_blocks(known, out);
  put_edges(known, out);
  put_order(known.plan, out);
  put_events(known.events, out);
  put_sources(known, out);
  return std::move(out.bytes);
}

bool decode_found(std::span<const uint8_t> bytes, const ProcedureKey& key, KnownProcedure& into) {
  into.forget();
  cfg::Procedure& p = into.procedure;
  p.entry = key.entry;
  p.range = key.range;
  p.insns.clear();
  ByteReader reader(bytes);
  const uint64_t insns = reader.uleb();
  const uint64_t blocks = reader.uleb();
  const uint64_t edges = reader.uleb();
  const uint64_t entry_block = reader.uleb();
  // Each takes a byte at least.
  if (!reader.ok() || insns > reader.remaining() || blocks > insns) return false;
  if (edges > reader.remaining() || entry_block >= blocks) return false;
  p.entry_block = static_cast<uint32_t>(entry_block);
  into.plan.events.clear();
  const auto sizes = bytes.subspan(reader.position(), insns);
  into.insn_sizes.assign(sizes.begin(), sizes.end());
  reader.skip(insns);
  p.edges.edit().resize(edges);
  if (!read_blocks(reader, blocks, into) || !read_edges(reader, into)) return false;
  if (p.address_of(p.blocks[p.entry_block]) != p.entry) return false;
  if (p.block_at(key.reached) == cfg::kExitBlock) return false;
  const auto sound = [&](const cfg::Block& block) { return leaves_as_it_must(p, block); };
  if (!std::ranges::all_of(p.blocks, sound)) return false;
  if (!read_order(reader, into) || !read_events(reader, into)) return false;
  if (!read_sources(reader, into) || !covers_blocks(into)) return false;
  into.digest = reader.u64();
  return reader.ok() && reader.at_end();
}

}  // namespace tally::engine
