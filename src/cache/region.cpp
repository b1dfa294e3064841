// Making and mapping the shared region.  See region.h.
#include "cache/region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "cache/area_place.h"
#include "cache/ranges.h"
#include "tracee/proc_files.h"

namespace tally::engine {
namespace {

using namespace translate;

// Far from where the kernel puts anything of its own accord.
// (A terabyte and more is where programs lay out memory of their own: ThreadSanitizer's and
// MemorySanitizer's shadows, the Java virtual machine's heaps, Go's, CLISP's.)
constexpr uint64_t kThreadsBase = 0x6000000000;
constexpr char kName[] = "tally";
// Rows of pointers to landings that can be lent.
constexpr uint64_t kRowsPageBytes = 4096, kRowBytes = 256 * 8;
constexpr uint64_t kLentBegin = tables::kLandings + tables::kLentRow * kRowBytes;
constexpr uint32_t kLentPages = (tables::kLateLandings - kLentBegin) / kRowsPageBytes;

// Visits what is no hole of a part of a sparse file.
template <class Visit>
void for_each_data(int fd, uint64_t from, uint64_t size_bytes, Visit visit) {
  const auto end = static_cast<off_t>(from + size_bytes);
  auto at = static_cast<off_t>(from);
  while (at < end) {
    const off_t data = lseek(fd, at, SEEK_DATA);
    CHECK(data >= 0 || errno == ENXIO) << "looking for data: " << strerror(errno);
    if (data < 0 || data >= end) return;  // nothing but holes
    const off_t hole = lseek(fd, data, SEEK_HOLE);
    CHECK(hole > data) << "data without an end: " << strerror(errno);
    at = std::min(hole, end);
    visit(data, at);
  }
}

uint64_t data_bytes(int fd, uint64_t from, uint64_t size_bytes) {
  uint64_t total = 0;
  for_each_data(fd, from, size_bytes,
                [&](off_t begin, off_t end) { total += static_cast<uint64_t>(end - begin); });
  return total;
}

}  // namespace

void Region::unmap() {
  if (file_ != nullptr) munmap(file_, kRegionSizeBytes);
  file_ = nullptr;
}

Region::~Region() {
  unmap();
  if (monitor_fd_ >= 0) close(monitor_fd_);
}

Status Region::map_at(const RemoteCall& call, uint64_t address, uint64_t size_bytes, int protection,
                      uint64_t file_offset, const char* what) {
  TRY_ASSIGN(const int64_t result,
             call(SYS_mmap, {address, size_bytes, static_cast<uint64_t>(protection),
                             MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
                             static_cast<uint64_t>(target_fd_), file_offset}));
  if (result != static_cast<int64_t>(address)) {
    return make_error(
        "cannot map {} ({} MB) into the target: {}; is its address space limited (ulimit -v)?",
        what, size_bytes >> 20, strerror(static_cast<int>(result < 0 ? -result : EEXIST)));
  }
  return Ok{};
}

// Without the descriptor: a private mapping takes the place, so that nothing else is overwritten;
// then a second mapping of a part of the attic is moved there (mremap of a shared mapping with an
// old size of zero duplicates it).
Status Region::map_from_attic(const RemoteCall& call, uint64_t address, uint64_t file_offset) {
  TRY_ASSIGN(const int64_t reserved,
             call(SYS_mmap, {address, kAreaSizeBytes, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE,
                             static_cast<uint64_t>(-1), 0}));
  if (reserved != static_cast<int64_t>(address)) {
    return make_error("no room for a code cache at {:#x}: {}", address,
                      strerror(static_cast<int>(reserved < 0 ? -reserved : EEXIST)));
  }
  const uint64_t from = attic_base_ + (file_offset - kAreasFileOffset);
  TRY_ASSIGN(const int64_t moved, call(SYS_mremap, {from, 0, kAreaSizeBytes,
                                                    MREMAP_MAYMOVE | MREMAP_FIXED, address, 0}));
  if (moved != static_cast<int64_t>(address)) {
    return make_error("cannot map a code cache at {:#x}: {}", address,
                      strerror(static_cast<int>(moved < 0 ? -moved : EEXIST)));
  }
  return Ok{};
}

Status Region::create_memory(tracee::Process& process, const RemoteCall& call, TargetAddr name) {
  TRY_ASSIGN(const int64_t fd, call(SYS_memfd_create, {name.value(), MFD_CLOEXEC, 0, 0, 0, 0}));
  if (fd < 0) {
    return make_error("memfd_create in the target: {}", strerror(static_cast<int>(-fd)));
  }
  target_fd_ = static_cast<int>(fd);
  TRY_ASSIGN(monitor_fd_, process.take_descriptor(target_fd_));
  if (ftruncate(monitor_fd_, static_cast<off_t>(kRegionSizeBytes)) != 0) {
    return make_error("cannot size the shared region: {}", strerror(errno));
  }
  void* memory = mmap(nullptr, kRegionSizeBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      monitor_fd_, 0);
  if (memory == MAP_FAILED) {
    return make_error("cannot map the shared region: {}; is our address space limited (ulimit -v)?",
                      strerror(errno));
  }
  file_ = static_cast<uint8_t*>(memory);
  if (threads_fd_ >= 0 && mmap(file_ + kThreadsFileOffset, kThreadsMax * tcb::kBlockSizeBytes,
                               PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
                               threads_fd_, static_cast<off_t>(threads_offset_)) == MAP_FAILED) {
    return make_error("cannot map the kept counters: {}", strerror(errno));
  }
  memcpy(tables() + tables::kName, kName, sizeof kName);
  areas_.reserve(kAreasMax);
  return Ok{};
}

// Gives the target a descriptor of ours: over a pair of sockets that it makes, one of which is
// taken over.  It need not be able to reach the file by a name.
Result<int> Region::hand_over(tracee::Process& process, const RemoteCall& call, int descriptor) {
  // In the tables, which both sides see: two descriptors, a message, its control data.
  constexpr uint32_t kPair = 0x200, kMessage = 0x240, kPiece = 0x2a0, kByte = 0x2c0,
                     kControl = 0x300;
  const uint64_t base = tables_base_;
  TRY_ASSIGN(const int64_t made,
             call(SYS_socketpair, {AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, base + kPair, 0, 0}));
  if (made != 0) {
    return make_error("socketpair in the target: {}", strerror(static_cast<int>(-made)));
  }
  int pair[2];
  memcpy(pair, tables() + kPair, sizeof pair);
  TRY_ASSIGN(const int ours, process.take_descriptor(pair[0]));
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof descriptor);
  memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  const ssize_t sent = sendmsg(ours, &message, MSG_NOSIGNAL);
  close(ours);
  if (sent != 1) return make_error("cannot hand a descriptor over: {}", strerror(errno));
  const uint64_t there[] = {base + kByte, 1};
  memcpy(tables() + kPiece, there, sizeof there);
  message.msg_iov = reinterpret_cast<iovec*>(base + kPiece);       // NOLINT: the target's address
  message.msg_control = reinterpret_cast<void*>(base + kControl);  // NOLINT
  memcpy(tables() + kMessage, &message, sizeof message);
  memset(tables() + kControl, 0, sizeof control);
  TRY_ASSIGN(const int64_t got, call(SYS_recvmsg, {static_cast<uint64_t>(pair[1]), base + kMessage,
                                                   MSG_CMSG_CLOEXEC | MSG_DONTWAIT, 0, 0, 0}));
  for (const int fd : pair) TRY(call(SYS_close, {static_cast<uint64_t>(fd), 0, 0, 0, 0, 0}));
  int received = -1;
  memcpy(&received, tables() + kControl + CMSG_LEN(0), sizeof received);
  if (got != 1 || received < 0) {
    return make_error("recvmsg in the target: {}",
                      strerror(static_cast<int>(got < 0 ? -got : EMFILE)));
  }
  return received;
}

