// Files of /proc, read as a whole.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tally::tracee {

// All of a file; empty if it cannot be read, as when its process has ended.
std::string contents_of(const std::string& path);

// /proc/TID/status.
std::string status_of(pid_t tid);

// When the process was started, in ticks since boot; 0 when it is gone.
uint64_t start_time_of(pid_t pid);

// Where the heap (`brk`) of a process begins, which is to be one of this tracer's; none when it is
// gone, or the kernel does not say.
std::optional<uint64_t> heap_begin_of(pid_t pid);

// The value of a line of such a status: "State:\tS (sleeping)" -> "S (sleeping)"; empty when there
// is no such line.
std::string status_field(const std::string& status, const std::string& name);

}  // namespace tally::tracee
