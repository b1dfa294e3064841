// `tally doctor`: what this machine allows, and what to do about what it does not.
//
// Two kinds of findings.  Essentials are found by doing (tracee/probe.h rehearses a run) or decide
// whether a run can start at all; without one of them the answer is no and the exit status 125.
// Everything else only explains speed or trouble to come: one processor, a small address-space
// limit, a full disk.
//
// Every finding says what was seen and, when it is not as it should be, what to do: the exact
// command where there is one.
#include "cli/doctor.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/auxv.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/format_option.h"
#include "report/output.h"
#include "tracee/probe.h"

namespace tally::cli {
namespace {

constexpr uint64_t kMegabyte = 1024 * 1024;
// What is reserved at most, in the target: cache/region.h.
constexpr uint64_t kSmallAddressSpaceBytes = 90'000 * kMegabyte;
constexpr uint64_t kSmallDiskBytes = 200 * kMegabyte;
constexpr unsigned long kHwcap2Fsgsbase = 1ul << 1;

enum class State : uint8_t { kOk, kNote, kFailed, kNotTried };

struct Finding {
  std::string name;
  State state = State::kOk;
  bool essential = false;
  std::string seen;
  std::string remedy;
};

const char* to_string(State state) {
  switch (state) {
    case State::kOk:
      return "ok";
    case State::kNote:
      return "note";
    case State::kFailed:
      return "failed";
    case State::kNotTried:
      return "not tried";
  }
  return "failed";
}

Finding ok(std::string name, std::string seen) {
  return {std::move(name), State::kOk, false, std::move(seen), ""};
}
Finding note(std::string name, std::string seen, std::string remedy) {
  return {std::move(name), State::kNote, false, std::move(seen), std::move(remedy)};
}

// The first line of a small file of the kernel's, if it can be read.
std::optional<std::string> first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// The value of `key` in a file of "key : value" lines.
std::optional<std::string> value_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return std::nullopt;
}

// --- the machine ------------------------------------------------------------------------------

Finding check_kernel() {
  utsname name{};
  if (uname(&name) != 0) return note("kernel", std::strerror(errno), "");
  return ok("kernel", fmt::format("{} {} {}", name.sysname, name.release, name.machine));
}

Finding check_cpu() {
  return ok("cpu", value_in("/proc/cpuinfo", "model name").value_or("of unknown model"));
}

Finding check_processors() {
  const unsigned count = std::thread::hardware_concurrency();
  if (count > 1) return ok("processors", fmt::format("{}", count));
  return note("processors", fmt::format("{}: target and monitor take turns", count),
              "give this machine a second processor for speed; counts are exact either way");
}

// The state that xsave writes grows with AVX-512 and AMX; signal frames grow with it.
Finding check_xsave() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(0xd, 0, &eax, &ebx, &ecx, &edx) == 0) {
    return note("vector-state", "the processor has no xsave", "");
  }
  const char* widest = "SSE";
  if ((eax & 0x4) != 0) widest = "AVX";
  if ((eax & 0xe0) == 0xe0) widest = "AVX-512";
  return ok("vector-state", fmt::format("{}, {} bytes", widest, ebx));
}

Finding check_fsgsbase() {
  if ((getauxval(AT_HWCAP2) & kHwcap2Fsgsbase) != 0) {
    return ok("fsgsbase", "on: a program can change gs without a system call");
  }
  return ok("fsgsbase", "off: gs changes only through system calls");
}

// --- what the administrator allows ------------------------------------------------------------

Finding check_yama() {
  const auto scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (!scope) return ok("yama", "not active");
  if (*scope == "0" || *scope == "1") return ok("yama", "ptrace_scope " + *scope);
  return note("yama", "ptrace_scope " + *scope + ": tracing is restricted",
              *scope == "3" ? "boot with another kernel.yama.ptrace_scope: 3 cannot be undone"
                            : "sudo sysctl kernel.yama.ptrace_scope=1");
}

Finding check_seccomp() {
  const auto mode = value_in("/proc/self/status", "Seccomp:");
  if (!mode) return ok("seccomp", "not in this kernel");
  if (*mode == "0") return ok("seccomp", "no filter");
  return note("seccomp", "a filter is active in this process",
              "if something below fails in docker: --security-opt seccomp=unconfined");
}

Finding check_personality() {
  const int now = personality(0xffffffff);
  if (now < 0) {
    return note("address-randomization", fmt::format("personality: {}", std::strerror(errno)),
                "switching randomization off will not work; counts do not need it");
  }
  return ok("address-randomization", (now & ADDR_NO_RANDOMIZE) != 0
                                         ? "off for this process"
                                         : "on; `setarch -R tally ...` switches it off");
}

