// What a descriptor is, as far as programs ask.
//
// Problem.  Programs do other things for other kinds of standard output: grep stops at the first
// match when it is /dev/null, libc writes each line at once to a terminal, cat copies within a file
// system.  Who compares two runs has to know whether they were given the same.
//
// Idea.  What fstat, isatty, lseek and fcntl answer, as one line of text that people can read and
// `parse` reads back:
//
//     regular file, 1203 bytes, at 0
//     terminal, 24 rows, 80 columns
//     /dev/null
//
// Nothing that was read or written is in it, nor a name.
#pragma once

#include <cstdint>
#include <string>

namespace tally::tracee {

class Process;

enum class DescriptorKind : uint8_t {
  kUnknown,
  kClosed,
  kFile,
  kNull,
  kTerminal,
  kPipe,
  kSocket,
  kDevice,  // any other
  kOther,
};
// "regular file"; for kUnknown "unknown".
const char* to_string(DescriptorKind kind);

struct Descriptor {
  DescriptorKind kind = DescriptorKind::kUnknown;
  uint64_t size_bytes = 0;  // kFile
  uint64_t offset = 0;
  bool appends = false;
  unsigned rows = 0;  // kTerminal
  unsigned columns = 0;
  std::string words() const;
  static Descriptor parse(const std::string& words);
};

// One of our own.
Descriptor descriptor_of(int fd);
// One of a target's.
Descriptor descriptor_of(const Process& process, int fd);

}  // namespace tally::tracee