Status Region::map_threads(tracee::Process& process, const RemoteCall& call, uint64_t flags) {
  int fd = target_fd_;
  if (threads_fd_ >= 0) {
    TRY_ASSIGN(fd, hand_over(process, call, threads_fd_));
  }
  TRY_ASSIGN(const int64_t result,
             call(SYS_mmap, {threads_base_, kThreadsMax * tcb::kBlockSizeBytes,
                             PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | flags,
                             static_cast<uint64_t>(fd), threads_offset_}));
  if (fd != target_fd_) TRY(call(SYS_close, {static_cast<uint64_t>(fd), 0, 0, 0, 0, 0}));
  if (result == static_cast<int64_t>(threads_base_)) return Ok{};
  return make_error(
      "cannot map the counters into the target: {}; is its address space limited "
      "(ulimit -v)?",
      strerror(static_cast<int>(result < 0 ? -result : EEXIST)));
}

// The numbers of landings, over their part of the tables: the target's own memory, in which a read
// makes no page.  Only the monitor writes there, through /proc, which needs no leave of the
// target's to write; so this counts neither as memory promised nor as the target's data.
Status Region::map_numbers(const RemoteCall& call) {
  constexpr uint64_t kBytes = tables::kLandingNumbersEnd - tables::kLandingNumbers;
  const uint64_t address = tables_base_ + uint64_t{tables::kLandingNumbers};
  TRY_ASSIGN(const int64_t result,
             call(SYS_mmap, {address, kBytes, PROT_READ,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                             static_cast<uint64_t>(-1), 0}));
  if (result != static_cast<int64_t>(address)) {
    return make_error("cannot map numbers of landings into the target: {}",
                      strerror(static_cast<int>(-result)));
  }
  // One number should not take two megabytes.  A kernel without huge pages need not be told.
  TRY(call(SYS_madvise, {address, kBytes, MADV_NOHUGEPAGE, 0, 0, 0}));
  return Ok{};
}

