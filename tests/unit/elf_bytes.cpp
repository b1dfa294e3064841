// Claim: ByteReader never reads outside its bytes, and its failure sticks.
#include <gtest/gtest.h>

#include <vector>

#include "base/bytes.h"

namespace tally {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(ByteReader, FixedWidths) {
  const Bytes bytes = {1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.u8(), 1);
  EXPECT_EQ(reader.u16(), 2);
  EXPECT_EQ(reader.u32(), 3u);
  EXPECT_EQ(reader.u64(), 4u);
  EXPECT_EQ(reader.s16(), -1);
  EXPECT_TRUE(reader.ok());
  EXPECT_TRUE(reader.at_end());
}

TEST(ByteReader, FailureSticksAndMovesNothing) {
  const Bytes bytes = {1, 2, 3};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.u32(), 0u);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.position(), 0u);
  EXPECT_EQ(reader.u8(), 0);  // there would be a byte
  reader.seek(1);
  EXPECT_EQ(reader.position(), 0u);
  EXPECT_TRUE(reader.cstring().empty());
  EXPECT_TRUE(reader.bytes(0).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(ByteReader, SeekAndSkipDoNotOverflow) {
  const Bytes bytes(8);
  ByteReader at_end(bytes);
  at_end.seek(8);
  EXPECT_TRUE(at_end.ok());
  ByteReader behind(bytes);
  behind.seek(9);
  EXPECT_FALSE(behind.ok());
  ByteReader far(bytes);
  far.skip(4);
  far.skip(UINT64_MAX - 1);
  EXPECT_FALSE(far.ok());
  EXPECT_EQ(far.position(), 4u);
}

TEST(ByteReader, Align) {
  const Bytes bytes(8);
  ByteReader reader(bytes);
  reader.align(4);
  EXPECT_EQ(reader.position(), 0u);
  reader.u8();
  reader.align(4);
  EXPECT_EQ(reader.position(), 4u);
  reader.u8();
  reader.align(16);
  EXPECT_FALSE(reader.ok());
}

uint64_t uleb(const Bytes& bytes, bool ok = true) {
  ByteReader reader(bytes);
  const uint64_t value = reader.uleb();
  EXPECT_EQ(reader.ok(), ok);
  return value;
}
int64_t sleb(const Bytes& bytes, bool ok = true) {
  ByteReader reader(bytes);
  const int64_t value = reader.sleb();
  EXPECT_EQ(reader.ok(), ok);
  return value;
}

TEST(ByteReader, Leb128) {  // the examples of DWARF 5, tables 7.7 and 7.8
  EXPECT_EQ(uleb({2}), 2u);
  EXPECT_EQ(uleb({0x80, 1}), 128u);
  EXPECT_EQ(uleb({0xb9, 0x64}), 12857u);
  EXPECT_EQ(sleb({0x7e}), -2);
  EXPECT_EQ(sleb({0xff, 0}), 127);
  EXPECT_EQ(sleb({0x81, 0x7f}), -127);
  EXPECT_EQ(sleb({0x80, 1}), 128);
  EXPECT_EQ(sleb({0x78}), -8);
}

TEST(ByteReader, Leb128AtTheLimits) {
  const Bytes nines(9, 0xff);
  Bytes largest = nines;
  largest.push_back(1);
  EXPECT_EQ(uleb(largest), UINT64_MAX);
  Bytes too_large = nines;
  too_large.push_back(2);
  uleb(too_large, false);
  Bytes least(9, 0x80);
  least.push_back(0x7f);
  EXPECT_EQ(sleb(least), INT64_MIN);
  EXPECT_EQ(uleb({0x80, 0x80, 0}), 0u);  // padded
  uleb({0x80}, false);                   // cut short
  sleb({0xff}, false);
  uleb(Bytes(100, 0x80), false);  // without end
  sleb(Bytes(100, 0x80), false);
}

TEST(ByteReader, CStringNeedsItsZero) {
  const Bytes bytes = {'a', 'b', 0, 'c'};
  ByteReader reader(bytes);
  EXPECT_EQ(reader.cstring(), "ab");
  EXPECT_EQ(reader.position(), 3u);
  EXPECT_EQ(reader.cstring(), "");
  EXPECT_FALSE(reader.ok());
  ByteReader empty{Bytes{}};
  EXPECT_TRUE(empty.cstring().empty());
  EXPECT_FALSE(empty.ok());
}

}  // namespace
}  // namespace tally
