// See surroundings.h.
#include "verify/surroundings.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "profile/digest.h"
#include "profile/file.h"

namespace tally::verify {
namespace {

constexpr const char* kOneMore = "TALLY_ONE_VARIABLE_MORE";

// As /proc/PID/environ of the program will read.
std::string own_environment() {
  std::string text;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    text += *variable;
    text += '\0';
  }
  return text;
}

std::string joined_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

std::string Variation::words() const {
  std::vector<std::string> parts;
  if (addresses) parts.emplace_back(upwards() ? "memory placed upwards" : "other addresses");
  if (variables) parts.emplace_back("one variable more");
  if (mappings) parts.emplace_back("more memory mapped");
  if (!output_is.empty()) parts.emplace_back("standard output to " + output_is);
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  }
  return text;
}

Surroundings::Surroundings(const claims::Claims& claims, const std::vector<std::string>& command) {
  if (claims.form == claims::Form::kTally) {
    compare_own(claims.file, command);
    return;
  }
  unlike_.addresses = unlike_.variables = true;
  if (claims.form == claims::Form::kCallgrind) {
    difference_ =
        "valgrind adds variables to the environment, preloads an object and simulates another "
        "processor";
  }
}

void Surroundings::compare_own(const std::string& file, const std::vector<std::string>& command) {
  auto reader = profile::Reader::open(file);
  if (!reader || reader->runs().empty()) return;
  const profile::Run& run = reader->runs().front();
  const auto add = [&](const std::string& words) {
    difference_ += (difference_.empty() ? "" : "; ") + words;
  };
  const auto fact = std::find_if(run.more.begin(), run.more.end(),
                                 [](const auto& f) { return f.first == "address_randomization"; });
  const bool known = fact != run.more.end();
  if (!known || fact->second != "off") {
    unlike_.addresses = true;
    if (known) add("addresses were random");
  }
  const bool same = run.environment_digest == profile::environment_digest(own_environment());
  if (!same && !replay(run.more, run.environment_digest)) {
    unlike_.variables = true;
    add("the environment variables are others");
  }
  if (run.command_line != command) {
    other_command_ = joined_words(run.command_line);
    add("the command line is another");
  }
  std::array<char, 4096> folder{};
  if (getcwd(folder.data(), folder.size()) != nullptr && run.working_directory != folder.data()) {
    add(fmt::format("the working directory was {}", run.working_directory));
  }
}

bool Surroundings::replay(const std::vector<std::pair<std::string, std::string>>& facts,
                          const std::string& digest) {
  for (const auto& [name, assignment] : facts) {
    constexpr std::string_view kPrefix = "variable_";
    const size_t equals = assignment.find('=');
    if (!name.starts_with(kPrefix) || equals == std::string::npos) continue;
    const std::string variable = name.substr(kPrefix.size());
    const char* now = getenv(variable.c_str());
    put_back_.emplace_back(variable,
                           now == nullptr ? std::nullopt : std::optional(std::string(now)));
    setenv(variable.c_str(), assignment.c_str() + equals + 1, 1);
  }
  if (digest == profile::environment_digest(own_environment())) return true;
  put_back();
  return false;
}

void Surroundings::put_back() {
  for (const auto& [variable, value] : put_back_) {
    if (value) {
      setenv(variable.c_str(), value->c_str(), 1);
    } else {
      unsetenv(variable.c_str());
    }
  }
  put_back_.clear();
}

OneVariableMore::OneVariableMore(bool wanted, size_t attempt) : wanted_(wanted) {
  constexpr size_t kLength = 1237;
  if (wanted_) setenv(kOneMore, std::string(attempt * kLength, 'x').c_str(), 1);
}

OneVariableMore::~OneVariableMore() {
  if (wanted_) unsetenv(kOneMore);
}

Randomization::Randomization(bool wanted, bool upwards) : before_(personality(0xffffffff)) {
  auto flags = static_cast<unsigned long>(before_);
  const unsigned long off = ADDR_NO_RANDOMIZE;
  flags = wanted ? flags & ~off : flags | off;
  if (upwards) flags |= ADDR_COMPAT_LAYOUT;
  if (before_ >= 0) personality(flags);
}

Randomization::~Randomization() {
  if (before_ >= 0) personality(static_cast<unsigned long>(before_));
}

Status add_mappings(tracee::Process& process, unsigned count) {
  if (count == 0) return Ok{};
  constexpr uint64_t kFirst = 0x10000000000;
  constexpr uint64_t kApart = 0x10000000;
  constexpr std::array<uint8_t, 2> kSystemCall = {0x0f, 0x05};
  // In place of the first instruction; nothing else there is executable and known.
  std::array<uint8_t, 2> before{};
  const pid_t tid = process.pid();
  const TargetAddr at(process.registers(tid).rip);
  if (!process.read_memory(at, before.data(), before.size()) ||
      !process.write_memory(at, kSystemCall.data(), kSystemCall.size())) {
    return make_error("cannot write to the program's first instruction");
  }
  Status status = Ok{};
  for (unsigned i = 0; i < count && status; ++i) {
    const auto made = process.remote_syscall(
        tid, at, SYS_mmap,
        {kFirst + i * kApart, 0x1000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
         static_cast<uint64_t>(-1), 0});
    if (!made) status = made.error();
  }
  if (!process.write_memory(at, before.data(), before.size())) {
    return make_error("cannot restore the program's first instruction");
  }
  return status;
}

}  // namespace tally::verify