bool Region::is_in(TargetRange range) const {
  if (!exists() || range.empty()) return false;
  const auto meets = [&](uint64_t begin, uint64_t size_bytes) {
    return overlaps(range, TargetRange{TargetAddr(begin), TargetAddr(begin + size_bytes)});
  };
  return meets(tables_base_, tables::kSizeBytes) ||
         meets(threads_base_, kThreadsMax * tcb::kBlockSizeBytes) ||
         meets(attic_base_, kAreasMax * kAreaSizeBytes) ||
         std::ranges::any_of(
             areas_, [&](const Area& area) { return meets(area.base.value(), kAreaSizeBytes); });
}

Status Region::create(tracee::Process& process, const RemoteCall& call, TargetAddr scratch) {
  char saved[sizeof kName];
  if (!process.read_memory(scratch, saved, sizeof saved) ||
      !process.write_memory(scratch, kName, sizeof kName)) {
    return make_error("cannot write to the target's stack");
  }
  const Status created = create_memory(process, call, scratch);
  process.write_memory(scratch, saved, sizeof saved);
  TRY(created);
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process.mappings());
  // Top down below 2 GB, so that a heap above a fixed-address program has room.
  constexpr uint64_t kHighest = 0x70000000;
  static_assert(kHighest + tables::kLandingNumbers < 1u << 31);
  for (uint64_t base = kHighest; base >= 0x10000000; base -= 0x4000000) {
    if (is_free(mappings, base, base + tables::kSizeBytes)) {
      tables_base_ = static_cast<uint32_t>(base);
      break;
    }
  }
  if (tables_base_ == 0) return make_error("no room below 2 GB in the target's address space");
  TRY(map_at(call, tables_base_, tables::kSizeBytes, PROT_READ | PROT_WRITE, kTablesFileOffset,
             "tables"));
  TRY(map_numbers(call));
  threads_base_ = kThreadsBase;
  TRY(map_threads(process, call, MAP_FIXED_NOREPLACE));
  attic_base_ = kThreadsBase + kThreadsMax * tcb::kBlockSizeBytes + kAreaSizeBytes;
  TRY(map_at(call, attic_base_, kAreasMax * kAreaSizeBytes, PROT_READ | PROT_EXEC, kAreasFileOffset,
             "the attic"));
  return Ok{};
}

// Everything sits where it sits in the parent: the same addresses are in reach of the same modules,
// and the mappings replace the parent's.
Status Region::create_in_place(const Region& parent, tracee::Process& process,
                               const RemoteCall& call) {
  TRY(create_memory(process, call, TargetAddr(parent.tables_base_ + tables::kName)));
  tables_base_ = parent.tables_base_;
  filtered_ = parent.filtered_;
  threads_base_ = parent.threads_base_;
  for (const Area& old : parent.areas_) place_area(old.base);
  TRY(replace(call, tables_base_, tables::kSizeBytes, PROT_READ | PROT_WRITE, kTablesFileOffset));
  TRY(map_numbers(call));
  TRY(map_threads(process, call, MAP_FIXED));
  attic_base_ = parent.attic_base_;
  TRY(replace(call, attic_base_, kAreasMax * kAreaSizeBytes, PROT_READ | PROT_EXEC,
              kAreasFileOffset));
  for (const Area& area : areas_) {
    TRY(replace(call, area.base.value(), kAreaSizeBytes, PROT_READ | PROT_EXEC,
                kAreasFileOffset + area.index * kAreaSizeBytes));
  }
  return Ok{};
}

