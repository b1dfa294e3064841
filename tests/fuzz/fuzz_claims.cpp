// Fuzzes src/claims: profiles of every textual form, damaged at random, through reading and all
// static checks.  It must never crash, hang or complain in more than one line.
//
// Run by tools/fuzz.py, or:  fuzz_claims ITERATIONS [SEED]
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "../unit/profile_sample.h"
#include "base/check.h"
#include "claims/check.h"
#include "claims/read.h"
#include "elf/image.h"
#include "fuzz_main.h"

namespace tally::claims {
namespace {

using Random = std::mt19937_64;

// The code of this program, so that addresses mean something.
std::vector<std::string> originals(const std::string& program, LinkAddr entry) {
  std::vector<std::string> all;
  std::string edges;
  std::string callgrind =
      "# callgrind format\ncreator: callgrind-3.19.0\ncmd: x -y\npart: 1\npositions: instr line\n"
      "events: Ir\nob=(1) " +
      program + "\nfl=(1) a.c\nfn=(1) main\n";
  for (uint64_t i = 0; i < 20; ++i) {
    const uint64_t at = entry.value() + i * 3;
    edges += fmt::format("{:#x} {:#x} {}\n", at, at + 3, i * 7);
    callgrind += fmt::format("{:#x} {} {}\n", at, i, i * 5);
    callgrind += fmt::format("calls=1 {:#x} 0\n* * 5\njcnd=1/3 +{} 0\n* *\n+2 * 4\n", at, i);
  }
  all.push_back(edges);
  all.push_back(callgrind + "totals: 950\n");
  all.emplace_back(
      "1 main 0 1 main 1 0 7\n1 main 5 1 main 0 0 6\n0 [unknown] 0 1 main 0 0 2\n"
      "4 main 0 4 main 8 3\n1 main 1 1 puts@PLT 0 0 5\n");
  all.emplace_back("no_lbr cycles:u\n1 main 0 17\n1 main 4 9\n");
  all.emplace_back(
      R"({"gcc_version": "12.2.0", "files": [{"file": "a.c", "functions": [{"name": "main",)"
      R"("execution_count": 4, "start_line": 1, "blocks": 3, "blocks_executed": 2}], "lines":)"
      R"([{"line_number": 1, "function_name": "main", "count": 4,)"
      R"("branches": [{"count": 1}]}]}]})");
  all.emplace_back(
      R"({"data":[{"files":[{"filename":"a.c","segments":[[1,1,1,true,true,false],)"
      R"([9,1,0,false,false,false]]}],"functions":[{"name":"main","count":1,"filenames":["a.c"],)"
      R"("regions":[[1,1,9,1,1,0,0,0]],"branches":[[1,1,9,1,1,0,0,0,4]]}]}],)"
      R"("type":"llvm.coverage.json.export","version":"2.0.1"})");
  all.emplace_back("main:30:1\n 1: 10\n 2.1: 5 sort:4\n 3: less:15\n  1: 15\nless:20:3\n 1: 20\n");
  all.push_back(fmt::format(
      "x 1 2.5: PERF_RECORD_MMAP2 1/1: [0x1000(0x9000) @ 0x1000 fe:00 2 0]: r-xp {0}\n"
      "x 1 2.6: 50 cpu-clock: 1010 main+0x1 ({0})\n     1010 main+0x2 ({0})\n\n   1020 f ({0})\n",
      program));
  return all;
}

const char* const kNasty[] = {"-1",
                              "18446744073709551616",
                              "0xffffffffffffffff",
                              "\n",
                              " ",
                              ":",
                              "=",
                              "(1)",
                              "*",
                              "+",
                              "/",
                              "[",
                              "]",
                              "{",
                              "}",
                              "\"",
                              "\\",
                              "18446744073709551615",
                              "4294967296",
                              "",
                              "\t",
                              "(99999999) x"};

std::string damaged(std::string text, Random& random) {
  const bool only_numbers = random() % 2 == 0;  // which most readers take
  for (uint64_t n = 1 + random() % 3; n > 0 && !text.empty(); --n) {
    const size_t at = random() % text.size();
    switch (only_numbers ? 5 : random() % 6) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.erase(at, random() % 40);
        break;
      case 3:
        text.insert(at, text.substr(random() % text.size(), random() % 60));
        break;
      default: {  // a number for another
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const size_t end =
            std::min(text.find_first_not_of("0123456789abcdefx", digit), text.size());
        text.replace(digit, end - digit,
                     only_numbers ? fmt::format("{}", random() >> random() % 64)
                                  : kNasty[random() % std::size(kNasty)]);
      }
    }
  }
  return text;
}

int fuzz(uint64_t iterations, uint64_t seed) {
  Random random(seed);
  const profile::TemporaryFolder folder;
  const std::string path = folder.file("profile");
  char program[4096] = {};
  CHECK(::readlink("/proc/self/exe", program, sizeof program - 1) > 0);
  const auto image = elf::Image::open(program);
  CHECK(image.ok());
  const std::vector<std::string> all = originals(program, (*image)->entry());
  for (const std::string& text : all) {
    profile::write_whole(path, text);
    const auto claims = read_claims(path, {.program_path = program});
    CHECK(claims.ok()) << "an undamaged profile is refused: " << claims.error().message;
  }
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < iterations; ++i) {
    profile::write_whole(path, damaged(all[random() % all.size()], random));
    const auto claims = read_claims(path, {.program_path = program});
    if (!claims) {
      CHECK(claims.error().message.find('\n') == std::string::npos) << claims.error().message;
      continue;
    }
    ++accepted;
    const CheckReport report = check(*claims);
    CHECK(report.findings.size() <= CheckReport::kListed);
  }
  std::printf("fuzz_claims: %llu accepted, no crash\n", static_cast<unsigned long long>(accepted));
  return 0;
}

}  // namespace
}  // namespace tally::claims

int main(int argc, char** argv) {
  return tally::fuzz_main("fuzz_claims", argc, argv, tally::claims::fuzz);
}
