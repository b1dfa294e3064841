// Claim: names are found by address and by name, in stripped programs through their separate debug
// file, and only if that file proves that it belongs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "elf/image.h"
#include "elf_exercise.h"

namespace tally::elf {
namespace {

// Aliases, a procedure inside another, one without a size, a local one beside a global namesake.
constexpr const char* kSource = R"(
  asm(".text\n"
      ".globl outer\n.type outer,@function\nouter: nop\n nop\n"
      ".globl inner\n.type inner,@function\ninner: nop\n nop\n.size inner,.-inner\n"
      " nop\n ret\n.size outer,.-outer\n"
      ".globl outer_alias_long\n.type outer_alias_long,@function\n.set outer_alias_long,outer\n"
      ".globl unsized\n.type unsized,@function\nunsized: ret\n");
  static int hidden(int x) { return x + 1; }
  int main(int argc, char** argv) { (void)argv; return hidden(argc) == 99; }
)";

class ElfSymbols : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "tally-sym-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::ofstream(folder_ + "/p.c") << kSource;
    if (!run("gcc -g -O0 p.c -o whole")) GTEST_SKIP() << "gcc is not installed";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  bool run(const std::string& command) const {
    return std::system(("cd " + folder_ + " && " + command + " 2>/dev/null").c_str()) == 0;
  }
  std::shared_ptr<Image> open(const std::string& name) const {
    auto image = Image::open(folder_ + "/" + name);
    EXPECT_TRUE(image.ok()) << image.error().message;
    return image.ok() ? *image : nullptr;
  }
  // A stripped program with a link to p.debug; `flags` for the linker (build-id or not).
  bool make_stripped(const std::string& flags) const {
    return run("gcc -g -O0 " + flags +
               " p.c -o whole && objcopy --only-keep-debug whole p.debug && "
               "objcopy --strip-all --add-gnu-debuglink=p.debug whole stripped");
  }

  std::string folder_;
};

TEST_F(ElfSymbols, OverlapsHaveOneAnswer) {
  const auto image = open("whole");
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(exercise(image, 1), "");
  const Symbol* outer = image->symbol_named("outer");
  const Symbol* inner = image->symbol_named("inner");
  ASSERT_NE(outer, nullptr);
  ASSERT_NE(inner, nullptr);
  const auto name_at = [&](uint64_t offset) {
    const Symbol* symbol = image->symbol_at(outer->range.begin + offset);
    return symbol == nullptr ? std::string("-") : symbol->name;
  };
  EXPECT_EQ(name_at(0), "outer");  // the shorter of two aliases
  EXPECT_EQ(name_at(1), "outer");
  EXPECT_EQ(name_at(2), "inner");
  EXPECT_EQ(name_at(3), "inner");
  EXPECT_EQ(name_at(4), "outer");
  EXPECT_EQ(name_at(5), "outer");
  EXPECT_EQ(name_at(6), "unsized");
  EXPECT_NE(name_at(7), "unsized");  // no size: only its first byte
  ASSERT_NE(image->symbol_named("outer_alias_long"), nullptr);
  EXPECT_EQ(image->symbol_named("outer_alias_long")->range, outer->range);
  EXPECT_EQ(image->symbol_named("nobody"), nullptr);
  EXPECT_EQ(image->symbol_named("hidden")->source, SymbolSource::kSymtab);
}

TEST_F(ElfSymbols, NothingIsListedTwice) {
  const auto image = open("whole");
  ASSERT_NE(image, nullptr);
  std::set<std::pair<LinkAddr, std::string>> seen;
  for (const Symbol& symbol : image->symbols()) {
    EXPECT_TRUE(seen.emplace(symbol.range.begin, symbol.name).second) << symbol.name;
  }
}

void expect_names_of_debug_file(const Image& image, const std::string& path) {
  EXPECT_EQ(image.debug_file().value_or("-"), path);
  const Symbol* hidden = image.symbol_named("hidden");
  ASSERT_NE(hidden, nullptr);
  EXPECT_EQ(hidden->source, SymbolSource::kDebugFile);
  const auto line = image.line_at(hidden->range.begin);
  ASSERT_TRUE(line);
  EXPECT_TRUE(line->file.ends_with("p.c")) << line->file;
  EXPECT_EQ(line->line, 8);
}

TEST_F(ElfSymbols, DebugLinkWithAndWithoutBuildId) {
  for (const char* flags : {"-Wl,--build-id=sha1", "-Wl,--build-id=none", "-gz"}) {
    if (!make_stripped(flags)) GTEST_SKIP() << "objcopy is not installed";
    const auto image = open("stripped");
    ASSERT_NE(image, nullptr);
    expect_names_of_debug_file(*image, folder_ + "/p.debug");
    EXPECT_EQ(exercise(image, 2), "");
  }
}

