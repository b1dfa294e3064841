// A profile file holds exactly what was saved, is complete or absent, and nothing else is believed.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "profile/checks.h"
#include "profile/digest.h"
#include "profile/file.h"
#include "profile/run_facts.h"
#include "profile_sample.h"

namespace tally::profile {
namespace {

size_t files_in(const TemporaryFolder& folder) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    files += entry.exists() ? 1 : 0;
  }
  return files;
}

Profile rich_profile() {
  Profile profile = sample_profile();
  make_module(profile, "[vdso]", "");
  profile.modules[1].load_bias = 0x8000000000001000;  // beyond a signed 64-bit number
  profile.blocks[0].count = 0xffffffffffffffff;
  profile.blocks[1].partial = {{0, 1, -1}, {1, 2, 3}};
  profile.issues = {{"process 12", "was not followed", 4}};
  return profile;
}

// Whether the provisional file of this maker is still there after another profile was written.
bool stays(const TemporaryFolder& folder, pid_t maker, bool locked, const char* name = "x.tally") {
  const std::string partial = fmt::format("{}.partial-{}", folder.file(name), maker);
  const int fd = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (locked) {
    EXPECT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_TRUE(save(sample_profile(), folder.file("x.tally")));
  const bool there = ::access(partial.c_str(), F_OK) == 0;
  ::close(fd);
  ::unlink(partial.c_str());
  return there;
}

pid_t gone() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST(ProfileFile, WhatAKilledTallyLeftIsRemovedAndNothingElse) {
  const TemporaryFolder folder;
  EXPECT_FALSE(stays(folder, gone(), false));
  EXPECT_FALSE(stays(folder, ::getpid(), false)) << "an earlier process of this number left it";
  EXPECT_TRUE(stays(folder, gone(), true)) << "a process of another container holds it";
  EXPECT_TRUE(stays(folder, ::getppid(), false)) << "its process lives";
  EXPECT_TRUE(stays(folder, gone(), false, "y.tally")) << "of another profile";
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(ProfileFile, RoundTrip) {
  const TemporaryFolder folder;
  const Profile saved = rich_profile();
  const Status status = save(saved, folder.file("x.tally"));
  ASSERT_TRUE(status) << status.error().message;
  const Result<Profile> loaded = load(folder.file("x.tally"));
  ASSERT_TRUE(loaded) << loaded.error().message;
  // The digest covers every field; the spot checks guard against a digest that covers none.
  EXPECT_EQ(content_digest(saved), content_digest(*loaded));
  EXPECT_EQ(loaded->blocks[0].count, 0xffffffffffffffff);
  EXPECT_EQ(loaded->blocks[1].partial[1].delta, 3);
  EXPECT_EQ(loaded->blocks[1].equation(), "counter 7");
  EXPECT_TRUE(loaded->blocks[3].returns);
  EXPECT_EQ(loaded->modules[1].load_bias, 0x8000000000001000);
  EXPECT_EQ(loaded->run.command_line, saved.run.command_line);
  EXPECT_EQ(loaded->run.more, saved.run.more);
  EXPECT_EQ(loaded->abnormal[1].detail, "exit_group(3)");
  EXPECT_EQ(files_in(folder), 1u);
}

TEST(ProfileFile, EmptyProfileAndStrangeNames) {
  const TemporaryFolder folder;
  for (const char* name : {"a b?c#d%20.tally", ":memory:", "file:x"}) {
    ASSERT_TRUE(save(Profile{}, folder.file(name))) << name;
    EXPECT_TRUE(load(folder.file(name))) << name;
    EXPECT_TRUE(load("//" + folder.file(name).substr(1))) << name;
  }
}

TEST(ProfileFile, RelativeNamesAndLinks) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.file("real"));
  std::filesystem::create_symlink("real/target.tally", folder.file("link.tally"));
  write_whole(folder.file("real/target.tally"), "old");
  ASSERT_TRUE(save(sample_profile(), folder.file("link.tally")));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link.tally")));
  EXPECT_TRUE(load(folder.file("real/target.tally")));
}

TEST(ProfileFile, MalformedProfileIsNotWritten) {
  const TemporaryFolder folder;
  Profile profile = sample_profile();
  profile.edges[0].to_block = 99;
  const Status status = save(profile, folder.file("x.tally"));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("no block 99"), std::string::npos);
  EXPECT_EQ(files_in(folder), 0u);
}

