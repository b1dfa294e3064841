// What branches look like, sign by sign, on hand-assembled procedures of the shape
//
//     0: <comparison> jcc 2      1: nop; ret      2: nop; ret
#include "cache/likelihood.h"

#include <gtest/gtest.h>

#include <vector>

#include "cache/plan.h"

namespace tally::engine {
namespace {

constexpr uint64_t kBase = 0x401000;
constexpr uint8_t kNop = 0x90;
constexpr uint8_t kRet = 0xc3;
enum Jcc : uint8_t {
  kJo = 0x70,
  kJno,
  kJb,
  kJnb,
  kJz,
  kJnz,
  kJna,
  kJa,
  kJs,
  kJns,
  kJp,
  kJnp,
  kJl,
  kJnl,
  kJng,
  kJg
};

// The graph of the code, of which the first `size_bytes` (0: all) are one procedure.
placement::Graph graph_of(const std::vector<uint8_t>& code, size_t size_bytes = 0) {
  cfg::CodeView view;
  view.code_at = [&](LinkAddr at) { return std::span(code).subspan(at.value() - kBase); };
  view.read_data = [](LinkAddr, void*, size_t) { return false; };
  cfg::DiscoverRequest request;
  request.entry = LinkAddr(kBase);
  const uint64_t end = kBase + (size_bytes == 0 ? code.size() : size_bytes);
  request.range = {request.entry, LinkAddr(end)};
  const cfg::Procedure procedure = cfg::Discoverer(view).discover(request);
  placement::Graph graph = make_graph(procedure);
  set_likelihoods(procedure, view, graph);
  return graph;
}

// The odds of the branch taken, against its fall-through.
double odds_of(std::vector<uint8_t> comparison, Jcc jcc) {
  std::vector<uint8_t> code = std::move(comparison);
  code.insert(code.end(), {jcc, 2, kNop, kRet, kNop, kRet});
  const placement::Graph graph = graph_of(code);
  EXPECT_EQ(graph.node_count, 4u);
  EXPECT_EQ(graph.edges[0].to, 2u);
  EXPECT_EQ(graph.edges[1].to, 1u);
  return graph.edges[0].odds / graph.edges[1].odds;
}

const std::vector<uint8_t> kCompare = {0x39, 0xc8};       // cmp eax, ecx
const std::vector<uint8_t> kTest32 = {0x85, 0xc0};        // test eax, eax
const std::vector<uint8_t> kTest64 = {0x4d, 0x85, 0xc0};  // test r8, r8

TEST(CacheLikelihood, Conditions) {
  EXPECT_EQ(odds_of(kCompare, kJo), 0.1);
  EXPECT_EQ(odds_of(kCompare, kJno), 10);
  EXPECT_EQ(odds_of(kCompare, kJp), 0.1);
  EXPECT_EQ(odds_of(kCompare, kJnp), 10);
  EXPECT_EQ(odds_of(kTest32, kJs), 0.5);
  EXPECT_EQ(odds_of(kTest32, kJns), 2);
  EXPECT_EQ(odds_of(kCompare, kJa), 0.5);
  EXPECT_EQ(odds_of(kCompare, kJna), 2);
  for (const Jcc jcc : {kJb, kJnb, kJz, kJnz, kJl, kJnl, kJng, kJg}) {
    EXPECT_EQ(odds_of(kCompare, jcc), 1) << static_cast<int>(jcc);
  }
}

TEST(CacheLikelihood, PointersAreNotNull) {
  EXPECT_EQ(odds_of(kTest64, kJz), 0.5);
  EXPECT_EQ(odds_of(kTest64, kJnz), 2);
  EXPECT_EQ(odds_of(kTest64, kJl), 1);
  EXPECT_EQ(odds_of(kTest32, kJz), 1);
  // What lies between does not matter if it leaves the flags alone.
  EXPECT_EQ(odds_of({0x48, 0x85, 0xff, 0x48, 0x89, 0xfb}, kJz), 0.5);  // test rdi, rdi; mov
  EXPECT_EQ(odds_of({0x48, 0x85, 0xff, 0x39, 0xc8}, kJz), 1);          // test rdi, rdi; cmp
}

TEST(CacheLikelihood, BitsAreNotSet) {
  const std::vector<std::vector<uint8_t>> masks = {
      {0xa8, 0x04},                    // test al, 4
      {0xf6, 0x43, 0x08, 0x40},        // test byte [rbx+8], 64
      {0x66, 0xf7, 0xc1, 0x00, 0x01},  // test cx, 256
      {0x85, 0xc8},                    // test eax, ecx
      {0x4c, 0x85, 0xc0},              // test rax, r8
      {0x83, 0xe0, 0x0f},              // and eax, 15
      {0x25, 0x00, 0x00, 0x01, 0x00},  // and eax, 65536
      {0x64, 0x84, 0x03},              // test fs:[rbx], al
  };
  for (const std::vector<uint8_t>& mask : masks) {
    EXPECT_EQ(odds_of(mask, kJnz), 0.5) << static_cast<int>(mask[0]);
    EXPECT_EQ(odds_of(mask, kJz), 2) << static_cast<int>(mask[0]);
  }
  // Same bytes elsewhere in the opcode: `not` and `cmp` ask for no bits.
  EXPECT_EQ(odds_of({0x85, 0xc0, 0xf7, 0xd1}, kJz), 1);  // test eax, eax; not ecx
  EXPECT_EQ(odds_of({0x83, 0xf8, 0x0f}, kJz), 1);        // cmp eax, 15
}

TEST(CacheLikelihood, NothingIsSaidOfABranchAlone) {
  EXPECT_EQ(odds_of({}, kJz), 1);
  EXPECT_EQ(odds_of({}, kJp), 0.1);
}

TEST(CacheLikelihood, LeavingTheProcedure) {
  const std::vector<uint8_t> code = {0x39, 0xc8, kJz, 2, kNop, kRet, kNop, kRet};
  const placement::Graph graph = graph_of(code, 6);
  EXPECT_EQ(graph.edges[0].to, graph.exit);
  EXPECT_EQ(graph.edges[0].odds, 0.25);
  EXPECT_EQ(graph.edges[1].odds, 1);
}

TEST(CacheLikelihood, Calls) {
  // call +0; call rax; nop; ret
  const placement::Graph graph = graph_of({0xe8, 4, 0, 0, 0, 0xff, 0xd0, kNop, kRet});
  EXPECT_EQ(graph.calls, (std::vector<bool>{true, true, false, false}));
}

TEST(CacheLikelihood, WithoutInstructionsNothingIsSaid) {
  cfg::Procedure procedure;
  procedure.blocks.edit().resize(1);
  placement::Graph graph = make_graph(procedure);
  set_likelihoods(procedure, {}, graph);
  EXPECT_TRUE(graph.calls.empty());
}

}  // namespace
}  // namespace tally::engine
