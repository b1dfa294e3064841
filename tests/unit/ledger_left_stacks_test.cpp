// Claim: a stack that was left is found again by whom it shows, by nothing else, and is found once;
// checked against a model over random programs of coroutines.
#include "ledger/left_stacks.h"

#include <gtest/gtest.h>

#include <random>

namespace {

using namespace tally;
using namespace tally::engine;

elf::Frame frame(uint64_t pc, uint64_t cfa) {
  elf::Frame result;
  result.pc = TargetAddr(pc);
  result.cfa = TargetAddr(cfa);
  return result;
}

// main called caller, that step, that the switcher, whose frame ends at `cfa`.  Who calls step from
// elsewhere was called from elsewhere.
LeftStack waiting(uint64_t cfa, uint64_t step_pc, uint32_t slot) {
  LeftStack stack;
  stack.trace.frames = {frame(0x1000, cfa), frame(step_pc, cfa + 0x40),
                        frame(step_pc + 0x1000, cfa + 0x80), frame(0x5000, 0)};
  stack.slots = {slot};
  return stack;
}

// What is seen at the far end when control goes back there.
elf::BackTrace shown(const LeftStack& stack, size_t from) {
  elf::BackTrace there = stack.trace;
  there.frames.erase(there.frames.begin(), there.frames.begin() + static_cast<ptrdiff_t>(from));
  return there;
}

constexpr auto kIntact = [](const elf::BackTrace&) { return true; };

TEST(LeftStacks, AReturnGoesToItsOwn) {
  LeftStacks stacks;
  stacks.add(waiting(0x8000, 0x2000, 1));
  stacks.add(waiting(0x8000, 0x2008, 2));  // the same memory, later
  stacks.add(waiting(0x9000, 0x2000, 3));
  EXPECT_FALSE(stacks.take_returned_to(0x8000, TargetAddr(0x2004), kIntact));
  EXPECT_FALSE(stacks.take_returned_to(0x8008, TargetAddr(0x2000), kIntact));
  EXPECT_FALSE(stacks.take_returned_to(0x8000, TargetAddr(0x2000),
                                       [](const elf::BackTrace&) { return false; }));
  const auto found = stacks.take_returned_to(0x8000, TargetAddr(0x2000), kIntact);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->frame, 1u);
  EXPECT_EQ(found->stack.slots.front(), 1u);
  EXPECT_FALSE(stacks.take_returned_to(0x8000, TargetAddr(0x2000), kIntact)) << "found twice";
  EXPECT_EQ(stacks.take_all().size(), 2u);
  EXPECT_TRUE(stacks.empty());
}

TEST(LeftStacks, AlikeOnesAreKeptOnceAndFoundAsOftenAsTheyWereLeft) {
  LeftStacks stacks;
  for (uint32_t slot = 0; slot < 3; ++slot) stacks.add(waiting(0x8000, 0x2000, slot));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(stacks.take_returned_to(0x8000, TargetAddr(0x2000), kIntact)) << i;
  }
  EXPECT_TRUE(stacks.empty());
}

TEST(LeftStacks, TheChainOfCallersTells) {
  LeftStacks stacks;
  const LeftStack left = waiting(0x8000, 0x2000, 1);
  stacks.add(left);
  elf::BackTrace other = shown(left, 1);
  other.frames[1].pc = TargetAddr(0x3abc);
  EXPECT_FALSE(stacks.take_shown_by(other)) << "another caller";
  other = shown(left, 1);
  other.frames.pop_back();
  EXPECT_FALSE(stacks.take_shown_by(other)) << "a shorter chain";
  EXPECT_FALSE(stacks.take_shown_by({}));
  const auto found = stacks.take_shown_by(shown(left, 1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->frame, 1u);
}

TEST(LeftStacks, MemoryThatIsGivenBackTakesItsStacksAlong) {
  LeftStacks stacks;
  for (uint64_t cfa = 0x8000; cfa < 0xc000; cfa += 0x1000) stacks.add(waiting(cfa, 0x2000, 1));
  EXPECT_TRUE(stacks.any_within(0x9000, 0xa000));
  EXPECT_EQ(stacks.take_within({TargetAddr(0x9000), TargetAddr(0xb000)}).size(), 2u);
  EXPECT_FALSE(stacks.any_within(0x9000, 0xafff));
  EXPECT_EQ(stacks.take_all().size(), 2u);
}

TEST(LeftStacks, AChildHasItsParentsWithoutTheirThreads) {
  LeftStacks parent;
  parent.add(waiting(0x8000, 0x2000, 1));
  LeftStacks child;
  child.inherit(parent);
  int owned = 0;
  child.disown(1, [&](LeftStack&) { ++owned; });
  EXPECT_EQ(owned, 0);
  const std::vector<LeftStack> all = child.take_all();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_TRUE(all.front().inherited);
  EXPECT_FALSE(all.front().slots.front().has_value());
  EXPECT_FALSE(parent.empty());
}

// Some thousand coroutines, left and gone back to at random: the model is a list of who waits.
TEST(LeftStacks, RandomCoroutinesAgainstAList) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    LeftStacks stacks;
    std::vector<std::pair<uint64_t, uint64_t>> model;  // where it ends, where it was called from
    for (int step = 0; step < 3000; ++step) {
      const uint64_t cfa = 0x10000 + 0x100 * (random() % 1500);
      const uint64_t pc = 0x2000 + 4 * (random() % 3);
      const auto waits = std::find(model.begin(), model.end(), std::pair(cfa, pc));
      if (random() % 2 == 0) {
        stacks.add(waiting(cfa, pc, static_cast<uint32_t>(random() % 4)));
        model.emplace_back(cfa, pc);
        continue;
      }
      const auto found = random() % 2 == 0 ? stacks.take_returned_to(cfa, TargetAddr(pc), kIntact)
                                           : stacks.take_shown_by(shown(waiting(cfa, pc, 0), 1));
      ASSERT_EQ(found.has_value(), waits != model.end()) << "seed " << seed << " step " << step;
      if (waits != model.end()) model.erase(waits);
    }
    size_t left = 0;
    for (const LeftStack& stack : stacks.take_all()) left += stack.slots.size();
    EXPECT_EQ(left, model.size()) << "seed " << seed;
  }
}

}  // namespace
