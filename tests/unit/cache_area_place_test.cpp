#include "cache/area_place.h"

#include <gtest/gtest.h>

#include "translate/layout.h"

namespace tally::engine {
namespace {

using translate::kAreaSizeBytes;

constexpr uint64_t kMegabyte = 1ull << 20;
constexpr uint64_t kTables = 0x70000000, kTablesEnd = 0x7f000000;
constexpr TargetRange kProgram{TargetAddr(0x400000), TargetAddr(0x480000)};

tracee::Mapping mapping(uint64_t begin, uint64_t end) {
  tracee::Mapping result;
  result.range = {TargetAddr(begin), TargetAddr(end)};
  return result;
}

std::vector<tracee::Mapping> mappings_of_fixed_program() {
  return {mapping(0x400000, 0x480000), mapping(kTables, kTablesEnd)};
}

// How far the heap can grow: up to the area or to what else is there.
uint64_t room(uint64_t heap_begin, uint64_t area) {
  return (area >= heap_begin ? area : kTables) - heap_begin;
}

TEST(AreaPlace, WithoutAHeapAtADistance) {
  const auto place = area_place(mappings_of_fixed_program(), kProgram, std::nullopt);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(*place, 0x480000 + 768 * kMegabyte);
}

// Wherever the kernel puts it: up to a gigabyte behind the program.
TEST(AreaPlace, AHeapBehindTheProgramHasRoom) {
  for (uint64_t behind = 0; behind <= 1024 * kMegabyte; behind += kMegabyte / 2) {
    const uint64_t heap = 0x480000 + behind;
    const auto place = area_place(mappings_of_fixed_program(), kProgram, heap);
    ASSERT_TRUE(place.has_value()) << heap;
    EXPECT_EQ(*place % 4096, 0u);
    EXPECT_TRUE(reaches(*place, kProgram));
    EXPECT_TRUE(is_free(mappings_of_fixed_program(), *place, *place + kAreaSizeBytes));
    EXPECT_TRUE(*place + kAreaSizeBytes <= heap || *place > heap) << heap << " " << *place;
    EXPECT_GE(room(heap, *place), 700 * kMegabyte) << heap << " " << *place;
  }
}

TEST(AreaPlace, SeveralForOneProgram) {
  std::vector<tracee::Mapping> mappings = mappings_of_fixed_program();
  const uint64_t heap = 0x480000 + 100 * kMegabyte;
  for (int i = 0; i < 3; ++i) {
    const auto place = area_place(mappings, kProgram, heap);
    ASSERT_TRUE(place.has_value()) << i;
    EXPECT_GE(*place, heap + 700 * kMegabyte) << i;
    mappings.push_back(mapping(*place, *place + kAreaSizeBytes));
  }
}

TEST(AreaPlace, BelowWhatHasRoomBelow) {
  constexpr TargetRange kPie{TargetAddr(0x555555554000), TargetAddr(0x555555600000)};
  const std::vector<tracee::Mapping> mappings = {mapping(0x555555554000, 0x555555600000)};
  const auto place = area_place(mappings, kPie, 0x555555600000 + 20 * kMegabyte);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(*place, 0x555555554000 - 768 * kMegabyte - kAreaSizeBytes);
}

TEST(AreaPlace, NoneWhereAllIsTaken) {
  const std::vector<tracee::Mapping> mappings = {mapping(0x10000, 0x200000000)};
  EXPECT_FALSE(area_place(mappings, kProgram, 0x500000).has_value());
}

}  // namespace
}  // namespace tally::engine