Status Region::replace(const RemoteCall& call, uint64_t address, uint64_t size_bytes,
                       int protection, uint64_t file_offset) {
  TRY_ASSIGN(const int64_t result,
             call(SYS_mmap, {address, size_bytes, static_cast<uint64_t>(protection),
                             MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                             static_cast<uint64_t>(target_fd_), file_offset}));
  if (result != static_cast<int64_t>(address)) {
    return make_error("cannot give a forked process memory of its own at {:#x}: {}", address,
                      strerror(static_cast<int>(-result)));
  }
  return Ok{};
}

Area& Region::place_area(CacheAddr base) {
  Area area;
  area.index = static_cast<uint32_t>(areas_.size());
  area.base = base;
  area.memory = file_ + kAreasFileOffset + area.index * kAreaSizeBytes;
  isa::Assembler as(area.memory, kAreaPieces, area.base);
  area.gateway = emit_gateway(as, tables_base_, areas_.empty() ? nullptr : &areas_.front().gateway);
  area.used_bytes = (as.offset() + 63u) & ~63u;
  // Each of these keeps a page, most of it empty; beginning at different places within theirs, they
  // can share one later (shared_pages.h).
  constexpr uint64_t kStaying[] = {0x100, 0x400}, kStayingCold[] = {0x300, 0xd00};
  const size_t place = area.index % std::size(kStaying);
  area.staying_used_bytes = kStaying[place];
  area.staying_cold_used_bytes = kStayingCold[place];
  area.staying_bytes_max = std::max(area.staying_used_bytes, area.staying_cold_used_bytes);
  if (areas_.empty()) {
    const uint64_t entry = area.gateway.entries.ask.value();
    memcpy(tables() + tables::kAskEntry, &entry, sizeof entry);
    const GatewayCode::Finding& finds = area.gateway.plainly;
    memcpy(tables() + tables::kFindPopped, &finds.popped, sizeof finds.popped);
    memcpy(tables() + tables::kFindOnStack, &finds.on_stack, sizeof finds.on_stack);
  }
  areas_.push_back(area);
  return areas_.back();
}

Result<Area*> Region::area_for(TargetRange range, tracee::Process& process,
                               const RemoteCall& call) {
  for (Area& area : areas_) {
    if (reaches(area.base.value(), range) && !area.is_for_pieces()) return &area;
  }
  if (areas_.size() == kAreasMax) {
    return make_error(
        "{} code caches of {} MB are full, or too far from the code at {:#x}; the "
        "program runs more code than fits",
        kAreasMax, kAreaSizeBytes >> 20, range.begin.value());
  }
  TRY_ASSIGN(const std::vector<tracee::Mapping> mappings, process.mappings());
  if (planned_base_ == 0) {
    const std::optional<uint64_t> place =
        area_place(mappings, range, tracee::heap_begin_of(process.pid()));
    if (!place) return make_error("no room for a code cache near {:#x}", range.begin.value());
    planned_base_ = *place;
  }
  const uint64_t base = planned_base_;
  const uint64_t offset = kAreasFileOffset + areas_.size() * kAreaSizeBytes;
  if (target_fd_ >= 0) {
    planned_base_ = 0;
    TRY(map_at(call, base, kAreaSizeBytes, PROT_READ | PROT_EXEC, offset, "code cache"));
  } else {
    TRY(map_from_attic(call, base, offset));
    planned_base_ = 0;
  }
  return &place_area(CacheAddr(base));
}

Status Region::close_target_descriptor(const RemoteCall& call) {
  TRY(call(SYS_close, {static_cast<uint64_t>(target_fd_), 0, 0, 0, 0, 0}));
  target_fd_ = -1;
  return Ok{};
}

void Region::place_thread(uint32_t slot, uint64_t stack) {
  // Whoever reads a file of kept counters looks for them where blocks are without it.
  if (threads_fd_ >= 0) return;
  constexpr uint64_t kLineBytes = 64;
  const uint64_t shift = (stack - tcb::kCalmMiddle) % tcb::kShiftMax;
  shifts_[slot] = static_cast<uint32_t>(shift / kLineBytes * kLineBytes);
}

