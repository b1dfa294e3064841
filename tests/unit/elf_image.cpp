// Claim: Image tells the truth about real files: this binary, libc, the vdso, the compiler.
#include "elf/image.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "elf_exercise.h"

namespace tally::elf {
namespace {

constexpr const char* kLibc = "/lib/x86_64-linux-gnu/libc.so.6";
constexpr const char* kCompiler = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1";

std::vector<uint8_t> read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::shared_ptr<Image> must_open(const std::string& path) {
  auto image = Image::open(path);
  EXPECT_TRUE(image.ok()) << image.error().message;
  return image.ok() ? *image : nullptr;
}

// The vdso spans the pages up to the kernel's mark in /proc/self/maps.
std::vector<uint8_t> vdso_bytes() {
  const uint64_t begin = ::getauxval(AT_SYSINFO_EHDR);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with("[vdso]")) continue;
    const uint64_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    const auto* bytes = reinterpret_cast<const uint8_t*>(begin);
    return {bytes, bytes + (end - begin)};
  }
  return {};
}

constexpr int kMarkedLine = __LINE__ + 1;
[[gnu::noinline]] int marked_procedure(int x) {
  return x * 3 + ::getpid();
}

[[gnu::noinline]] int catching_procedure(int x) {
  try {
    if (marked_procedure(x) > x) throw x;
  } catch (int caught) {
    return caught;
  }
  return 0;
}

TEST(ElfImage, ExceptionTables) {
  EXPECT_EQ(catching_procedure(1), 1);
  const auto image = must_open("/proc/self/exe");
  ASSERT_NE(image, nullptr);
  EXPECT_TRUE(image->exception_tables().complete);
  const auto& symbols = image->symbols();
  const auto symbol = std::ranges::find_if(symbols, [](const Symbol& s) {
    return s.name.find("catching_procedure") != std::string::npos &&
           s.name.find(".cold") == std::string::npos;
  });
  ASSERT_NE(symbol, symbols.end());
  // Either part of the procedure may have been split off; the call that throws is in one of them.
  const auto& sites = image->exception_tables().call_sites;
  EXPECT_TRUE(std::ranges::any_of(sites, [&](const CallSite& site) {
    const Symbol* around = image->symbol_at(site.covered.begin);
    const Symbol* pad = image->symbol_at(site.landing_pad);
    return around != nullptr && pad != nullptr && !site.covered.empty() &&
           around->name.find("catching_procedure") != std::string::npos &&
           pad->name.find("catching_procedure") != std::string::npos;
  }));
  const auto library = must_open("/usr/lib/x86_64-linux-gnu/libstdc++.so.6");
  ASSERT_NE(library, nullptr);
  EXPECT_TRUE(library->exception_tables().complete);
  EXPECT_GT(library->exception_tables().call_sites.size(), 500u);
}

TEST(ElfImage, OwnBinary) {
  const auto image = must_open("/proc/self/exe");
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(exercise(image, 1), "");
  EXPECT_EQ(image->type(), FileType::kShared);  // PIE
  EXPECT_EQ(image->interpreter().value_or(""), "/lib64/ld-linux-x86-64.so.2");
  EXPECT_TRUE(image->unwind_range_at(image->entry()));
  const Symbol* start = image->symbol_named("_start");
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->range.begin, image->entry());
  EXPECT_EQ(image->symbol_at(image->entry())->name, "_start");
}

TEST(ElfImage, SymbolBytesAndLineOfAKnownProcedure) {
  const auto image = must_open("/proc/self/exe");
  ASSERT_NE(image, nullptr);
  EXPECT_NE(marked_procedure(1), 0);
  const auto address = reinterpret_cast<uint64_t>(&marked_procedure);
  const Symbol* found = nullptr;
  for (const Symbol& symbol : image->symbols()) {
    if (demangle(symbol.name) == "tally::elf::(anonymous namespace)::marked_procedure(int)") {
      found = &symbol;
    }
  }
  ASSERT_NE(found, nullptr);
  EXPECT_FALSE(found->range.empty());
  EXPECT_EQ(image->symbol_at(found->range.end - 1), found);
  EXPECT_EQ(image->unwind_range_at(found->range.begin), found->range);
  const auto bytes = image->bytes_at(found->range.begin);
  ASSERT_GE(bytes.size(), found->range.size_bytes());
  EXPECT_EQ(
      std::memcmp(bytes.data(), reinterpret_cast<const void*>(address), found->range.size_bytes()),
      0);
  const auto line = image->line_at(found->range.begin);
  ASSERT_TRUE(line) << "this test needs -g";
  EXPECT_TRUE(line->file.ends_with("elf_image.cpp")) << line->file;
  EXPECT_EQ(line->line, kMarkedLine);
}

