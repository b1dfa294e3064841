// See kept_file.h.  Records are written by kept_run.cpp, field by field in the same order.
#include "ledger/kept_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "profile/run_facts.h"
#include "profile/validate.h"

namespace tally::engine {

using namespace translate;
using profile::AbnormalKind;

namespace {

// Far above what any program has; below where sums would overflow.
constexpr uint64_t kBlocksMax = 1ull << 24;
constexpr uint64_t kUnitsMax = 1ull << 20;
constexpr uint64_t kAddressMax = 1ull << 62;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Fewer bytes than asked for only at the end of the file.
Result<std::vector<uint8_t>> read_at(int fd, const std::string& path, uint64_t offset,
                                     uint64_t size_bytes) {
  std::vector<uint8_t> bytes(size_bytes);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return make_error("{}: {}", path, strerror(errno));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

Error damaged(const std::string& path, const std::string& what) {
  return make_error("{}: damaged: {}", path, what);
}

// A 32-bit number; the reader fails above.
uint32_t number32(ByteReader& in) {
  const uint64_t value = in.uleb();
  if (value > UINT32_MAX) in.seek(UINT64_MAX);
  return static_cast<uint32_t>(value);
}
// The reverse of `or_none` in kept_run.cpp.
uint32_t index_or_none(ByteReader& in) {
  return number32(in) - 1;
}
std::string text(ByteReader& in) {
  const auto bytes = in.bytes(in.uleb());
  return {bytes.begin(), bytes.end()};
}

void read_fact(ByteReader& in, std::string& value) {
  value = text(in);
}
void read_fact(ByteReader& in, double& value) {
  const uint64_t bits = in.uleb();
  memcpy(&value, &bits, sizeof value);
}
template <class T>
void read_fact(ByteReader& in, T& value) {
  value = static_cast<T>(in.uleb());
}

bool read_facts(ByteReader& in, profile::Run& facts) {
  profile::visit_run_facts(facts, [&](const char*, auto& value) { read_fact(in, value); });
  const uint64_t words = in.uleb();
  facts.command_line.clear();
  for (uint64_t i = 0; i < words && in.ok(); ++i) facts.command_line.push_back(text(in));
  return in.ok() && in.at_end();
}

}  // namespace

// ---- modules and units -------------------------------------------------------------------------

bool KeptTranslated::add_module(ByteReader& in) {
  profile::Module m;
  m.id = number32(in);
  m.path = text(in);
  m.build_id = text(in);
  m.load_bias = in.uleb();
  m.mapped.begin = TargetAddr(in.uleb());
  m.mapped.end = TargetAddr(in.uleb());
  m.size_bytes = in.uleb();
  m.main_program = in.u8() != 0;
  const bool generated = in.u8() != 0;
  const bool from_memory = in.u8() != 0;
  if (!in.ok() || !in.at_end() || m.id > modules_.size() || m.mapped.end < m.mapped.begin) {
    return false;
  }
  if (m.id == modules_.size()) {
    modules_.push_back(std::make_unique<Module>());
    described_.emplace_back();
  }
  Module& module = *modules_[m.id];
  module.id = m.id;
  module.path = m.path;
  module.bias = m.load_bias;
  module.mapped = m.mapped;
  module.generated = generated;
  module.from_memory = from_memory;
  module.main_program = m.main_program;
  described_[m.id] = std::move(m);
  return true;
}

bool KeptTranslated::counter_fits(uint64_t counter) {
  if (counter >= tcb::kCountersMax) return false;
  next_counter_ = std::max(next_counter_, static_cast<uint32_t>(counter) + 1);
  return true;
}

bool KeptTranslated::add_unit(ByteReader& in) {
  auto unit = std::make_unique<Unit>();
  const uint32_t module = number32(in);
  cfg::Procedure& p = unit->procedure;
  p.entry = LinkAddr(in.uleb());
  p.range.begin = LinkAddr(in.uleb());
  p.range.end = LinkAddr(in.uleb());
  p.entry_block = number32(in);
  const uint8_t provenance = in.u8();
  unit->replaceable = in.u8() != 0;
  unit->open_calls = in.u8() != 0;
  std::string name = text(in);
  if (!in.ok() || module >= modules_.size() || provenance > profile::kProvenanceLast ||
      p.range.end.value() > kAddressMax || p.entry.value() > kAddressMax) {
    return false;
  }
  unit->id = static_cast<uint32_t>(units_.size());
  unit->module = modules_[module].get();
  unit->provenance = static_cast<profile::Provenance>(provenance);
  unit->first_block = blocks_total_;
  unit->first_link = links_total_;
  unit->first_site = static_cast<uint32_t>(sites_.size());
  if (!read_blocks(in, *unit) || !read_edges(in, *unit) || !read_ways_out(in, *unit)) return false;
  if (!in.ok() || !in.at_end() || !fits_together(*unit)) return false;
  blocks_total_ += static_cast<uint32_t>(p.blocks.size());
  links_total_ += static_cast<uint32_t>(unit->code.links.size());
  names_.push_back(std::move(name));
  units_.push_back(std::move(unit));
  return blocks_total_ < kBlocksMax && units_.size() < kUnitsMax;
}

bool KeptTranslated::read_blocks(ByteReader& in, Unit& unit) {
  const uint64_t count = in.uleb();
  if (count == 0 || count > in.remaining()) return false;
  unit.code.blocks.resize(count);
  for (uint64_t b = 0; b < count && in.ok(); ++b) {
    cfg::Block block;
    block.offset = number32(in);
    block.size_bytes = number32(in);
    block.first_insn = number32(in);
    block.insn_count = number32(in);
    block.first_edge = number32(in);
    block.edge_count = number32(in);
    const uint8_t end = in.u8();
    block.from_jump_table = in.u8() != 0;
    const uint32_t counter = index_or_none(in);
    unit.code.blocks.make(b).probe_insn = index_or_none(in);
    if (end > static_cast<uint8_t>(isa::Flow::kUnsupported)) return false;
    if (counter != UINT32_MAX && !counter_fits(counter)) return false;
    block.end = static_cast<isa::Flow>(end);
    unit.plan.block_counter.push_back(static_cast<int32_t>(counter));
    unit.procedure.blocks.edit().push_back(block);
  }
  const auto sizes = in.bytes(in.uleb());
  unit.insn_sizes.edit().assign(sizes.begin(), sizes.end());
  return in.ok();
}

bool KeptTranslated::read_edges(ByteReader& in, Unit& unit) {
  const uint64_t count = in.uleb();
  if (count > in.remaining()) return false;
  for (uint64_t e = 0; e < count && in.ok(); ++e) {
    cfg::Edge edge;
    edge.from = number32(in);
    edge.to = index_or_none(in);
    const uint8_t kind = in.u8();
    edge.target = LinkAddr(in.uleb());
    const uint32_t counter = index_or_none(in);
    if (kind > static_cast<uint8_t>(cfg::EdgeKind::kLeave)) return false;
    if (counter != UINT32_MAX && !counter_fits(counter)) return false;
    edge.kind = static_cast<cfg::EdgeKind>(kind);
    unit.plan.edge_counter.push_back(static_cast<int32_t>(counter));
    unit.procedure.edges.edit().push_back(edge);
  }
  return in.ok();
}

bool KeptTranslated::read_ways_out(ByteReader& in, Unit& unit) {
  const uint64_t links = in.uleb();
  if (links > in.remaining()) return false;
  for (uint64_t i = 0; i < links && in.ok(); ++i) {
    Link link;
    link.target = LinkAddr(in.uleb());
    link.block = number32(in);
    link.edge = index_or_none(in);
    unit.code.links.push_back(link);
  }
  const uint64_t sites = in.uleb();
  if (sites > in.remaining()) return false;
  for (uint64_t i = 0; i < sites && in.ok(); ++i) {
    SiteState site;
    site.unit = unit.id;
    site.site.block = number32(in);
    site.site.call = in.u8() != 0;
    if (site.site.block >= unit.procedure.blocks.size()) return false;
    sites_.push_back(std::move(site));
  }
  return in.ok();
}

// No index of the unit leads out of it.
bool KeptTranslated::fits_together(const Unit& unit) const {
  const cfg::Procedure& p = unit.procedure;
  const size_t blocks = p.blocks.size();
  if (p.entry_block >= blocks) return false;
  for (const uint8_t size : unit.insn_sizes) {
    if (size == 0 || size > profile::kInstructionSizeMax) return false;
  }
  for (const cfg::Block& b : p.blocks) {
    const uint64_t insns_end = uint64_t{b.first_insn} + b.insn_count;
    const uint64_t edges_end = uint64_t{b.first_edge} + b.edge_count;
    if (b.insn_count == 0 || insns_end > unit.insn_sizes.size() || edges_end > p.edges.size()) {
      return false;
    }
  }
  for (const cfg::Edge& e : p.edges) {
    if (e.from >= blocks || (e.to != cfg::kExitBlock && e.to >= blocks)) return false;
    if (p.blocks[e.from].edge_count == 0) return false;
  }
  return std::all_of(unit.code.links.begin(), unit.code.links.end(), [&](const Link& link) {
    return link.block < blocks && (link.edge == Link::kCallLink || link.edge < p.edges.size());
  });
}

// ---- what showed at run time -------------------------------------------------------------------

bool KeptTranslated::has_block(uint64_t unit, uint64_t block) const {
  return unit < units_.size() && block < units_[unit]->procedure.blocks.size();
}

bool KeptTranslated::has_place(const BlockRef& ref) const {
  return has_block(ref.unit, ref.block) &&
         ref.insn <= units_[ref.unit]->procedure.blocks[ref.block].insn_count;
}

bool KeptTranslated::has_edge(uint64_t unit, uint64_t edge) const {
  return unit < units_.size() && edge < units_[unit]->procedure.edges.size();
}

// Where control enters: at an instruction.  Not valid if there is none.
BlockRef KeptTranslated::read_target(ByteReader& in) const {
  BlockRef ref;
  ref.unit = number32(in);
  ref.block = number32(in);
  ref.insn = number32(in);
  if (!in.ok() || !has_place(ref)) return {};
  if (ref.insn == units_[ref.unit]->procedure.blocks[ref.block].insn_count) return {};
  return ref;
}

bool KeptTranslated::add_pair(ByteReader& in) {
  const uint32_t site = number32(in);
  Pair pair;
  pair.to = read_target(in);
  const uint64_t counter = in.uleb();
  if (!in.ok() || !in.at_end() || site >= sites_.size() || !pair.to.valid()) return false;
  if (!counter_fits(counter)) return false;
  pair.counter = static_cast<uint32_t>(counter);
  pair_order_.emplace_back(site, static_cast<uint32_t>(sites_[site].pairs.size()));
  sites_[site].pairs.push_back(pair);
  return true;
}

bool KeptTranslated::add_arrival(ByteReader& in) {
  ArrivalStub arrival;
  arrival.to = read_target(in);
  const uint64_t counter = in.uleb();
  if (!in.ok() || !in.at_end() || !arrival.to.valid() || !counter_fits(counter)) return false;
  arrival.counter = static_cast<uint32_t>(counter);
  arrivals_.push_back(arrival);
  return true;
}

bool KeptTranslated::add_link_pair(ByteReader& in) {
  LinkPair pair;
  pair.link = number32(in);
  pair.to = read_target(in);
  const uint64_t counter = in.uleb();
  if (!in.ok() || !in.at_end() || pair.link >= links_total_ || !pair.to.valid()) return false;
  if (!counter_fits(counter)) return false;
  pair.counter = static_cast<uint32_t>(counter);
  link_pairs_.push_back(pair);
  return true;
}

// ---- the ledger --------------------------------------------------------------------------------

bool KeptBooks::add(ByteReader& in, int64_t amount, const KeptTranslated& translated) {
  const auto kind = static_cast<KeptBooking>(in.u8());
  const auto positive = static_cast<uint64_t>(std::max<int64_t>(amount, 0));
  const auto parts = [&](size_t count) {
    std::vector<uint32_t> result(count);
    for (uint32_t& part : result) part = number32(in);
    return result;
  };
  switch (kind) {
    case KeptBooking::kEntered:
    case KeptBooking::kLeft: {
      const auto p = parts(4);
      const std::string detail = text(in);
      const bool known =
          in.ok() && translated.has_place({p[0], p[1], p[3]}) && p[2] <= profile::kAbnormalKindLast;
      if (!known) return false;
      if (amount == 0) return true;
      LedgerTerm& term = terms_[{p[0], p[1], static_cast<AbnormalKind>(p[2]), p[3]}];
      (kind == KeptBooking::kEntered ? term.entered : term.left) += positive;
      term.detail = detail;
      return true;
    }
    case KeptBooking::kPartial: {
      const auto p = parts(4);
      const bool known = in.ok() && translated.has_place({p[0], p[1], p[3]}) && p[2] <= p[3];
      if (known && amount != 0) partials_[{p[0], p[1], p[2], p[3]}] += amount;
      return known;
    }
    case KeptBooking::kUncounted:
    case KeptBooking::kUnarrived: {
      const auto p = parts(2);
      if (!in.ok() || !translated.has_block(p[0], p[1])) return false;
      auto& map = kind == KeptBooking::kUncounted ? uncounted_ : unarrived_;
      if (amount != 0) map[{p[0], p[1]}] += positive;
      return true;
    }
    case KeptBooking::kOvercounted: {
      const auto p = parts(2);
      if (!in.ok() || !translated.has_edge(p[0], p[1])) return false;
      if (amount != 0) overcounted_[{p[0], p[1]}] += positive;
      return true;
    }
    case KeptBooking::kMove: {
      const auto p = parts(6);
      const BlockRef from{p[0], p[1], p[2]};
      const BlockRef to{p[3], p[4], p[5]};
      if (!in.ok() || !translated.has_place(from) || !translated.has_place(to)) return false;
      if (amount != 0) moves_[{from, to}] += positive;
      return true;
    }
    case KeptBooking::kIssue: {
      const uint64_t scope_bytes = in.uleb();
      const std::string all = text(in);
      if (!in.ok() || scope_bytes > all.size()) return false;
      if (amount > 0) issue(all.substr(0, scope_bytes), all.substr(scope_bytes), positive);
      return true;
    }
  }
  return false;
}

// As Ledger::leave_at books it for an interrupted block that nobody comes back to.
void KeptBooks::leave_interrupted(BlockRef ref, uint32_t done, bool counted,
                                  const KeptTranslated& translated) {
  const Unit& unit = translated.unit(ref.unit);
  const uint32_t count = unit.procedure.blocks[ref.block].insn_count;
  if (!counted) uncounted_[{ref.unit, ref.block}] += 1;
  if (done < count) partials_[{ref.unit, ref.block, done, count}] -= 1;
  const cfg::Procedure& p = unit.procedure;
  if (done >= count) {
    for (const cfg::Edge& edge : p.edges_of(p.blocks[ref.block])) {
      if (edge.kind == cfg::EdgeKind::kNoReturn) return;
    }
  }
  LedgerTerm& term = terms_[{ref.unit, ref.block, AbnormalKind::kFault, std::min(done, count)}];
  term.left += 1;
  term.detail = "interrupted by a signal when Tally was lost";
}

void KeptBooks::issue(const std::string& scope, const std::string& message, uint64_t amount) {
  for (profile::Issue& known : issues_) {
    if (known.scope != scope || known.message != message) continue;
    known.amount += amount;
    return;
  }
  issues_.push_back({scope, message, amount});
}

// ---- the file ----------------------------------------------------------------------------------

namespace {

// Reads the journal up to its end or to a record that was not finished.
class Reading {
 public:
  Reading(int fd, const std::string& path, KeptFile& file) : fd_(fd), path_(path), file_(file) {}

