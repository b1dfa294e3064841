// See kept_run.h.
#include "ledger/kept_run.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "ledger/finish.h"
#include "ledger/perf_map.h"
#include "profile/file.h"
#include "profile/run_facts.h"
#include "tracee/proc_files.h"

namespace tally::engine {

using namespace translate;

namespace {

// Disk space is asked for in pieces of this many counters.
constexpr uint32_t kCountersStep = 16384;
constexpr uint64_t kCellsStepBytes = 64 << 10;

uint64_t slot_offset(uint32_t slot) {
  return kKeptSlotsOffset + slot * tcb::kBlockSizeBytes;
}

template <class T>
void store(uint8_t* memory, uint32_t offset, T value) {
  memcpy(memory + offset, &value, sizeof value);
}

void write_fact(KeptWriter& out, const std::string& value) {
  out.text(value);
}
void write_fact(KeptWriter& out, double value) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof bits);
  out.number(bits);
}
template <class T>
void write_fact(KeptWriter& out, T value) {
  out.number(static_cast<uint64_t>(value));
}

// An index of which the largest stands for none.
uint64_t or_none(uint32_t index) {
  return static_cast<uint32_t>(index + 1);
}

void write_ref(KeptWriter& out, const BlockRef& ref) {
  out.number(ref.unit);
  out.number(ref.block);
  out.number(ref.insn);
}

}  // namespace

// ---- the file ----------------------------------------------------------------------------------

Result<std::unique_ptr<KeptRun>> KeptRun::create(const std::string& path, pid_t target) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < 2 * kKeptJournalOffset) {
    return make_error(
        "--keep-counters={}: file sizes are limited (ulimit -f), and this file is sparse and has "
        "256 GB",
        path);
  }
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    if (errno == EEXIST) {
      return make_error(
          "--keep-counters={}: it exists; `tally recover` makes a profile of it, or remove it",
          path);
    }
    return make_error("--keep-counters={}: {}", path, strerror(errno));
  }
  std::unique_ptr<KeptRun> run(new KeptRun(path, fd));
  if (ftruncate(fd, static_cast<off_t>(kKeptJournalOffset)) != 0) {
    return make_error("--keep-counters={}: {}; it is a sparse file of 128 GB", path,
                      strerror(errno));
  }
  run->reserve(0, kKeptCellsOffset + kCellsStepBytes);
  run->cells_reserved_ = kCellsStepBytes / 8;
  if (run->error_) return *run->error_;
  void* memory = mmap(nullptr, kKeptSlotsOffset, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return make_error("--keep-counters={}: cannot be mapped: {}", path, strerror(errno));
  }
  run->memory_ = static_cast<uint8_t*>(memory);
  KeptHeader& header = run->header();
  memcpy(header.magic, kKeptMagic, sizeof header.magic);
  header.version = kKeptVersion;
  header.monitor_pid = static_cast<uint64_t>(getpid());
  header.monitor_start = tracee::start_time_of(getpid());
  header.target_pid = static_cast<uint64_t>(target);
  header.target_start = tracee::start_time_of(target);
  return run;
}

KeptRun::~KeptRun() {
  if (memory_ != nullptr) munmap(memory_, kKeptSlotsOffset);
  if (!begun_) unlink(path_.c_str());
  close(fd_);
}

void KeptRun::fail(const char* what, int number) {
  if (error_) return;
  error_ = make_error("--keep-counters={}: cannot {}: {}", path_, what, strerror(number));
  if (memory_ != nullptr) header().broken = 1;
}

void KeptRun::reserve(uint64_t offset, uint64_t size_bytes) {
  if (error_) return;
  const int number =
      posix_fallocate(fd_, static_cast<off_t>(offset), static_cast<off_t>(size_bytes));
  if (number != 0) fail("reserve room on the disk", number);
}

