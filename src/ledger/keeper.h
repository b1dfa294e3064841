// The files of `--keep-counters=FILE`: what was counted outlives the monitor.
//
// Problem.  When the monitor is killed, the program dies with it, and with both the counters, the
// graphs they belong to and the ledger are gone.
//
// Idea.  Each image run gets a file that holds all of it (kept_format.h): the counters' memory is
// mapped from the file by both sides, and what is translated or booked is written down before the
// program goes on.  The kernel keeps what was written, whoever dies.  The first run's file is FILE,
// others are FILE.2, FILE.3, ...  A run that is over leaves its finished profile under its file's
// name instead; when the session's profile is safely written, all of them are removed.
//
// Limits: what cannot be known afterwards is in which block each thread was; units are translated
// so that this is all that is unknown (kept_run.h).
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "ledger/kept_run.h"

namespace tally::engine {

class Keeper {
 public:
  // Errors: there is such a file already; the folder takes none.
  static Result<std::unique_ptr<Keeper>> create(const std::string& path);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  Result<std::unique_ptr<KeptRun>> begin_run(pid_t target);
  // All is safely written elsewhere.
  void remove_all();
  const std::string& path() const { return path_; }

 private:
  explicit Keeper(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::mutex mutex_;
  uint32_t files_ = 0;
};

// FILE, FILE.2, ... as far as they exist, in the order of their numbers.
std::vector<std::string> kept_files(const std::string& path);

}  // namespace tally::engine
