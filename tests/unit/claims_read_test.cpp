// Reading profiles of others: what is understood, and how each kind of bad input is named.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "claims/read.h"
#include "elf/image.h"
#include "profile/file.h"
#include "profile_sample.h"

namespace tally::claims {
namespace {

using profile::TemporaryFolder;
using profile::write_whole;

// This very program serves as the one that the profiles are of.
const char* const kSelf = "/proc/self/exe";

class ReadClaims : public testing::Test {
 protected:
  std::string put(const std::string& text) {
    const std::string path = folder_.file("profile");
    write_whole(path, text);
    return path;
  }
  Result<Claims> read(const std::string& text, std::optional<Form> form = std::nullopt) {
    return read_claims(put(text), {.form = form, .program_path = program_});
  }
  void expect_error(const std::string& text, const std::vector<std::string>& words) {
    const auto claims = read(text);
    ASSERT_FALSE(claims.ok()) << text;
    EXPECT_EQ(claims.error().message.find('\n'), std::string::npos);
    for (const std::string& word : words) {
      EXPECT_NE(claims.error().message.find(word), std::string::npos)
          << "'" << word << "' is not in: " << claims.error().message;
    }
  }
  static std::string self() {
    char path[4096];
    const ssize_t length = ::readlink(kSelf, path, sizeof path);
    return {path, static_cast<size_t>(std::max<ssize_t>(length, 0))};
  }

