// A thousand damaged profiles: every one is found, and named right; none of the undamaged is.
//
// The profiles are real: Tally itself makes them, of programs in tests/programs.  What is damaged
// and how is in tests/damage/damage.h; a failure prints program, kind and seed.  The environment
// variable TALLY_SEED sets the first seed.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "../damage/damage.h"
#include "claims/read.h"
#include "profile/file.h"
#include "profile_sample.h"

namespace tally::damage {
namespace {

const char* const kPrograms[] = {"hello", "qsort_callback", "exit_libc_depth", "longjmp_plain",
                                 "stdio_big"};
constexpr uint64_t kDamaged = 1000;

class DamagedProfiles : public testing::Test {
 protected:
  // The profile of one of the tiny programs, small because it is linked statically.
  std::optional<profile::Profile> profile_of(const std::string& name) {
    const std::string source = TALLY_SOURCE_DIR "/tests/programs/" + name + ".c";
    const std::string program = folder_.file(name);
    const std::string file = folder_.file(name + ".tally");
    if (!run("gcc -O1 -static -w -o " + program + " " + source + " -lm") ||
        !run(std::string(TALLY_BINARY) + " profile -o " + file + " -- " + program)) {
      return std::nullopt;
    }
    auto profile = profile::load(file);
    if (!profile) return std::nullopt;
    return std::move(*profile);
  }
  static bool run(const std::string& command) {
    const int status = std::system((command + " >/dev/null 2>&1").c_str());
    return WIFEXITED(status) && WEXITSTATUS(status) < 125;
  }
  static std::string words(const claims::CheckReport& report) {
    std::string text;
    for (const claims::Finding& finding : report.findings) {
      text += fmt::format("  {} {} {:#x}: {}\n", claims::to_string(finding.kind), finding.where,
                          finding.place.address.value(), finding.message);
      if (text.size() > 2000) break;
    }
    return text.empty() ? "  nothing\n" : text;
  }

  profile::TemporaryFolder folder_;
};

TEST_F(DamagedProfiles, EveryOneIsFoundAndNamedRight) {
  std::vector<profile::Profile> profiles;
  for (const char* name : kPrograms) {
    auto profile = profile_of(name);
    ASSERT_TRUE(profile) << name;
    const auto report = claims::check(claims::claims_of(*profile, name));
    ASSERT_EQ(report.findings_total, 0u) << name << ", undamaged:\n" << words(report);
    ASSERT_GT(report.equations, 1000u);
    profiles.push_back(std::move(*profile));
  }
  constexpr uint64_t kKinds = static_cast<uint64_t>(kKindLast) + 1;
  const char* chosen = std::getenv("TALLY_SEED");
  const uint64_t first_seed = chosen == nullptr ? 0 : std::strtoull(chosen, nullptr, 10);
  uint64_t by_kind[kKinds] = {};
  uint64_t found = 0;
  uint64_t alone = 0;
  for (uint64_t p = 0; p < profiles.size(); ++p) {
    Damager damager(profiles[p]);
    for (uint64_t i = 0; i < kDamaged / profiles.size(); ++i) {
      const Kind kind = static_cast<Kind>(i % kKinds);
      profile::Profile damaged;
      const auto done = damager.apply(kind, first_seed + i, damaged);
      ASSERT_TRUE(done) << kPrograms[p] << " offers nothing for " << to_string(kind);
      const auto report = claims::check(claims::claims_of(damaged, kPrograms[p]));
      const bool named = std::any_of(
          report.findings.begin(), report.findings.end(), [&](const claims::Finding& finding) {
            return finding.kind == done->expected && finding.place == done->place;
          });
      EXPECT_TRUE(named) << kPrograms[p] << ", " << to_string(kind) << ", seed " << first_seed + i
                         << ": " << done->words << " at " << std::hex << done->place.address.value()
                         << " has to be " << claims::to_string(done->expected) << "; found:\n"
                         << words(report);
      found += named;
      alone += report.findings_total == 1;
      ++by_kind[static_cast<size_t>(kind)];
    }
  }
  EXPECT_EQ(found, kDamaged);
  for (const uint64_t count : by_kind) EXPECT_GT(count, 50u);
  // One fault is one finding, nearly always: a report that lists half the program helps nobody.
  EXPECT_GT(alone, kDamaged * 9 / 10);
  RecordProperty("alone", static_cast<int>(alone));
}

}  // namespace
}  // namespace tally::damage
