// Flips, cuts and splices the bytes of a saved profile: `load` must return an error or a profile
// that every reader can use, and never crash or hang.
//
// Half of the rounds damage bytes, where SQLite or the digest has to notice.  The other half
// distort the model and save it, digest and all, so that only validation stands between it and the
// readers.
//
// Build by hand, with sanitizers:
//   g++ -std=c++23 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -Isrc
//     tests/fuzz/fuzz_profile.cpp src/base/check.cpp src/profile/*.cpp src/report/*.cpp
//     src/elf/*.cpp -lZydis -lsqlite3 -ldw -lelf -lfmt -o /tmp/fuzz_profile
// Run:
//   /tmp/fuzz_profile [ITERATIONS [SEED]]
// The seed is printed; the same seed repeats the run.
#include <cstdio>
#include <random>

#include "../unit/profile_sample.h"
#include "fuzz_main.h"
#include "profile/checks.h"
#include "profile/digest.h"
#include "profile/file.h"
#include "profile/validate.h"
#include "report/dump_profile.h"
#include "report/dumps.h"
#include "report/explain.h"
#include "report/summary.h"

namespace tally::profile {
namespace {

using Random = std::mt19937_64;

Profile original() {
  Profile profile = sample_profile();
  profile.blocks[1].partial = {{0, 1, -1}, {1, 2, 3}};
  profile.issues = {{"process 12", "was not followed", 4}};
  for (uint64_t i = 0; i < 200; ++i) {
    make_block(profile, i % 2, 0x4000 + 3 * i, {4, 1, 15}, i);
    const auto id = static_cast<uint32_t>(profile.blocks.size() - 1);
    profile.edges.push_back({id, id / 2, EdgeKind::kTaken, i, CountSource::kDerived});
  }
  return profile;
}

// Everything that reads a loaded profile; it may be wrong in every way `validate` permits.
void use(const Profile& profile) {
  CHECK(validate(profile).ok());
  std::string text;
  report::Output output(text);
  report::Symbols symbols(profile);
  const report::Summary summary = report::summarize(profile, symbols, 5);
  using report::Format;
  for (Format format : {Format::kText, Format::kJson, Format::kCsv}) {
    report::render_report(profile, symbols, summary, format, output);
    report::dump_instructions(profile, format, output);
    report::dump_edges(profile, format, output);
    report::dump_blocks(profile, format, output);
  }
  report::dump_profile(profile, Format::kJson, output);
  if (!profile.blocks.empty()) {
    const Block& block = profile.blocks.back();
    const uint32_t module = profile.procedures[block.procedure_id].module_id;
    CHECK(report::explain(profile, symbols, {module, block.address}, Format::kText, output).ok());
  }
  CHECK(output.finish().ok());
}

std::string damaged(std::string bytes, Random& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  switch (below(8)) {
    case 0:
      bytes.resize(below(bytes.size()));
      return bytes;
    case 1: {
      const size_t from = below(bytes.size());
      const size_t to = below(bytes.size());
      const size_t size = below(600);
      bytes.replace(to, size, bytes.substr(from, size));
      return bytes;
    }
    default:
      for (size_t flips = 1 + below(20); flips > 0; --flips) {
        // Headers of pages and files decide most; half of the flips go there.
        size_t at = below(bytes.size());
        if (below(2) == 0) at = at / 16384 * 16384 + below(120);
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
      }
      return bytes;
  }
}

// Changes fields of the model at random, as a crafted file with a right digest could.
Profile distorted(Profile profile, Random& random) {
  const auto number = [&]() -> uint64_t {
    const uint64_t interesting[] = {0, 1, 2, 7, 8, 15, 16, 255, 0x7fffffffffffffff, ~0ull};
    return random() % 2 == 0 ? interesting[random() % std::size(interesting)] : random() % 300;
  };
  for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
    Block& block = profile.blocks[random() % profile.blocks.size()];
    Edge& edge = profile.edges[random() % profile.edges.size()];
    Procedure& procedure = profile.procedures[random() % profile.procedures.size()];
    switch (random() % 12) {
      case 0:
        block.procedure_id = static_cast<uint32_t>(number());
        break;
      case 1:
        block.address = LinkAddr(number());
        break;
      case 2:
        block.count = number();
        break;
      case 3:
        block.instruction_sizes =
            std::vector<uint8_t>(number() % 9, static_cast<uint8_t>(number()));
        break;
      case 4:
        block.source = static_cast<CountSource>(number());
        break;
      case 5:
        block.partial.push_back({static_cast<uint32_t>(number()), static_cast<uint32_t>(number()),
                                 static_cast<int64_t>(number())});
        break;
      case 6:
        edge.from_block = static_cast<uint32_t>(number());
        break;
      case 7:
        edge.kind = static_cast<EdgeKind>(number());
        break;
      case 8:
        edge.count = number();
        break;
      case 9:
        procedure.entry = LinkAddr(number());
        break;
      case 10:
        procedure.module_id = static_cast<uint32_t>(number());
        break;
      case 11:
        profile.abnormal[0].block = static_cast<uint32_t>(number());
        break;
    }
  }
  return profile;
}

int fuzz(uint64_t iterations, uint64_t seed) {
  Random random(seed);
  const TemporaryFolder folder;
  const std::string path = folder.file("x.tally");
  const Profile profile = original();
  CHECK(save(profile, path).ok());
  const std::string bytes = read_whole(path);
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < iterations; ++i) {
    if (i % 2 == 0) {
      write_whole(path, damaged(bytes, random));
      const Result<Profile> loaded = load(path);
      if (!loaded) continue;
      // The digest matched, so it must be the very same profile.
      CHECK(content_digest(*loaded) == content_digest(profile)) << "iteration " << i;
      ++accepted;
    } else {
      const Profile candidate = distorted(profile, random);
      if (!save(candidate, path)) continue;
      const Result<Profile> loaded = load(path);
      CHECK(loaded.ok()) << "iteration " << i << ": saved, but " << loaded.error().message;
      use(*loaded);
      ++accepted;
    }
  }
  std::printf("fuzz_profile: %llu accepted, no crash\n", static_cast<unsigned long long>(accepted));
  return 0;
}

}  // namespace
}  // namespace tally::profile

int main(int argc, char** argv) {
  return tally::fuzz_main("fuzz_profile", argc, argv, tally::profile::fuzz);
}
