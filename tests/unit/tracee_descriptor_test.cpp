// What descriptors are, in words and back.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "tracee/descriptor.h"

namespace tally::tracee {
namespace {

void expect_back(const Descriptor& d) {
  const Descriptor read = Descriptor::parse(d.words());
  EXPECT_EQ(read.kind, d.kind);
  EXPECT_EQ(read.size_bytes, d.size_bytes);
  EXPECT_EQ(read.offset, d.offset);
  EXPECT_EQ(read.appends, d.appends);
  EXPECT_EQ(read.rows, d.rows);
  EXPECT_EQ(read.columns, d.columns);
}

TEST(Descriptor, SaysWhatOursAre) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_EQ(descriptor_of(ends[0]).words(), "pipe");
  close(ends[1]);
  EXPECT_EQ(descriptor_of(ends[1]).words(), "closed");
  close(ends[0]);
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  EXPECT_EQ(descriptor_of(ends[0]).words(), "socket");
  close(ends[0]);
  close(ends[1]);
  const int null = open("/dev/null", O_WRONLY);
  EXPECT_EQ(descriptor_of(null).words(), "/dev/null");
  close(null);
  const int zero = open("/dev/zero", O_RDONLY);
  EXPECT_EQ(descriptor_of(zero).words(), "device");
  close(zero);
  winsize size{};
  size.ws_row = 24;
  size.ws_col = 80;
  ASSERT_EQ(openpty(&ends[0], &ends[1], nullptr, nullptr, &size), 0);
  EXPECT_EQ(descriptor_of(ends[1]).words(), "terminal, 24 rows, 80 columns");
  expect_back(descriptor_of(ends[1]));
  close(ends[0]);
  close(ends[1]);
}

TEST(Descriptor, KnowsWhereAFileStands) {
  const int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(write(file, "1234567", 7), 7);
  lseek(file, 3, SEEK_SET);
  EXPECT_EQ(descriptor_of(file).words(), "regular file, 7 bytes, at 3");
  fcntl(file, F_SETFL, O_APPEND);
  EXPECT_EQ(descriptor_of(file).words(), "regular file, 7 bytes, at 3, appended to");
  expect_back(descriptor_of(file));
  close(file);
}

TEST(Descriptor, WordsOfOthersAreUnknown) {
  for (const char* words : {"", "a file", "regular file 7", ", at 3"}) {
    EXPECT_EQ(Descriptor::parse(words).kind, DescriptorKind::kUnknown) << words;
  }
  const Descriptor d = Descriptor::parse("regular file, x bytes, at 18446744073709551616, blue");
  EXPECT_EQ(d.kind, DescriptorKind::kFile);
  EXPECT_EQ(d.size_bytes, 0u);
  EXPECT_EQ(d.offset, 0u);
}

}  // namespace
}  // namespace tally::tracee