  Status run() {
    TRY_ASSIGN(const std::vector<uint8_t> journal, journal_bytes());
    size_t at = 0;
    while (at + sizeof(KeptRecordHeader) <= journal.size()) {
      KeptRecordHeader head{};
      memcpy(&head, journal.data() + at, sizeof head);
      const size_t begin = at + sizeof head;
      if (head.size_bytes == 0 || head.size_bytes > journal.size() - begin) break;
      const std::span<const uint8_t> payload(journal.data() + begin, head.size_bytes);
      if (kept_checksum(payload) != head.checksum) {
        // The last one may have been cut short, none in front of another.
        if (begin + head.size_bytes < journal.size()) {
          return damaged(path_,
                         fmt::format("a checksum is wrong, at {:#x}", kKeptJournalOffset + at));
        }
        break;
      }
      TRY(record(payload));
      at = begin + head.size_bytes;
    }
    TRY(bookings());
    return threads();
  }

 private:
  Result<std::vector<uint8_t>> journal_bytes() {
    struct stat status {};
    if (fstat(fd_, &status) != 0) return make_error("{}: {}", path_, strerror(errno));
    const auto size = static_cast<uint64_t>(status.st_size);
    constexpr uint64_t kJournalMax = 8ull << 30;
    if (size < kKeptJournalOffset) return damaged(path_, "it was cut off");
    if (size - kKeptJournalOffset > kJournalMax) return damaged(path_, "its journal is too long");
    return read_at(fd_, path_, kKeptJournalOffset, size - kKeptJournalOffset);
  }