  TemporaryFolder folder_;
  std::string program_ = self();
  // An address inside of this program's code.
  std::string inside_ = fmt::format("{:#x}", (*elf::Image::open(self()))->entry().value());
};

TEST_F(ReadClaims, Plain) {
  const auto claims = read("# from to count\n" + inside_ + " 401020 17\n\n0x20 0x30 5 # x\n");
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  EXPECT_EQ(claims->form, Form::kPlain);
  ASSERT_EQ(claims->edges.size(), 2u);
  EXPECT_EQ(claims->edges[0].to.address, LinkAddr(0x401020));
  EXPECT_EQ(claims->edges[0].count, 17u);
  EXPECT_EQ(claims->edges[1].record, 4u);
  EXPECT_EQ(describe_record(claims->form, RecordKind::kEdge, 4), "line 4");
}

TEST_F(ReadClaims, PlainBadInput) {
  expect_error("", {"empty"});
  expect_error("hello world\n", {"not a profile"});
  expect_error("0x10 0x20 -5\n", {":1:", "negative"});
  expect_error("0x10 0x20 18446744073709551616\n", {":1:", "beyond 64 bits"});
  expect_error("0x10 0x20 1\n0x10 0x2", {":2:", "cut short"});
  expect_error("0x10 0x20 1\n0x10 0x20 13", {":2:", "cut short"});
  expect_error("0x10 0x20 1\n0x10\n", {":2:", "not an edge"});
  expect_error("0x10 0x20 1\n", {"another program"});
  program_ = "";
  expect_error("0x10 0x20 1\n", {"--program"});
}

// Names by number, relative addresses, `cob` for one call only, and two parts that add up.
TEST_F(ReadClaims, Callgrind) {
  const std::string part =
      "positions: instr line\nevents: Dr Ir\nob=(1) /x/prog\nfl=(1) a.c\nfn=(1) main\n"
      "0x1000 5 0 2\n+4 * 0 2\ncob=(2) /x/lib.so\ncfn=(2) f\ncalls=2 0x500 9\n* * 9 70\n"
      "cfn=(1)\ncalls=1 0x1000 5\n* * 0 3\n+5 +1 0 4\njcnd=1/4 -9 5\n* *\n"
      "jump=3 0x1000 5\n* *\nob=(2)\nfn=(2)\n0x500 9 1 7\n";
  const auto claims =
      read("# callgrind format\ncreator: callgrind-3.19.0\ncmd: ./prog -x\n\npart: 1\n" + part +
           "totals: 1 15\npart: 2\n" + part + "totals: 1 15\n");
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  ASSERT_EQ(claims->form, Form::kCallgrind);
  ASSERT_EQ(claims->modules.size(), 2u);
  EXPECT_EQ(claims->command_line, (std::vector<std::string>{"./prog", "-x"}));
  ASSERT_EQ(claims->instructions.size(), 4u);
  EXPECT_EQ(claims->instructions[1].at.address, LinkAddr(0x1004));
  EXPECT_EQ(claims->instructions[2].count, 8u);  // 4 in each part
  EXPECT_EQ(claims->instructions[3].at, (Place{1, LinkAddr(0x500)}));
  ASSERT_EQ(claims->edges.size(), 3u);
  EXPECT_EQ(claims->edges[0].to, (Place{1, LinkAddr(0x500)}));
  EXPECT_EQ(claims->edges[0].from, (Place{0, LinkAddr(0x1004)}));
  EXPECT_EQ(claims->edges[1].to, (Place{0, LinkAddr(0x1000)}));
  EXPECT_EQ(claims->edges[2].from, (Place{0, LinkAddr(0x1009)}));
  EXPECT_EQ(claims->edges[2].to, (Place{0, LinkAddr(0x1000)}));
  EXPECT_EQ(claims->edges[2].count, 8u);  // both kinds of jumps, in both parts
  ASSERT_EQ(claims->sums.size(), 2u);
  EXPECT_EQ(claims->sums[1].claimed, claims->sums[1].sum);
}

TEST_F(ReadClaims, CallgrindBadInput) {
  const std::string head = "# callgrind format\npositions: instr line\nevents: Ir\nob=(1) /x\n";
  expect_error(head + "0x10 0 1\n", {"totals", "cut short"});
  expect_error(head + "0x10 0 -1\ntotals: 1\n", {":5:", "negative"});
  expect_error(head + "0x10 0 18446744073709551615\n0x10 0 1\ntotals: 1\n", {":6:", "64 bits"});
  expect_error(head + "ob=(7)\n", {":5:", "7"});
  expect_error(head + "calls=1 0x10 0\nfn=(1) x\n", {":6:", "position"});
  expect_error(head + "jcnd=1 0x10 0\n", {":5:", "TAKEN/EXECUTED"});
  expect_error("# callgrind format\npositions: line\nevents: Ir\n", {"--dump-instr=yes"});
  expect_error(head + "nonsense\n", {":5:", "not a line"});
}

TEST_F(ReadClaims, Fdata) {
  const auto claims = read(
      "1 main 0 1 main 1 0 7\n0 [unknown] 0 1 main 0 0 2\n1 main 1 0 [unknown] 0 0 9\n"
      "4 main 0 4 main 8 3\n1 main 1 1 puts@PLT 0 0 5\n");
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  ASSERT_EQ(claims->edges.size(), 1u);
  EXPECT_EQ(claims->edges[0].count, 7u);
  EXPECT_EQ(claims->edges[0].to.address - claims->edges[0].from.address, 1);
  ASSERT_EQ(claims->abnormal.size(), 3u);
  EXPECT_EQ(claims->abnormal[0].entered, 2u);
  EXPECT_EQ(claims->abnormal[1].left, 9u);
  EXPECT_EQ(claims->abnormal[2].left, 5u);  // to the stub of a linkage table
  const auto samples = read("no_lbr cycles:u\n1 main 0 17\n");
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  EXPECT_EQ(samples->nature, Nature::kShares);
  ASSERT_EQ(samples->instructions.size(), 1u);
  EXPECT_EQ(samples->instructions[0].count, 17u);
}

TEST_F(ReadClaims, FdataBadInput) {
  expect_error("1 main 0 1 main 1 0 7\n1 no\\ such 0 1 main 0 0 7\n", {":2:", "no such", "build"});
  expect_error("1 main 0 1 main ffffff 0 7\n", {":1:", "behind the symbol"});
  expect_error("1 main 0 1 main 1 0 -7\n", {":1:", "negative"});
  expect_error("1 main 0 1 main 1 0 99999999999999999999\n", {":1:", "64 bits"});
  expect_error("1 main 0 1 main 1 0 7 8\n", {":1:", "more than a record"});
  expect_error("1 main 0 1 main 1 0 7\n9 main\n", {":2:", "digit"});
  expect_error("boltedcollection\n1 main 0 1 main 1 0 7\n", {":1:", "original program"});
}

TEST_F(ReadClaims, GcovBadInput) {
  const std::string head =
      R"({"gcc_version": "12.2.0", "files": [{"file": "a.c", "functions": [], )";
  const auto line = [&](const std::string& count) {
    return head + R"("lines": [{"line_number": 1, "function_name": "f", "count": )" + count +
           R"(, "branches": []}]}]})";
  };
  const auto claims = read(line("7"));
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  ASSERT_EQ(claims->lines.size(), 1u);
  EXPECT_EQ(claims->lines[0].count, 7u);
  // What gcov derives from counters that threads have spoilt: kept, and said.
  const auto negative = read(line("-7"));
  ASSERT_TRUE(negative.ok()) << negative.error().message;
  EXPECT_EQ(negative->lines[0].count, static_cast<uint64_t>(-7));
  ASSERT_EQ(negative->admissions.size(), 1u);
  // A document for each object file, as `gcov --stdout` writes them.
  const auto two = read(line("7") + "\n" + line("8") + "\n");
  ASSERT_TRUE(two.ok()) << two.error().message;
  ASSERT_EQ(two->lines.size(), 1u);
  EXPECT_EQ(two->lines[0].count, 15u);
  expect_error(line("7") + "\n" + line("8").substr(0, 100), {":2:", "cut short"});
  expect_error(line("1e300"), {"whole number"});
  expect_error(line("18446744073709551616"), {"64 bits"});
  expect_error(line("1").substr(0, 100), {"cut short"});
  expect_error(head + "]}", {":1:", "not JSON"});
  expect_error(R"({"gcc_version": "12"})", {"files"});
  expect_error("\x1f\x8b\x08", {"cut short"});
}

// As `llvm-cov` lists this file: line 1 once, line 2 the larger of the two, line 3 unmapped.
TEST_F(ReadClaims, LlvmCoverage) {
  const std::string functions =
      R"([{"name": "main", "count": 1, "filenames": ["a.c"], "regions": [[1,1,2,9,1,0,0,0]]}])";
  const auto claims =
      read(R"({"data": [{"files": [{"filename": "a.c", "segments": [[1,1,1,true,true,false],)"
           R"([2,3,8,true,true,false],[2,9,0,false,false,false]]}], "functions": )" +
           functions + R"(}], "type": "llvm.coverage.json.export", "version": "2.0.1"})");
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  ASSERT_EQ(claims->lines.size(), 2u);
  EXPECT_EQ(claims->lines[0].count, 1u);
  EXPECT_EQ(claims->lines[1].count, 8u);
  EXPECT_FALSE(claims->lines[0].mixed);
  EXPECT_TRUE(claims->lines[1].mixed);  // its beginning was executed once
  expect_error(R"({"data":[{"files":[{"filename":"a","segments":[[1,1,1,true,true,false],)"
               R"([4000000000,1,0,false,false,false]]}]}]})",
               {"region of", "lines"});
}

TEST_F(ReadClaims, LlvmSamples) {
  const auto claims = read(
      "main:30:1\n 1: 10\n 2.1: 5 sort:4\n 3: less:15\n  1: 15\nless:20:3\n"
      " 1: 21\n !CFGChecksum: 12\n");
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  EXPECT_EQ(claims->nature, Nature::kShares);
  ASSERT_EQ(claims->procedures.size(), 2u);
  ASSERT_EQ(claims->lines.size(), 4u);
  EXPECT_EQ(claims->lines[2].function, "less");
  ASSERT_EQ(claims->sums.size(), 3u);
  EXPECT_EQ(claims->sums[1].sum, 30u);  // main's own lines and what is inlined
  expect_error("main:30:1\n 1: -10\n", {":2:", "negative"});
  expect_error("main:30:1\n what\n", {":2:", "LINE: SAMPLES"});
  const auto contexts = read("[main:1 @ f]:30:1\n 1: 30\n[main]:5:1\n 1: 5\n");
  ASSERT_TRUE(contexts.ok()) << contexts.error().message;
  ASSERT_EQ(contexts->procedures.size(), 2u);
  EXPECT_EQ(contexts->procedures[0].name, "f");
  EXPECT_EQ(contexts->procedures[1].name, "main");
  EXPECT_EQ(contexts->lines[0].function, "f");
}

// Binary forms are named, with the command that makes them readable.
TEST_F(ReadClaims, BinaryForms) {
  expect_error("\x84\xe4\xd0\xb1\xf4\xc9\x94\xa8\x53\x67", {"--sample --text"});
  expect_error("\xff\xe5\xd0\xb1\xf4\xc9\x94\xa8\x53\x67", {"--sample --text"});
  expect_error("\xfflprofi\x81 more", {"llvm-cov export"});
  expect_error("PERFILE2h", {"perf script"});
}

// What perf printed on Debian 12 (perf 6.1), with the path replaced by that of this program.
TEST_F(ReadClaims, PerfScript) {
  const auto image = elf::Image::open(program_);
  ASSERT_TRUE(image.ok());
  const auto code = std::find_if((*image)->segments().begin(), (*image)->segments().end(),
                                 [](const elf::Segment& segment) { return segment.executable; });
  const std::string sample = fmt::format(
      "         swapper     0     0.000000: PERF_RECORD_MMAP -1/0: [0xffffffff81000000(0x12090c8) "
      "@ "
      "0xffffffff81000000]: x [kernel.kallsyms]_text\n"
      "            gzip 14642 35697.198300: PERF_RECORD_MMAP2 14642/14642: [0x563568e5c000({0:#x}) "
      "@ "
      "{1:#x} fe:00 247489 0]: r-xp {2}\n"
      "            gzip 14642 35697.198320:      50000 cpu-clock:  ffffffff814074dc call_rcu+0xc "
      "([kernel.kallsyms])\n"
      "            gzip 14642 35697.198371:      50000 cpu-clock:      563568e5c010 [unknown] "
      "({2})\n"
      "            gzip 14642 35697.198422:      50000 cpu-clock:      563568e5c010 f(int, int) "
      "({2})\n",
      code->range.size_bytes(), code->offset.value(), program_);
  const auto claims = read(sample);
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  EXPECT_EQ(claims->form, Form::kPerfScript);
  ASSERT_EQ(claims->instructions.size(), 1u);
  EXPECT_EQ(claims->instructions[0].at.address, code->range.begin + 0x10);
  EXPECT_EQ(claims->instructions[0].count, 2u);
  EXPECT_NE(claims->silences.back().find("1 samples of the kernel"), std::string::npos);
  // Without the mapping only a symbol with its offset has a place.
  const auto by_symbol = read("     563568e5c010 main+0x4 (" + program_ + ")\n");
  ASSERT_TRUE(by_symbol.ok()) << by_symbol.error().message;
  EXPECT_EQ(by_symbol->instructions.size(), 1u);
  expect_error("     563568e5c010 [unknown] (" + program_ + ")\n", {"--show-mmap-events"});
}

TEST_F(ReadClaims, Tally) {
  const profile::Profile profile = profile::sample_profile();
  const std::string path = folder_.file("x.tally");
  ASSERT_TRUE(profile::save(profile, path).ok());
  const auto claims = read_claims(path, {});
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  EXPECT_EQ(claims->form, Form::kTally);
  EXPECT_EQ(claims->blocks.size(), profile.blocks.size());
  EXPECT_EQ(claims->procedures.size(), profile.procedures.size());
  // The sample's program does not exist, which is admitted, and is not the one that is named.
  EXPECT_FALSE(claims->admissions.empty());
  const auto other = read_claims(path, {.program_path = self()});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("another build"), std::string::npos);
}

}  // namespace
}  // namespace tally::claims