// Errors of writing: one line with the path, nothing half-written, the older file intact.
void expect_refused(const std::string& path, const std::string& words, const Profile& profile) {
  for (const Status& status : {check_writable(path), save(profile, path)}) {
    if (status) continue;  // check_writable cannot foresee a full disk
    EXPECT_NE(status.error().message.find("'" + path + "'"), std::string::npos);
    EXPECT_NE(status.error().message.find(words), std::string::npos) << status.error().message;
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
  }
  EXPECT_FALSE(save(profile, path));
}

TEST(ProfileFile, PlacesThatCannotBeWritten) {
  const TemporaryFolder folder;
  expect_refused(folder.file("no/such/x.tally"), "No such file or directory", sample_profile());
  expect_refused(folder.path().string(), "not a regular file", sample_profile());
  expect_refused("/dev/full", "not a regular file", sample_profile());
  expect_refused("/proc/x.tally", "", sample_profile());
  EXPECT_TRUE(check_writable(folder.file("x.tally")));
  EXPECT_EQ(files_in(folder), 0u);
}

// In a child that is nobody, since root may write anywhere.
TEST(ProfileFile, ReadOnlyFolder) {
  const TemporaryFolder folder;
  ::chmod(folder.path().c_str(), 0555);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    expect_refused(folder.file("x.tally"), "Permission denied", sample_profile());
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int wait_status = 0;
  ::waitpid(child, &wait_status, 0);
  EXPECT_TRUE(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) << wait_status;
  ::chmod(folder.path().c_str(), 0755);
}

Profile big_profile(size_t blocks) {
  Profile profile = sample_profile();
  for (size_t i = 0; i < blocks; ++i) {
    make_block(profile, 0, 0x10000 + i * 20, {4, 3, 5, 2, 6}, i, CountSource::kDerived);
    profile.blocks.back().counter = static_cast<uint32_t>(i);
    const uint32_t id = profile.blocks.back().id;
    profile.edges.push_back({id, id, EdgeKind::kTaken, i, CountSource::kMeasured});
    profile.edges.push_back({id, 0, EdgeKind::kFallthrough, i, CountSource::kDerived});
  }
  return profile;
}

TEST(ProfileFile, FullDiskKeepsTheOlderFile) {
  const TemporaryFolder folder;
  if (::mount("tally", folder.path().c_str(), "tmpfs", 0, "size=256k") != 0) {
    GTEST_SKIP() << "mounting a small tmpfs needs root";
  }
  const std::string path = folder.file("x.tally");
  EXPECT_TRUE(save(sample_profile(), path));
  expect_refused(path, "No space left on device", big_profile(20000));
  EXPECT_TRUE(load(path));
  EXPECT_EQ(files_in(folder), 1u);
  EXPECT_EQ(::umount(folder.path().c_str()), 0);
}

// In a child: the limit cannot be raised again by an ordinary user.
TEST(ProfileFile, FileSizeLimitIsAnErrorNotADeath) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.tally");
  ASSERT_TRUE(save(sample_profile(), path));
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit = {300000, 300000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = save(big_profile(20000), path);
    const bool good = !status && status.error().message.find("File too large") != std::string::npos;
    sigset_t pending;
    sigpending(&pending);
    ::_exit(good && sigismember(&pending, SIGXFSZ) == 0 ? 0 : 1);
  }
  int wait_status = 0;
  ::waitpid(child, &wait_status, 0);
  EXPECT_TRUE(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) << wait_status;
  EXPECT_TRUE(load(path));
  EXPECT_EQ(files_in(folder), 1u);
}

