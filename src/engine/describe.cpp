// See describe.h.
#include "engine/describe.h"

#include <fmt/format.h>
#include <limits.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <chrono>

#include "profile/digest.h"
#include "tracee/proc_files.h"

namespace tally::engine {
namespace {

std::vector<std::string> command_line_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace

void describe_process(const tracee::Process& process, profile::Run& run) {
  const std::string proc = fmt::format("/proc/{}/", process.pid());
  run.pid = static_cast<uint32_t>(process.pid());
  run.program = process.executable_path();
  run.command_line = command_line_of(tracee::contents_of(proc + "cmdline"));
  run.environment_digest = profile::environment_digest(tracee::contents_of(proc + "environ"));
  char folder[PATH_MAX];
  const ssize_t length = readlink((proc + "cwd").c_str(), folder, sizeof folder);
  if (length > 0) run.working_directory.assign(folder, static_cast<size_t>(length));
  utsname name{};
  if (uname(&name) == 0) {
    run.host = name.nodename;
    run.kernel = name.release;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  run.start_unix_ms =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

}  // namespace tally::engine
