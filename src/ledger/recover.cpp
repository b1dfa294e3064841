// See recover.h.
#include "ledger/recover.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <set>

#include "ledger/finish.h"
#include "ledger/keeper.h"
#include "ledger/kept_file.h"
#include "ledger/perf_map.h"
#include "profile/counts.h"
#include "profile/file.h"
#include "tracee/proc_files.h"

namespace tally::engine {

namespace {

// Not one that has ended and is only waiting to be asked for its status.
bool is_running(uint64_t pid, uint64_t start) {
  const auto id = static_cast<pid_t>(pid);
  if (start == 0 || pid > INT32_MAX || tracee::start_time_of(id) != start) return false;
  const std::string state = tracee::status_field(tracee::status_of(id), "State");
  return !state.empty() && state[0] != 'Z' && state[0] != 'X';
}

// The program dies with the monitor, but it may need a moment.
Status wait_for_end(const std::string& path, const KeptHeader& header) {
  if (is_running(header.monitor_pid, header.monitor_start)) {
    return make_error("{}: its run is still going on, under tally (process {})", path,
                      header.monitor_pid);
  }
  constexpr int kWaitsMax = 1000;
  constexpr useconds_t kWaitMicroseconds = 10'000;
  for (int i = 0; i < kWaitsMax; ++i) {
    if (!is_running(header.target_pid, header.target_start)) return Ok{};
    usleep(kWaitMicroseconds);
  }
  return make_error("{}: its program has not ended yet (process {})", path, header.target_pid);
}

std::string place_of(const Unit& unit) {
  return fmt::format("{}+{:#x}", unit.module->path, unit.procedure.entry.value());
}

// Procedures whose blocks a jump out of `from` enters in their middle: the jump is counted for both
// before the thread can say that it is there.
std::set<uint32_t> entered_by_jumps(const KeptTranslated& translated, uint32_t from) {
  std::set<uint32_t> result;
  for (const SiteState& site : translated.sites()) {
    if (site.unit != from || site.site.call) continue;
    for (const Pair& pair : site.pairs) {
      const cfg::Procedure& p = translated.unit(pair.to.unit).procedure;
      const bool entry = pair.to.insn == 0 && pair.to.block == p.entry_block;
      if (pair.to.unit != from && !entry) result.insert(pair.to.unit);
    }
  }
  return result;
}

void name_interrupted(KeptFile& file, const KeptThread& thread) {
  for (const translate::tcb::Interrupted& at : thread.interrupted) {
    if (at.unit != 0) {
      file.books.leave_interrupted({at.unit - 1, at.block}, at.done, at.counted != 0,
                                   file.translated);
    } else {
      file.books.issue("signals",
                       "a signal had interrupted a thread between a call and the procedure it "
                       "calls when Tally was killed; that edge is one too high");
    }
  }
  if (!thread.interrupted_known) {
    file.books.issue("signals",
                     "more signal handlers were active in each other than were noted when Tally "
                     "was killed; the blocks they interrupted may be off by one");
  }
}

// What was under way in each thread.
void name_threads(KeptFile& file) {
  for (const KeptThread& thread : file.alive) {
    name_interrupted(file, thread);
    if (thread.where == 0) {
      file.books.issue("thread",
                       "where a thread was when Tally was killed is not known; the counts of one "
                       "procedure may be off by one");
      continue;
    }
    const uint32_t unit = thread.where - 1;
    file.books.issue(place_of(file.translated.unit(unit)),
                     "a thread was in this procedure, or on its way out of it, when Tally was "
                     "killed; each of its counts may be off by one");
    for (const uint32_t next : entered_by_jumps(file.translated, unit)) {
      file.books.issue(place_of(file.translated.unit(next)),
                       "a thread may have been jumping to this procedure when Tally was killed; "
                       "each of its counts may be off by one");
    }
  }
  if (file.header.busy != 0) {
    file.books.issue("ledger",
                     "Tally was killed while it booked flow that begins or ends out of turn; the "
                     "counts of the procedures where it does may be off by one");
  }
}

void complete_facts(const KeptFile& file, profile::Profile& profile) {
  profile::Run& run = profile.run;
  run = file.facts;
  if (!file.ended) {
    run.ended = "monitor lost";
    run.exited = false;
    run.signal = SIGKILL;
  }
  run.threads = static_cast<uint32_t>(std::min<uint64_t>(file.header.threads, UINT32_MAX));
  run.counters = file.counters.size();
  run.counter_increments = 0;
  for (const uint64_t value : file.counters) run.counter_increments += value;
}

// Who executed what is told apart only when there was one.
void add_thread(const KeptFile& file, profile::Profile& profile) {
  if (file.header.threads != 1) {
    profile.issues.push_back({"threads",
                              "how much each thread executed was lost with Tally; the sum over "
                              "them is that of the blocks",
                              file.header.threads});
    return;
  }
  profile::Thread row;
  row.run = file.facts.number;
  row.tid = file.facts.pid;
  row.begun = file.facts.begun;
  row.ended = file.ended ? "process end" : "monitor lost";
  for (const profile::Block& block : profile.blocks) {
    row.instructions += static_cast<uint64_t>(profile::instructions_executed(block));
  }
  profile.threads.push_back(std::move(row));
}

Result<std::optional<profile::Profile>> profile_of(const std::string& path) {
  TRY_ASSIGN(const std::unique_ptr<KeptFile> file, read_kept_file(path));
  if (!file->began) return std::optional<profile::Profile>();
  name_threads(*file);
  profile::Profile profile;
  const PerfMap generated = PerfMap::read(static_cast<pid_t>(file->facts.pid));
  uint64_t instructions = 0;
  for (const auto& unit : file->translated.units()) instructions += unit->insn_sizes.size();
  build_profile({file->translated, file->books, file->counters, file->translated.modules(),
                 [&](const Unit& unit) {
                   if (!unit.module->generated) return file->translated.name_of(unit);
                   return generated.name_at(unit.module->to_target(unit.procedure.entry));
                 }},
                profile);
  complete_facts(*file, profile);
  profile.run.instructions_translated = instructions;
  add_thread(*file, profile);
  return std::optional(std::move(profile));
}

bool is_finished_profile(const std::string& path) {
  char head[16] = {};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const size_t got = std::fread(head, 1, sizeof head, file);
  std::fclose(file);
  return got == sizeof head && std::memcmp(head, "SQLite format 3", sizeof head) == 0;
}

}  // namespace

Status recover(const std::string& path, const std::function<Status(profile::Profile)>& keep) {
  std::vector<std::string> files = kept_files(path);
  if (files.empty() || files.front() != path) return make_error("{}: no such file", path);
  for (const std::string& file : files) {
    if (is_finished_profile(file)) continue;
    TRY_ASSIGN(const KeptHeader header, read_kept_header(file));
    if (header.broken != 0) {
      return make_error(
          "{}: Tally could not write to it any more (a full disk?), long before the "
          "end",
          file);
    }
    TRY(wait_for_end(file, header));
  }
  bool any = false;
  for (const std::string& file : files) {
    if (is_finished_profile(file)) {
      TRY_ASSIGN(profile::Profile finished, profile::load(file));
      TRY(keep(std::move(finished)));
      any = true;
      continue;
    }
    TRY_ASSIGN(std::optional<profile::Profile> profile, profile_of(file));
    if (!profile) continue;
    TRY(keep(std::move(*profile)));
    any = true;
  }
  if (!any) return make_error("{}: Tally was killed before its program began", path);
  return Ok{};
}

}  // namespace tally::engine
