// What the translator emits, judged by decoding it again: units of real procedures from libc, with
// all counters, some and none; and the gateway.  The pieces that are small enough are executed, in
// translate_pieces_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "cache/blocks_together.h"
#include "cache/plan.h"
#include "cfg/procedure.h"
#include "cfg/view.h"
#include "elf/image.h"
#include "isa/insn.h"
#include "translate/layout.h"
#include "translate/unit.h"

namespace tally::translate {
namespace {

using isa::Flow;

constexpr uint32_t kTablesBase = 0x10000000;

bool is_direct_branch(const isa::Insn& insn) {
  return insn.flow == Flow::kJump || insn.flow == Flow::kConditional ||
         insn.flow == Flow::kCountedJump || insn.flow == Flow::kCall;
}

// Of an instruction of twelve bytes, behind a jump in its place.
constexpr uint32_t kLeftOfStubBytes = 12 - isa::kJumpBytes;

// Generated code as a disassembler sees it.
class Listing {
 public:
  Listing(const uint8_t* bytes, CacheAddr address, size_t size_bytes)
      : bytes_(bytes, size_bytes), address_(address) {}

  // Decodes [begin, end) but for what is left of a stub at each of `data`; everything must decode.
  void read(uint32_t begin, uint32_t end, const std::set<uint32_t>& data) {
    for (uint32_t at = begin; at < end;) {
      if (data.contains(at)) {
        at += kLeftOfStubBytes;
        continue;
      }
      const isa::Insn insn = isa::decode(bytes_.subspan(at), (address_ + at).value());
      ASSERT_GT(insn.size, 0) << "no instruction at offset " << at;
      ASSERT_LE(at + insn.size, end) << "the last instruction, at offset " << at << ", is cut";
      const auto next_data = data.upper_bound(at);
      ASSERT_TRUE(next_data == data.end() || at + insn.size <= *next_data)
          << "the instruction at offset " << at << " runs into data";
      starts_.insert(at);
      if (is_direct_branch(insn)) branches_.push_back({at, CacheAddr(insn.target)});
      at += insn.size;
    }
  }

  bool starts_at(uint32_t offset) const { return starts_.contains(offset); }

  // Every direct branch goes to the start of an instruction read, or to one of `elsewhere`.
  void expect_targets(const std::set<CacheAddr>& elsewhere) const {
    for (const auto& [at, target] : branches_) {
      if (elsewhere.contains(target)) continue;
      const int64_t offset = target - address_;
      EXPECT_TRUE(offset >= 0 && starts_at(static_cast<uint32_t>(offset)))
          << "the branch at offset " << at << " goes to offset " << offset;
    }
  }

