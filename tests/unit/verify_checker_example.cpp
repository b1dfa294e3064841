// A checker of one's own, as docs/verify.md builds it: which calls are made most, and how deep they
// nest.  It is compiled here and run on a program whose answer is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "verify/monitor.h"

namespace tally::verify {
namespace {

// [checker]
class CallDepth : public Checker {
 public:
  explicit CallDepth(Code& code) : code_(code) {}

  void procedure_called(BlockId from, BlockId entry) override {
    (void)from;
    ++calls_[entry];
    deepest_ = std::max(deepest_, ++depth_);
  }
  void procedure_left(BlockId from, BlockId to) override {
    (void)from, (void)to;
    --depth_;
  }
  void program_started(pid_t process, const std::string& program) override {
    (void)process, (void)program;
    depth_ = 0;
  }

  int deepest() const { return deepest_; }
  uint64_t calls_of(const std::string& name) const {
    for (const auto& [entry, count] : calls_) {
      const CodeModule& module = code_.module(code_.block(entry).module);
      if (!module.image) continue;
      const elf::Symbol* symbol = module.image->symbol_at(code_.block(entry).begin);
      if (symbol != nullptr && symbol->name == name) return count;
    }
    return 0;
  }

 private:
  Code& code_;
  std::map<BlockId, uint64_t> calls_;
  int depth_ = 0;
  int deepest_ = 0;
};
// [checker]

TEST(CheckerExample, CountsCallsOfATinyProgram) {
  const std::string folder = testing::TempDir() + "/checker_example";
  const std::string source = folder + ".c";
  FILE* f = fopen(source.c_str(), "w");
  ASSERT_NE(f, nullptr);
  fputs(
      "int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }\n"
      "void _start(void) { int r = fib(10); (void)r;\n"
      "  __asm__ volatile(\"syscall\" : : \"a\"(231), \"D\"(0)); }\n",
      f);
  fclose(f);
  const std::string build =
      "gcc -O0 -nostdlib -static -fno-stack-protector -o " + folder + " " + source;
  ASSERT_EQ(system(build.c_str()), 0);

  Code code;
  CallDepth checker(code);
  WatchOptions options;
  options.command = {folder};
  for (const bool ahead : {true, false}) {
    options.ahead = ahead;
    CallDepth fresh(code);
    const Result<Outcome> outcome = watch(options, code, {&fresh});
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    EXPECT_TRUE(outcome->complete);
    EXPECT_EQ(outcome->lost, 0u) << outcome->first_lost;
    EXPECT_EQ(outcome->exit_status, 0);
    EXPECT_EQ(fresh.calls_of("fib"), 177u);  // 2 fib(11) - 1
    EXPECT_EQ(fresh.deepest(), 10);
    EXPECT_LT(outcome->stops(), outcome->blocks);
  }
}

}  // namespace
}  // namespace tally::verify
