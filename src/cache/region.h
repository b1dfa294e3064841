// The memory that monitor and target share, as the monitor sees it.
//
// See translate/layout.h for what is where.  The region is one memfd, made by the target itself
// (through injected system calls, so that it counts against the target's limits) and taken over by
// the monitor; the target's descriptor is closed again before the program runs.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/give_back.h"
#include "base/result.h"
#include "cache/landing_numbers.h"
#include "tracee/process.h"
#include "translate/layout.h"
#include "translate/unit.h"

namespace tally::engine {

// Executes a system call in the target, by whatever means fit the moment.
using RemoteCall =
    std::function<Result<int64_t>(long number, const std::array<uint64_t, 6>& arguments)>;

// Where in an area code is to lie.
struct Room {
  uint64_t begin = 0, end = 0;  // offsets in the area
  uint64_t& used_bytes;
  uint64_t next() const { return begin + used_bytes; }
  bool has_room_for(uint64_t bytes) const { return next() + bytes <= end; }
};

struct Area {
  // Bodies, those that stay, pieces, what runs seldom, and that of those that stay.
  static constexpr size_t kParts = 5;
  uint32_t index = 0;
  CacheAddr base;  // in the target
  uint8_t* memory = nullptr;
  uint64_t used_bytes = 0;        // of the first half, up to kAreaPieces: bodies
  uint64_t piece_used_bytes = 0;  // of what lies behind: pairs, arrivals
  uint64_t cold_used_bytes = 0;   // of the second half: what runs seldom
  bool is_staying_apart = true;
  bool pieces_among_cold = false;  // from now on, so that they take no page of their own
  uint64_t staying_used_bytes = 0, staying_cold_used_bytes = 0;  // of the ends of the two
  uint64_t staying_bytes_max = 0;  // that all will need that lie there
  translate::GatewayCode gateway;
  std::vector<translate::Ask> asks;  // by number (translate::asks)
  uint32_t ask_pages = 0;            // that are mapped

  Room bodies(translate::Lies lies) {
    using translate::kAreaBodiesEnd, translate::kAreaPieces;
    if (lies == translate::Lies::kAmongOthers) return {0, kAreaBodiesEnd, used_bytes};
    return {kAreaBodiesEnd, kAreaPieces, staying_used_bytes};
  }
  Room cold(translate::Lies lies) {
    using translate::kAreaCodeEnd, translate::kAreaColdEnd, translate::kAreaHalfBytes;
    if (lies == translate::Lies::kAmongOthers)
      return {kAreaHalfBytes, kAreaColdEnd, cold_used_bytes};
    return {kAreaColdEnd, kAreaCodeEnd, staying_cold_used_bytes};
  }
  Room pieces() { return pieces_among_cold ? cold(translate::Lies::kAmongOthers) : own_pieces(); }
  Room own_pieces() {
    return {translate::kAreaPieces, translate::kAreaHalfBytes, piece_used_bytes};
  }
  static constexpr bool is_for_staying(size_t part) { return part == 1 || part == 4; }
  // All of them, by address.
  std::array<Room, kParts> rooms() {
    using translate::Lies;
    return {bodies(Lies::kAmongOthers), bodies(Lies::kAmongStaying), own_pieces(),
            cold(Lies::kAmongOthers), cold(Lies::kAmongStaying)};
  }
  isa::Assembler assembler(const Room& room) const {
    return {memory + room.next(), room.end - room.next(), base + room.next()};
  }
  uint32_t asks_max() const { return ask_pages * translate::asks::kPerPage; }
  bool is_among_asks(CacheAddr address) const {
    const auto offset = static_cast<uint64_t>(address - base);
    return offset >= translate::asks::kBegin && offset < translate::kAreaSizeBytes;
  }
  // What is left is for the pairs and arrivals of the units it holds; new units go elsewhere.
  bool is_for_pieces() const {
    constexpr uint64_t kBodiesBytesMax = translate::kAreaHalfBytes * 3 / 4;
    constexpr uint64_t kColdBytesMax =
        (translate::kAreaColdEnd - translate::kAreaHalfBytes) * 3 / 4;
    return used_bytes > kBodiesBytesMax || cold_used_bytes > kColdBytesMax;
  }
};

// Bytes of the shared memory that exist, since somebody has touched them.
struct TouchedMemory {
  uint64_t tables_bytes = 0;
  uint64_t code_bytes = 0;
  uint64_t threads_bytes = 0;  // mailboxes and counters
};

class Region {
 public:
  ~Region();
  Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  // The threads' blocks are to be in this file instead, from `offset` on (see kept_run.h).
  void keep_threads_in(int descriptor, uint64_t offset) {
    threads_fd_ = descriptor;
    threads_offset_ = offset;
  }
  // Makes and maps the region while the target is stopped at its exec.
  Status create(tracee::Process& process, const RemoteCall& call, TargetAddr scratch);
  // The same for a fork child, which has its parent's region mapped: puts one of its own in its
  // place, at the same addresses and with nothing in it but the gateways.
  Status create_in_place(const Region& parent, tracee::Process& process, const RemoteCall& call);
  // Maps one more area within reach of `range` (all of a module, and of the areas it has); uses an
  // existing one if it reaches.  nullptr in no case.
  Result<Area*> area_for(TargetRange range, tracee::Process& process, const RemoteCall& call);

  // Sees to it that an area has room for so many asks in all, as far as the kernel lets it: each
  // page of them is a mapping of its own.
  Status map_asks(Area& area, uint32_t asks, const RemoteCall& call);
  // What is asked for there; null where nothing is.  `behind`: what the tail of a page goes by.
  const translate::Ask* ask_at(CacheAddr address, CacheAddr behind) const;