 private:
  std::span<const uint8_t> bytes_;
  CacheAddr address_;
  std::set<uint32_t> starts_;
  std::vector<std::pair<uint32_t, CacheAddr>> branches_;
};

// ---- gateway
// -------------------------------------------------------------------------------------

TEST(Gateway, EveryInstructionDecodesAndEveryBranchLands) {
  std::vector<uint8_t> buffer(4096);
  const CacheAddr address(0x7f0000000000);
  isa::Assembler as(buffer.data(), buffer.size(), address);
  const GatewayCode code = emit_gateway(as, kTablesBase);
  ASSERT_FALSE(as.overflowed());
  ASSERT_EQ(code.begin, address);
  ASSERT_EQ(code.end, as.here());
  Listing listing(buffer.data(), address, as.offset());
  listing.read(0, as.offset(), {});
  listing.expect_targets({});
  for (CacheAddr entry :
       {code.entries.link, code.entries.indirect, code.entries.ret, code.entries.syscall,
        code.entries.event, code.entries.ask, code.entries.visit, code.entries.visit_by_call,
        code.noted, code.entries.lookup, code.entries.ret_pop, code.entries.ret_popped,
        code.entries.no_landing, code.syscall_insn}) {
    EXPECT_TRUE(listing.starts_at(static_cast<uint32_t>(entry - address)));
  }
  EXPECT_EQ(std::memcmp(buffer.data() + (code.syscall_insn - address), "\x0f\x05", 2), 0);
}

// A thread there has noted its visit and nothing is asked any more (ledger/locate.cpp).
TEST(Gateway, BehindANoteNothingIsAsked) {
  std::vector<uint8_t> buffer(4096);
  const CacheAddr address(0x7f0000000000);
  isa::Assembler as(buffer.data(), buffer.size(), address);
  const GatewayCode code = emit_gateway(as, kTablesBase);
  const std::span<const uint8_t> bytes(buffer);
  CacheAddr at = code.noted;
  CacheAddr last;
  while (at < code.entries.ret) {
    const auto insn = isa::decode(bytes.subspan(static_cast<size_t>(at - address)), at.value());
    ASSERT_GT(insn.size, 0);
    EXPECT_FALSE(is_direct_branch(insn));
    last = at;
    at = at + insn.size;
  }
  EXPECT_EQ(at, code.entries.ret);
  const uint8_t jmp_gs[] = {0x65, 0xff, 0x24, 0x25};
  EXPECT_EQ(std::memcmp(buffer.data() + (last - address), jmp_gs, sizeof jmp_gs), 0);
}

TEST(Gateway, OfAnotherAreaMakesNoSystemCallItself) {
  std::vector<uint8_t> buffer(4096);
  isa::Assembler first_as(buffer.data(), buffer.size(), CacheAddr(0x7f0000000000));
  const GatewayCode first = emit_gateway(first_as, kTablesBase);
  std::vector<uint8_t> other(4096);
  const CacheAddr address(0x550000000000);
  isa::Assembler as(other.data(), other.size(), address);
  const GatewayCode code = emit_gateway(as, kTablesBase, &first);
  ASSERT_EQ(code.begin, address);
  ASSERT_EQ(code.end, as.here());
  const uint8_t syscall[] = {0x0f, 0x05};
  // But for the bytes of a pointer, behind the jump through it.
  const uint8_t jump[] = {0xff, 0x25, 0, 0, 0, 0};
  for (auto at = other.begin(); at < other.begin() + as.offset(); ++at) {
    if (std::equal(jump, jump + sizeof jump, at)) at += sizeof jump + sizeof(uint64_t) - 1;
    EXPECT_FALSE(std::equal(syscall, syscall + 2, at)) << "at " << at - other.begin();
  }
  for (const CacheAddr entry :
       {code.entries.link, code.entries.indirect, code.entries.visit, code.entries.visit_by_call,
        code.entries.ret, code.entries.syscall, code.entries.event}) {
    EXPECT_GT(entry, address);
    EXPECT_LT(entry, code.entries.lookup);
  }
  EXPECT_EQ(code.syscall_insn, first.syscall_insn);
  uint64_t goes_on_at = 0;  // the slot of the jump that all entries lead to
  std::memcpy(&goes_on_at, other.data() + 8, sizeof goes_on_at);
  EXPECT_EQ(goes_on_at, first.begin.value());
}

TEST(Gateway, WithoutRoomItSaysSo) {
  std::vector<uint8_t> buffer(64 + 1, 0xee);
  isa::Assembler as(buffer.data(), 64, CacheAddr(0x7f0000000000));
  emit_gateway(as, kTablesBase);
  EXPECT_TRUE(as.overflowed());
  EXPECT_EQ(buffer[64], 0xee) << "written behind the end";
}

// ---- units
// ---------------------------------------------------------------------------------------

// Which counters a plan asks for; the last three with the blocks in another order, and the very
// last two made in two steps, and in many.
enum class Counters { kNone, kAll, kSome, kSomeInAnyOrder, kSomeInTwoSteps, kSomeInManySteps };

bool is_in_steps(Counters which) {
  return which >= Counters::kSomeInTwoSteps;
}

Plan make_plan(const cfg::Procedure& procedure, Counters which, std::mt19937& random) {
  Plan plan;
  plan.block_counter.assign(procedure.blocks.size(), kNoCounter);
  plan.edge_counter.assign(procedure.edges.size(), kNoCounter);
  int32_t next = 0;
  auto choose = [&](int32_t& counter) {
    const bool none = which == Counters::kNone;
    if (which == Counters::kAll || (!none && random() % 2)) counter = next++;
  };
  for (int32_t& counter : plan.block_counter) choose(counter);
  for (int32_t& counter : plan.edge_counter) choose(counter);
  if (which == Counters::kSomeInAnyOrder) {
    plan.order.resize(procedure.blocks.size());
    std::iota(plan.order.begin(), plan.order.end(), 0u);
    std::ranges::shuffle(plan.order, random);
    plan.in_body = static_cast<uint32_t>(random() % (plan.order.size() + 1));
  }
  if (is_in_steps(which)) {
    const bool two = which == Counters::kSomeInTwoSteps;
    engine::leave_entry_alone_in_body(
        procedure, two ? engine::LeftOut::kTogether : engine::LeftOut::kInParts, plan);
    for (size_t e = 0; e < plan.followed.size(); ++e) {
      const bool inside = procedure.edges[e].to != cfg::kExitBlock;
      if (inside && random() % 4 == 0) plan.followed[e] = true;
    }
    for (auto* counters : {&plan.block_counter, &plan.edge_counter}) {
      for (int32_t& counter : *counters) {
        if (!two && counter != kNoCounter && random() % 4 != 0) counter = kUnnumbered;
      }
    }
  }
  return plan;
}

// The cold part lies right behind the body in one buffer; so shall its offsets.
void close_up(UnitCode& code) {
  const auto close = [&](uint32_t& offset) {
    if (offset != BlockCode::kNone && offset >= kColdOffset) {
      offset -= kColdOffset - code.body_bytes;
    }
  };
  for (uint32_t& offset : code.insn_offset) close(offset);
  for (BlockCode& block : code.blocks.made()) {
    for (uint32_t* offset :
         {&block.label, &block.landing, &block.landing_accept, &block.return_counted,
          &block.probe_begin, &block.probe_counted, &block.end, &block.edge_counted}) {
      close(*offset);
    }
  }
  for (Thunk& thunk : code.thunks) {
    for (uint32_t* offset : {&thunk.offset, &thunk.pushed, &thunk.back}) close(*offset);
  }
  for (Mark& mark : code.marks) {
    close(mark.offset);
    close(mark.counted_offset);
  }
  for (uint32_t* offset : {&code.cold.thunks_begin, &code.cold.stubs_begin}) close(*offset);
  for (UnitCode::LatePart& part : code.late) close(part.begin);
}

class Units : public testing::TestWithParam<Counters> {
 protected:
  void SetUp() override {
    auto opened = elf::Image::open("/lib/x86_64-linux-gnu/libc.so.6");
    ASSERT_TRUE(opened) << opened.error().message;
    image_ = *opened;
    view_ = cfg::view_of(image_);
  }

  // Emits `procedure` for a module at `bias` and checks all that can be seen without running it.
  void emit_and_check(const cfg::Procedure& procedure, uint64_t bias);