void Region::for_each_counter(
    uint32_t slot, size_t counters,
    const std::function<void(size_t counter, uint64_t value)>& visit) const {
  if (slot >= counted_before_.size() || counted_before_[slot].empty()) {
    return for_each_in_memory(slot, counters, visit);
  }
  // The two make one number: what a register had (inductions.h) is told by nothing less.
  std::vector<uint64_t> sums = counted_before_[slot];
  sums.resize(std::max(sums.size(), counters));
  for_each_in_memory(slot, counters,
                     [&](size_t counter, uint64_t value) { sums[counter] += value; });
  for (size_t counter = 0; counter < counters; ++counter) {
    if (sums[counter] != 0) visit(counter, sums[counter]);
  }
}

uint64_t Region::set_counters_aside(uint32_t slots, size_t counters) {
  CHECK(threads_fd_ < 0) << "counters in a file";
  constexpr uint64_t kPageBytes = 4096;
  uint64_t counted = 0;
  if (counted_before_.size() < slots) counted_before_.resize(slots);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    std::vector<uint64_t>& before = counted_before_[slot];
    before.resize(std::max(before.size(), counters));
    for_each_in_memory(slot, counters, [&](size_t counter, uint64_t value) {
      before[counter] += value;
      ++counted;
    });
    // The first and the last page may have something else on them.
    const uint64_t begin = kThreadsFileOffset + block_offset(slot) + tcb::kCounters;
    const uint64_t end = begin + counters * sizeof(uint64_t);
    const uint64_t first = (begin + kPageBytes - 1) / kPageBytes * kPageBytes;
    const uint64_t last = end / kPageBytes * kPageBytes;
    if (first >= last) {
      memset(file_ + begin, 0, end - begin);
      continue;
    }
    memset(file_ + begin, 0, first - begin);
    give_back(file_ + first, last - first);
    if (data_bytes(monitor_fd_, last, end - last) != 0) memset(file_ + last, 0, end - last);
  }
  return counted;
}

uint64_t Region::offset_of(CacheAddr code) const {
  const Area* area = area_at(code);
  CHECK(area != nullptr) << "no code cache at " << code.value();
  return kAreasFileOffset + area->index * kAreaSizeBytes + static_cast<uint64_t>(code - area->base);
}

// By the file, since the monitor's view may be of another page.  A kernel that cannot make holes
// keeps it, and then it is counted.
void Region::give_back_code(CacheRange pages) {
  const Area* area = area_at(pages.begin);
  CHECK(area != nullptr && pages.end <= area->base + kAreaSizeBytes) << "no code there";
  fallocate(monitor_fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(offset_of(pages.begin)), static_cast<off_t>(pages.size_bytes()));
}

bool Region::view(CacheAddr page, CacheAddr of) {
  constexpr uint64_t kPageBytes = 4096;
  uint8_t* here = code(page);
  return mmap(here, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED,
              monitor_fd_, static_cast<off_t>(offset_of(of))) == here;
}

Status Region::lend_landings(CacheAddr none, const RemoteCall& call) {
  const uint64_t none_address = none.value();
  for (uint64_t at = 0; at < kRowsPageBytes && lent_pages_ == 0; at += sizeof none_address) {
    memcpy(tables() + tables::kNoLandings + at, &none_address, sizeof none_address);
  }
  while (lent_pages_ < kLentPages && !lending_refused_) {
    const uint64_t to = tables_base_ + kLentBegin + lent_pages_ * kRowsPageBytes;
    TRY_ASSIGN(const int64_t moved,
               call(SYS_mremap, {tables_base_ + uint64_t{tables::kNoLandings}, 0, kRowsPageBytes,
                                 MREMAP_MAYMOVE | MREMAP_FIXED, to, 0}));
    lending_refused_ = moved != static_cast<int64_t>(to);
    if (!lending_refused_) ++lent_pages_;
  }
  return Ok{};
}

LandingNumbers::Rows Region::landing_rows() const {
  if (lent_pages_ == 0) return LandingNumbers::Rows::kAll;
  return lent_pages_ == kLentPages ? LandingNumbers::Rows::kLent : LandingNumbers::Rows::kSomeLent;
}

CacheAddr Region::in_attic(CacheAddr page) const {
  return CacheAddr(attic_base_ + (offset_of(page) - kAreasFileOffset));
}

