// See code_map.h.
#include "cache/code_map.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace tally::engine {
namespace {

using translate::BlockCode;
using translate::Mark;

struct Writer {
  std::FILE* file;
  void line(CacheAddr begin, CacheAddr end, const char* kind, uint64_t original) {
    if (begin < end)
      fmt::print(file, "{:x} {:x} {} {:x}\n", begin.value(), end.value(), kind, original);
  }
};

const char* name_of(isa::Flow flow) {
  switch (flow) {
    case isa::Flow::kNone:
      return "next";
    case isa::Flow::kConditional:
    case isa::Flow::kCountedJump:
      return "conditional";
    case isa::Flow::kJump:
      return "jump";
    case isa::Flow::kCall:
      return "call";
    case isa::Flow::kIndirectCall:
    case isa::Flow::kIndirectJump:
      return "indirect";
    case isa::Flow::kReturn:
      return "return";
    case isa::Flow::kSystemCall:
      return "syscall";
    case isa::Flow::kTrap:
    case isa::Flow::kUnsupported:
      break;
  }
  return "other";
}

const char* name_of(Mark::Kind kind) {
  return kind == Mark::Kind::kEdgeStub ? "edge_stub" : "cold";
}

void write_unit(Writer& out, const Unit& unit) {
  const translate::UnitCode& code = unit.code;
  for (uint32_t b = 0; b < code.blocks.size(); ++b) {
    const BlockCode& block = code.blocks[b];
    if (!block.exists()) continue;
    const cfg::Block& in = unit.procedure.blocks[b];
    const uint64_t original = unit.module->to_target(unit.address_of(b)).value();
    if (block.landing != BlockCode::kNone) {
      out.line(code.address(block.landing), code.address(block.label), "landing", original);
    }
    uint32_t last = block.end;
    if (in.end != isa::Flow::kNone && in.insn_count > 0) {
      last = code.offset_of_insn(b, in.insn_count - 1);
    }
    out.line(code.address(block.label), code.address(last), "body", original);
    out.line(code.address(last), code.address(block.end), name_of(in.end), original);
  }
  for (size_t i = 0; i < code.marks.size(); ++i) {
    const uint32_t begin = code.marks[i].offset;
    const bool cold = begin >= translate::kColdOffset;
    uint32_t end = cold ? translate::kColdOffset + code.cold_bytes : code.body_bytes;
    if (const auto* late = code.late_part_at(begin)) end = late->end;
    if (i + 1 < code.marks.size()) end = std::min(end, code.marks[i + 1].offset);
    out.line(code.address(begin), code.address(begin) + (end - begin), name_of(code.marks[i].kind),
             0);
  }
}

}  // namespace

Status write_code_map(const CodeCache& cache, const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "w"), std::fclose);
  if (file == nullptr) return make_error("cannot write {}: {}", path, strerror(errno));
  Writer out{file.get()};
  for (const auto& unit : cache.units()) write_unit(out, *unit);
  for (const SiteState& site : cache.sites()) {
    for (const Pair& pair : site.pairs) {
      out.line(pair.stub.entry, pair.stub.end, "pair", pair.target.value());
    }
    if (site.by_index == nullptr) continue;
    const Unit& unit = cache.unit(site.unit);
    const uint64_t jumping = unit.module->to_target(unit.address_of(site.site.block)).value();
    for (const translate::IndexedStub& stub : site.by_index->stubs) {
      out.line(stub.entry, stub.compares, "body", jumping);
      out.line(stub.compares, stub.end, "pair", jumping);
      out.line(stub.mismatch, stub.mismatch_end, "pair", jumping);
    }
  }
  cache.for_each_dispatch(
      [&](CacheAddr begin, CacheAddr end) { out.line(begin, end, "dispatch", 0); });
  for (const ArrivalStub& arrival : cache.arrivals()) {
    out.line(arrival.stub.entry, arrival.sent.end, "arrival", 0);
  }
  for (const Door& door : cache.doors()) out.line(door.entry, door.end, "arrival", 0);
  for (const LinkPair& pair : cache.link_pairs()) {
    out.line(pair.stub.entry, pair.stub.end, "link", 0);
  }
  return Ok{};
}

}  // namespace tally::engine