Finding check_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0) return note("address-space", std::strerror(errno), "");
  if (limit.rlim_cur == RLIM_INFINITY) return ok("address-space", "no limit");
  const std::string seen = fmt::format("limited to {} MB", limit.rlim_cur / kMegabyte);
  if (limit.rlim_cur >= kSmallAddressSpaceBytes) return ok("address-space", seen);
  return note("address-space", seen + ": the code cache may find no room", "ulimit -v unlimited");
}

Finding check_overcommit() {
  const auto mode = first_line("/proc/sys/vm/overcommit_memory");
  if (!mode || *mode != "2") return ok("overcommit", mode ? "mode " + *mode : "unknown");
  return note("overcommit", "strict (mode 2): large reservations may be refused",
              "sudo sysctl vm.overcommit_memory=0");
}

Finding check_folder() {
  struct statvfs fs {};
  if (statvfs(".", &fs) != 0) {
    return note("folder", fmt::format("current folder: {}", std::strerror(errno)),
                "change to a folder that exists");
  }
  const uint64_t free_bytes = uint64_t{fs.f_bavail} * fs.f_frsize;
  if (access(".", W_OK) != 0) {
    return note("folder", "the current folder cannot be written",
                "choose where the profile goes: tally profile -o /path/to/file.tally -- ...");
  }
  const std::string seen = fmt::format("{} MB free in the current folder", free_bytes / kMegabyte);
  if (free_bytes >= kSmallDiskBytes) return ok("folder", seen);
  return note("folder", seen, "free some space, or choose another place with -o");
}

// --- putting it together ----------------------------------------------------------------------

Finding from_probe(tracee::ProbeResult result) {
  State state = State::kOk;
  if (result.state == tracee::ProbeState::kFailed) state = State::kFailed;
  if (result.state == tracee::ProbeState::kNotTried) state = State::kNotTried;
  return {std::move(result.name), state, true, std::move(result.seen), std::move(result.remedy)};
}

std::vector<Finding> examine() {
  // The rehearsal forks, so it comes first, while this process is as simple as it can be.
  std::vector<Finding> findings;
  for (tracee::ProbeResult& result : tracee::probe_tracing()) {
    findings.push_back(from_probe(std::move(result)));
  }
  for (auto* check :
       {check_kernel, check_cpu, check_processors, check_xsave, check_fsgsbase, check_yama,
        check_seccomp, check_personality, check_address_space, check_overcommit, check_folder}) {
    findings.push_back(check());
  }
  return findings;
}

std::string as_text(const std::vector<Finding>& findings, size_t missing) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<10}{:<23}{}\n", to_string(finding.state), finding.name, finding.seen);
    if (!finding.remedy.empty()) text += fmt::format("{:<33}try: {}\n", "", finding.remedy);
  }
  if (missing == 0) {
    text += "\nAll that tally needs works here.\n";
  } else {
    text += fmt::format("\n{} of the things tally cannot do without {} missing here.\n", missing,
                        missing == 1 ? "is" : "are");
  }
  return text;
}

std::string as_json(const std::vector<Finding>& findings, size_t missing) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    checks.push_back({{"name", finding.name},
                      {"state", to_string(finding.state)},
                      {"essential", finding.essential},
                      {"seen", finding.seen},
                      {"remedy", finding.remedy}});
  }
  nlohmann::ordered_json all = {
      {"ready", missing == 0}, {"tally_version", TALLY_VERSION}, {"checks", checks}};
  // A kernel's words are bytes; whatever is not UTF-8 must not throw.
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Status run_doctor(report::Format format, CommandOutcome& outcome) {
  const std::vector<Finding> findings = examine();
  size_t missing = 0;
  for (const Finding& finding : findings) {
    missing += finding.essential && finding.state != State::kOk;
  }
  const std::string words =
      format == report::Format::kJson ? as_json(findings, missing) : as_text(findings, missing);
  TRY(write_to_stdout([&](report::Output& output) -> Status {
    output.write(words);
    return Ok{};
  }));
  // The findings are the message; an error line would say it twice.
  if (missing > 0) outcome.exit_code = 125;
  return Ok{};
}

}  // namespace

void register_doctor(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Say what this machine allows, and what to do where it does not");
  auto format = std::make_shared<report::Format>(report::Format::kText);
  add_format_option(command, *format, {"text", "json"});
  command->footer(
      "Examples:\n"
      "  tally doctor\n"
      "  tally doctor --format=json\n"
      "Exit status: 0 when all that tally needs works, 125 when something is missing.");
  command->callback([=] { outcome->status = run_doctor(*format, *outcome); });
}

}  // namespace tally::cli
