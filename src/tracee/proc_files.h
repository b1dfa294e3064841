// Files of /proc, read as a whole.
#pragma once

#include <sys/types.h>

#include <string>

namespace tally::tracee {

// All of a file; empty if it cannot be read, as when its process has ended.
std::string contents_of(const std::string& path);

// /proc/TID/status.
std::string status_of(pid_t tid);

// The value of a line of such a status: "State:\tS (sleeping)" -> "S (sleeping)"; empty when there
// is no such line.
std::string status_field(const std::string& status, const std::string& name);

}  // namespace tally::tracee
