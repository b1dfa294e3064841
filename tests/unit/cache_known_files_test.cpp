// What a session remembers of files: the same file is read once, another one at the same path never
// taken for it, and a procedure found in bytes that have changed since is not handed out.
#include "cache/known_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace {

using namespace tally;
using namespace tally::engine;
using namespace std::chrono_literals;

class KnownFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/known-files-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    std::filesystem::copy_file(std::filesystem::canonical("/bin/true"), path());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ + "/program"; }
  static std::shared_ptr<KnownFile> open(KnownFiles& files, const std::string& path) {
    auto file = files.open(path);
    EXPECT_TRUE(file.ok());
    return file.ok() ? *file : nullptr;
  }
  // Writes one byte in place.
  void overwrite(uint64_t offset, uint8_t byte) const {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte));
  }

  std::string folder_;
};

TEST_F(KnownFilesTest, ReadsAFileOnce) {
  KnownFiles files(0s);
  const auto first = open(files, path());
  EXPECT_EQ(open(files, path()), first);
  EXPECT_EQ(open(files, path())->image(), first->image());
}

TEST_F(KnownFilesTest, KeepsAFileThatNobodyUses) {
  KnownFiles files(0s);
  const std::weak_ptr<KnownFile> seen = open(files, path());
  EXPECT_FALSE(seen.expired());
  EXPECT_EQ(open(files, path()), seen.lock());
}

TEST_F(KnownFilesTest, ReadsAReplacedFileAnew) {
  KnownFiles files(0s);
  const auto first = open(files, path());
  std::filesystem::copy_file(path(), folder_ + "/other");
  std::filesystem::rename(folder_ + "/other", path());
  EXPECT_NE(open(files, path()), first);
}

TEST_F(KnownFilesTest, ReadsAFileAnewThatWasChangedInPlace) {
  KnownFiles files(0s);
  const auto first = open(files, path());
  struct stat before {};
  ASSERT_EQ(stat(path().c_str(), &before), 0);
  usleep(20'000);  // the file system's clock ticks
  overwrite(std::filesystem::file_size(path()) - 1, 1);
  // Not even an old time of modification hides it.
  const timespec times[2] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path().c_str(), times, 0), 0);
  EXPECT_NE(open(files, path()), first);
}

TEST_F(KnownFilesTest, ReadsAFileAnewAsLongAsItMayChangeUnseen) {
  KnownFiles files(3600s);
  const auto first = open(files, path());
  EXPECT_NE(open(files, path()), first);
}

TEST_F(KnownFilesTest, SaysWhyAFileCannotBeOpened) {
  KnownFiles files(0s);
  std::ofstream(folder_ + "/script") << "#!/bin/sh\n";
  const auto script = files.open(folder_ + "/script");
  ASSERT_FALSE(script.ok());
  EXPECT_NE(script.error().message.find("script"), std::string::npos);
  std::filesystem::remove(path());
  EXPECT_FALSE(files.open(path()).ok());
}

TEST_F(KnownFilesTest, ForgetsWhatWasNotUsedForLong) {
  KnownFiles files(0s);
  const std::weak_ptr<KnownFile> first = open(files, path());
  for (size_t i = 0; i < KnownFiles::kIdleFilesMax; ++i) {
    const std::string other = folder_ + "/other" + std::to_string(i);
    std::filesystem::copy_file(path(), other);
    open(files, other);
  }
  EXPECT_TRUE(first.expired());
}

TEST_F(KnownFilesTest, KnowsTheVdsoByItsBytes) {
  KnownFiles files(0s);
  std::ifstream file(path(), std::ios::binary);
  std::vector<uint8_t> bytes((std::istreambuf_iterator<char>(file)), {});
  const auto first = files.vdso(bytes);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(*files.vdso(bytes), *first);
  bytes.back() ^= 1;
  EXPECT_NE(*files.vdso(bytes), *first);
}

// ---- procedures ---------------------------------------------------------------------------------

class KnownProceduresTest : public KnownFilesTest {
 protected:
  // A procedure that rests on `sources`.
  static std::shared_ptr<KnownProcedure> procedure(std::vector<LinkRange> sources) {
    auto result = std::make_shared<KnownProcedure>();
    result->sources = std::move(sources);
    return result;
  }
  static LinkAddr text(const elf::Image& image) {
    for (const elf::Segment& s : image.segments()) {
      if (s.executable) return s.range.begin;
    }
    return {};
  }
  static ProcedureKey key(LinkAddr entry) { return {{entry, entry + 16}, entry, entry, false}; }
};

TEST_F(KnownProceduresTest, AreFoundAgain) {
  KnownFiles files(0s);
  const auto file = open(files, path());
  const LinkAddr at = text(*file->image());
  file->add_user();
  ASSERT_NE(file->procedures(), nullptr);
  const auto made = procedure({{at, at + 16}});
  file->procedures()->add(key(at), made);
  EXPECT_EQ(file->procedures()->find(key(at)), made);
  EXPECT_EQ(file->procedures()->find(key(at + 1)), nullptr);
  ProcedureKey open_calls = key(at);
  open_calls.open_calls = true;
  EXPECT_EQ(file->procedures()->find(open_calls), nullptr);
}

TEST_F(KnownProceduresTest, AreForgottenWhenTheirBytesHaveChanged) {
  KnownFiles files(0s);
  const auto file = open(files, path());
  const elf::Image& image = *file->image();
  const LinkAddr at = text(image);
  uint64_t offset = 0;
  for (const elf::Segment& s : image.segments()) {
    if (s.executable) offset = s.offset.value();
  }
  file->procedures()->add(key(at), procedure({{at, at + 16}}));
  file->procedures()->add(key(at + 64), procedure({{at + 64, at + 80}}));
  overwrite(offset + 15, static_cast<uint8_t>(~image.bytes_at(at)[15]));
  EXPECT_EQ(file->procedures()->find(key(at)), nullptr);
  EXPECT_EQ(file->procedures()->find(key(at)), nullptr);
  EXPECT_NE(file->procedures()->find(key(at + 64)), nullptr);
}

TEST_F(KnownProceduresTest, ThatRestOnWritableMemoryAreNotRemembered) {
  KnownFiles files(0s);
  const auto file = open(files, path());
  const LinkAddr at = text(*file->image());
  LinkAddr data;
  for (const elf::Segment& s : file->image()->segments()) {
    if (s.writable) data = s.range.begin;
  }
  ASSERT_NE(data, LinkAddr());
  file->procedures()->add(key(at), procedure({{at, at + 16}, {data, data + 8}}));
  EXPECT_EQ(file->procedures()->find(key(at)), nullptr);
}

TEST_F(KnownProceduresTest, TakeBoundedMemory) {
  KnownFiles files(0s);
  const auto file = open(files, path());
  const LinkAddr at = text(*file->image());
  auto large = procedure({{at, at + 16}});
  large->insn_sizes.resize(KnownProcedures::kBytesMax);
  file->procedures()->add(key(at), large);
  EXPECT_EQ(file->procedures()->find(key(at)), nullptr);
}

TEST_F(KnownProceduresTest, OfALargeFileAreWorthItForTheSecondRun) {
  std::filesystem::resize_file(path(), KnownProcedures::kLargeFileBytes + 1);
  KnownFiles files(0s);
  const auto file = open(files, path());
  file->add_user();
  EXPECT_EQ(file->procedures(), nullptr);
  file->add_user();
  EXPECT_NE(file->procedures(), nullptr);
}

}  // namespace