  void make_what_is_left_out(const EmitRequest& request);
  void check_left_out() const;
  void check_asks(const EmitRequest& request) const;
  CacheAddr target_of(CacheAddr field) const;
  void end_waits();
  void check_places();
  void check_copies();
  void check_copy(uint32_t block, uint32_t index);
  uint32_t last_insn_of(size_t block) const {
    return code_.offset_of_insn(static_cast<uint32_t>(block),
                                procedure_->blocks[block].insn_count - 1);
  }
  void check_turned();
  void check_near();
  void choose_fronts();
  void check_fronts();
  void check_ends_in_front_of(uint32_t offset) const;
  void check_patch_fields();
  void check_pushed_returns();
  void check_decodes();
  uint32_t pool_begin(uint32_t part_begin, uint32_t part_end) const;
  uint32_t seldom_begin(uint32_t part_begin) const;

  std::shared_ptr<elf::Image> image_;
  cfg::CodeView view_;
  std::mt19937 random_{2026};

  // The unit under test.
  const cfg::Procedure* procedure_ = nullptr;
  uint64_t bias_ = 0;
  std::vector<uint8_t> buffer_;
  Plan plan_;
  Gateways gateways_;
  UnitCode code_;
  std::vector<uint8_t> idle_edges_;
  std::vector<uint32_t> led_from_;
  size_t fronts_ = 0;
  CacheAddr area_;
  uint32_t first_ask_ = 0;
  bool near_jumps_ = false;
  size_t near_ahead_ = 0, far_ahead_ = 0;
  size_t counts_in_returns_ = 0;
  size_t steps_ = 0;
};

void Units::emit_and_check(const cfg::Procedure& procedure, uint64_t bias) {
  procedure_ = &procedure;
  bias_ = bias;
  plan_ = make_plan(procedure, GetParam(), random_);
  const size_t bound = 2 * emit_bound_bytes(procedure);
  buffer_.assign(bound, 0xcc);
  // Units begin anywhere, not only at multiples of 8.
  const CacheAddr address(bias + 0x10000000 + random_() % 64);
  const CacheAddr far(bias + 0x20000000);
  const auto pick = random_() % 6;
  EmitRequest request;
  request.compare = pick % 2 == 0 ? Compare::kAll64 : Compare::kLow32;
  request.returns = static_cast<Returns>(pick / 2);
  request.flags_assumed_live = random_() % 4 == 0 ? isa::flag::kAll : 0;
  gateways_ = {far,      far + 16,  far + 32,  far + 48,  far + 64,  far + 80,
               far + 96, far + 112, far + 128, far + 144, far + 160, far + 176};
  request.area = CacheAddr(bias + 0x10000000);
  request.first_ask = static_cast<uint32_t>(random_() % 1000);
  const auto some = static_cast<uint32_t>(random_() % 200);
  request.asks_end = request.first_ask + (random_() % 3 == 0 ? 0 : some);
  first_ask_ = request.first_ask;
  area_ = request.area;
  request.procedure = &procedure;
  request.plan = &plan_;
  request.view = &view_;
  request.bias = bias;
  request.tables_base = kTablesBase;
  request.gateways = gateways_;
  near_jumps_ = random_() % 4 != 0;
  request.near_jumps = near_jumps_;
  request.defer = is_in_steps(GetParam());
  int32_t next_number = 1 << 20;
  request.give_number = [&](EmitRequest::Counts what, uint32_t index) {
    const bool of_block = what == EmitRequest::Counts::kBlock;
    int32_t& counter = (of_block ? plan_.block_counter : plan_.edge_counter)[index];
    ASSERT_EQ(counter, kUnnumbered) << "has a number already";
    counter = next_number++;
  };
  idle_edges_.clear();
  if (random_() % 4 != 0) {
    for (size_t e = 0; e < procedure.edges.size(); ++e) idle_edges_.push_back(random_() % 2);
  }
  request.idle_edges = idle_edges_;
  choose_fronts();
  request.led_from = led_from_;
  // The cold part may lie anywhere; right behind the body, one buffer shows both.  How long the
  // body is, a first attempt tells.
  std::vector<uint8_t> elsewhere(bound);
  isa::Assembler trial(buffer_.data(), bound, address);
  isa::Assembler trial_cold(elsewhere.data(), bound, address + 0x100000);
  const uint32_t body_bytes = emit_unit(trial, trial_cold, request).body_bytes;
  ASSERT_FALSE(trial.overflowed()) << "emit_bound_bytes is too small: " << bound;
  isa::Assembler hot(buffer_.data(), body_bytes, address);
  isa::Assembler as(buffer_.data() + body_bytes, bound - body_bytes, address + body_bytes);
  code_ = emit_unit(hot, as, request);
  ASSERT_FALSE(as.overflowed()) << "emit_bound_bytes is too small: " << bound;
  ASSERT_EQ(code_.begin, address);
  ASSERT_EQ(code_.body_bytes, body_bytes);
  ASSERT_EQ(code_.cold_begin, address + body_bytes);
  ASSERT_EQ(code_.size_bytes, body_bytes + as.offset());
  ASSERT_LE(code_.body_bytes, code_.size_bytes);
  if (!code_.is_whole) {
    ASSERT_EQ(code_.order.size(), plan_.in_body);
    make_what_is_left_out(request);
    if (HasFatalFailure()) return;
  }
  check_asks(request);
  EXPECT_EQ(std::ranges::count(plan_.block_counter, kUnnumbered), 0);
  check_places();
  close_up(code_);
  check_copies();
  check_turned();
  check_near();
  check_fronts();
  check_patch_fields();
  check_pushed_returns();
  if (!HasFatalFailure()) check_decodes();
}

// From anywhere on, as control may get there.
void Units::make_what_is_left_out(const EmitRequest& request) {
  EmitRequest late = request;
  late.idle_edges = {};  // the cache has forgotten them by then
  while (!code_.is_whole) {
    check_left_out();
    check_asks(request);
    if (HasFatalFailure()) return;
    const auto exists = [&](uint32_t b) { return code_.blocks[b].exists(); };
    std::vector<uint32_t> blocks;
    for (uint32_t b = 0; b < code_.blocks.size(); ++b) {
      if (!exists(b)) blocks.push_back(b);
    }
    const bool edges_only = random_() % 8 == 0;
    if (edges_only) blocks.clear();
    if (!plan_.followed.empty() && !edges_only) {
      const uint32_t first = blocks[random_() % blocks.size()];
      blocks = engine::blocks_together(*procedure_, plan_.followed, first, exists);
    }
    const std::vector<Ask> before = code_.asks;
    const uint32_t at = code_.size_bytes;
    const size_t bound = late_bound_bytes(*procedure_, blocks, code_);
    ASSERT_LE(at + bound, buffer_.size());
    isa::Assembler as(buffer_.data() + at, bound, code_.begin + at);
    emit_late(as, late, blocks, code_);
    ASSERT_EQ(code_.size_bytes, at + as.offset());
    ASSERT_EQ(code_.address(code_.late.back().begin), code_.begin + at);
    ASSERT_EQ(code_.address(code_.late.back().end), code_.begin + code_.size_bytes);
    EXPECT_TRUE(std::ranges::equal(std::span(code_.asks).first(before.size()), before,
                                   [](const Ask& a, const Ask& b) {
                                     return a.request == b.request && a.argument == b.argument;
                                   }));
    end_waits();
  }
  steps_ += code_.late.size();
}

// In front of some blocks that an indirect jump of the procedure leads to, and of some others.
void Units::choose_fronts() {
  led_from_.clear();
  if (random_() % 4 == 0) return;
  led_from_.assign(procedure_->blocks.size(), EmitRequest::kNotLed);
  for (uint32_t& from : led_from_) {
    if (random_() % 8 == 0) from = Front::kElsewhere;
  }
  for (const cfg::Edge& edge : procedure_->edges) {
    if (edge.kind == cfg::EdgeKind::kTableJump && random_() % 4 != 0) {
      led_from_[edge.to] = edge.from;
    }
  }
}

// The block that lies in front of an offset does not go on there.
void Units::check_ends_in_front_of(uint32_t offset) const {
  const BlockCode* last = nullptr;
  for (const BlockCode& block : code_.blocks.made()) {
    const bool is_nearer =
        block.exists() && block.end <= offset && (last == nullptr || block.label > last->label);
    if (is_nearer) last = &block;
  }
  Flow flow = Flow::kJump;
  for (uint32_t at = last == nullptr ? offset : last->label; at < offset;) {
    const isa::Insn insn = isa::decode(std::span(buffer_).subspan(at), code_.begin.value() + at);
    ASSERT_GT(insn.size, 0);
    flow = insn.flow;
    at += insn.size;
  }
  ASSERT_TRUE(flow == Flow::kJump || flow == Flow::kReturn || flow == Flow::kIndirectJump ||
              flow == Flow::kTrap)
      << "falls into what is in front of offset " << offset;
}

// There is nothing in them yet, and no way into them but a stub that is still to come.
void Units::check_fronts() {
  fronts_ += code_.fronts.size();
  CacheAddr behind;
  for (const Front& front : code_.fronts) {
    const CacheAddr label = code_.address(code_.blocks[front.block].label);
    ASSERT_EQ(front.from, led_from_[front.block]);
    ASSERT_TRUE(behind <= front.entry && front.entry < label);
    ASSERT_LE(label - code_.begin, code_.body_bytes);
    ASSERT_EQ(front.entry.value() % (front.from == Front::kElsewhere ? 16 : 64), 0u);
    const uint8_t* room = buffer_.data() + (front.entry - code_.begin);
    ASSERT_TRUE(
        std::all_of(room, room + (label - front.entry), [](uint8_t b) { return b == 0xcc; }));
    ASSERT_EQ(code_.blocks[front.block].landing, BlockCode::kNone);
    check_ends_in_front_of(static_cast<uint32_t>(front.entry - code_.begin));
    behind = label;
  }
}

// What has no code is on the lists with all that leaves from it, and each way there has a stub.
void Units::check_left_out() const {
  std::set<std::pair<uint32_t, uint32_t>> links, waits;
  for (const Link& link : code_.links) {
    ASSERT_TRUE(links.emplace(link.block, link.edge).second);
    ASSERT_EQ(link.field != CacheAddr(), code_.blocks[link.block].exists());
  }
  for (uint32_t e = 0; e < procedure_->edges.size(); ++e) {
    const cfg::Edge& edge = procedure_->edges[e];
    ASSERT_TRUE(edge.kind != cfg::EdgeKind::kLeave || links.contains({edge.from, e}));
  }
  for (const UnitCode::Wait& wait : code_.waits) {
    if (wait.is_over) continue;
    const bool is_edge = wait.is_edge();
    const bool is_new = waits.emplace(is_edge ? wait.edge : wait.block, is_edge).second;
    ASSERT_TRUE(is_new || !wait.is_ask) << "two that could have been one";
    if (is_edge) {
      const cfg::Edge& edge = procedure_->edges[wait.edge];
      const bool is_idle = !idle_edges_.empty() && idle_edges_[wait.edge] != 0;
      ASSERT_TRUE(is_idle || !code_.blocks[edge.to].exists());
      ASSERT_TRUE(plan_.edge_counter[wait.edge] != kNoCounter);
      ASSERT_TRUE(edge.to != cfg::kExitBlock && code_.blocks[edge.from].exists());
    } else {
      ASSERT_FALSE(code_.blocks[wait.block].exists());
    }
    ASSERT_TRUE(wait.is_ask || (wait.address.value() & 7) <= 3) << "cannot be replaced as a whole";
  }
  for (uint32_t e = 0; e < procedure_->edges.size(); ++e) {
    const cfg::Edge& edge = procedure_->edges[e];
    const bool leads_there = edge.to != cfg::kExitBlock && code_.blocks[edge.from].exists() &&
                             !code_.blocks[edge.to].exists() &&
                             edge.kind != cfg::EdgeKind::kTableJump;
    ASSERT_TRUE(!leads_there || waits.contains({edge.to, 0}) || waits.contains({e, 1}));
  }
  for (const Mark& mark : code_.marks) {
    // Not among those of edges that have run.
    const bool is_stub = mark.kind == Mark::Kind::kEdgeStub;
    ASSERT_TRUE(!is_stub || !waits.contains({mark.index, 1}));
  }
}

// Each place that asks and takes no code is one link's, or one wait's, and what it says is that.
void Units::check_asks(const EmitRequest& request) const {
  std::set<uint32_t> seen;
  const auto expect = [&](CacheAddr address, Request what, uint32_t argument) {
    const auto offset = static_cast<uint64_t>(address - area_);
    ASSERT_FALSE(asks::is_in_tail(offset));
    const uint32_t number = asks::number_at(offset);
    ASSERT_EQ(asks::offset_of(number), offset);
    ASSERT_TRUE(number >= request.first_ask && number < request.asks_end);
    ASSERT_TRUE(seen.insert(number).second) << "two at one place";
    const Ask& ask = code_.asks.at(number - request.first_ask);
    ASSERT_EQ(ask.request, what);
    ASSERT_EQ(ask.argument, argument);
  };
  size_t links = 0;
  for (uint32_t i = 0; i < code_.links.size(); ++i) {
    const Link& link = code_.links[i];
    if (link.field == CacheAddr()) continue;
    ++links;
    const bool is_ask = link.miss_stub - area_ >= static_cast<int64_t>(asks::kBegin);
    if (is_ask) expect(link.miss_stub, Request::kLink, request.first_link + i);
  }
  for (const UnitCode::Wait& wait : code_.waits) {
    if (!wait.is_ask) continue;
    expect(wait.address, Request::kEvent,
           wait.is_edge() ? request.first_edge_wait_event + wait.edge
                          : request.first_wait_event + wait.block);
  }
  ASSERT_EQ(seen.size(), code_.asks.size());
  ASSERT_EQ(seen.size() + code_.asks_with_code, links + code_.waits.size());
  std::set<uint32_t> led;
  for (const UnitCode::WaitField& one : code_.wait_fields) {
    ASSERT_LE(one.field.value() & 7, 4u) << "cannot be patched while threads run";
    ASSERT_EQ(target_of(one.field), code_.waits.at(one.wait).address);
    led.insert(one.wait);
  }
  for (uint32_t i = 0; i < code_.waits.size(); ++i) {
    ASSERT_EQ(led.contains(i), code_.waits[i].is_ask && !code_.waits[i].is_over);
  }
}

CacheAddr Units::target_of(CacheAddr field) const {
  int32_t distance = 0;
  std::memcpy(&distance, &buffer_[static_cast<size_t>(field - code_.begin)], sizeof distance);
  return field + 4 + static_cast<uint64_t>(int64_t{distance});
}

// As the code cache does.
void Units::end_waits() {
  const auto made = [&](const UnitCode::Wait& wait) {
    return code_.address(wait.is_edge() ? wait.edge_stub : code_.blocks[wait.block].label);
  };
  for (UnitCode::Wait& wait : code_.waits) {
    const bool is_made = wait.is_edge() ? wait.edge_stub != UnitCode::Wait::kNone
                                        : code_.blocks[wait.block].exists();
    if (wait.is_edge()) {
      ASSERT_EQ(is_made, wait.is_over || code_.blocks[procedure_->edges[wait.edge].to].exists());
    }
    const bool ends = is_made && !wait.is_over;
    wait.is_over = is_made;
    if (!ends || wait.is_ask) continue;
    const auto at = static_cast<uint32_t>(wait.address - code_.begin);
    isa::Assembler as(buffer_.data() + at, 5, code_.begin + at);
    as.jmp(made(wait).value());
  }
  std::erase_if(code_.wait_fields, [&](const UnitCode::WaitField& one) {
    if (!code_.waits[one.wait].is_over) return false;
    const auto at = static_cast<uint32_t>(one.field - code_.begin);
    isa::Assembler as(buffer_.data() + at, 4, code_.begin + at);
    as.patch_rel32(0, made(code_.waits[one.wait]).value());
    return true;
  });
}

// Offsets ascend in the order of the blocks, probes lie inside them; each part begins with blocks.
void Units::check_places() {
  ASSERT_EQ(code_.insn_offset.size(), procedure_->insns.size());
  ASSERT_EQ(code_.blocks.size(), procedure_->blocks.size());
  if (plan_.followed.empty()) {
    ASSERT_EQ(code_.order, plan_.order);
  } else {
    ASSERT_TRUE(std::ranges::is_permutation(code_.order, plan_.order));
  }
  uint32_t before = 0;
  for (uint32_t i = 0; i < code_.blocks.size(); ++i) {
    const uint32_t b = code_.order.empty() ? i : code_.order[i];
    const bool in_body = plan_.order.empty() || i < plan_.in_body;
    ASSERT_EQ(code_.blocks[b].label < kColdOffset, in_body);
    const cfg::Block& block = procedure_->blocks[b];
    for (uint32_t insn = 0; insn < block.insn_count; ++insn) {
      const uint32_t offset = code_.offset_of_insn(b, insn);
      // A jump to the block that lies next needs no code.
      if (insn + 1 == block.insn_count && offset == code_.blocks[b].end) break;
      ASSERT_TRUE(offset > before || (i == 0 && insn == 0));
      ASSERT_EQ(code_.block_at(offset), b);
      before = offset;
    }
  }
  for (size_t b = 0; b < code_.blocks.size(); ++b) {
    const BlockCode& block = code_.blocks[b];
    const auto at = static_cast<uint32_t>(b);
    ASSERT_LE(block.label, code_.offset_of_insn(at, 0));
    ASSERT_LE(code_.offset_of_insn(at, 0), block.end);
    ASSERT_LE(block.end, code_.part_of(block.label).thunks_begin);
    if (block.landing != BlockCode::kNone) {
      ASSERT_LE(block.landing, block.landing_accept);
      ASSERT_LT(block.landing_accept, block.return_counted);
      ASSERT_LE(block.return_counted, block.label);
    }
    if (plan_.block_counter[b] == kNoCounter) {
      ASSERT_FALSE(block.counts_in_return);
      continue;
    }
    const uint32_t insns = procedure_->blocks[b].insn_count;
    ASSERT_LT(block.probe_begin, block.probe_counted);
    ASSERT_GE(block.probe_begin, block.label);
    if (block.counts_in_return) {
      ++counts_in_returns_;
      ASSERT_EQ(procedure_->blocks[b].end, Flow::kReturn);
      ASSERT_EQ(block.probe_insn, insns);
      ASSERT_GT(block.probe_begin, code_.offset_of_insn(at, insns - 1));
      ASSERT_LT(block.probe_counted, block.end);
    } else {
      ASSERT_LT(block.probe_insn, insns);
      ASSERT_LE(block.probe_counted, code_.offset_of_insn(at, block.probe_insn));
    }
  }
  for (const Thunk& thunk : code_.thunks) {
    ASSERT_GE(thunk.offset, code_.part_of(thunk.offset).thunks_begin);
    ASSERT_LT(thunk.pushed, code_.part_of(thunk.offset).stubs_begin);
  }
  ASSERT_LE(code_.body.stubs_begin, code_.body_bytes);
  uint32_t previous = 0;
  for (const Mark& mark : code_.marks) {
    ASSERT_GE(mark.offset, previous);
    ASSERT_GE(mark.offset, code_.part_of(mark.offset).stubs_begin);
    ASSERT_LT(mark.offset, mark.offset < kColdOffset
                               ? code_.body_bytes
                               : kColdOffset + code_.size_bytes - code_.body_bytes);
    ASSERT_TRUE(mark.offset >= kColdOffset || mark.kind == Mark::Kind::kEdgeStub);
    previous = mark.offset;
  }
}

// A conditional branch jumps on its own condition, or on the opposite one if the way that it would
// take has its counter behind it.
void Units::check_turned() {
  for (size_t b = 0; b < code_.blocks.size(); ++b) {
    const cfg::Block& block = procedure_->blocks[b];
    if (block.end != Flow::kConditional || code_.blocks[b].edge_counted == 0) continue;
    uint32_t at = last_insn_of(b);
    const auto is_near = [&] { return (buffer_[at] & 0xf0) == 0x70; };
    const auto is_far = [&] { return buffer_[at] == 0x0f && (buffer_[at + 1] & 0xf0) == 0x80; };
    while (!is_near() && !is_far()) ++at;  // over padding
    const uint32_t counted = code_.blocks[b].inline_edge;
    ASSERT_TRUE(counted == block.first_edge || counted == block.first_edge + 1);
    ASSERT_NE(plan_.edge_counter[counted], kNoCounter);
    const unsigned turned = counted == block.first_edge ? 1 : 0;
    const isa::Insn& last = procedure_->insns[block.first_insn + block.insn_count - 1];
    ASSERT_EQ(buffer_[at + (is_near() ? 0 : 1)] & 0xfu, last.condition ^ turned);
  }
}

// Jumps that end a block, inside the unit and not counted, take two bytes where that is enough and
// the block lies behind; ahead most do.  None do if that is switched off.
void Units::check_near() {
  constexpr uint32_t kNearBytes = 2;
  for (size_t b = 0; b < code_.blocks.size(); ++b) {
    const cfg::Block& block = procedure_->blocks[b];
    if (block.end != Flow::kConditional) continue;
    for (uint32_t at = last_insn_of(b); at < code_.blocks[b].end;) {
      const isa::Insn insn =
          isa::decode(std::span(buffer_).subspan(at), (code_.begin + at).value());
      ASSERT_GT(insn.size, 0);
      if (insn.flow == Flow::kConditional) {
        const int64_t distance = CacheAddr(insn.target) - (code_.begin + at + kNearBytes);
        const bool is_near = insn.size == kNearBytes;
        ASSERT_TRUE(!is_near || near_jumps_);
        const uint32_t target = static_cast<uint32_t>(CacheAddr(insn.target) - code_.begin);
        const bool same_part = (target < code_.body_bytes) == (at < code_.body_bytes);
        const bool to_block = std::ranges::any_of(
            code_.blocks.made(), [&](const BlockCode& other) { return other.label == target; });
        if (distance < 0 && distance >= -128 && same_part && to_block && near_jumps_) {
          ASSERT_TRUE(is_near) << "a jump of " << distance << " bytes";
        }
        const bool may_be_near = to_block && same_part && distance >= 0 && distance <= 127;
        if (near_jumps_ && may_be_near) ++(is_near ? near_ahead_ : far_ahead_);
      }
      at += insn.size;
    }
  }
}

// What is not control flow is copied byte for byte, but for a RIP-relative displacement.
void Units::check_copies() {
  for (uint32_t b = 0; b < code_.blocks.size(); ++b) {
    for (uint32_t i = 0; i < procedure_->blocks[b].insn_count; ++i) check_copy(b, i);
  }
}

void Units::check_copy(uint32_t block, uint32_t index) {
  const isa::Insn& insn = procedure_->insns[procedure_->blocks[block].first_insn + index];
  if (insn.flow != Flow::kNone) return;
  const uint32_t at = code_.offset_of_insn(block, index);
  const auto original = view_.code_at(procedure_->range.begin + insn.offset).first(insn.size);
  const std::span<const uint8_t> copied = std::span(buffer_).subspan(at, insn.size);
  const uint32_t same_front = insn.disp_offset ? insn.disp_offset : insn.size;
  ASSERT_TRUE(std::equal(copied.begin(), copied.begin() + same_front, original.begin()));
  if (insn.disp_offset == 0) return;
  ASSERT_TRUE(std::equal(copied.begin() + insn.disp_offset + 4, copied.end(),
                         original.begin() + insn.disp_offset + 4));
  const isa::Insn moved = isa::decode(std::span(buffer_).subspan(at), (code_.begin + at).value());
  ASSERT_EQ(moved.target, insn.target + bias_);
}

// A field that is patched while threads run lies inside 8 aligned bytes.
void Units::check_patch_fields() {
  auto straddles = [](CacheAddr field) { return (field.value() & 7) > 4; };
  for (const Link& link : code_.links) {
    ASSERT_FALSE(straddles(link.field)) << "link to " << std::hex << link.target.value();
    ASSERT_LT(link.block, procedure_->blocks.size());
    ASSERT_TRUE(link.edge == Link::kCallLink || procedure_->edges[link.edge].target == link.target);
  }
  for (const Site& site : code_.sites) {
    ASSERT_FALSE(straddles(site.field)) << "indirect branch in block " << site.block;
    ASSERT_EQ(target_of(site.field), site.miss_stub)
        << "a site that begins elsewhere than at its miss";
  }
}

// The return address that a call pushes is the original one.
void Units::check_pushed_returns() {
  for (size_t b = 0; b < procedure_->blocks.size(); ++b) {
    const cfg::Block& block = procedure_->blocks[b];
    if (block.end != Flow::kCall) continue;
    uint32_t at = last_insn_of(b);
    const uint64_t expected = procedure_->end_of(block).value() + bias_;
    uint64_t pushed = 0;
    int32_t immediate = 0;
    const auto thunk = std::find_if(code_.thunks.begin(), code_.thunks.end(),
                                    [&](const Thunk& t) { return t.block == b; });
    if (thunk != code_.thunks.end() && buffer_[thunk->offset] == 0x48) {
      std::memcpy(&immediate, &buffer_[thunk->pushed - 4], sizeof immediate);
      pushed = static_cast<uint64_t>(int64_t{immediate});
    } else if (thunk != code_.thunks.end()) {
      std::memcpy(&pushed, &buffer_[thunk->offset + 3], 4);
      std::memcpy(reinterpret_cast<uint8_t*>(&pushed) + 4, &buffer_[thunk->pushed - 4], 4);
    } else if (buffer_[at] == 0x68) {
      std::memcpy(&immediate, &buffer_[at + 1], sizeof immediate);
      pushed = static_cast<uint64_t>(int64_t{immediate});
    } else {
      const isa::Insn push =
          isa::decode(std::span(buffer_).subspan(at), (code_.begin + at).value());
      const uint64_t slot = push.target - code_.begin.value();
      ASSERT_LE(slot + 8, code_.size_bytes);
      std::memcpy(&pushed, &buffer_[slot], sizeof pushed);
    }
    ASSERT_EQ(pushed, expected);
  }
}

// Where the pool of the part between two offsets begins: at the lowest address there that a call of
// the unit pushes from.
uint32_t Units::pool_begin(uint32_t part_begin, uint32_t part_end) const {
  uint64_t begin = part_end;
  for (const cfg::Block& block : procedure_->blocks) {
    if (block.end != Flow::kCall && block.end != Flow::kIndirectCall) continue;
    const auto b = static_cast<size_t>(&block - procedure_->blocks.data());
    for (uint32_t at = last_insn_of(b); at < code_.blocks[b].end;) {
      const isa::Insn insn =
          isa::decode(std::span(buffer_).subspan(at), (code_.begin + at).value());
      if (insn.size == 0) break;  // reported by the listing
      const bool push_from_memory = buffer_[at] == 0xff && buffer_[at + 1] == 0x35;
      const uint64_t slot = insn.target - code_.begin.value();
      if (push_from_memory && slot >= part_begin && slot < begin) begin = slot;
      at += insn.size;
    }
  }
  return static_cast<uint32_t>(begin);
}

// Where the stubs begin that the body does not have, behind the blocks that begin there.
uint32_t Units::seldom_begin(uint32_t part_begin) const {
  for (const Mark& mark : code_.marks) {
    if (mark.offset >= part_begin && mark.kind != Mark::Kind::kEdgeStub) return mark.offset;
  }
  return code_.size_bytes;
}

void Units::check_decodes() {
  Listing listing(buffer_.data(), code_.begin, code_.size_bytes);
  // Behind the stubs of edges comes the pool of return addresses, which is data.
  listing.read(0, pool_begin(0, code_.body_bytes), {});
  std::vector<uint32_t> parts{code_.body_bytes};
  for (const UnitCode::LatePart& part : code_.late) parts.push_back(part.begin);
  parts.push_back(code_.size_bytes);
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const uint32_t seldom = std::min(seldom_begin(parts[i]), parts[i + 1]);
    listing.read(parts[i], pool_begin(parts[i], seldom), {});
    // Some bytes of what a stub began with are left behind the jump that leads on.
    std::set<uint32_t> data;
    for (const UnitCode::Wait& wait : code_.waits) {
      if (!wait.is_ask) data.insert(static_cast<uint32_t>(wait.address - code_.begin) + 5);
    }
    listing.read(seldom, parts[i + 1], data);
  }
  if (HasFatalFailure()) return;
  std::set<CacheAddr> elsewhere = {gateways_.link,   gateways_.visit,   gateways_.visit_by_call,
                                   gateways_.ret,    gateways_.syscall, gateways_.event,
                                   gateways_.lookup, gateways_.ret_pop};
  std::set<CacheAddr> waits;
  for (const UnitCode::Wait& wait : code_.waits) waits.insert(wait.address);
  for (uint32_t i = 0; i < code_.asks.size(); ++i) {
    const CacheAddr ask = area_ + asks::offset_of(first_ask_ + i);
    if (!waits.contains(ask)) elsewhere.insert(ask);  // nothing waits any more
  }
  listing.expect_targets(elsewhere);
  for (uint32_t at : code_.insn_offset) EXPECT_TRUE(listing.starts_at(at)) << "offset " << at;
  for (const Mark& mark : code_.marks) {
    EXPECT_TRUE(listing.starts_at(mark.offset)) << "offset " << mark.offset;
  }
}

TEST_P(Units, OfLibcAreWellFormed) {
  cfg::Discoverer discoverer(view_);
  const auto& ranges = image_->unwind_ranges();
  ASSERT_GT(ranges.size(), 1000u);
  size_t checked = 0;
  for (size_t i = random_() % 5; i < ranges.size() && checked < 600; i += 1 + random_() % 9) {
    cfg::DiscoverRequest request;
    request.entry = ranges[i].begin;
    request.range = ranges[i];
    const cfg::Procedure procedure = discoverer.discover(request);
    if (procedure.blocks.empty()) continue;
    // Return addresses below 2 GB are pushed as immediates, those above from a pool.
    emit_and_check(procedure, checked % 4 == 0 ? 0 : 0x7f1234560000);
    if (HasFailure()) FAIL() << "procedure at " << std::hex << request.entry.value();
    ++checked;
  }
  EXPECT_GE(checked, 400u);
  EXPECT_EQ(counts_in_returns_ > 0, GetParam() != Counters::kNone);
  // With a counter on every edge, or in a rest that is made later, none is near ahead.
  const bool may = GetParam() != Counters::kAll && !is_in_steps(GetParam());
  EXPECT_TRUE(may ? near_ahead_ > 2 * far_ahead_ : near_ahead_ == 0)
      << near_ahead_ << " jumps ahead are near, " << far_ahead_ << " could be";
  // Of a body that is an entry and nothing else, one in eleven.
  EXPECT_GT(fronts_, is_in_steps(GetParam()) ? 20u : 50u);
  if (GetParam() == Counters::kSomeInManySteps) {
    EXPECT_GT(steps_, 10 * checked);
  }
}

TEST_P(Units, WithoutRoomHaveNoSize) {
  cfg::Discoverer discoverer(view_);
  const elf::Symbol* symbol = image_->symbol_named("qsort_r");
  ASSERT_NE(symbol, nullptr);
  cfg::DiscoverRequest find;
  find.entry = symbol->range.begin;
  find.range = symbol->range;
  const cfg::Procedure procedure = discoverer.discover(find);
  ASSERT_GT(procedure.blocks.size(), 10u);
  Plan plan = make_plan(procedure, GetParam(), random_);
  plan.in_body = static_cast<uint32_t>(plan.order.size());
  for (auto* counters : {&plan.block_counter, &plan.edge_counter}) {
    std::ranges::replace(*counters, kUnnumbered, kNoCounter);
  }
  for (size_t room_bytes : {0u, 1u, 100u, 333u}) {
    std::vector<uint8_t> buffer(room_bytes + 1, 0xee);
    isa::Assembler as(buffer.data(), room_bytes, CacheAddr(0x10000000));
    EmitRequest request;
    request.procedure = &procedure;
    request.plan = &plan;
    request.view = &view_;
    request.tables_base = kTablesBase;
    const CacheAddr gateway(0x10001000);
    request.gateways = {gateway, gateway, gateway, gateway, gateway, gateway,
                        gateway, gateway, gateway, gateway, gateway, gateway};
    std::vector<uint8_t> cold(1 << 20);
    isa::Assembler cold_as(cold.data(), cold.size(), CacheAddr(0x10100000));
    EXPECT_TRUE(emit_unit(as, cold_as, request).has_overflowed);
    EXPECT_TRUE(as.overflowed());
    EXPECT_EQ(buffer[room_bytes], 0xee) << "written behind the end";
  }
}

INSTANTIATE_TEST_SUITE_P(Counters, Units,
                         testing::Values(Counters::kNone, Counters::kAll, Counters::kSome,
                                         Counters::kSomeInAnyOrder, Counters::kSomeInTwoSteps,
                                         Counters::kSomeInManySteps),
                         [](const auto& named) {
                           switch (named.param) {
                             case Counters::kNone:
                               return "None";
                             case Counters::kAll:
                               return "All";
                             case Counters::kSomeInAnyOrder:
                               return "SomeInAnyOrder";
                             case Counters::kSomeInTwoSteps:
                               return "SomeInTwoSteps";
                             case Counters::kSomeInManySteps:
                               return "SomeInManySteps";
                             case Counters::kSome:
                               break;
                           }
                           return "Some";
                         });

}  // namespace
}  // namespace tally::translate
