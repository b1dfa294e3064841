// Damaged profiles are found and named right by a run of the program, also where every equation
// holds and no static check can see anything (tests/damage/consistent.h); none of the undamaged is.
//
// A failure prints program, kind and seed.  The environment variable TALLY_SEED sets the first one.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "../damage/consistent.h"
#include "../damage/damage.h"
#include "claims/read.h"
#include "profile/file.h"
#include "profile_sample.h"
#include "verify/verify.h"

namespace tally::verify {
namespace {

using damage::Change;
using damage::Consistent;
using damage::ConsistentDamager;

const char* const kPrograms[] = {"programs/switch_nested", "programs/exit_depth",
                                 "programs/recursion_mutual", "programs/loop_nested",
                                 "verify/write_lines"};
constexpr uint64_t kConsistentEach = 45;  // of each program
constexpr uint64_t kOtherEach = 28;

// Programs print; the test's output is not theirs.
class Silence {
 public:
  Silence() : saved_(dup(1)) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1);
    close(null);
  }
  ~Silence() {
    dup2(saved_, 1);
    close(saved_);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  int saved_;
};

struct Sample {
  std::string name, program, file;
  profile::Profile profile;
};

class VerifyDamaged : public testing::Test {
 protected:
  void SetUp() override {
    const char* chosen = std::getenv("TALLY_SEED");
    first_seed_ = chosen == nullptr ? 0 : std::strtoull(chosen, nullptr, 10);
    for (const char* name : kPrograms) {
      const std::string short_name = std::filesystem::path(name).filename();
      Sample s{short_name, folder_.file(short_name), folder_.file(short_name + ".tally"), {}};
      const std::string source = std::string(TALLY_SOURCE_DIR "/tests/") + name + ".c";
      const std::string tool = TALLY_BINARY;

      ASSERT_EQ(std::system(("gcc -O1 -w -nostdlib -static -no-pie -fno-pie -fno-stack-protector "
                             "-ffreestanding -o " +
                             s.program + " " + source)
                                .c_str()),
                0);
      const std::string line = tool + " profile -o " + s.file + " -- " + s.program + " >/dev/null";
      const int status = std::system(line.c_str());
      ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 125) << name;
      auto profile = profile::load(s.file);
      ASSERT_TRUE(profile) << profile.error().message;
      s.profile = std::move(*profile);
      samples_.push_back(std::move(s));
    }
  }

  Verdict judge(const Sample& s, const profile::Profile& profile) {
    const std::string file = folder_.file("damaged.tally");
    unlink(file.c_str());
    const Status saved = profile::save(profile, file);
    EXPECT_TRUE(saved) << (saved ? "" : saved.error().message);
    claims::ReadOptions read;
    read.program_path = s.program;
    const auto claims = claims::read_claims(file, read);
    EXPECT_TRUE(claims) << (claims ? "" : claims.error().message);
    VerifyOptions options;
    options.watch.command = {s.program};
    options.watch.deny_rseq = true;
    const Silence silence;
    Result<Verdict> verdict = verify(*claims, options);
    EXPECT_TRUE(verdict) << (verdict ? "" : verdict.error().message);
    return std::move(*verdict);
  }

  static std::string words(const Verdict& verdict) {
    std::string text;
    for (const Finding& f : verdict.judgement.findings) {
      text += fmt::format("  {} {} {} -> {}: {} {}\n", to_string(f.reason), to_string(f.kind),
                          f.where, f.to, f.claimed, f.counted);
      if (text.size() > 2000) break;
    }
    return text.empty() ? "  nothing\n" : text;
  }

  profile::TemporaryFolder folder_;
  std::vector<Sample> samples_;
  uint64_t first_seed_ = 0;
};

// Counts by what a finding names, as the damage and as the verdict have them.
using Differences = std::map<std::tuple<FindingKind, uint64_t, uint64_t>, int64_t>;

Differences expected(const profile::Profile& profile, const Change& change) {
  Differences result;
  for (const auto& [id, n] : change.edges) {
    const profile::Edge& e = profile.edges[id];
    result[{FindingKind::kEdgeCount, profile.blocks[e.from_block].address.value(),
            profile.blocks[e.to_block].address.value()}] += n;
  }
  for (const auto& [id, n] : change.blocks) {
    result[{FindingKind::kBlockCount, profile.blocks[id].address.value(), 0}] += n;
  }
  for (const auto& [id, n] : change.procedures) {
    result[{FindingKind::kProcedureCount, profile.procedures[id].entry.value(), 0}] += n;
  }
  std::erase_if(result, [](const auto& entry) { return entry.second == 0; });
  return result;
}

