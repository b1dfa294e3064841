// Reports, dumps, annotations and explanations of small profiles, byte by byte where others rely on
// the bytes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "isa/insn.h"
#include "profile_sample.h"
#include "report/annotate.h"
#include "report/dump_profile.h"
#include "report/dumps.h"
#include "report/explain.h"
#include "report/summary.h"
#include "report/table.h"

// Something to annotate: this test's own code, found by its symbol.
extern "C" __attribute__((noinline)) int tally_test_subject(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += i * i;
  return sum;
}

namespace tally::report {
namespace {

using namespace profile;  // NOLINT: the model is what all of this is about

template <class Render>
std::string rendered(Render render) {
  std::string text;
  Output output(text);
  render(output);
  EXPECT_TRUE(output.finish());
  return text;
}

std::string report_of(const Profile& profile, Format format) {
  return rendered([&](Output& output) {
    Symbols symbols(profile);
    render_report(profile, symbols, summarize(profile, symbols, 3), format, output);
  });
}

TEST(Csv, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(csv_field("plain text"), "plain text");
  EXPECT_EQ(csv_field(""), "");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_field("two\nlines"), "\"two\nlines\"");
}

TEST(Words, NumbersAndCommandLines) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(shell_words({"a", "", "b c", "it's", "\x1b[31m"}), "a '' 'b c' 'it'\\''s' '?[31m'");
}

TEST(Report, TextOfTheSample) {
  EXPECT_EQ(report_of(sample_profile(), Format::kText), R"(/opt/sample -9 '' 'a b)"
                                                        "\xff"
                                                        R"('
exited with status 3, 1 thread; 2023-11-14 22:13:20 UTC, placement edges, Tally 0.1.0

Instructions          64 executed
Blocks                5 executed of 5 known; 2 measured, 3 derived, 0 unknown
Edges                 5 executed of 5 known; 1 measured, 4 derived, 0 unknown
Flow                  balanced: 5 blocks and the entries of 2 procedures
Not exact             nothing known
Counters              3 placed, 20 increments
Translated            10 instructions into 4,096 bytes of code cache, 2 misses
Time                  2.500 s elapsed; CPU 2.000 s target, 0.250 s monitor

Threads by instructions executed
        instructions   share    run       tid  begun   ended        name
                  60   93.8%      1      4711  start   exit_group   sample
                   4    6.2%      1      4712  thread  exit         worker?

Modules by instructions executed
        instructions   share   executed     blocks  module
                  64  100.0%          5          5  /opt/sample

Hottest procedures
        instructions   share           entries  module            procedure
                  44   68.8%                 1  sample            main
                  20   31.2%                10  sample            sample+0x2000

Hottest blocks
        instructions   share             count  address                   block
                  20   31.2%                10  sample+0x1006             main+0x6
                  20   31.2%                10  sample+0x100e             main+0xe
                  20   31.2%                10  sample+0x2000             sample+0x2000

No names or lines from a module: )" + elf::Image::open("/opt/sample").error().message +
                                                            "\n");
}