  // Closes the target's descriptor of the region.  Areas mapped later are second mappings of the
  // attic, where the whole file's areas are mapped out of the way.
  Status close_target_descriptor(const RemoteCall& call);

  // The target has unmapped the region: takes back what else it may have of ours.
  Status forget_target(const RemoteCall& call);

  // Gives back the monitor's view once the target is gone and the counters are read.
  void unmap();

  // The program filters its own system calls from now on.
  void filter_installed() { filtered_ = true; }
  bool is_filtered() const { return filtered_; }

  bool exists() const { return monitor_fd_ >= 0; }
  // Whether any of a range is in it, or kept free for it.
  bool is_in(TargetRange range) const;
  uint32_t tables_base() const { return tables_base_; }
  uint8_t* tables() const { return file_ + translate::kTablesFileOffset; }
  // Of all threads' blocks.
  CacheAddr threads() const { return CacheAddr(threads_base_); }
  CacheAddr thread_block(uint32_t slot) const {
    return CacheAddr(threads_base_ + block_offset(slot));
  }
  uint8_t* thread_memory(uint32_t slot) const {
    return file_ + translate::kThreadsFileOffset + block_offset(slot);
  }
  // Where a thread's block begins, before anything is in it: so that what is busy of it is nowhere
  // alike in its low 12 bits with what the thread will use of its stack, most of it around `stack`.
  void place_thread(uint32_t slot, uint64_t stack);
  // Calls `visit(counter, value)` for each of a slot's first `counters` counters that is not zero.
  // Pages that were never touched are not looked at: reading them would make them exist.
  void for_each_counter(uint32_t slot, size_t counters,
                        const std::function<void(size_t counter, uint64_t value)>& visit) const;
  // What the threads of the first `slots` slots, which stand still, have counted by their first
  // `counters` counters is remembered here, and the memory for it given back until they count
  // again.  `for_each_counter` knows of it.  Not with counters in a file.
  // Returns how many have counted.
  uint64_t set_counters_aside(uint32_t slots, size_t counters);
  // The memory of code that nobody will run any more, whole pages; the target must have lost its
  // access to it (cache/compact.cpp).  Where a page has been mapped to another's memory, its own.
  void give_back_code(CacheRange pages);
  // The monitor's view of a page of code is of the memory that another had at first.  False if the
  // kernel refuses.
  bool view(CacheAddr page, CacheAddr of);
  // Maps all rows of pointers to landings that can be lent to one page on which each leads to
  // `none`, while nobody goes by them.  Lent: whether all of them are, some, or none; they stay so.
  Status lend_landings(CacheAddr none, const RemoteCall& call);
  LandingNumbers::Rows landing_rows() const;
  // Where the target has the memory that a page had at first mapped as well.
  CacheAddr in_attic(CacheAddr page) const;
  // The same of a table, whole pages, that nobody will look into.
  void give_back_table(uint64_t offset, uint64_t size_bytes) {
    give_back(tables() + offset, size_bytes);
  }
  // Of a thread that stands still.
  void add_to_counter(uint32_t slot, uint32_t counter, int64_t amount);
  TouchedMemory touched() const;
  CacheAddr attic() const { return CacheAddr(attic_base_); }
  std::vector<Area>& areas() { return areas_; }
  const std::vector<Area>& areas() const { return areas_; }
  Area* area_at(CacheAddr address);
  const Area* area_at(CacheAddr address) const;
  // The monitor's view of generated code.
  uint8_t* code(CacheAddr address);

 private:
  // Of code, in the file.
  uint64_t offset_of(CacheAddr code) const;
  void for_each_in_memory(uint32_t slot, size_t counters,
                          const std::function<void(size_t counter, uint64_t value)>& visit) const;
  Status map_at(const RemoteCall& call, uint64_t address, uint64_t size_bytes, int protection,
                uint64_t file_offset, const char* what);
  // Makes the memfd and maps it here; `name` is where the target can read its name.
  Status create_memory(tracee::Process& process, const RemoteCall& call, TargetAddr name);
  Status replace(const RemoteCall& call, uint64_t address, uint64_t size_bytes, int protection,
                 uint64_t file_offset);
  Area& place_area(CacheAddr base);
  Status map_numbers(const RemoteCall& call);
  Status map_threads(tracee::Process& process, const RemoteCall& call, uint64_t flags);
  Result<int> hand_over(tracee::Process& process, const RemoteCall& call, int descriptor);

  uint64_t block_offset(uint32_t slot) const {
    return slot * translate::tcb::kBlockSizeBytes + shifts_[slot];
  }

  uint8_t* file_ = nullptr;
  int monitor_fd_ = -1;
  int target_fd_ = -1;
  int threads_fd_ = -1;  // not ours
  uint64_t threads_offset_ = translate::kThreadsFileOffset;
  uint32_t tables_base_ = 0;
  Status map_from_attic(const RemoteCall& call, uint64_t address, uint64_t file_offset);

  uint64_t threads_base_ = 0;
  std::vector<uint32_t> shifts_ = std::vector<uint32_t>(translate::kThreadsMax);  // by slot, bytes
  // By slot and counter: what has been set aside; empty where nothing has.
  std::vector<std::vector<uint64_t>> counted_before_;
  uint64_t attic_base_ = 0;
  bool filtered_ = false;
  uint32_t ask_pages_made_ = 0;  // at the beginning of the first area's; all others are these again
  bool asks_refused_ = false;
  uint32_t lent_pages_ = 0;  // of pointers to landings
  bool lending_refused_ = false;
  uint64_t planned_base_ = 0;  // of an area whose mapping is under way
  std::vector<Area> areas_;
};

}  // namespace tally::engine
