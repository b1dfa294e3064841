// Which blocks are made together: of hand-assembled procedures by what is likely, of libc's however
// control gets there, each once, and what a call comes back to never after the call.
#include "cache/blocks_together.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cache/likelihood.h"
#include "cache/plan.h"
#include "cfg/view.h"
#include "elf/image.h"
#include "hand_assembled.h"

namespace tally::engine {
namespace {

using cfg::EdgeKind;
using Blocks = std::vector<uint32_t>;

std::vector<bool> followed_in(const cfg::Procedure& procedure, const cfg::CodeView& view,
                              Followed which = Followed::kUnlessUnlikely) {
  placement::Graph graph = make_graph(procedure);
  set_likelihoods(procedure, view, graph);
  placement::set_static_weights(graph);
  return followed_edges(procedure, graph, which);
}

class BlocksTogether : public HandAssembled {
 protected:
  Blocks with(uint32_t block, const Blocks& made,
              Followed which = Followed::kUnlessUnlikely) const {
    const auto has_code = [&](uint32_t b) { return std::ranges::find(made, b) != made.end(); };
    return blocks_together(procedure_, followed_in(procedure_, view_, which), block, has_code);
  }
};

TEST_F(BlocksTogether, WhatOnlyCallsIsUnlikely) {
  discover({
      0x85, 0xc0, 0x74, 0x02,        // test eax, eax; je over
      0x90, 0xc3,                    // nop; ret
      0xe8, 0x00, 0x10, 0x00, 0x00,  // over: call out
      0x90, 0xc3                     // nop; ret
  });
  ASSERT_EQ(procedure_.blocks.size(), 4u);
  EXPECT_EQ(with(0, {}), (Blocks{0, 1}));
  EXPECT_EQ(with(2, {0, 1}), (Blocks{2, 3}));
  EXPECT_EQ(with(2, {0, 1, 3}), (Blocks{2}));
}

TEST_F(BlocksTogether, OfTwoWaysThatAreAlikeNeitherIsLikely) {
  discover({
      0x39, 0xf7, 0x72, 0x03,  // cmp edi, esi; jb over
      0x90, 0xeb, 0x01,        // nop; jmp both
      0x90,                    // over: nop
      0xc3                     // both: ret
  });
  ASSERT_EQ(procedure_.blocks.size(), 4u);
  EXPECT_EQ(with(0, {}), (Blocks{0, 1, 2, 3}));
  EXPECT_EQ(with(0, {}, Followed::kIfLikely), (Blocks{0}));
  EXPECT_EQ(with(1, {0}, Followed::kIfLikely), (Blocks{1, 3}));
}

TEST_F(BlocksTogether, WaysOutOfLoopsAreTakenOnce) {
  discover({
      0x31, 0xc0,  // xor eax, eax
      0xff, 0xc8,  // again: dec eax
      0x75, 0xfc,  // jne again
      0xc3         // ret
  });
  ASSERT_EQ(procedure_.blocks.size(), 3u);
  EXPECT_EQ(with(0, {}), (Blocks{0, 1, 2}));
  EXPECT_EQ(with(0, {}, Followed::kIfLikely), (Blocks{0, 1, 2}));
}

// Blocks are asked for in any order, as control may come by other ways than edges.
void make_all(const cfg::Procedure& procedure, const std::vector<bool>& followed,
              std::mt19937& random) {
  std::vector<bool> made(procedure.blocks.size(), false);
  const auto has_code = [&](uint32_t b) { return made[b]; };
  while (std::ranges::find(made, false) != made.end()) {
    const auto block = static_cast<uint32_t>(random() % made.size());
    if (made[block]) continue;
    const Blocks part = blocks_together(procedure, followed, block, has_code);
    ASSERT_TRUE(std::ranges::is_sorted(part));
    ASSERT_TRUE(std::ranges::binary_search(part, block));
    for (const uint32_t b : part) {
      ASSERT_FALSE(made[b]) << "made twice";
      made[b] = true;
    }
    for (const cfg::Edge& edge : procedure.edges) {
      ASSERT_TRUE(edge.kind != EdgeKind::kCallReturn || !made[edge.from] || made[edge.to]);
    }
  }
}

TEST(BlocksOfLibc, AreMadeInParts) {
  auto opened = elf::Image::open("/lib/x86_64-linux-gnu/libc.so.6");
  ASSERT_TRUE(opened) << opened.error().message;
  const std::shared_ptr<elf::Image> image = *opened;
  const cfg::CodeView view = cfg::view_of(image);
  cfg::Discoverer discoverer(view);
  std::mt19937 random(2026);
  size_t left_out = 0, blocks = 0, tables = 0;
  for (size_t i = 0; i < image->unwind_ranges().size(); i += 7) {
    cfg::DiscoverRequest request;
    request.entry = image->unwind_ranges()[i].begin;
    request.range = image->unwind_ranges()[i];
    const cfg::Procedure procedure = discoverer.discover(request);
    if (procedure.blocks.empty()) continue;
    const std::vector<bool> followed = followed_in(procedure, view);
    for (const cfg::Block& block : procedure.blocks) {
      const auto begin = followed.begin() + block.first_edge;
      const auto ways = procedure.edges_of(block);
      const bool inside =
          std::ranges::all_of(ways, [](const cfg::Edge& way) { return way.to != cfg::kExitBlock; });
      const bool by_table = !ways.empty() && ways.front().kind == EdgeKind::kTableJump;
      const auto count = std::count(begin, begin + block.edge_count, true);
      if (!inside || ways.empty()) continue;
      ASSERT_EQ(count == 0, by_table) << "at " << block.offset;
      tables += by_table ? 1 : 0;
    }
    const Blocks body =
        blocks_together(procedure, followed, procedure.entry_block, [](uint32_t) { return false; });
    left_out += procedure.blocks.size() - body.size();
    blocks += procedure.blocks.size();
    make_all(procedure, followed, random);
    make_all(procedure, edges_that_must_be_followed(procedure), random);
    if (HasFatalFailure()) FAIL() << "procedure at " << std::hex << request.entry.value();
  }
  EXPECT_GT(blocks, 5000u);
  EXPECT_GT(tables, 5u);
  EXPECT_GT(left_out, blocks / 4);
  EXPECT_LT(left_out, blocks * 3 / 4);
}

}  // namespace
}  // namespace tally::engine