void KeptRun::reserve_slot(uint32_t slot) {
  if (std::find(slots_.begin(), slots_.end(), slot) != slots_.end()) return;
  slots_.push_back(slot);
  reserve(slot_offset(slot), tcb::kCounters + uint64_t{counters_reserved_} * 8);
  // The room for a filter: seldom used, but never a fault.
  reserve(slot_offset(slot) + tcb::kFilter, tcb::kFilterBytes);
  header().slots = std::max<uint64_t>(header().slots, slot + 1);
}

void KeptRun::reserve_counter(uint32_t counter) {
  if (counter < counters_reserved_) return;
  const uint32_t before = counters_reserved_;
  counters_reserved_ = (counter / kCountersStep + 1) * kCountersStep;
  for (const uint32_t slot : slots_) {
    reserve(slot_offset(slot) + counter_offset(before), (counters_reserved_ - before) * 8);
  }
}

void KeptRun::append(const KeptWriter& record) {
  if (error_) return;
  const std::vector<uint8_t>& payload = record.bytes();
  KeptRecordHeader head{};
  head.size_bytes = static_cast<uint32_t>(payload.size());
  head.checksum = kept_checksum(payload);
  std::vector<uint8_t> bytes(sizeof head);
  memcpy(bytes.data(), &head, sizeof head);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t put = pwrite(fd_, bytes.data() + done, bytes.size() - done,
                               static_cast<off_t>(journal_end_ + done));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return fail("write to it", put < 0 ? errno : EIO);
    done += static_cast<size_t>(put);
  }
  journal_end_ += bytes.size();
}

Status KeptRun::replace_by(const profile::Profile& profile) {
  return profile::save(profile, path_);
}

// ---- the journal -------------------------------------------------------------------------------

void KeptRun::write_facts(const profile::Run& facts, KeptRecord kind) {
  KeptWriter out(kind);
  profile::visit_run_facts(facts, [&](const char*, const auto& value) { write_fact(out, value); });
  out.number(facts.command_line.size());
  for (const std::string& word : facts.command_line) out.text(word);
  append(out);
}

void KeptRun::begin(const profile::Run& facts) {
  begun_ = true;
  write_facts(facts, KeptRecord::kFacts);
}

void KeptRun::end(const profile::Run& facts) {
  write_facts(facts, KeptRecord::kEnd);
}

void KeptRun::describe(const Module& module) {
  const profile::Module m = describe_module(module);
  KeptWriter out(KeptRecord::kModule);
  out.number(m.id);
  out.text(m.path);
  out.text(m.build_id);
  out.number(m.load_bias);
  out.number(m.mapped.begin.value());
  out.number(m.mapped.end.value());
  out.number(m.size_bytes);
  out.u8(static_cast<uint8_t>(m.main_program));
  out.u8(static_cast<uint8_t>(module.generated));
  out.u8(static_cast<uint8_t>(module.from_memory));
  std::vector<uint8_t>& written = modules_[m.id];
  if (written == out.bytes()) return;
  written = out.bytes();
  append(out);
}

void KeptRun::unit(const Unit& unit, const ModuleMap& modules) {
  for (size_t i = modules_.size(); i < modules.all().size(); ++i) describe(*modules.all()[i]);
  describe(*unit.module);
  const cfg::Procedure& p = unit.procedure;
  KeptWriter out(KeptRecord::kUnit);
  out.number(unit.module->id);
  out.number(p.entry.value());
  out.number(p.range.begin.value());
  out.number(p.range.end.value());
  out.number(p.entry_block);
  out.u8(static_cast<uint8_t>(unit.provenance));
  out.u8(static_cast<uint8_t>(unit.replaceable));
  out.u8(static_cast<uint8_t>(unit.open_calls));
  out.text(unit.module->generated ? std::string() : procedure_name(unit, PerfMap()));
  out.number(p.blocks.size());
  for (size_t b = 0; b < p.blocks.size(); ++b) {
    const cfg::Block& block = p.blocks[b];
    out.number(block.offset);
    out.number(block.size_bytes);
    out.number(block.first_insn);
    out.number(block.insn_count);
    out.number(block.first_edge);
    out.number(block.edge_count);
    out.u8(static_cast<uint8_t>(block.end));
    out.u8(static_cast<uint8_t>(block.from_jump_table));
    out.number(or_none(static_cast<uint32_t>(unit.plan.block_counter[b])));
    out.number(or_none(unit.code.blocks[b].probe_insn));
  }
  out.raw(unit.insn_sizes);
  out.number(p.edges.size());
  for (size_t e = 0; e < p.edges.size(); ++e) {
    const cfg::Edge& edge = p.edges[e];
    out.number(edge.from);
    out.number(or_none(edge.to));
    out.u8(static_cast<uint8_t>(edge.kind));
    out.number(edge.target.value());
    out.number(or_none(static_cast<uint32_t>(unit.plan.edge_counter[e])));
  }
  out.number(unit.code.links.size());
  for (const Link& link : unit.code.links) {
    out.number(link.target.value());
    out.number(link.block);
    out.number(or_none(link.edge));
  }
  out.number(unit.code.sites.size());
  for (const Site& site : unit.code.sites) {
    out.number(site.block);
    out.u8(static_cast<uint8_t>(site.call));
  }
  append(out);
}

