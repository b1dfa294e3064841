// A file under a provisional name, until it is whole and takes the place of its target.
//
// Problem.  A file under its final name is always complete, so it is written under another one,
// NAME.partial-PID; but a process that is killed leaves that behind, of a size that nobody expects.
//
// Idea.  The provisional file is locked (flock) as long as its maker lives, and the kernel lets go
// of the lock however the maker ends.  Who writes to the same target next removes those that nobody
// holds and whose process is gone.  Process ids alone would not do, since they come again and
// containers share folders; nor would locks alone, which some network file systems drop.
#pragma once

#include <string>

namespace tally::profile {

class PartialFile {
 public:
  explicit PartialFile(const std::string& target);
  // Removes it unless it was moved to its target.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  const std::string& name() const { return name_; }
  const std::string& target() const { return target_; }
  int descriptor() const { return descriptor_; }

  // Both: 0 or an errno.
  int create();
  int move_to_target();

 private:
  std::string target_;
  std::string name_;
  int descriptor_ = -1;
  bool created_ = false;
};

}  // namespace tally::profile
