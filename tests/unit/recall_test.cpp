// What an earlier run has left: there and back, and every way a file can be wrong.
#include "cache/recall.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace tally::engine {
namespace {

namespace fs = std::filesystem;

Recollection example() {
  Recollection r;
  r.modules = {"0123abcd", "ff"};
  r.asked = {{0, 0, 0x1000}, {1, 2, 0xffff'ffff'ffff'fff0}, {0, 1, 0x1010}};
  r.entered = {{1, 0x2345}};
  r.led = {{0, 1, 0x1004, 0x2000}, {1, 1, 1, 2}};
  r.weighed = {{0, 0xfedc, 0x1000, 3, 17, true, 0x12345678},
               {1, 1, 0xffff'ffff'ffff'fff0, 700, 64}};
  r.steps = {255, 0, 4};
  r.steps.resize(703, 0);
  r.steps[500] = 9;
  r.returns = {123'456'789'012, 3370};
  return r;
}

void expect_same(const Recollection& a, const Recollection& b) {
  EXPECT_EQ(a.modules, b.modules);
  EXPECT_EQ(a.asked, b.asked);
  EXPECT_EQ(a.entered, b.entered);
  EXPECT_EQ(a.led, b.led);
  EXPECT_EQ(a.weighed, b.weighed);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.returns, b.returns);
}

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("recall-test-" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

TEST(Recall, ThereAndBack) {
  const auto bytes = encode_recollection(example());
  const auto back = decode_recollection(bytes);
  ASSERT_TRUE(back);
  expect_same(*back, example());
  const auto none = decode_recollection(encode_recollection({}));
  ASSERT_TRUE(none);
  expect_same(*none, {});
}

TEST(Recall, EveryDamagedByteAndEveryLengthIsRefused) {
  const auto bytes = encode_recollection(example());
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto damaged = bytes;
    damaged[i] ^= 0x40;
    EXPECT_FALSE(decode_recollection(damaged)) << i;
    EXPECT_FALSE(decode_recollection(std::span(bytes).first(i))) << i;
  }
}

// A digest is no proof that somebody sane has written it.
TEST(Recall, CountsAndModulesBeyondWhatIsThereAreRefused) {
  Recollection strange = example();
  strange.asked[0].module = 2;
  EXPECT_FALSE(decode_recollection(encode_recollection(strange)));
  strange = example();
  strange.led[1].to_module = 7;
  EXPECT_FALSE(decode_recollection(encode_recollection(strange)));
  strange = example();
  strange.entered[0].module = 2;
  EXPECT_FALSE(decode_recollection(encode_recollection(strange)));
}

// However many zeros there are and wherever they end.
TEST(Recall, StepsThereAndBack) {
  for (size_t zeros = 0; zeros < 600; ++zeros) {
    for (const bool closed : {false, true}) {
      Recollection r = example();
      r.steps.assign(zeros, 0);
      if (closed) r.steps.push_back(3);
      r.weighed = {{0, 1, 2, static_cast<uint32_t>(r.steps.size()), 64, closed}};
      const auto back = decode_recollection(encode_recollection(r));
      ASSERT_TRUE(back) << zeros;
      expect_same(*back, r);
    }
  }
}

TEST(Recall, WeightsThatDoNotAddUpAreRefused) {
  Recollection strange = example();
  strange.weighed[1].module = 2;
  EXPECT_FALSE(decode_recollection(encode_recollection(strange)));
  for (const int more : {-1, 1}) {
    strange = example();
    strange.weighed[0].edges += static_cast<uint32_t>(more);
    EXPECT_FALSE(decode_recollection(encode_recollection(strange)));
  }
  for (const uint8_t bits : std::array<uint8_t, 2>{0, 65}) {
    strange = example();
    strange.weighed[0].heaviest_bits = bits;
    EXPECT_FALSE(decode_recollection(encode_recollection(strange)));
  }
  strange = example();
  strange.weighed[1].edges += Recollection::kStepsMax;
  strange.steps.resize(strange.steps.size() + Recollection::kStepsMax, 0);
  EXPECT_FALSE(decode_recollection(encode_recollection(strange)));
}

TEST(Recall, AFolderKeepsTheNewestOfEachProgram) {
  const Folder there;
  const RecallFolder folder(there.path());
  EXPECT_TRUE(folder.find("ab").modules.empty());
  ASSERT_TRUE(folder.keep("ab", {}));
  ASSERT_TRUE(folder.keep("ab", example()));
  expect_same(folder.find("ab"), example());
  EXPECT_EQ(there.files(), 1u);
  std::ofstream(there.path() + "/ab.recall", std::ios::app) << "x";
  EXPECT_TRUE(folder.find("ab").modules.empty());
}

TEST(Recall, WhatIsNoBuildIdNamesNoFile) {
  const Folder there;
  const RecallFolder folder(there.path());
  for (const char* id : {"", "../ab", "AB", "a/b", "a b"}) {
    ASSERT_TRUE(folder.keep(id, example()));
    EXPECT_TRUE(folder.find(id).modules.empty()) << id;
  }
  EXPECT_FALSE(fs::exists(there.path()));
  const RecallFolder none;
  ASSERT_TRUE(none.keep("ab", example()));
  EXPECT_TRUE(none.find("ab").modules.empty());
}

TEST(Recall, TheOldestGoWhenTheFolderIsFull) {
  const Folder there;
  const uint64_t one_bytes = encode_recollection(example()).size();
  const RecallFolder folder(there.path(), 3 * one_bytes);
  for (const char* id : {"01", "02", "03"}) ASSERT_TRUE(folder.keep(id, example()));
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(there.path() + "/02.recall", now - std::chrono::hours(2));
  fs::last_write_time(there.path() + "/01.recall", now - std::chrono::hours(1));
  std::ofstream(there.path() + "/somebody's own") << std::string(1000, 'x');
  ASSERT_TRUE(folder.keep("04", example()));
  EXPECT_TRUE(folder.find("02").modules.empty());
  for (const char* id : {"01", "03", "04"}) EXPECT_FALSE(folder.find(id).modules.empty()) << id;
  EXPECT_TRUE(fs::exists(there.path() + "/somebody's own"));
}

TEST(Recall, AFolderThatCannotBeMadeIsSaid) {
  const Status kept = RecallFolder("/proc/self/recall").keep("ab", example());
  ASSERT_FALSE(kept);
  EXPECT_NE(kept.error().message.find("/proc/self/recall"), std::string::npos);
}

}  // namespace
}  // namespace tally::engine