void KeptRun::pair(uint32_t site, const Pair& pair) {
  KeptWriter out(KeptRecord::kPair);
  out.number(site);
  write_ref(out, pair.to);
  out.number(pair.counter);
  append(out);
}

void KeptRun::arrival(const ArrivalStub& arrival) {
  KeptWriter out(KeptRecord::kArrival);
  write_ref(out, arrival.to);
  out.number(arrival.counter);
  append(out);
}

void KeptRun::link_pair(const LinkPair& pair) {
  KeptWriter out(KeptRecord::kLinkPair);
  out.number(pair.link);
  write_ref(out, pair.to);
  out.number(pair.counter);
  append(out);
}

void KeptRun::book(KeptBooking kind, const std::vector<uint64_t>& key, const std::string& text,
                   int64_t amount) {
  if (error_) return;
  KeptWriter out(KeptRecord::kBooking);
  out.u8(static_cast<uint8_t>(kind));
  for (const uint64_t part : key) out.number(part);
  out.text(text);
  const std::string name(out.bytes().begin(), out.bytes().end());
  const auto [it, fresh] = bookings_.try_emplace(name, bookings_.size());
  if (fresh) {
    if (it->second >= kKeptCellsMax) return fail("book so much in it", ENOSPC);
    if (it->second >= cells_reserved_) {
      reserve(kKeptCellsOffset + cells_reserved_ * 8, kCellsStepBytes);
      cells_reserved_ += kCellsStepBytes / 8;
    }
    append(out);
    if (error_) return;
  }
  cells()[it->second] += amount;
}

// ---- threads -----------------------------------------------------------------------------------

void KeptRun::thread_begins(uint8_t* memory) {
  set_where(memory, UINT32_MAX);
  set_interruptions(memory, {});
  store<uint32_t>(memory, tcb::kOpen, 1);
  ++header().threads;
}

void KeptRun::thread_ends(uint8_t* memory) {
  store<uint32_t>(memory, tcb::kOpen, 0);
}

void KeptRun::set_where(uint8_t* memory, uint32_t unit) {
  store<uint32_t>(memory, tcb::kWhere, unit + 1);
}

void KeptRun::set_interruptions(uint8_t* memory, const std::vector<Interruption>& records) {
  uint32_t count = 0;
  for (const Interruption& record : records) {
    if (record.inherited) continue;
    const Position& at = record.position;
    const bool in_block = at.kind == Position::Kind::kInBlock;
    if (!in_block && !at.pc_is_on_stack) continue;
    tcb::Interrupted entry{};
    entry.unit = in_block ? at.ref.unit + 1 : 0;
    entry.block = at.ref.block;
    entry.done = at.done;
    entry.counted = at.block_counted ? 1 : 0;
    if (count < tcb::kInterruptedMax) store(memory, tcb::interrupted_offset(count), entry);
    ++count;
  }
  store(memory, tcb::kInterruptions, count);
}

}  // namespace tally::engine