  Status record(std::span<const uint8_t> payload) {
    ByteReader in(payload);
    bool good = false;
    switch (static_cast<KeptRecord>(in.u8())) {
      case KeptRecord::kFacts:
        file_.began = good = read_facts(in, file_.facts);
        break;
      case KeptRecord::kEnd:
        file_.ended = good = read_facts(in, file_.facts);
        break;
      case KeptRecord::kModule:
        good = file_.translated.add_module(in);
        break;
      case KeptRecord::kUnit:
        good = file_.translated.add_unit(in);
        break;
      case KeptRecord::kPair:
        good = file_.translated.add_pair(in);
        break;
      case KeptRecord::kArrival:
        good = file_.translated.add_arrival(in);
        break;
      case KeptRecord::kLinkPair:
        good = file_.translated.add_link_pair(in);
        break;
      case KeptRecord::kBooking:
        // What it speaks of may be behind it: the last ones of all.
        bookings_.emplace_back(payload.begin() + 1, payload.end());
        good = bookings_.size() <= kKeptCellsMax;
        break;
    }
    if (good) return Ok{};
    return damaged(path_, "a record of its journal makes no sense");
  }

  Status bookings() {
    TRY_ASSIGN(const std::vector<uint8_t> cells,
               read_at(fd_, path_, kKeptCellsOffset, bookings_.size() * sizeof(int64_t)));
    if (cells.size() != bookings_.size() * sizeof(int64_t)) return damaged(path_, "it was cut off");
    for (size_t i = 0; i < bookings_.size(); ++i) {
      int64_t amount = 0;
      memcpy(&amount, cells.data() + i * sizeof amount, sizeof amount);
      ByteReader in(bookings_[i]);
      if (!file_.books.add(in, amount, file_.translated)) {
        return damaged(path_, "a booking of its ledger makes no sense");
      }
    }
    return Ok{};
  }

