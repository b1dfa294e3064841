// One image run that is kept on disk while it runs: see keeper.h and kept_format.h.
//
// What is unknown after the monitor was killed.  Back-traces cannot be taken any more, so calls are
// translated as in code without call frame information: each is counted, and so is each return
// (Unit::open_calls).  Then no count depends on who was active.  Every thread also writes the
// procedure it is in to its own block, on every way in, in front of the counters there
// (tcb::kWhere).  What remains is each thread's innermost block, in a procedure that is known: its
// counts may be off by one for each thread that was there.
//
// Blocks that a signal handler has interrupted are known to the monitor, which notes them in the
// thread's block as well.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "cache/code_cache.h"
#include "cache/translated.h"
#include "ledger/interruptions.h"
#include "ledger/kept_format.h"
#include "ledger/ledger_books.h"
#include "profile/model.h"

namespace tally::engine {

class KeptRun : public CacheJournal {
 public:
  static Result<std::unique_ptr<KeptRun>> create(const std::string& path, pid_t target);
  // Removes the file of a run that never began.
  ~KeptRun() override;
  KeptRun(const KeptRun&) = delete;
  KeptRun& operator=(const KeptRun&) = delete;

  int descriptor() const { return fd_; }
  // Room on the disk for the counters of so many slots, so that no thread faults on a full one.
  void reserve_slot(uint32_t slot);
  void reserve_counter(uint32_t counter) override;

  void begin(const profile::Run& facts);
  void unit(const Unit& unit, const ModuleMap& modules) override;
  void pair(uint32_t site, const Pair& pair) override;
  void arrival(const ArrivalStub& arrival) override;
  void link_pair(const LinkPair& pair) override;
  void book(KeptBooking kind, const std::vector<uint64_t>& key, const std::string& text,
            int64_t amount);
  void end(const profile::Run& facts);

  // By the thread's own block, `memory`: who is in it, where it is, what was interrupted in it.
  void thread_begins(uint8_t* memory);
  static void thread_ends(uint8_t* memory);
  static void set_where(uint8_t* memory, uint32_t unit);
  static void set_interruptions(uint8_t* memory, const std::vector<Interruption>& records);

  void enter_booking() { ++header().busy; }
  void leave_booking() { --header().busy; }

  // The run is over: its finished profile takes the file's name.
  Status replace_by(const profile::Profile& profile);
  // What could not be written, if anything; from then on nothing is.
  const std::optional<Error>& error() const { return error_; }

 private:
  KeptRun(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  KeptHeader& header() { return *reinterpret_cast<KeptHeader*>(memory_); }
  int64_t* cells() { return reinterpret_cast<int64_t*>(memory_ + kKeptCellsOffset); }
  void append(const KeptWriter& record);
  void reserve(uint64_t offset, uint64_t size_bytes);
  void fail(const char* what, int number);
  void describe(const Module& module);
  void write_facts(const profile::Run& facts, KeptRecord kind);

  std::string path_;
  int fd_ = -1;
  uint8_t* memory_ = nullptr;  // header and cells
  uint64_t journal_end_ = kKeptJournalOffset;
  std::optional<Error> error_;
  bool begun_ = false;
  uint32_t counters_reserved_ = 0;
  std::vector<uint32_t> slots_;  // in use at any time, ascending
  uint64_t cells_reserved_ = 0;
  std::unordered_map<std::string, uint64_t> bookings_;  // payload -> cell
  std::map<uint32_t, std::vector<uint8_t>> modules_;    // as last written
};

// Marks the ledger as being written to, for as long as it lives.
class KeptBusy {
 public:
  explicit KeptBusy(KeptRun* run) : run_(run) {
    if (run_ != nullptr) run_->enter_booking();
  }
  ~KeptBusy() {
    if (run_ != nullptr) run_->leave_booking();
  }
  KeptBusy(const KeptBusy&) = delete;
  KeptBusy& operator=(const KeptBusy&) = delete;

 private:
  KeptRun* run_;
};

}  // namespace tally::engine
