// Claim: what cannot be handled is refused by name, and damage never does more than that.
#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "elf/image.h"
#include "elf_exercise.h"

namespace tally::elf {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ElfRefusals : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tally-elf-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    program_ = read_whole("/bin/true");
    ASSERT_GT(program_.size(), sizeof(Elf64_Ehdr));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const Bytes& bytes) const {
    const std::string path = folder_ + "/file";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  std::string write_text(const std::string& text) const {
    return write(Bytes(text.begin(), text.end()));
  }

  static void expect_refusal(const std::string& path, ErrorKind kind, const std::string& words) {
    const auto image = Image::open(path);
    ASSERT_FALSE(image.ok()) << path;
    EXPECT_EQ(image.error().kind, kind) << image.error().message;
    EXPECT_TRUE(image.error().message.starts_with(path + ": ")) << image.error().message;
    EXPECT_NE(image.error().message.find(words), std::string::npos) << image.error().message;
    EXPECT_EQ(image.error().message.find('\n'), std::string::npos);
  }

  // The program with a change to its ELF header.
  template <class Change>
  std::string with_header(Change change) const {
    Bytes bytes = program_;
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    change(header);
    std::memcpy(bytes.data(), &header, sizeof(header));
    return write(bytes);
  }

  // The program with a change to its first PT_LOAD.
  template <class Change>
  std::string with_segment(Change change) const {
    Bytes bytes = program_;
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    for (size_t i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      uint8_t* at = bytes.data() + header.e_phoff + i * sizeof(segment);
      std::memcpy(&segment, at, sizeof(segment));
      if (segment.p_type != PT_LOAD) continue;
      change(segment);
      std::memcpy(at, &segment, sizeof(segment));
      break;
    }
    return write(bytes);
  }

  std::string folder_;
  Bytes program_;
};

TEST_F(ElfRefusals, NotThere) {
  expect_refusal(folder_ + "/absent", ErrorKind::kNotFound, "no such file");
  expect_refusal("/bin/true/absent", ErrorKind::kNotFound, "no such file");
}

TEST_F(ElfRefusals, NotAFile) {
  expect_refusal(folder_, ErrorKind::kNotExecutable, "is a directory");
  expect_refusal("/dev/null", ErrorKind::kNotExecutable, "not a regular file");
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refusal(pipe, ErrorKind::kNotExecutable, "not a regular file");  // and does not block
}

TEST_F(ElfRefusals, NotReadable) {
  const std::string path = write(program_);
  ASSERT_EQ(::chmod(path.c_str(), 0111), 0);
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  constexpr uid_t kNobody = 65534;
  const bool root = ::geteuid() == 0;  // reads everything, so be somebody else for a moment
  if (root && ::seteuid(kNobody) != 0) GTEST_SKIP() << "root may not change its user here";
  expect_refusal(path, ErrorKind::kNotExecutable, "not readable");
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
}

TEST_F(ElfRefusals, NotElf) {
  expect_refusal(write_text(""), ErrorKind::kNotExecutable, "is empty");
  expect_refusal(write_text("#!/bin/sh\necho\n"), ErrorKind::kNotExecutable, "is a script");
  expect_refusal(write_text("hello"), ErrorKind::kNotExecutable, "not an ELF file");
  expect_refusal(write_text("\177EL"), ErrorKind::kNotExecutable, "not an ELF file");
}

TEST_F(ElfRefusals, Foreign) {
  const auto not_executable = ErrorKind::kNotExecutable;
  expect_refusal(with_header([](auto& h) { h.e_ident[EI_CLASS] = ELFCLASS32; }), not_executable,
                 "32-bit");
  expect_refusal(with_header([](auto& h) { h.e_ident[EI_DATA] = ELFDATA2MSB; }), not_executable,
                 "big-endian");
  expect_refusal(with_header([](auto& h) { h.e_machine = EM_AARCH64; }), not_executable, "AArch64");
  expect_refusal(with_header([](auto& h) { h.e_type = ET_REL; }), not_executable, "relocatable");
  expect_refusal(with_header([](auto& h) { h.e_type = ET_CORE; }), not_executable, "core dump");
  expect_refusal(with_header([](auto& h) { h.e_phnum = 0; }), not_executable, "no loadable");
}

