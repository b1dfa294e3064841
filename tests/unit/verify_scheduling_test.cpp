// Which instructions and functions threads synchronise by, and which read clocks.
#include "verify/scheduling.h"

#include <gtest/gtest.h>

#include "verify/clocks.h"

namespace tally::verify {
namespace {

bool said(std::initializer_list<uint8_t> bytes) {
  const std::vector<uint8_t> code(bytes);
  return isa::synchronises(code);
}

TEST(Scheduling, Instructions) {
  EXPECT_TRUE(said({0xf0, 0x0f, 0xb1, 0x17}));        // lock cmpxchg [rdi], edx
  EXPECT_TRUE(said({0xf0, 0x48, 0xff, 0x07}));        // lock inc qword [rdi]
  EXPECT_TRUE(said({0x66, 0xf0, 0xff, 0x07}));        // lock inc word [rdi]
  EXPECT_TRUE(said({0x87, 0x07}));                    // xchg [rdi], eax
  EXPECT_TRUE(said({0x48, 0x87, 0x05, 1, 0, 0, 0}));  // xchg [rip+1], rax
  EXPECT_FALSE(said({0x48, 0x87, 0xc3}));             // xchg rbx, rax
  EXPECT_TRUE(said({0xf3, 0x90}));                    // pause
  EXPECT_FALSE(said({0x90}));                         // nop
  EXPECT_FALSE(said({0xf3, 0xa4}));                   // rep movsb
  EXPECT_TRUE(said({0x0f, 0xae, 0xf0}));              // mfence
  EXPECT_FALSE(said({0x0f, 0xae, 0xe8}));             // lfence: orders instructions only
  EXPECT_FALSE(said({0x48, 0x89, 0xe5}));             // mov rbp, rsp
  EXPECT_FALSE(said({0xf3}));
  EXPECT_FALSE(said({}));
}

TEST(Scheduling, Names) {
  EXPECT_TRUE(is_about_threads("pthread_mutex_lock"));
  EXPECT_TRUE(is_about_threads("sem_wait"));
  EXPECT_TRUE(is_about_threads("read"));
  EXPECT_TRUE(is_about_threads("__wait3"));  // what a shell waits with
  EXPECT_TRUE(is_about_threads("__sigsuspend"));
  EXPECT_FALSE(is_about_threads("readdir"));
  EXPECT_FALSE(is_about_threads("__"));
  EXPECT_FALSE(is_about_threads("memcpy"));
  EXPECT_FALSE(is_about_threads(""));
}

TEST(Scheduling, Taking) {
  EXPECT_TRUE(is_about_taking("pthread_mutex_trylock"));
  EXPECT_TRUE(is_about_taking("sem_wait"));
  EXPECT_FALSE(is_about_taking("pthread_mutex_unlock"));
  EXPECT_FALSE(is_about_taking("pthread_create"));
  EXPECT_FALSE(is_about_taking("read"));
}

TEST(Clocks, Instructions) {
  const auto reads = [](std::initializer_list<uint8_t> bytes) {
    const std::vector<uint8_t> code(bytes);
    return isa::reads_chance(code);
  };
  EXPECT_TRUE(reads({0x0f, 0x31}));              // rdtsc
  EXPECT_TRUE(reads({0x0f, 0x01, 0xf9}));        // rdtscp
  EXPECT_TRUE(reads({0x48, 0x0f, 0xc7, 0xf0}));  // rdrand rax
  EXPECT_TRUE(reads({0x0f, 0xc7, 0xf9}));        // rdseed ecx
  EXPECT_FALSE(reads({0x0f, 0xc7, 0x0f}));       // cmpxchg8b [rdi]
  EXPECT_FALSE(reads({0x0f, 0x01, 0xd0}));       // xgetbv
  EXPECT_FALSE(reads({0x0f, 0xa2}));             // cpuid
  EXPECT_FALSE(reads({0x66, 0x48}));
  EXPECT_FALSE(reads({}));
}

TEST(Clocks, Names) {
  EXPECT_TRUE(is_about_chance("clock_gettime"));
  EXPECT_TRUE(is_about_chance("__vdso_gettimeofday"));
  EXPECT_TRUE(is_about_chance("_ZNSt6chrono3_V212steady_clock3nowEv"));
  EXPECT_FALSE(is_about_chance("timegm"));
  EXPECT_FALSE(is_about_chance("strftime"));
  EXPECT_FALSE(is_about_chance(""));
}

}  // namespace
}  // namespace tally::verify