class Refusal : public testing::Test {
 protected:
  // Saves the sample, runs SQL on the file, and expects to be refused with these words.
  void expect_after(const std::string& sql, const std::string& words) {
    ASSERT_TRUE(save(rich_profile(), path_));
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
        << sql << ": " << sqlite3_errmsg(database);
    sqlite3_close(database);
    expect_refused_with(words, sql);
  }
  void expect_bytes(const std::string& bytes, const std::string& words) {
    write_whole(path_, bytes);
    expect_refused_with(words, words);
  }
  void expect_refused_with(const std::string& words, const std::string& context) {
    const Result<Profile> profile = load(path_);
    ASSERT_FALSE(profile) << context;
    const std::string& message = profile.error().message;
    EXPECT_NE(message.find(path_), std::string::npos) << message;
    EXPECT_NE(message.find(words), std::string::npos) << context << " -> " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("x.tally");
};

TEST_F(Refusal, OtherFiles) {
  expect_refused_with("No such file", "missing");
  expect_bytes("", "empty");
  expect_bytes("hello", "only 5 bytes");
  expect_bytes(std::string(5000, 'x'), "nor any SQLite database");
  path_ = folder_.path().string();
  expect_refused_with("not a regular file", "folder");
  path_ = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_refused_with("not a regular file", "pipe");
}

TEST_F(Refusal, OtherVersions) {
  expect_after("PRAGMA application_id = 5", "another application");
  expect_after("PRAGMA user_version = 4", "format 4 is newer");
  expect_after("PRAGMA user_version = 2", "format 2 is older");
  expect_after("PRAGMA user_version = 1", "format 1 is older");
  expect_after("PRAGMA user_version = 0", "format 0 does not exist");
}

TEST_F(Refusal, OtherTables) {
  expect_after("DROP TABLE edges", "no table 'edges'");
  expect_after("ALTER TABLE blocks ADD COLUMN more INTEGER", "table 'blocks' has other columns");
  expect_after("DROP TABLE edges; CREATE VIEW edges AS SELECT 1", "no table 'edges'");
}

TEST_F(Refusal, WrongRows) {
  expect_after("UPDATE edges SET to_block = 99 WHERE id = 2", "edges row 2: no block 99");
  expect_after("UPDATE edges SET kind = 8", "kind is 8, above 7");
  expect_after("UPDATE edges SET source = -1", "above 2");
  expect_after("UPDATE edges SET from_block = 4294967296 WHERE id = 1", "edges row 1: no block");
  expect_after("UPDATE blocks SET procedure = 7", "blocks row 0: no procedure 7");
  expect_after("UPDATE blocks SET instruction_sizes = x'0010', size_bytes = 16", "of 0 bytes");
  expect_after("UPDATE blocks SET instruction_sizes = x'10', size_bytes = 16", "of 16 bytes");
  expect_after("UPDATE blocks SET instruction_sizes = x'', size_bytes = 0", "no instructions");
  expect_after("UPDATE blocks SET size_bytes = 77", "its size is not that of its instructions");
  expect_after("UPDATE blocks SET address = -1", "wraps around");
  expect_after("UPDATE blocks SET equation = 'counter 07' WHERE id = 1", "not 'counter N'");
  expect_after("UPDATE blocks SET equation = 'a guess' WHERE id = 2", "not 'counter N'");
  expect_after("UPDATE blocks SET returns = 2", "returns is 2");
  expect_after("UPDATE procedures SET module = 2", "procedures row 0: no module 2");
  expect_after("UPDATE procedures SET provenance = 7", "provenance is 7");
  expect_after("UPDATE modules SET mapped_end = 0", "ends before it begins");
  expect_after("UPDATE abnormal SET block = 5", "abnormal row 0: no block 5");
  expect_after("UPDATE abnormal SET kind = 10", "kind is 10");
  expect_after("UPDATE partial_runs SET block = 5", "partial_runs row 0: no block 5");
  expect_after("UPDATE partial_runs SET last_instruction = 3", "outside the block");
  expect_after("UPDATE partial_runs SET delta = -11", "count impossible");
  expect_after("DELETE FROM blocks WHERE id = 2", "ids are not consecutive");
  expect_after("DELETE FROM blocks WHERE id = 4", "blocks has 4 rows where its runs say 5");
  expect_after("DELETE FROM facts WHERE name = 'kernel'", "ids are not consecutive");
  expect_after("DELETE FROM facts", "facts has 0 rows");
  expect_after("UPDATE facts SET value = 'x' WHERE name = 'misses'", "not an integer");
  expect_after("UPDATE facts SET value = 256 WHERE name = 'signal'", "above 255");
  expect_after("UPDATE facts SET run = 1", "a row of run 0 says otherwise");
  expect_after("UPDATE modules SET run = 1", "a row of run 0 says otherwise");
  expect_after("UPDATE runs SET edges = edges + 1", "rows where its runs say");
  expect_after("DELETE FROM runs", "number of runs");
}

TEST_F(Refusal, ChangedCounts) {
  expect_after("UPDATE blocks SET count = count + 1 WHERE id = 3", "does not match its digest");
  expect_after("UPDATE edges SET source = 1 WHERE id = 3", "does not match its digest");
  expect_after("DELETE FROM issues", "issues has 0 rows");
  expect_after("DELETE FROM threads WHERE id = 1", "threads has 1 rows");
  expect_after("UPDATE threads SET instructions = 5 WHERE id = 1", "does not match its digest");
  expect_after("UPDATE threads SET run = 1 WHERE id = 0", "a row of run 0 says otherwise");
  expect_after("DELETE FROM meta", "number of runs");
  expect_after("UPDATE runs SET digest = 'x'", "does not match its digest");
}

TEST_F(Refusal, TruncatedFiles) {
  ASSERT_TRUE(save(rich_profile(), path_));
  const std::string whole = read_whole(path_);
  for (size_t size = 100; size < whole.size(); size += 1009) {
    write_whole(path_, whole.substr(0, size));
    EXPECT_FALSE(load(path_)) << size;
  }
}

// A file of three runs: each comes back as it was, the sum adds up, in whatever order they ended.
TEST(ProfileFile, SeveralRuns) {
  const TemporaryFolder folder;
  const std::string path = folder.file("x.tally");
  auto writer = Writer::create(path);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const uint32_t number : {2u, 3u, 1u}) {
    Profile profile = sample_profile();
    profile.run.number = number;
    if (number == 3) profile.modules[0].build_id += "00";  // another build: no common counts
    ASSERT_TRUE(writer->add(std::move(profile)));
  }
  EXPECT_FALSE(load(path)) << "there before it was committed";
  ASSERT_TRUE(writer->commit());
  for (const uint32_t number : {1u, 2u, 3u}) {
    Profile expected = sample_profile();
    expected.run.number = number;
    if (number == 3) expected.modules[0].build_id += "00";
    const auto loaded = load(path, number);
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(content_digest(*loaded), content_digest(expected)) << number;
  }
  EXPECT_FALSE(load(path, 4));
  const auto sum = load(path);
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->run.number, 1u);
  const Profile one = sample_profile();
  EXPECT_GT(sum->modules.size(), one.modules.size());
  ASSERT_GT(sum->blocks.size(), one.blocks.size());
  for (size_t i = 0; i < one.blocks.size(); ++i) {
    const Block& block = sum->blocks[i];
    const uint32_t module = sum->procedures[block.procedure_id].module_id;
    const uint64_t times = sum->modules[module].path == one.modules[0].path ? 2 : 3;
    EXPECT_EQ(block.count, times * one.blocks[i].count) << i;
  }
  EXPECT_EQ(check_flow(*sum).balanced(), check_flow(one).balanced());
}