Differences found(const Verdict& verdict) {
  Differences result;
  for (const Finding& f : verdict.judgement.findings) {
    const uint64_t to = f.kind == FindingKind::kEdgeCount ? f.to_address.value() : 0;
    result[{f.kind, f.address.value(), to}] += static_cast<int64_t>(f.claimed - f.counted);
  }
  std::erase_if(result, [](const auto& entry) { return entry.second == 0; });
  return result;
}

TEST_F(VerifyDamaged, TheUndamagedAreVerified) {
  for (const Sample& s : samples_) {
    const Verdict verdict = judge(s, s.profile);
    EXPECT_TRUE(verdict.verified) << s.name << ":\n" << words(verdict);
  }
}

TEST_F(VerifyDamaged, ConsistentDamageIsFoundToTheCount) {
  uint64_t by_kind[static_cast<size_t>(damage::kConsistentLast) + 1] = {};
  for (const Sample& s : samples_) {
    ConsistentDamager damager(s.profile);
    for (uint64_t i = 0; i < kConsistentEach; ++i) {
      const auto kind = static_cast<Consistent>(i % std::size(by_kind));
      profile::Profile damaged;
      const auto change = damager.apply(kind, first_seed_ + i, damaged);
      if (!change) continue;
      const std::string what =
          fmt::format("{}, {}, seed {}", s.name, damage::to_string(kind), first_seed_ + i);
      EXPECT_EQ(claims::check(claims::claims_of(damaged, s.name)).findings_total, 0u)
          << what << ": a static check sees it";
      const Verdict verdict = judge(s, damaged);
      EXPECT_FALSE(verdict.verified) << what;
      EXPECT_EQ(found(verdict), expected(s.profile, *change)) << what << ":\n" << words(verdict);
      for (const Finding& f : verdict.judgement.findings) {
        EXPECT_EQ(f.reason, Reason::kWrong) << what << ": " << f.where;
        EXPECT_FALSE(f.record.empty()) << what << ": " << f.where;
      }
      ++by_kind[static_cast<size_t>(kind)];
    }
  }
  for (const uint64_t count : by_kind) EXPECT_GE(count, kConsistentEach / 3);
}

// What of the other kinds of damage a run has to say about the place that was damaged.  Counters
// of 32 bits are left to the static check: the other counts of such a profile are made up.
bool names(const Verdict& verdict, damage::Kind kind, const damage::Done& done) {
  using damage::Kind;
  return std::any_of(
      verdict.judgement.findings.begin(), verdict.judgement.findings.end(), [&](const Finding& f) {
        if (kind == Kind::kExitNotBooked) return f.kind == FindingKind::kContradiction;
        if (f.address != done.place.address) return false;
        switch (kind) {
          case Kind::kExitNotCounted:
            return f.kind == FindingKind::kBlockCount;
          case Kind::kData:
            return f.kind == FindingKind::kBlockCount || f.kind == FindingKind::kInside;
          case Kind::kOwnWrite:
            return f.kind == FindingKind::kProcedureCount;
          case Kind::kMissedEdge:
          case Kind::kMissedCall:
            return f.kind == FindingKind::kMissingEdge && f.reason == Reason::kStructure;
          case Kind::kMissedBlock:
            return f.kind == FindingKind::kMissingBlock && f.reason == Reason::kStructure;
          default:
            return false;
        }
      });
}

TEST_F(VerifyDamaged, OtherDamageIsNamed) {
  constexpr auto kFirst = static_cast<uint64_t>(damage::Kind::kData);
  constexpr uint64_t kKinds = static_cast<uint64_t>(damage::kKindLast) + 1 - kFirst;
  uint64_t by_kind[kKinds] = {};
  for (const Sample& s : samples_) {
    damage::Damager damager(s.profile);
    for (uint64_t i = 0; i < kOtherEach; ++i) {
      const auto kind = static_cast<damage::Kind>(kFirst + i % kKinds);
      profile::Profile damaged;
      const auto done = damager.apply(kind, first_seed_ + i, damaged);
      if (!done) continue;
      const Verdict verdict = judge(s, damaged);
      EXPECT_FALSE(verdict.verified) << s.name << " " << damage::to_string(kind);
      EXPECT_TRUE(names(verdict, kind, *done))
          << s.name << ", " << damage::to_string(kind) << ", seed " << first_seed_ + i << ": "
          << done->words << " at " << std::hex << done->place.address.value() << "; found:\n"
          << words(verdict);
      ++by_kind[i % kKinds];
    }
  }
  for (uint64_t k = 0; k < kKinds; ++k) {
    EXPECT_GT(by_kind[k], 0u) << damage::to_string(static_cast<damage::Kind>(kFirst + k));
  }
}

}  // namespace
}  // namespace tally::verify
