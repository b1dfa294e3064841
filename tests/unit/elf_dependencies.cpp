// Claim: what a program names to its loader is read as the loader reads it, and damage to it only
// makes the answer shorter.
#include "elf/dependencies.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "elf/layout.h"

namespace tally::elf {
namespace {

constexpr uint64_t kDynamicAt = 0x200, kStringsAt = 0x400;

template <class T>
void put(std::vector<uint8_t>& file, uint64_t at, const T& value) {
  std::memcpy(file.data() + at, &value, sizeof value);
}

// A library with nothing in it but a dynamic table.
class File {
 public:
  File() : bytes_(0x1000) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 2;
    put(bytes_, 0, header);
    put(bytes_, header.e_phoff,
        Elf64_Phdr{PT_LOAD, PF_R | PF_X, 0, 0, 0, bytes_.size(), bytes_.size(), 0x1000});
    put(bytes_, header.e_phoff + sizeof(Elf64_Phdr),
        Elf64_Phdr{PT_DYNAMIC, PF_R, kDynamicAt, kDynamicAt, 0, 0x200, 0x200, 8});
    add(DT_STRTAB, kStringsAt);
  }
  void add(int64_t tag, uint64_t value) {
    put(bytes_, kDynamicAt + sizeof(Elf64_Dyn) * count_++, Elf64_Dyn{tag, {value}});
  }
  void add(int64_t tag, const std::string& text) {
    add(tag, length_);
    std::memcpy(bytes_.data() + kStringsAt + length_, text.c_str(), text.size() + 1);
    length_ += text.size() + 1;
  }
  Dependencies read() const {
    const auto layout = read_layout("it", bytes_, Purpose::kProgram);
    EXPECT_TRUE(layout) << layout.error().message;
    return read_dependencies(*layout, "/opt/it/bin/it");
  }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
  uint64_t count_ = 0, length_ = 1;
};

using Names = std::vector<std::string>;

TEST(Dependencies, NamesAndDirectoriesInTheLoadersOrder) {
  File file;
  file.add(DT_NEEDED, "libone.so");
  file.add(DT_RPATH, "/older");
  file.add(DT_RUNPATH, "$ORIGIN/../lib:/opt::rel:/x/$LIB:${ORIGIN}");
  file.add(DT_NEEDED, "libtwo.so.2");
  file.add(DT_NULL, 0);
  file.add(DT_NEEDED, "behind.so");
  const Dependencies found = file.read();
  EXPECT_EQ(found.names, (Names{"libone.so", "libtwo.so.2"}));
  EXPECT_EQ(found.directories, (Names{"/opt/it/bin/../lib", "/opt", "/opt/it/bin"}));
  File older;
  older.add(DT_RPATH, "/older");
  EXPECT_EQ(older.read().directories, Names{"/older"});
  EXPECT_TRUE(older.read().names.empty());
}

TEST(Dependencies, StringsOutsideTheFileAreNone) {
  File file;
  file.add(DT_NEEDED, 0x1000 - kStringsAt);
  file.add(DT_NEEDED, ~uint64_t{0});
  file.add(DT_NEEDED, "good.so");
  file.add(DT_NEEDED, 0x1000 - kStringsAt - 1);
  file.bytes().back() = 'x';  // runs out of the file
  EXPECT_EQ(file.read().names, Names{"good.so"});
  File elsewhere;
  elsewhere.add(DT_STRTAB, 0x123456);
  elsewhere.add(DT_NEEDED, 0);
  EXPECT_TRUE(elsewhere.read().names.empty());
}

TEST(Dependencies, ListsHaveAnEnd) {
  constexpr uint64_t kSizeBytes = 1 << 20, kStrings = 0x80000, kEntries = 5000;
  File file;
  file.bytes().resize(kSizeBytes);
  const auto header = [&](uint64_t number, Elf64_Phdr one) {
    put(file.bytes(), sizeof(Elf64_Ehdr) + number * sizeof one, one);
  };
  header(0, {PT_LOAD, PF_R, 0, 0, 0, kSizeBytes, kSizeBytes, 0x1000});
  header(1, {PT_DYNAMIC, PF_R, kDynamicAt, kDynamicAt, 0, 0x20000, 0x20000, 8});
  file.add(DT_STRTAB, kStrings);
  file.add(DT_RUNPATH, 2);
  file.add(DT_RUNPATH, 60'000);
  for (uint64_t i = 0; i < kEntries; ++i) file.add(DT_NEEDED, 0x70000);
  put(file.bytes(), kStrings + 0x70000, 'a');
  for (uint64_t at = 2; at < 0x68000; at += 2) {
    const char directory[2] = {'/', ':'};
    put(file.bytes(), kStrings + at, directory);
  }
  EXPECT_TRUE(file.read().directories.empty());  // too long for a list
  file.bytes()[kStrings + 60'100] = 0;
  EXPECT_EQ(file.read().directories.size(), 64u);
  EXPECT_EQ(file.read().names.size(), 1024u);
}

TEST(Dependencies, DamageIsSurvived) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20'000; ++i) {
    File file;
    file.add(DT_NEEDED, "libone.so");
    file.add(DT_RUNPATH, "$ORIGIN/../lib:/opt");
    for (int changes = 0; changes < 4; ++changes) {
      file.bytes()[kDynamicAt + random() % 0x280] = static_cast<uint8_t>(random());
    }
    const Dependencies found = file.read();
    EXPECT_LE(found.names.size(), 0x200 / sizeof(Elf64_Dyn));
  }
}

TEST(Dependencies, OfThisVeryProgram) {
  const auto self = Image::open("/proc/self/exe");
  ASSERT_TRUE(self) << self.error().message;
  const Dependencies found = (*self)->dependencies();
  EXPECT_NE(std::ranges::find(found.names, "libc.so.6"), found.names.end());
  const auto libc = Image::open("/lib/x86_64-linux-gnu/libc.so.6");
  ASSERT_TRUE(libc) << libc.error().message;
  EXPECT_GT(code_bytes(**libc), 1u << 20);
  EXPECT_GE(code_bytes_of_libraries(**self), code_bytes(**libc));
}

TEST(Dependencies, WhatIsNotThereCountsNothing) {
  File file;
  file.add(DT_NEEDED, "no-such-library.so");
  file.add(DT_NEEDED, "../relative.so");
  file.add(DT_NEEDED, "/no/such/library.so");
  file.add(DT_NEEDED, "/dev/null");
  const auto image = Image::from_bytes("it", file.bytes());
  ASSERT_TRUE(image);
  EXPECT_EQ(code_bytes_of_libraries(**image), 0u);
}

}  // namespace
}  // namespace tally::elf
