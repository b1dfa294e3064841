// See proc_files.h.
#include "tracee/proc_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace tally::tracee {

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
  const std::string stat = contents_of("/proc/" + std::to_string(pid) + "/stat");
  // The name, in brackets, may hold anything; the start is the 20th field behind it.
  constexpr int kFieldsBetween = 20;
  size_t at = stat.rfind(')');
  for (int i = 0; at != std::string::npos && i < kFieldsBetween; ++i) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  return strtoull(stat.c_str() + at, nullptr, 10);
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
