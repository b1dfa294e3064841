// What a run leaves of the procedures that it has found: the same when it is read back, and nothing
// where anything that they rest on is another.
#include "cache/found_procedures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "found_support.h"

namespace tally::engine {
namespace {

// Compiled as programs are that Tally runs, whatever this test is: with jump tables, among others.
constexpr const char* kLibrary = "/lib/x86_64-linux-gnu/libc.so.6";
constexpr const char* kMaker = "0123abcd";

void expect_same_graph(const cfg::Procedure& a, const cfg::Procedure& b) {
  ASSERT_EQ(a.blocks.size(), b.blocks.size());
  ASSERT_EQ(a.edges.size(), b.edges.size());
  EXPECT_EQ(a.entry, b.entry);
  EXPECT_EQ(a.range, b.range);
  EXPECT_EQ(a.entry_block, b.entry_block);
  for (size_t i = 0; i < a.blocks.size(); ++i) {
    const cfg::Block& x = a.blocks[i];
    const cfg::Block& y = b.blocks[i];
    EXPECT_EQ(x.offset, y.offset);
    EXPECT_EQ(x.size_bytes, y.size_bytes);
    EXPECT_EQ(x.first_insn, y.first_insn);
    EXPECT_EQ(x.insn_count, y.insn_count);
    EXPECT_EQ(x.first_edge, y.first_edge);
    EXPECT_EQ(x.edge_count, y.edge_count);
    EXPECT_EQ(x.end, y.end);
    EXPECT_EQ(x.flags_live_in, y.flags_live_in);
    EXPECT_EQ(x.flags_live_out, y.flags_live_out);
    EXPECT_EQ(x.from_jump_table, y.from_jump_table);
  }
  for (size_t i = 0; i < a.edges.size(); ++i) {
    EXPECT_EQ(a.edges[i].from, b.edges[i].from);
    EXPECT_EQ(a.edges[i].to, b.edges[i].to);
    EXPECT_EQ(a.edges[i].kind, b.edges[i].kind);
    EXPECT_EQ(a.edges[i].target, b.edges[i].target);
  }
  EXPECT_EQ(shape_of(a), shape_of(b));
}

// Which blocks and edges are counted; all counters have numbers of their own, from 0 on.
void expect_same_plan(const translate::Plan& a, const translate::Plan& b, uint32_t counters) {
  const auto is_counted = [](int32_t counter) { return counter != translate::kNoCounter; };
  std::vector<int32_t> numbers;
  for (const auto& [x, y] : {std::pair(&a.block_counter, &b.block_counter),
                             std::pair(&a.edge_counter, &b.edge_counter)}) {
    ASSERT_EQ(x->size(), y->size());
    EXPECT_TRUE(std::ranges::equal(*x, *y, {}, is_counted, is_counted));
    std::ranges::copy_if(*y, std::back_inserter(numbers), is_counted);
  }
  std::ranges::sort(numbers);
  ASSERT_EQ(numbers.size(), counters);
  for (uint32_t i = 0; i < counters; ++i) EXPECT_EQ(numbers[i], static_cast<int32_t>(i));
  EXPECT_EQ(a.order.size(), b.order.size());
  EXPECT_EQ(a.in_body, b.in_body);
  EXPECT_TRUE(
      std::ranges::equal(std::span(a.order).first(a.in_body), std::span(b.order).first(b.in_body)));
  EXPECT_TRUE(std::is_permutation(a.order.begin(), a.order.end(), b.order.begin(), b.order.end()));
}

void expect_same_events(const std::vector<WantedEvent>& a, const std::vector<WantedEvent>& b) {
  EXPECT_TRUE(a == b);
}

class Found : public testing::Test {
 protected:
  const elf::Image& image() const { return code_.image(); }
  std::vector<uint8_t> left_by(const std::string& maker, const EdgeWeights& weights) {
    FoundProcedures left(maker);
    for (const Example& one : examples_) left.add(image(), one.key, weights, one.known);
    return left.file();
  }
  // How many of the examples are found.
  size_t found(FoundProcedures& in, const elf::Image& image, const EdgeWeights& weights) {
    return static_cast<size_t>(std::ranges::count_if(examples_, [&](const Example& one) {
      KnownProcedure known;
      return in.find(image, one.key, weights, known);
    }));
  }

