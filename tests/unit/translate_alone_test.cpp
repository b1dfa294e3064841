// Which branches through pointers that last are all that their block does, so that whoever leads
// to the block may lead on to their target at once (translate::Site::alone).
#include <gtest/gtest.h>

#include <vector>

#include "cfg/procedure.h"
#include "translate/unit.h"

namespace tally::translate {
namespace {

constexpr uint64_t kBase = 0x401000;
constexpr uint64_t kSlot = kBase + 0x2000;
constexpr uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

class Alone : public testing::Test {
 protected:
  void SetUp() override {
    request_.may_last = [](TargetAddr) { return true; };
  }

  void add(std::initializer_list<uint8_t> bytes) { code_.insert(code_.end(), bytes); }
  void add_endbr64() { code_.insert(code_.end(), std::begin(kEndbr64), std::end(kEndbr64)); }
  // The opcode's second byte: a jump or a call through the slot.
  void add_branch(uint8_t through) {
    const auto distance = static_cast<uint32_t>(kSlot - (kBase + code_.size() + 6));
    add({0xff, through});
    for (uint32_t i = 0; i < 4; ++i) code_.push_back(static_cast<uint8_t>(distance >> 8 * i));
  }
  void add_jump() { add_branch(0x25); }

  // Of the procedure's only branch through a pointer; `probe` may change the plan.
  template <class Probe>
  Site site(Probe probe) {
    cfg::CodeView view;
    view.code_at = [this](LinkAddr at) -> std::span<const uint8_t> {
      const uint64_t offset = at.value() - kBase;
      if (offset >= code_.size()) return {};
      return std::span(code_).subspan(offset);
    };
    view.read_data = [](LinkAddr, void*, size_t) { return false; };
    cfg::DiscoverRequest wanted;
    wanted.entry = LinkAddr(kBase);
    wanted.range = {LinkAddr(kBase), LinkAddr(kBase + code_.size())};
    const cfg::Procedure procedure = cfg::Discoverer(view).discover(wanted);
    Plan plan;
    plan.block_counter.assign(procedure.blocks.size(), kNoCounter);
    plan.edge_counter.assign(procedure.edges.size(), kNoCounter);
    probe(plan);
    request_.procedure = &procedure;
    request_.plan = &plan;
    request_.view = &view;
    request_.tables_base = 0x10000000;
    std::vector<uint8_t> hot(4096), cold(4096);
    isa::Assembler hot_as(hot.data(), hot.size(), CacheAddr(0x10000000));
    isa::Assembler cold_as(cold.data(), cold.size(), CacheAddr(0x10010000));
    const UnitCode code = emit_unit(hot_as, cold_as, request_);
    EXPECT_EQ(code.sites.size(), 1u);
    return code.sites.empty() ? Site{} : code.sites.front();
  }
  Site site() {
    return site([](Plan&) {});
  }

  std::vector<uint8_t> code_;
  EmitRequest request_;
};

TEST_F(Alone, AJump) {
  add_jump();
  EXPECT_TRUE(site().alone);
}

TEST_F(Alone, BehindAnEndbr64) {
  add_endbr64();
  add_jump();
  EXPECT_TRUE(site().alone);
}

TEST_F(Alone, NotBehindAnythingElse) {
  add({0x31, 0xc0});  // xor eax, eax
  add_jump();
  EXPECT_FALSE(site().alone);
}

TEST_F(Alone, NotBehindANopThatIsExecuted) {
  add({0x90});
  add_endbr64();
  add_jump();
  EXPECT_FALSE(site().alone);
}

TEST_F(Alone, NotWhereItsBlockIsCounted) {
  add_jump();
  EXPECT_FALSE(site([](Plan& plan) { plan.block_counter[0] = 0; }).alone);
}

TEST_F(Alone, NotWhereSomethingIsToHappen) {
  add_jump();
  EXPECT_FALSE(site([](Plan& plan) { plan.events.push_back({0, 1}); }).alone);
}

TEST_F(Alone, NotWhereThreadsSayWhereTheyAre) {
  add_jump();
  request_.where = 1;
  EXPECT_FALSE(site().alone);
}

TEST_F(Alone, NotACall) {
  add_branch(0x15);
  add({0xc3});
  EXPECT_FALSE(site().alone);
}

TEST_F(Alone, NotThroughAPointerThatMayChange) {
  add_jump();
  request_.may_last = nullptr;
  EXPECT_FALSE(site().alone);
}

}  // namespace
}  // namespace tally::translate