void Region::for_each_in_memory(
    uint32_t slot, size_t counters,
    const std::function<void(size_t counter, uint64_t value)>& visit) const {
  const int fd = threads_fd_ >= 0 ? threads_fd_ : monitor_fd_;
  const uint64_t begin = threads_offset_ + block_offset(slot) + tcb::kCounters;
  const uint8_t* memory = thread_memory(slot) + tcb::kCounters;
  for_each_data(fd, begin, counters * sizeof(uint64_t), [&](off_t from, off_t to) {
    for (uint64_t at = static_cast<uint64_t>(from) - begin; at < static_cast<uint64_t>(to) - begin;
         at += sizeof(uint64_t)) {
      uint64_t value = 0;
      memcpy(&value, memory + at, sizeof value);
      if (value != 0) visit(at / sizeof value, value);
    }
  });
}

void Region::add_to_counter(uint32_t slot, uint32_t counter, int64_t amount) {
  uint8_t* at = thread_memory(slot) + counter_offset(counter);
  uint64_t value = 0;
  memcpy(&value, at, sizeof value);
  value += static_cast<uint64_t>(amount);
  memcpy(at, &value, sizeof value);
}

TouchedMemory Region::touched() const {
  const int threads = threads_fd_ >= 0 ? threads_fd_ : monitor_fd_;
  return {data_bytes(monitor_fd_, kTablesFileOffset, tables::kSizeBytes),
          data_bytes(monitor_fd_, kAreasFileOffset, kAreasMax * kAreaSizeBytes),
          data_bytes(threads, threads_offset_, kThreadsMax * tcb::kBlockSizeBytes)};
}

Status Region::forget_target(const RemoteCall& call) {
  if (target_fd_ >= 0) TRY(close_target_descriptor(call));
  if (planned_base_ != 0) {
    // Reserved for an area that was never mapped.
    TRY(call(SYS_munmap, {planned_base_, kAreaSizeBytes, 0, 0, 0, 0}));
    planned_base_ = 0;
  }
  return Ok{};
}

const Area* Region::area_at(CacheAddr address) const {
  for (const Area& area : areas_) {
    if (address >= area.base && address < area.base + kAreaSizeBytes) return &area;
  }
  return nullptr;
}

Area* Region::area_at(CacheAddr address) {
  const Area* area = std::as_const(*this).area_at(address);
  return area == nullptr ? nullptr : &areas_[area->index];
}

// The first area has those that are made where they are; all others are mapped from the attic.
Status Region::map_asks(Area& area, uint32_t asks, const RemoteCall& call) {
  constexpr uint32_t kTimes = 16, kPagesMax = 64;  // of a mapping
  while (area.asks_max() < asks && area.ask_pages < asks::kPagesMax && !asks_refused_) {
    const uint32_t pages = std::min({std::bit_floor(std::max(area.ask_pages / kTimes, 1u)),
                                     kPagesMax, asks::kPagesMax - area.ask_pages});
    for (; ask_pages_made_ < pages; ++ask_pages_made_) {
      isa::Assembler as(areas_.front().memory + asks::kBegin + ask_pages_made_ * asks::kPageBytes,
                        asks::kPageBytes, CacheAddr());
      emit_asks(as, tables_base_);
    }
    const bool is_there = area.index == 0 && area.ask_pages + pages <= ask_pages_made_;
    if (!is_there) {
      const uint64_t to = area.base.value() + asks::kBegin + area.ask_pages * asks::kPageBytes;
      TRY_ASSIGN(const int64_t moved,
                 call(SYS_mremap, {attic_base_ + asks::kBegin, 0, pages * asks::kPageBytes,
                                   MREMAP_MAYMOVE | MREMAP_FIXED, to, 0}));
      asks_refused_ = moved != static_cast<int64_t>(to);
      if (asks_refused_) return Ok{};
    }
    area.ask_pages += pages;
  }
  return Ok{};
}

const Ask* Region::ask_at(CacheAddr address, CacheAddr behind) const {
  const Area* area = area_at(address);
  if (area == nullptr || !area->is_among_asks(address)) return nullptr;
  const auto offset = [&](CacheAddr at) { return static_cast<uint64_t>(at - area->base); };
  if (asks::is_in_tail(offset(address))) {
    if (!area->is_among_asks(behind) || asks::is_in_tail(offset(behind))) return nullptr;
    address = behind;
  }
  const uint32_t number = asks::number_at(offset(address));
  return number < area->asks.size() ? &area->asks[number] : nullptr;
}

uint8_t* Region::code(CacheAddr address) {
  Area* area = area_at(address);
  CHECK(area != nullptr) << "no code cache at " << address.value();
  return area->memory + (address - area->base);
}

}  // namespace tally::engine