  std::mt19937_64 random_{11};
  Examples code_{kLibrary};
  std::vector<Example> examples_ = code_.make_all(1500, random_);
};

TEST_F(Found, ThereAndBack) {
  ASSERT_GT(examples_.size(), 300u);
  size_t tables = 0, events = 0, apart = 0;
  for (const Example& one : examples_) {
    KnownProcedure back;
    back.plan.events.push_back({});  // memory that is used again
    back.events.push_back({});
    ASSERT_TRUE(decode_found(body_of(one.known, 77), one.key, back));
    EXPECT_EQ(back.digest, 77u);
    EXPECT_EQ(back.insn_sizes, one.known.insn_sizes);
    EXPECT_EQ(back.sources, one.known.sources);
    EXPECT_EQ(back.counters, one.known.counters);
    EXPECT_TRUE(back.plan.events.empty());
    expect_same_graph(one.known.procedure, back.procedure);
    expect_same_plan(one.known.plan, back.plan, back.counters);
    expect_same_events(one.known.events, back.events);
    ASSERT_TRUE(decode_instructions(code_.view(), Wanted::kAll, back));
    EXPECT_EQ(back.procedure.insns, one.known.procedure.insns);
    events += back.events.size();
    apart += back.plan.order.size() - back.plan.in_body;
    tables += static_cast<size_t>(std::ranges::count_if(
        back.procedure.blocks, [](const cfg::Block& block) { return block.from_jump_table; }));
  }
  EXPECT_GT(tables, 0u);
  EXPECT_GT(events, 0u);
  EXPECT_GT(apart, 0u);
}

// Of blocks that are left out no more is decoded than emission lists.
TEST_F(Found, OfWhatIsLeftOutOnlyCallsAreDecoded) {
  size_t left_out = 0;
  for (const Example& one : examples_) {
    KnownProcedure back;
    ASSERT_TRUE(decode_found(body_of(one.known, 0), one.key, back));
    ASSERT_TRUE(decode_instructions(code_.view(), Wanted::kBody, back));
    const translate::Plan& plan = back.plan;
    for (size_t i = 0; i < plan.order.size(); ++i) {
      const cfg::Block& block = back.procedure.blocks[plan.order[i]];
      for (uint32_t k = block.first_insn; k < block.first_insn + block.insn_count; ++k) {
        const bool is_last = k + 1 == block.first_insn + block.insn_count;
        const bool wanted = i < plan.in_body || (is_last && block.end == isa::Flow::kCall);
        EXPECT_EQ(back.procedure.insns[k].size, wanted ? back.insn_sizes[k] : 0);
        left_out += wanted ? 0 : 1;
      }
    }
  }
  EXPECT_GT(left_out, 0u);
}

TEST_F(Found, ByTheNextRun) {
  const EdgeWeights weights = weights_of(examples_, image().build_id(), true);
  const std::vector<uint8_t> file = left_by(kMaker, weights);
  FoundProcedures next(kMaker);
  ASSERT_TRUE(next.read(file));
  const size_t all = found(next, image(), weights);
  EXPECT_GT(all, examples_.size() / 2);  // not those with jump tables that are relocated
  EXPECT_FALSE(next.is_news());
  EXPECT_EQ(next.file(), file);
  KnownProcedure known;
  for (const Example& one : examples_) {
    if (!next.find(image(), one.key, weights, known)) continue;
    EXPECT_TRUE(known.weighed && known.confirmed);
  }
  // What comes later is added, and may replace what is there.
  FoundProcedures both(kMaker);
  for (size_t i = 0; i < examples_.size() / 2; ++i) {
    both.add(image(), examples_[i].key, weights, examples_[i].known);
  }
  FoundProcedures grown(kMaker);
  ASSERT_TRUE(grown.read(both.file()));
  EXPECT_FALSE(grown.is_news());
  for (const Example& one : examples_) grown.add(image(), one.key, weights, one.known);
  EXPECT_TRUE(grown.is_news());
  FoundProcedures whole(kMaker);
  ASSERT_TRUE(whole.read(grown.file()));
  EXPECT_EQ(found(whole, image(), weights), all);
  EXPECT_EQ(whole.file().size(), file.size());
}

TEST_F(Found, NotWhereAnythingIsAnother) {
  const EdgeWeights weights = weights_of(examples_, image().build_id(), false);
  const std::vector<uint8_t> file = left_by(kMaker, weights);
  FoundProcedures another_build("0123abce");
  EXPECT_FALSE(another_build.read(file));
  FoundProcedures nobody("");
  EXPECT_FALSE(nobody.read(left_by("", weights)));
  FoundProcedures next(kMaker);
  ASSERT_TRUE(next.read(file));
  size_t there = 0;
  for (const Example& one : examples_) {
    KnownProcedure known;
    const EdgeWeights others = weights_of({one}, image().build_id(), false);
    Example changed = one;
    if (changed.steps.empty()) continue;
    changed.steps.front() ^= 1;
    const EdgeWeights another = weights_of({changed}, image().build_id(), false);
    const bool is_there = next.find(image(), one.key, others, known);
    EXPECT_FALSE(next.find(image(), one.key, another, known));
    if (!is_there) continue;
    ++there;
    EXPECT_FALSE(known.confirmed);
    ProcedureKey key = one.key;
    key.open_calls = !key.open_calls;
    EXPECT_FALSE(next.find(image(), key, others, known));
    key = one.key;
    key.range.end = key.range.end + 1;
    EXPECT_FALSE(next.find(image(), key, others, known));
    if (there == 100) break;
  }
  EXPECT_EQ(there, 100u);
}

// The same file with other bytes in it: whatever looked at one of them is found anew.
TEST_F(Found, NotWhereTheFileHasChanged) {
  const EdgeWeights weights = weights_of(examples_, image().build_id(), true);
  FoundProcedures next(kMaker);
  ASSERT_TRUE(next.read(left_by(kMaker, weights)));
  std::ifstream in(kLibrary, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  const auto segment = std::ranges::find_if(image().segments(), &elf::Segment::executable);
  ASSERT_NE(segment, image().segments().end());
  const std::string path = testing::TempDir() + "/changed_library";
  KnownProcedure known;
  size_t tried = 0;
  for (size_t i = 0; i < examples_.size(); i += examples_.size() / 5) {
    const Example& one = examples_[i];
    if (!next.find(image(), one.key, weights, known)) continue;
    ++tried;
    const LinkRange source = known.sources[random_() % known.sources.size()];
    const LinkAddr at = source.begin + random_() % source.size_bytes();
    ASSERT_TRUE(std::ranges::any_of(image().segments(), [&](const elf::Segment& s) {
      if (!s.range.contains(at)) return false;
      std::vector<char> changed = bytes;
      changed[static_cast<size_t>(s.offset.value() + static_cast<uint64_t>(at - s.range.begin))] ^=
          1;
      std::ofstream(path, std::ios::binary)
          .write(changed.data(), static_cast<std::streamsize>(changed.size()));
      return true;
    }));
    const auto opened = elf::Image::open(path);
    ASSERT_TRUE(opened.ok());
    EXPECT_FALSE(next.find(**opened, one.key, weights, known)) << i;
  }
  EXPECT_GT(tried, 0u);
}

TEST_F(Found, EveryDamagedByteAndEveryLengthIsRefused) {
  examples_.resize(3);
  const std::vector<uint8_t> file =
      left_by(kMaker, weights_of(examples_, image().build_id(), true));
  ASSERT_GT(file.size(), 100u);
  for (size_t i = 0; i < file.size(); ++i) {
    std::vector<uint8_t> damaged = file;
    damaged[i] ^= 0x20;
    EXPECT_FALSE(FoundProcedures(kMaker).read(damaged)) << i;
    damaged = file;
    damaged.resize(i);
    EXPECT_FALSE(FoundProcedures(kMaker).read(damaged)) << i;
  }
}

TEST(OwnBuildId, IsThatOfTheFile) {
  const auto opened = elf::Image::open("/proc/self/exe");
  ASSERT_TRUE(opened.ok());
  EXPECT_FALSE(own_build_id().empty());
  EXPECT_EQ(own_build_id(), (*opened)->build_id());
}

}  // namespace
}  // namespace tally::engine