  Status threads() {
    if (file_.header.slots > kThreadsMax) return damaged(path_, "it has too many threads");
    file_.counters.assign(file_.translated.counters_used(), 0);
    for (uint32_t slot = 0; slot < file_.header.slots; ++slot) {
      const uint64_t begin = kKeptSlotsOffset + slot * tcb::kBlockSizeBytes;
      const uint64_t size = tcb::kCounters + file_.counters.size() * sizeof(uint64_t);
      TRY_ASSIGN(const std::vector<uint8_t> block, read_at(fd_, path_, begin, size));
      if (block.size() != size) return damaged(path_, "it was cut off");
      for (size_t i = 0; i < file_.counters.size(); ++i) {
        uint64_t value = 0;
        memcpy(&value, block.data() + tcb::kCounters + i * sizeof value, sizeof value);
        file_.counters[i] += value;
      }
      TRY(thread(block.data()));
    }
    return Ok{};
  }

  Status thread(const uint8_t* block) {
    uint32_t open = 0;
    uint32_t count = 0;
    KeptThread thread;
    memcpy(&open, block + tcb::kOpen, sizeof open);
    memcpy(&count, block + tcb::kInterruptions, sizeof count);
    memcpy(&thread.where, block + tcb::kWhere, sizeof thread.where);
    if (open == 0) return Ok{};
    thread.interrupted_known = count <= tcb::kInterruptedMax;
    thread.interrupted.resize(std::min(count, tcb::kInterruptedMax));
    for (uint32_t i = 0; i < thread.interrupted.size(); ++i) {
      memcpy(&thread.interrupted[i], block + tcb::interrupted_offset(i), sizeof(tcb::Interrupted));
      const tcb::Interrupted& at = thread.interrupted[i];
      if (at.unit != 0 && !file_.translated.has_place({at.unit - 1, at.block, at.done})) {
        return damaged(path_, "a block that a signal interrupted is not there");
      }
    }
    if (thread.where > file_.translated.units().size()) {
      return damaged(path_, "a thread is in a procedure that is not there");
    }
    file_.alive.push_back(std::move(thread));
    return Ok{};
  }

  int fd_;
  const std::string& path_;
  KeptFile& file_;
  std::vector<std::vector<uint8_t>> bookings_;
};

Result<KeptHeader> read_header(int fd, const std::string& path) {
  TRY_ASSIGN(const std::vector<uint8_t> bytes, read_at(fd, path, 0, sizeof(KeptHeader)));
  KeptHeader header{};
  memcpy(&header, bytes.data(), bytes.size());
  if (memcmp(header.magic, kKeptMagic, sizeof header.magic) != 0) {
    return make_error("{}: no file of --keep-counters", path);
  }
  if (header.version != kKeptVersion) {
    return make_error("{}: written by another version of Tally (format {}, not {})", path,
                      header.version, kKeptVersion);
  }
  return header;
}

}  // namespace

Result<KeptHeader> read_kept_header(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return make_error("{}: {}", path, strerror(errno));
  return read_header(fd.get(), path);
}

Result<std::unique_ptr<KeptFile>> read_kept_file(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return make_error("{}: {}", path, strerror(errno));
  auto file = std::make_unique<KeptFile>();
  TRY_ASSIGN(file->header, read_header(fd.get(), path));
  TRY(Reading(fd.get(), path, *file).run());
  return file;
}

}  // namespace tally::engine