// The size of GCC's cc1: must be a matter of seconds even in a debug build.
TEST(ProfileFile, LargeProfilesAreQuick) {
  const TemporaryFolder folder;
  const Profile profile = big_profile(400000);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(save(profile, folder.file("x.tally")));
  const auto saved = std::chrono::steady_clock::now();
  const Result<Profile> loaded = load(folder.file("x.tally"));
  const auto end = std::chrono::steady_clock::now();
  ASSERT_TRUE(loaded);
  const auto seconds = [](auto from, auto to) {
    return std::chrono::duration<double>(to - from).count();
  };
  RecordProperty("save_seconds", fmt::format("{:.2f}", seconds(start, saved)));
  RecordProperty("load_seconds", fmt::format("{:.2f}", seconds(saved, end)));
  std::error_code ignored;
  fmt::print("save {:.2f} s, load {:.2f} s, {} bytes\n", seconds(start, saved), seconds(saved, end),
             std::filesystem::file_size(folder.file("x.tally"), ignored));
  EXPECT_LT(seconds(start, saved), 20);
  EXPECT_LT(seconds(saved, end), 20);
}

// Every named fact is covered by the digest: changing any one changes it.
TEST(ProfileFile, DigestCoversEveryFact) {
  const uint64_t original = content_digest(sample_profile());
  int facts = 0;
  const Profile sample = sample_profile();
  visit_run_facts(sample.run, [&](const char* name, const auto&) {
    Profile changed = sample_profile();
    visit_run_facts(changed.run, [&](const char* other, auto& fact) {
      if (std::string(name) != other) return;
      if constexpr (requires { fact.append("x"); }) {
        fact.append("x");
      } else {
        fact = !fact;
      }
    });
    EXPECT_NE(content_digest(changed), original) << name;
    ++facts;
  });
  EXPECT_EQ(facts, 26);
}

}  // namespace
}  // namespace tally::profile