TEST(Report, SaysWhatIsNotExact) {
  Profile profile = sample_profile();
  profile.blocks[2].source = CountSource::kUnknown;
  profile.edges[3].count = 8;
  profile.issues = {{"process 12", "was not followed", 1}};
  profile.run.exited = false;
  profile.run.signal = 11;
  const std::string text = report_of(profile, Format::kText);
  for (const char* words :
       {"killed by signal 11 (Segmentation fault)", "NOT BALANCED: 1 equation violated",
        "1 block undetermined", "block sample+0x1006: in-edges and abnormal entries give 9",
        "undetermined: block sample+0x100e", "1 reason", "process 12: was not followed (1)",
        "44 executed or more"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(Report, JsonAndCsvSayTheSame) {
  const nlohmann::json json = nlohmann::json::parse(report_of(sample_profile(), Format::kJson));
  EXPECT_EQ(json["totals"]["instructions"], 64);
  EXPECT_EQ(json["flow"]["balanced"], true);
  EXPECT_EQ(json["procedures"][0]["name"], "main");
  EXPECT_EQ(json["blocks"].size(), 3u);
  const std::string csv = report_of(sample_profile(), Format::kCsv);
  EXPECT_EQ(csv.substr(0, 25), "section,name,field,value\n");
  EXPECT_NE(csv.find("\ntotals,,instructions,64\n"), std::string::npos);
  EXPECT_NE(csv.find("\nprocedures,1,entry,0x1000\n"), std::string::npos);
}

TEST(Report, EmptyProfile) {
  for (Format format : {Format::kText, Format::kJson, Format::kCsv}) {
    EXPECT_FALSE(report_of(Profile{}, format).empty());
  }
}

std::string instructions_of(const Profile& profile) {
  return rendered([&](Output& output) { dump_instructions(profile, Format::kCsv, output); });
}

TEST(Dump, InstructionsOfTheSample) {
  EXPECT_EQ(instructions_of(sample_profile()),
            "module,build_id,address,count\n"
            "/opt/sample,abcd01,0x1000,1\n"
            "/opt/sample,abcd01,0x1001,1\n"
            "/opt/sample,abcd01,0x1004,1\n"
            "/opt/sample,abcd01,0x1006,10\n"
            "/opt/sample,abcd01,0x1009,10\n"
            "/opt/sample,abcd01,0x100e,10\n"
            "/opt/sample,abcd01,0x1012,10\n"
            "/opt/sample,abcd01,0x1014,1\n"
            "/opt/sample,abcd01,0x2000,10\n"
            "/opt/sample,abcd01,0x2003,10\n");
}

// A second mapping of the same file, overlapping blocks, partial and unknown runs.
TEST(Dump, InstructionsAreSummed) {
  Profile profile;
  make_module(profile, "/b,c", "01");
  make_module(profile, "/a", "02");
  make_module(profile, "/b,c", "01");
  for (uint32_t module = 0; module < 3; ++module) make_procedure(profile, module, 0x10, "", 0);
  make_block(profile, 0, 0x10, {2, 3, 4}, 5);
  profile.blocks[0].partial = {{0, 1, -5}, {2, 3, 1}};
  make_block(profile, 0, 0x12, {3}, 0xffffffffffffffff);
  make_block(profile, 2, 0x12, {3}, 1);
  make_block(profile, 1, 0x7fffffffffffffff, {1}, 3);
  make_block(profile, 1, 0x20, {1}, 7, CountSource::kUnknown);
  make_block(profile, 1, 0x30, {1}, 0);
  std::string text;
  Output output(text);
  const DumpGaps gaps = dump_instructions(profile, Format::kCsv, output);
  ASSERT_TRUE(output.finish());
  EXPECT_EQ(gaps.unknown, 1u);
  EXPECT_EQ(text,
            "module,build_id,address,count\n"
            "/a,02,0x7fffffffffffffff,3\n"
            "\"/b,c\",01,0x12,18446744073709551621\n"
            "\"/b,c\",01,0x15,6\n");
}

TEST(Dump, EdgesOfTheSample) {
  Profile profile = sample_profile();
  profile.edges.push_back({2, 1, EdgeKind::kTaken, 5, CountSource::kDerived});
  profile.edges.push_back({4, 4, EdgeKind::kSystemCall, 0, CountSource::kUnknown});
  EXPECT_EQ(rendered([&](Output& output) { dump_edges(profile, Format::kCsv, output); }),
            "module,from_block,to_module,to_block,kind,count,source\n"
            "/opt/sample,0x1000,/opt/sample,0x1006,fallthrough,1,derived\n"
            "/opt/sample,0x1006,/opt/sample,0x100e,call_return,10,derived\n"
            "/opt/sample,0x1006,/opt/sample,0x2000,call,10,derived\n"
            "/opt/sample,0x100e,/opt/sample,0x1006,taken,14,derived\n"
            "/opt/sample,0x100e,/opt/sample,0x1014,fallthrough,1,derived\n"
            "/opt/sample,0x1014,/opt/sample,0x1014,system_call,0,unknown\n");
}

TEST(Dump, BlocksOfTheSample) {
  const std::string csv =
      rendered([&](Output& output) { dump_blocks(sample_profile(), Format::kCsv, output); });
  EXPECT_EQ(csv.substr(0, csv.find('\n', csv.find("\n/opt") + 1) + 1),
            "module,block,size_bytes,instructions,last_instruction,count,source,procedure\n"
            "/opt/sample,0x1000,6,3,0x1004,1,derived,0x1000\n");
}

TEST(Dump, EveryJsonParses) {
  Profile profile = sample_profile();
  profile.blocks[0].partial = {{0, 1, 2}};
  profile.issues = {{"a \"b\"", "\xff\n", 2}};
  for (auto* dump : {dump_edges, dump_blocks, dump_profile}) {
    const std::string text =
        rendered([&](Output& output) { dump(profile, Format::kJson, output); });
    EXPECT_FALSE(nlohmann::json::parse(text).empty());
  }
  EXPECT_EQ(nlohmann::json::parse(rendered([&](Output& output) {
              dump_instructions(profile, Format::kJson, output);
            }))[3]["count"],
            10);
  EXPECT_EQ(rendered([](Output& output) { dump_edges(Profile{}, Format::kJson, output); }), "[]\n");
  EXPECT_NE(rendered([&](Output& output) {
              dump_profile(profile, Format::kText, output);
            }).find("exit_group(3)"),
            std::string::npos);
}

TEST(Output, FullDiskIsAnErrorAndAClosedPipeIsNot) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  Output output(full, false);
  output.write("x");
  const Status status = output.finish();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("No space left"), std::string::npos);
  ::close(full);

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  ::signal(SIGPIPE, SIG_IGN);
  Output pipe(ends[1], false);
  for (int i = 0; i < 100000 && !pipe.closed(); ++i) pipe.print("line {}\n", i);
  EXPECT_TRUE(pipe.closed());
  EXPECT_TRUE(pipe.finish());
  ::close(ends[1]);
}

std::string located(const Profile& profile, const std::string& text,
                    const std::string& module = "") {
  Symbols symbols(profile);
  const Result<Place> place = locate(profile, symbols, text, module);
  return place ? symbols.address_name(place->module, place->address) : place.error().message;
}

TEST(Locate, AddressesModulesAndSymbols) {
  Profile profile = sample_profile();
  make_module(profile, "/lib/other.so", "ef");
  make_procedure(profile, 1, 0x1000, "add", 0);
  make_procedure(profile, 1, 0x9000, "_ZN1a1bEv", 0);
  make_block(profile, 2, 0x1000, {4}, 0);
  make_block(profile, 3, 0x9000, {4}, 0);
  EXPECT_EQ(located(profile, "0x1007"), "sample+0x1007");
  EXPECT_EQ(located(profile, "1007"), "sample+0x1007");
  EXPECT_EQ(located(profile, "0x1000", "other.so"), "other.so+0x1000");
  EXPECT_EQ(located(profile, "0x9001"), "other.so+0x9001");
  EXPECT_EQ(located(profile, "other.so+0x1000"), "other.so+0x1000");
  EXPECT_EQ(located(profile, "/lib/other.so+0x1000"), "other.so+0x1000");
  EXPECT_EQ(located(profile, "add"), "other.so+0x1000");
  EXPECT_EQ(located(profile, "main+0x6"), "sample+0x1006");
  EXPECT_EQ(located(profile, "_ZN1a1bEv"), "other.so+0x9000");
  EXPECT_EQ(located(profile, "a::b()"), "other.so+0x9000");
  EXPECT_NE(located(profile, "nothing").find("no function 'nothing'"), std::string::npos);
  EXPECT_NE(located(profile, "").find("no function ''"), std::string::npos);
  EXPECT_NE(located(profile, "0x5000").find("no block is known at 0x5000"), std::string::npos);
  EXPECT_NE(located(profile, "main", "libz").find("no module 'libz' in the profile; it has sample"),
            std::string::npos);
  make_procedure(profile, 1, 0x9100, "main", 0);
  EXPECT_NE(located(profile, "main").find("ambiguous: sample+0x1000, other.so+0x9100"),
            std::string::npos);
  EXPECT_EQ(located(profile, "main", "sample"), "sample+0x1000");
}

std::string explained(const Profile& profile, uint64_t address, Format format) {
  return rendered([&](Output& output) {
    Symbols symbols(profile);
    EXPECT_TRUE(explain(profile, symbols, {0, LinkAddr(address)}, format, output));
  });
}

TEST(Explain, ADerivedCountNamesItsEquation) {
  Profile profile = sample_profile();
  ASSERT_EQ(profile.blocks[0].source, CountSource::kDerived);
  profile.blocks[0].counter = profile::Block::kNoCounter;
  const std::string text = explained(profile, 0x1000, Format::kText);
  EXPECT_NE(text.find("equation      conservation of flow: in "), std::string::npos) << text;
}

TEST(Explain, SaysWhereACountComesFrom) {
  Profile profile = sample_profile();
  profile.blocks[1].partial = {{1, 2, -1}};
  EXPECT_EQ(explained(profile, 0x100a, Format::kText),
            "sample+0x100a  /opt/sample (build-id abcd01), in memory 0x55555555500a\n"
            "\n"
            "block 1 [0x1006, 0x100e)\n"
            "  procedure     main, entry 0x1000, found by flow, entries 1 (derived)\n"
            "  found by      flow\n"
            "  count         10 (measured)\n"
            "  equation      counter 7\n"
            "  instruction   number 2 of 2 at 0x1009 (the address is in its middle), executed 9 "
            "times\n"
            "  in            fallthrough sample+0x1000 1 (derived)\n"
            "  in            taken sample+0x100e 9 (measured)\n"
            "  out           call sample+0x2000 10 (derived)\n"
            "  out           call_return sample+0x100e 10 (derived)\n");
  const std::string exit = explained(profile, 0x1014, Format::kText);
  EXPECT_NE(exit.find("program exit: entered 0, left 1: exit_group(3)"), std::string::npos);
  const auto json = nlohmann::json::parse(explained(profile, 0x2000, Format::kJson));
  EXPECT_EQ(json["blocks"][0]["returns"], true);
  profile.blocks[3].source = CountSource::kUnknown;
  EXPECT_NE(explained(profile, 0x2000, Format::kText).find("count         unknown"),
            std::string::npos);
}

// The loop of this test's own function, cut into one block.
Profile profile_of_myself() {
  Profile profile;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto image = elf::Image::open(path);
  EXPECT_TRUE(image);
  const elf::Symbol* symbol = (*image)->symbol_named("tally_test_subject");
  EXPECT_NE(symbol, nullptr);
  make_module(profile, path, (*image)->build_id());
  profile.modules[0].size_bytes = std::filesystem::file_size(path);
  make_procedure(profile, 0, symbol->range.begin.value(), "", 4);
  std::vector<uint8_t> sizes;
  LinkAddr at = symbol->range.begin;
  while (at < symbol->range.end) {
    sizes.push_back(isa::decode((*image)->bytes_at(at), at.value()).size);
    at += sizes.back();
  }
  make_block(profile, 0, symbol->range.begin.value(), sizes, 4);
  return profile;
}

std::string annotated(const Profile& profile, Syntax syntax, Format format) {
  return rendered([&](Output& output) {
    Symbols symbols(profile);
    const LinkAddr entry = profile.procedures[0].entry;
    EXPECT_TRUE(annotate(profile, symbols, {0, entry}, syntax, format, output));
  });
}

TEST(Annotate, OwnCode) {
  EXPECT_EQ(tally_test_subject(3), 5);
  const Profile profile = profile_of_myself();
  const std::string intel = annotated(profile, Syntax::kIntel, Format::kText);
  EXPECT_EQ(intel.substr(0, 18), "tally_test_subject");
  EXPECT_NE(intel.find("entries 4 (derived), 1 blocks"), std::string::npos);
  EXPECT_NE(intel.find("  ret\n"), std::string::npos) << intel;
  EXPECT_EQ(intel.find("not the instruction that ran"), std::string::npos);
  const std::string att = annotated(profile, Syntax::kAtt, Format::kText);
  EXPECT_NE(att.find("%"), std::string::npos);
  EXPECT_EQ(intel.find("%r"), std::string::npos);
  const std::string csv = annotated(profile, Syntax::kIntel, Format::kCsv);
  EXPECT_EQ(csv.substr(0, csv.find('\n')), "procedure,block,address,count,source,instruction,line");
}

TEST(Annotate, RefusesAnotherBuild) {
  Profile profile = profile_of_myself();
  const LinkAddr entry = profile.procedures[0].entry;
  const auto refusal = [&] {
    Symbols symbols(profile);
    std::string text;
    Output output(text);
    const Status status =
        annotate(profile, symbols, {0, entry}, Syntax::kIntel, Format::kText, output);
    return status ? "" : status.error().message;
  };
  profile.modules[0].build_id = "0123abcd";
  const std::string message = refusal();
  EXPECT_NE(message.find("cannot disassemble"), std::string::npos) << message;
  EXPECT_NE(message.find("0123abcd"), std::string::npos) << message;
  EXPECT_NE(message.find(profile.modules[0].path), std::string::npos) << message;
  profile.modules[0].path = "/no/such/file";
  EXPECT_NE(refusal().find("/no/such/file"), std::string::npos);
}

TEST(Symbols, VdsoIsReadFromOurselves) {
  Profile profile;
  make_module(profile, "[vdso]", "");
  Symbols symbols(profile);
  const auto& image = symbols.image(0);
  // Its build-id is not the empty one; the refusal proves that the vdso was found and read.
  ASSERT_FALSE(image);
  EXPECT_NE(image.error().message.find("'[vdso]' has build-id "), std::string::npos)
      << image.error().message;
}

}  // namespace
}  // namespace tally::report
