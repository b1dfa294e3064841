// See describe.h.
#include "engine/describe.h"

#include <fmt/format.h>
#include <limits.h>
#include <sys/personality.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "profile/digest.h"
#include "tracee/descriptor.h"
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

// What decides where the process' memory lies.
bool addresses_are_random(const std::string& proc) {
  const std::string system = tracee::contents_of("/proc/sys/kernel/randomize_va_space");
  const std::string own = tracee::contents_of(proc + "personality");
  const bool switched_off = (strtoul(own.c_str(), nullptr, 16) & ADDR_NO_RANDOMIZE) != 0;
  return !switched_off && !system.starts_with('0');
}

// Facts with which `tally verify` can make the surroundings alike again.  Of the variables only
// those are kept that shells set by themselves: all others are the user's own, and may be secrets.
void describe_surroundings(const tracee::Process& process, const std::string& proc,
                           const std::string& variables, profile::Run& run) {
  run.more.emplace_back("address_randomization", addresses_are_random(proc) ? "on" : "off");
  for (const std::string& variable : command_line_of(variables)) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = variable.substr(0, equals);
    if (name == "_" || name == "OLDPWD" || name == "SHLVL") {
      run.more.emplace_back("variable_" + name, variable);
    }
  }
  constexpr std::array kStandard = {"standard_input", "standard_output", "standard_error"};
  for (int fd = 0; fd < 3; ++fd) {
    const tracee::Descriptor descriptor = tracee::descriptor_of(process, fd);
    if (descriptor.kind == tracee::DescriptorKind::kUnknown) continue;
    run.more.emplace_back(kStandard[static_cast<size_t>(fd)], descriptor.words());
  }
}

}  // namespace

void describe_process(const tracee::Process& process, profile::Run& run) {
  const std::string proc = fmt::format("/proc/{}/", process.pid());
  run.pid = static_cast<uint32_t>(process.pid());
  run.program = process.executable_path();
  run.command_line = command_line_of(tracee::contents_of(proc + "cmdline"));
  const std::string variables = tracee::contents_of(proc + "environ");
  run.environment_digest = profile::environment_digest(variables);
  describe_surroundings(process, proc, variables, run);
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
