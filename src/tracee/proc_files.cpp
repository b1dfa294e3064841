// See proc_files.h.
#include "tracee/proc_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace tally::tracee {

namespace {

// A number of /proc/PID/stat, counted from 1 as in proc(5); from the fourth on.  0 if there is
// none.
uint64_t field_of_stat(pid_t pid, int field) {
  const std::string stat = contents_of("/proc/" + std::to_string(pid) + "/stat");
  // The name, in brackets, may hold anything.  It is the second.
  size_t at = stat.rfind(')');
  for (int i = 2; at != std::string::npos && i < field; ++i) at = stat.find(' ', at + 1);
  return at == std::string::npos ? 0 : strtoull(stat.c_str() + at, nullptr, 10);
}

}  // namespace

std::string contents_of(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[16384];
  for (ssize_t got = 0; (got = read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

std::string status_of(pid_t tid) {
  return contents_of("/proc/" + std::to_string(tid) + "/status");
}

uint64_t start_time_of(pid_t pid) {
  return field_of_stat(pid, 22);
}

std::optional<uint64_t> heap_begin_of(pid_t pid) {
  const uint64_t begin = field_of_stat(pid, 47);
  return begin == 0 ? std::nullopt : std::optional(begin);
}

std::string status_field(const std::string& status, const std::string& name) {
  const std::string head = name + ":\t";
  size_t at = status.starts_with(head) ? 0 : status.find("\n" + head);
  if (at == std::string::npos) return "";
  at = status.find('\t', at) + 1;
  const size_t end = status.find('\n', at);
  return status.substr(at, end == std::string::npos ? end : end - at);
}

}  // namespace tally::tracee
