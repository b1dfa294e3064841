// Reading profiles of others: what is understood, and how each kind of bad input is named.
#include <gtest/gtest.h>
#include <unistd.h>

#include "claims/read.h"
#include "elf/image.h"
#include "profile/file.h"
#include "profile_sample.h"

namespace tally::claims {
namespace {

using profile::TemporaryFolder;
using profile::write_whole;

// This very program serves as the one that the profiles are of.
const char* const kSelf = "/proc/self/exe";

class ReadClaims : public testing::Test {
 protected:
  std::string put(const std::string& text) {
    const std::string path = folder_.file("profile");
    write_whole(path, text);
    return path;
  }
  Result<Claims> read(const std::string& text, std::optional<Form> form = std::nullopt) {
    return read_claims(put(text), {.form = form, .program_path = program_});
  }
  void expect_error(const std::string& text, const std::vector<std::string>& words) {
    const auto claims = read(text);
    ASSERT_FALSE(claims.ok()) << text;
    EXPECT_EQ(claims.error().message.find('\n'), std::string::npos);
    for (const std::string& word : words) {
      EXPECT_NE(claims.error().message.find(word), std::string::npos)
          << "'" << word << "' is not in: " << claims.error().message;
    }
  }
  static std::string self() {
    char path[4096];
    const ssize_t length = ::readlink(kSelf, path, sizeof path);
    return {path, static_cast<size_t>(std::max<ssize_t>(length, 0))};
  }

  TemporaryFolder folder_;
  std::string program_ = self();
  // An address inside of this program's code.
  std::string inside_ = fmt::format("{:#x}", (*elf::Image::open(self()))->entry().value());
};

TEST_F(ReadClaims, Plain) {
  const auto claims = read("# from to count\n" + inside_ + " 401020 17\n\n0x20 0x30 5 # x\n");
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  EXPECT_EQ(claims->form, Form::kPlain);
  ASSERT_EQ(claims->edges.size(), 2u);
  EXPECT_EQ(claims->edges[0].to.address, LinkAddr(0x401020));
  EXPECT_EQ(claims->edges[0].count, 17u);
  EXPECT_EQ(claims->edges[1].record, 4u);
  EXPECT_EQ(describe_record(claims->form, RecordKind::kEdge, 4), "line 4");
}

TEST_F(ReadClaims, PlainBadInput) {
  expect_error("", {"empty"});
  expect_error("hello world\n", {"not a profile"});
  expect_error("0x10 0x20 -5\n", {":1:", "negative"});
  expect_error("0x10 0x20 18446744073709551616\n", {":1:", "beyond 64 bits"});
  expect_error("0x10 0x20 1\n0x10 0x2", {":2:", "cut short"});
  expect_error("0x10 0x20 1\n0x10 0x20 13", {":2:", "cut short"});
  expect_error("0x10 0x20 1\n0x10\n", {":2:", "not an edge"});
  expect_error("0x10 0x20 1\n", {"another program"});
  program_ = "";
  expect_error("0x10 0x20 1\n", {"--program"});
}

TEST_F(ReadClaims, Tally) {
  const profile::Profile profile = profile::sample_profile();
  const std::string path = folder_.file("x.tally");
  ASSERT_TRUE(profile::save(profile, path).ok());
  const auto claims = read_claims(path, {});
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  EXPECT_EQ(claims->form, Form::kTally);
  EXPECT_EQ(claims->blocks.size(), profile.blocks.size());
  EXPECT_EQ(claims->procedures.size(), profile.procedures.size());
  // The sample's program does not exist, which is admitted, and is not the one that is named.
  EXPECT_FALSE(claims->admissions.empty());
  const auto other = read_claims(path, {.program_path = self()});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("another build"), std::string::npos);
}

}  // namespace
}  // namespace tally::claims