TEST_F(ElfSymbols, DebugLinkInTheHiddenFolder) {
  if (!make_stripped("") || !run("mkdir .debug && mv p.debug .debug")) GTEST_SKIP() << "objcopy";
  const auto image = open("stripped");
  ASSERT_NE(image, nullptr);
  expect_names_of_debug_file(*image, folder_ + "/.debug/p.debug");
}

void expect_no_debug_file(const std::shared_ptr<Image>& image) {
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(image->debug_file(), std::nullopt);
  EXPECT_EQ(image->symbol_named("hidden"), nullptr);
  EXPECT_EQ(image->line_at(image->entry()), std::nullopt);
}

TEST_F(ElfSymbols, WrongChecksumIsNotUsed) {
  if (!make_stripped("") || !run("echo >> p.debug")) GTEST_SKIP() << "objcopy is not installed";
  expect_no_debug_file(open("stripped"));
}

TEST_F(ElfSymbols, WrongBuildIdIsNotUsed) {
  // The checksum is made right for the wrong file: only the build-id tells.
  if (!make_stripped("-Wl,--build-id=0x1234567890") ||
      !run("gcc -g -Wl,--build-id=0xabcdef0123 p.c -o other && "
           "objcopy --only-keep-debug other p.debug && objcopy -R .gnu_debuglink stripped bare && "
           "objcopy --add-gnu-debuglink=p.debug bare stripped")) {
    GTEST_SKIP() << "objcopy is not installed";
  }
  expect_no_debug_file(open("stripped"));
}

TEST_F(ElfSymbols, DebugFileIsNoProgram) {
  if (!make_stripped("")) GTEST_SKIP() << "objcopy is not installed";
  const auto stripped = open("stripped");
  ASSERT_NE(stripped, nullptr);
  EXPECT_FALSE(stripped->unwind_ranges().empty());
  const auto whole = open("whole");
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(whole->debug_file(), std::nullopt);
  EXPECT_EQ(stripped->unwind_ranges(), whole->unwind_ranges());
}

TEST_F(ElfSymbols, BuildIdFolder) {
  const auto libc = Image::open("/lib/x86_64-linux-gnu/libc.so.6");
  if (!libc || !(*libc)->debug_file()) GTEST_SKIP() << "libc6-dbg is not installed";
  EXPECT_TRUE((*libc)->debug_file()->starts_with("/usr/lib/debug/.build-id/"));
  const Symbol* local = (*libc)->symbol_named("msort_with_tmp");
  if (local == nullptr) local = (*libc)->symbol_named("msort_with_tmp.part.0");
  ASSERT_NE(local, nullptr);
  EXPECT_EQ(local->source, SymbolSource::kDebugFile);
  const auto line = (*libc)->line_at(local->range.begin);
  ASSERT_TRUE(line);
  EXPECT_NE(line->file.find("msort.c"), std::string::npos);
}

TEST(ElfDemangle, CppRustAndOthers) {
  EXPECT_EQ(demangle("main"), "main");
  EXPECT_EQ(demangle(""), "");
  EXPECT_EQ(demangle("_Z"), "_Z");
  EXPECT_EQ(demangle("_Znonsense"), "_Znonsense");
  EXPECT_EQ(demangle("_ZN5tally3elf8demangleEv"), "tally::elf::demangle()");
  EXPECT_EQ(demangle("_ZNSt6vectorIiSaIiEE9push_backEOi"),
            "std::vector<int, std::allocator<int> >::push_back(int&&)");
  EXPECT_EQ(demangle("_ZN4core3ptr13drop_in_place17h0123456789abcdefE"),
            "core::ptr::drop_in_place");
  EXPECT_EQ(
      demangle("_ZN58_$LT$alloc..string..String$u20$as$u20$core..fmt..Debug$GT$3fmt17h01234567"
               "89abcdefE"),
      "<alloc::string::String as core::fmt::Debug>::fmt");
  EXPECT_EQ(demangle("_ZN1a17h0123456789abcdeXE"), "a::h0123456789abcdeX");  // no hash
  EXPECT_EQ(demangle("_RNvC7mycrate3foo"), "_RNvC7mycrate3foo");             // v0: as it is
  const std::string endless = "_Z" + std::string(100000, 'N');
  EXPECT_EQ(demangle(endless), endless);
}

}  // namespace
}  // namespace tally::elf
