// What is not exact, said on stderr as soon as a profile is there, and not only by its report.
#pragma once

#include <cstddef>
#include <string>

#include "profile/model.h"

namespace tally::cli {

class IssueNames {
 public:
  void add(const profile::Profile& profile);
  void print() const;

 private:
  static constexpr size_t kShown = 5;
  std::string text_;
  size_t total_ = 0;
};

}  // namespace tally::cli