TEST(ElfImage, Libc) {
  const auto image = must_open(kLibc);
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(exercise(image, 2), "");
  EXPECT_EQ(image->build_id().size(), 40u);
  for (const char* name : {".text", ".plt", ".plt.got", ".eh_frame"}) {
    EXPECT_NE(std::ranges::find(image->sections(), name, &Section::name), image->sections().end())
        << name;
  }
  EXPECT_GT(image->unwind_ranges().size(), 2000u);
  const Symbol* qsort = image->symbol_named("qsort");
  ASSERT_NE(qsort, nullptr);
  EXPECT_EQ(image->unwind_range_at(qsort->range.begin)->begin, qsort->range.begin);
}

// Whoever strips section headers cannot strip what the program needs to throw exceptions.
TEST(ElfImage, UnwindRangesWithoutSectionHeaders) {
  for (const char* path : {kLibc, "/bin/true", "/proc/self/exe"}) {
    const auto whole = must_open(path);
    ASSERT_NE(whole, nullptr);
    std::vector<uint8_t> bytes = read_whole(path);
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header.e_shoff = header.e_shnum = header.e_shstrndx = 0;
    std::memcpy(bytes.data(), &header, sizeof(header));
    auto bare = Image::from_bytes("sectionless", std::move(bytes));
    ASSERT_TRUE(bare.ok()) << bare.error().message;
    EXPECT_TRUE((*bare)->sections().empty());
    EXPECT_EQ((*bare)->unwind_ranges(), whole->unwind_ranges()) << path;
    EXPECT_NE((*bare)->cfi(), nullptr);
    EXPECT_EQ((*bare)->build_id(), whole->build_id());
    EXPECT_EQ(exercise(*bare, 3), "");
  }
}

TEST(ElfImage, Vdso) {
  auto image = Image::from_bytes("[vdso]", vdso_bytes());
  ASSERT_TRUE(image.ok()) << image.error().message;
  EXPECT_EQ((*image)->path(), "[vdso]");
  EXPECT_EQ(exercise(*image, 4), "");
  const Symbol* clock = (*image)->symbol_named("__vdso_clock_gettime");
  ASSERT_NE(clock, nullptr);
  EXPECT_TRUE((*image)->unwind_range_at(clock->range.begin));
  EXPECT_NE((*image)->cfi(), nullptr);
}

double elapsed_ms(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Limits are those of the design for a release build, times five: the machine may be busy.
TEST(ElfImage, LibcIsQuick) {
  const auto image = must_open(kLibc);
  EXPECT_LT(elapsed_ms([&] { image->unwind_ranges(); }), 5 * 20);
}

TEST(ElfImage, CompilerIsQuick) {
  if (::access(kCompiler, R_OK) != 0) GTEST_SKIP() << kCompiler << " is not installed";
  std::shared_ptr<Image> image;
  const double open_ms = elapsed_ms([&] { image = must_open(kCompiler); });
  ASSERT_NE(image, nullptr);
  const double ranges_ms = elapsed_ms([&] { image->unwind_ranges(); });
  EXPECT_GT(image->unwind_ranges().size(), 30000u);
  EXPECT_LT(open_ms + ranges_ms, 5 * 150) << open_ms << " + " << ranges_ms;
}

TEST(ElfImage, SharedBetweenThreads) {
  const auto image = must_open("/proc/self/exe");
  std::string complaints[2];
  std::thread a([&] { complaints[0] = exercise(image, 5); });
  std::thread b([&] { complaints[1] = exercise(image, 6); });
  a.join();
  b.join();
  EXPECT_EQ(complaints[0], "");
  EXPECT_EQ(complaints[1], "");
}

}  // namespace
}  // namespace tally::elf