TEST_F(ElfRefusals, Damaged) {
  const auto failure = ErrorKind::kFailure;
  const auto changed = [&](auto change) { return with_header(change); };
  expect_refusal(write(Bytes(program_.begin(), program_.begin() + 40)), failure, "ELF header");
  expect_refusal(write(Bytes(program_.begin(), program_.begin() + 5000)), failure,
                 "behind its end");
  expect_refusal(changed([](auto& h) { h.e_ident[EI_CLASS] = 9; }), failure, "ELF class 9");
  expect_refusal(changed([](auto& h) { h.e_type = 77; }), failure, "ELF type 77");
  expect_refusal(changed([](auto& h) { h.e_phoff = ~0ull; }), failure, "program headers");
  expect_refusal(changed([](auto& h) { h.e_phentsize = 1; }), failure,
                 "program headers of 1 bytes");
  expect_refusal(changed([](auto& h) { h.e_shoff = ~0ull; }), failure, "section headers");
  expect_refusal(changed([](auto& h) { h.e_shstrndx = 200; }), failure, "section 200");
  expect_refusal(with_segment([](auto& s) { s.p_filesz = ~0ull; }), failure, "behind its end");
  expect_refusal(with_segment([](auto& s) { s.p_memsz = s.p_filesz - 1; }), failure, "in memory");
  expect_refusal(with_segment([](auto& s) { s.p_vaddr = ~0ull - 10; }), failure, "address space");
  expect_refusal(with_segment([](auto& s) { s.p_memsz = 1 << 30; }), failure, "overlapping");
}

// Cut at every 64th byte: each prefix is refused with one line, or passes every check.
TEST_F(ElfRefusals, EveryPrefix) {
  size_t accepted = 0;
  for (size_t size = 0; size < program_.size(); size += 64) {
    const auto prefix = program_.begin() + static_cast<ptrdiff_t>(size);
    auto image = Image::from_bytes("prefix", Bytes(program_.begin(), prefix));
    if (!image) continue;
    ++accepted;
    EXPECT_EQ(exercise(*image, size), "") << size;
  }
  EXPECT_EQ(accepted, 0u) << "the section headers stand at the end, so every prefix lacks some";
}

// Without section headers, prefixes that still hold all segments are programs.
TEST_F(ElfRefusals, EveryPrefixWithoutSectionHeaders) {
  const Bytes bare = read_whole(with_header([](auto& h) { h.e_shoff = h.e_shnum = 0; }));
  size_t accepted = 0;
  for (size_t size = 0; size < bare.size(); size += 64) {
    const auto prefix = bare.begin() + static_cast<ptrdiff_t>(size);
    auto image = Image::from_bytes("prefix", Bytes(bare.begin(), prefix));
    if (!image) continue;
    ++accepted;
    EXPECT_EQ(exercise(*image, size), "") << size;
  }
  EXPECT_GT(accepted, 0u);
}

// One flipped bit at a time, in the headers and spread over the rest.
TEST_F(ElfRefusals, FlippedBits) {
  size_t accepted = 0;
  for (size_t at = 0; at < program_.size(); at += at < 1024 ? 1 : 97) {
    Bytes bytes = program_;
    bytes[at] ^= static_cast<uint8_t>(1u << at % 8);
    auto image = Image::from_bytes("flipped", std::move(bytes));
    if (!image) continue;
    ++accepted;
    ASSERT_EQ(exercise(*image, at), "") << at;
  }
  EXPECT_GT(accepted, 100u);
}

}  // namespace
}  // namespace tally::elf
