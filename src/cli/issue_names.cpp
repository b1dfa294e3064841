// See issue_names.h.
#include "cli/issue_names.h"

#include <fmt/format.h>

#include <cstdio>

namespace tally::cli {

void IssueNames::add(const profile::Profile& profile) {
  const auto& command = profile.run.command_line;
  const std::string name = command.empty() ? profile.run.program : command[0];
  const std::string run =
      profile.run.number == 1 ? "" : fmt::format("run {} ({}): ", profile.run.number, name);
  for (const profile::Issue& issue : profile.issues) {
    if (++total_ > kShown) continue;
    text_ += fmt::format("tally: not exact: {}{}: {} ({})\n", run, issue.scope, issue.message,
                         issue.amount);
  }
}

void IssueNames::print() const {
  std::fputs(text_.c_str(), stderr);
  if (total_ <= kShown) return;
  std::fprintf(stderr, "tally: not exact: and %zu more; `tally report` lists them\n",
               total_ - kShown);
}

}  // namespace tally::cli
