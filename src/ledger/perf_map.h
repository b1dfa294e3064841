// Names of generated code: /tmp/perf-PID.map, which compilers write for profilers.
//
// Each line is "BEGIN SIZE NAME" with hexadecimal numbers.  The file is the program's and hostile:
// what does not parse is skipped, and its size is limited.  Of several lines for an address the
// last one counts: a name may be too new for code that was replaced, but no count depends on it.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "base/address.h"

namespace tally::engine {

class PerfMap {
 public:
  // The file of the process, if it wrote one; else an empty map.
  static PerfMap read(pid_t pid);
  static PerfMap parse(const std::string& text);

  // Empty when no line speaks of the address.
  std::string name_at(TargetAddr address) const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    uint64_t size_bytes = 0;
    std::string name;
  };
  std::map<uint64_t, Entry> entries_;  // by first address; later lines replace earlier ones
};

}  // namespace tally::engine
