// Looking programs up and refusing them by name: what runs natively is found, what would run as
// something else (a shell, without its rights) is not.
#include "tracee/program.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tally::tracee {
namespace {

class Programs : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "tally-programs-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    const char* path = getenv("PATH");
    old_path_ = path == nullptr ? "" : path;
  }
  void TearDown() override {
    setenv("PATH", old_path_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }

  std::string write(const std::string& name, const std::string& text, mode_t mode) {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  std::string copy_of_true(const std::string& name, mode_t mode) {
    const std::string path = folder_ / name;
    std::filesystem::copy_file(std::filesystem::canonical("/bin/true"), path);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  void refused(const std::string& path, ErrorKind kind, const std::string& word) {
    const auto result = check_program(path);
    ASSERT_FALSE(result.ok()) << path;
    EXPECT_EQ(result.error().kind, kind) << result.error().message;
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos) << result.error().message;
  }

  std::filesystem::path folder_;
  std::string old_path_;
};

TEST_F(Programs, TheFirstExecutableFileOfPathIsTaken) {
  write("a/tool", "#!/bin/sh\n", 0644);  // there, but not executable: passed over
  const std::string second = write("b/tool", "#!/bin/sh\n", 0755);
  write("c/tool", "#!/bin/sh\n", 0755);
  std::filesystem::create_directories(folder_ / "d/only");  // a folder of that name is no program
  const std::string base = folder_;
  const std::string path = base + "/a:" + base + "/b:" + base + "/c:" + base + "/d";
  setenv("PATH", path.c_str(), 1);
  const auto found = find_program("tool");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, second);
  const auto folder = find_program("only");
  ASSERT_TRUE(folder.ok());
  refused(*folder, ErrorKind::kNotExecutable, "folder");
}

TEST_F(Programs, NamesWithASlashAreNotLookedUp) {
  const auto found = find_program("./tool");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, "./tool");
}

TEST_F(Programs, WhatIsNowhereIsNotFound) {
  for (const char* name : {"", "no-such-program-anywhere"}) {
    const auto found = find_program(name);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().kind, ErrorKind::kNotFound);
  }
  refused(folder_ / "missing", ErrorKind::kNotFound, "missing");
}

TEST_F(Programs, WithoutPathTheStandardFoldersAreSearched) {
  unsetenv("PATH");
  EXPECT_TRUE(find_program("true").ok());
}

TEST_F(Programs, TheCodeOfAScriptIsItsInterpreter) {
  const auto plain = check_program("/bin/true");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(*plain, "/bin/true");
  const auto script = check_program(write("script", "#! \t/bin/sh -e\nexit 0\n", 0755));
  ASSERT_TRUE(script.ok());
  EXPECT_EQ(*script, "/bin/sh");
}

TEST_F(Programs, ScriptsThatCannotRunAreRefused) {
  refused(write("lost", "#!/nonexistent/shell\n", 0755), ErrorKind::kNotFound, "interpreter");
  refused(write("nothing", "#! \n", 0755), ErrorKind::kNotExecutable, "names no interpreter");
  const std::string self = folder_ / "self";
  refused(write("self", "#!" + self + "\n", 0755), ErrorKind::kNotExecutable, "script");
}

TEST_F(Programs, RightsThatTracingTakesAwayAreRefused) {
  refused(copy_of_true("suid", 04755), ErrorKind::kNotExecutable, "set-uid");
  refused(copy_of_true("sgid", 02755), ErrorKind::kNotExecutable, "set-gid");
  EXPECT_TRUE(check_program(copy_of_true("locking", 02745)).ok());
  const std::string suid = folder_ / "suid";
  refused(write("script", "#!" + suid + "\n", 0755), ErrorKind::kNotExecutable, "set-uid");
}

TEST_F(Programs, DamagedAndForeignProgramsAreRefused) {
  const std::string elf32 = std::string("\177ELF\1\1\1", 7) + std::string(57, '\0');
  refused(write("elf32", elf32, 0755), ErrorKind::kNotExecutable, "32-bit");
  refused(write("cut", "\177ELF", 0755), ErrorKind::kNotExecutable, "cut short");
  refused(write("plain", "text", 0644), ErrorKind::kNotExecutable, "chmod");
}

}  // namespace
}  // namespace tally::tracee
