// All that runs is translated again, with what this run has counted so far, and the memory of what
// was there before is given back.
//
// Problem.  On a program's first run nobody knows what will run.  What is likely to run has code,
// counters that may never count lie among the busy ones, and each page of code that is returned to
// often gets numbers for all its landings: two thirds more memory than a later run takes, for as
// long as the program lives.
//
// Idea.  Once the program has run for much longer than it took to translate it, every unit is
// translated again (renew.cpp), and what stood for it is nobody's any more:
//
//     code      | old units, pairs, arrivals, some living ones | new units ...
//               |  page  |  page  |  page  |  page  |  page    |
//                given back, kept,   given back ...
//
//     counters  their sums so far are set aside, and their memory is given back; the new ones lie
//               by how often they count (counter_numbers.h)
//     landings  get their numbers anew, or none, as if an earlier run had told of this one's counts
//
// What seems to be over by then (engine/renewal.h) gets no code at all: its unit is there, with its
// graph and its counts, and all of its blocks are left out (defer.cpp), the entry too.
//
// What is nobody's is found as a collector of garbage does it: a unit that was translated again is
// kept all the same if anything that lives leads to it (`pin`).  Each renewal leads all ways to the
// new units, but for a few that are seldom taken: into the middle of a block, for example.
//
// Whole pages are given back.  The program loses its access to them first, so that a way that was
// overlooked ends in a fault, which is told by name, and not in whatever zeros may do.  That takes
// system calls of the program's, which are made by the thread that is being served.  Numbers of
// landings are given anew where all others stand still until that is done, since one of them could
// have read a number and not yet gone where it leads.
//
// What stays, though little, keeps its page of addresses; the memory of such pages is put together
// (shared_pages.h), if they stand still: else one might be there just when code is changed.
//
// Of a unit that is nobody's, the monitor forgets what tells where in its code a thread is, and
// what both units have in common is there once (base/shared_vector.h): of a large program, that is
// half of what the second copies take.
//
// Not handled: what `is_movable` leaves out, and what another thread is in at that moment: it stays
// where it is.  The highest use of memory is reached while both are there.
#include "cache/code_cache.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <utility>

namespace tally::engine {

using namespace translate;

namespace {

constexpr uint64_t kPageBytes = SharedPages::kPageBytes;

// Of a program with more, the numbers may not suffice if rows of them are lent.  (Fewer landings
// get one than there are; where none is left, a landing stays in the hash table.)
constexpr size_t kLandingsToLend = 12'000;

uint64_t block_bytes(const cfg::Procedure& procedure) {
  uint64_t result = 0;
  for (const cfg::Block& block : procedure.blocks) result += block.size_bytes;
  return result;
}

constexpr uint64_t page_of(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

uint64_t CodeCache::memory_bytes() const {
  const TouchedMemory touched = region_.touched();
  return touched.tables_bytes + landings_.touched_bytes() + touched.code_bytes +
         touched.threads_bytes;
}

bool CodeCache::may_compact() const {
  return optimizations_.has(Optimization::kCompact) && kept_ == nullptr && !region_.is_filtered() &&
         giving_back_.pages.empty() && giving_back_.moves.empty() && !giving_back_.numbers;
}

// What is new begins with a page of its own.
void CodeCache::compact(std::vector<Renewal> wanted, std::span<const uint64_t> counters,
                        uint32_t slots, GiveNumbers numbers) {
  CHECK(may_compact()) << "memory is given back already";
  stats_.compactions += 1;
  constexpr uint64_t kOften = 128;
  // As in later runs, what is hardly ever run lies behind the rest.
  std::stable_partition(wanted.begin(), wanted.end(),
                        [](const Renewal& one) { return one.heaviest >= kOften; });
  for (Area& area : region_.areas()) {
    area.used_bytes = page_of(area.used_bytes);
    area.piece_used_bytes = page_of(area.piece_used_bytes);
    area.cold_used_bytes = page_of(area.cold_used_bytes);
    area.pieces_among_cold = true;
  }
  counter_numbers_.begin_again();
  if (numbers != GiveNumbers::kKept) note_what_ran(wanted);
  if (numbers == GiveNumbers::kAnewToAll) giving_back_.executed_bytes.reset();
  renew(wanted, counters);
  stats_.most_bytes = std::max(stats_.most_bytes, memory_bytes());
  giving_back_.counted = region_.set_counters_aside(slots, next_counter_);
  const std::vector<bool> nobodys = units_of_nobody();
  giving_back_.pages = pages_of(nobodys);
  // Another thread might be on a page that moves, just when the monitor changes code there.
  const bool nobody_runs = numbers != GiveNumbers::kKept;
  if (nobody_runs && !giving_back_.are_moves_refused) join_pages(nobodys);
  give_back_tables(nobodys);
  forget_code_of(nobodys);
  giving_back_.numbers = nobody_runs;
  giving_back_.lends =
      nobody_runs && returns_form_ != Returns::kPaired && landings_.size() <= kLandingsToLend;
}

// How often each call came back, and how many bytes have run.  What cannot be translated again has
// run as much as the rest, for all that is known.
void CodeCache::note_what_ran(std::span<const Renewal> renewals) {
  giving_back_.returns = FlatMap<uint64_t>();
  uint64_t translated_bytes = 0, translated_again_bytes = 0, executed_bytes = 0;
  for (const auto& unit : units_) {
    if (!unit->dead) translated_bytes += block_bytes(unit->procedure);
  }
  for (const Renewal& one : renewals) {
    const Unit& unit = *units_[one.unit];
    const cfg::Procedure& procedure = unit.procedure;
    for (size_t e = 0; e < procedure.edges.size(); ++e) {
      const cfg::Edge& edge = procedure.edges[e];
      if (one.steps[e] == 0 || edge.to == cfg::kExitBlock) continue;
      if (edge.kind != cfg::EdgeKind::kCallReturn) continue;
      const TargetAddr landing = unit.module->to_target(unit.address_of(edge.to));
      giving_back_.returns.set(landing.value(), count_of_step(one.heaviest, one.steps[e]));
    }
    executed_bytes += bytes_that_ran(unit, one);
    translated_again_bytes += block_bytes(procedure);
  }
  const double part = translated_again_bytes == 0 ? 0
                                                  : static_cast<double>(executed_bytes) /
                                                        static_cast<double>(translated_again_bytes);
  giving_back_.executed_bytes = static_cast<uint64_t>(part * static_cast<double>(translated_bytes));
}

// As many as there is memory for: so many times the code that is executed, less what will be there
// yet, as far as can be told.  Behind a number, a return takes fewer instructions than it does
// otherwise; but they are all the same where they lead.
size_t CodeCache::numbered_pages_max(size_t landings) const {
  constexpr uint64_t kQuarters = 14, kLaterPart = 6, kPartlyFull = 6;
  if (!giving_back_.executed_bytes) return SIZE_MAX;
  const TouchedMemory there = region_.touched();
  const uint64_t counters_bytes =
      giving_back_.counted * sizeof(uint64_t) + kPartlyFull * kPageBytes;
  const uint64_t taken = there.tables_bytes + HashedLandings::table_bytes(landings) +
                         there.code_bytes + there.code_bytes / kLaterPart + there.threads_bytes +
                         counters_bytes;
  const uint64_t may_take = kQuarters * *giving_back_.executed_bytes / 4;
  return may_take < taken ? 0 : (may_take - taken) / kPageBytes;
}

// Where a unit is to lie.  One that is known to stay, and would keep a page for itself, lies with
// its like, as long as there is room for whatever parts they will have.  Code that may be replaced
// is not among them: it comes and goes.
Lies CodeCache::place_of(const Unit& unit, const cfg::Procedure& procedure, Area& area) const {
  const bool may_compact_later =
      optimizations_.has(Optimization::kCompact) && kept_ == nullptr && weights_ == nullptr;
  const bool lasts = !unit.replaceable && !unit.checked && !unit.module->generated;
  const bool stays = lasts && (unit.open_calls || !unit.plan.events.empty());
  if (!may_compact_later || !stays || !area.is_staying_apart) return Lies::kAmongOthers;
  const uint64_t bytes_max = area.staying_bytes_max + 2 * emit_bound_bytes(procedure);
  if (bytes_max > kAreaStayingBytes) return Lies::kAmongOthers;
  area.staying_bytes_max = bytes_max;
  return Lies::kAmongStaying;
}

// The unit that a piece of code is of, or leads from; an arrival's and a door's, which it leads to.
uint32_t CodeCache::owner_of(const CodeRecord& record) const {
  switch (record.kind) {
    case CodeRecord::Kind::kUnit:
    case CodeRecord::Kind::kUnitCold:
      return record.index;
    case CodeRecord::Kind::kPair:
    case CodeRecord::Kind::kDispatch:
    case CodeRecord::Kind::kIndexed:
      return sites_[record.index].unit;
    case CodeRecord::Kind::kArrival:
      return arrivals_[record.index].to.unit;
    case CodeRecord::Kind::kLinkPair:
      return links_[link_pairs_[record.index].link].first;
    case CodeRecord::Kind::kDoor:
      return doors_[record.index].to.unit;
  }
  CHECK(false) << "a record of no kind";
}

// Units to which nothing leads that lives.
std::vector<bool> CodeCache::units_of_nobody() {
  std::vector<bool> nobodys(units_.size());
  std::vector<uint32_t> living;
  for (const auto& unit : units_) {
    nobodys[unit->id] = unit->renewed_by.has_value();
    if (!nobodys[unit->id]) living.push_back(unit->id);
  }
  const auto pin_unit = [&](uint32_t unit) {
    if (!nobodys[unit]) return;
    nobodys[unit] = false;
    living.push_back(unit);
  };
  const auto pin = [&](CacheAddr code) {
    const CodeRecord* record = record_at(code);
    if (record == nullptr) return;  // the gateway, an ask
    pin_unit(owner_of(*record));
    if (record->kind == CodeRecord::Kind::kLinkPair) pin_unit(link_pairs_[record->index].to.unit);
  };
  landings_.for_each([&](uint64_t, CacheAddr code) { pin(code); });
  known_targets_.for_each([&](BlockRef to) { pin_unit(to.unit); });
  while (!living.empty()) {
    const Unit& unit = *units_[living.back()];
    living.pop_back();
    for (const Link& link : unit.code.links) {
      if (link.field != CacheAddr()) pin(branch_target(link.field));
    }
    for (uint32_t i = 0; i < unit.code.sites.size(); ++i) {
      const SiteState& state = sites_[unit.first_site + i];
      for (const Pair& pair : state.pairs) {
        if (!pair.cut) pin_unit(pair.to.unit);
      }
    }
  }
  return nobodys;
}

// Those that only indirect branches of nobody's units go by.
void CodeCache::give_back_tables(const std::vector<bool>& nobodys) {
  std::vector<bool> is_used((next_table_ - tables::kHashTables) / kPageBytes + 1);
  const auto page_at = [](uint32_t table) { return (table - tables::kHashTables) / kPageBytes; };
  const auto use = [&](uint32_t table) {
    if (table != 0) is_used[page_at(table)] = true;
  };
  for (const SiteState& state : sites_) {
    if (nobodys[state.unit]) continue;
    use(state.table_offset);
    if (state.by_index != nullptr) use(state.by_index->table_offset);
  }
  // The last one may be used yet.
  for (uint64_t page = 0; page < page_at(next_table_); ++page) {
    if (!is_used[page])
      region_.give_back_table(tables::kHashTables + page * kPageBytes, kPageBytes);
  }
}

// What tells where in their code somebody is, and what is looked up on the way there.  (Nobody has
// begun in the middle of a block of theirs: such a unit is not translated again.)
void CodeCache::forget_code_of(const std::vector<bool>& nobodys) {
  for (const auto& unit : units_) {
    if (!nobodys[unit->id]) continue;
    unit->is_nobodys = true;
    unit->code.forget_blocks();
    unit->code.forget_places();
  }
  for (SiteState& state : sites_) {
    if (nobodys[state.unit]) state.forget_chains();
  }
}

bool CodeCache::is_nobodys(const CodeRecord& record, const std::vector<bool>& nobodys) const {
  if (nobodys[owner_of(record)]) return true;
  if (record.kind != CodeRecord::Kind::kPair) return false;
  const Pair& pair = sites_[record.index].pairs[record.pair];
  return pair.cut && nobodys[pair.to.unit];
}

// Behind the last code there.
CacheAddr CodeCache::end_of_part(size_t part) {
  Area& area = region_.areas()[part / Area::kParts];
  return area.base + area.rooms()[part % Area::kParts].next();
}

// Of the code cache, those on which nothing is but what is nobody's.
std::vector<CacheRange> CodeCache::pages_of(const std::vector<bool>& nobodys) {
  std::vector<CacheRange> result;
  const auto add_page = [&](CacheAddr page) {
    if (has_lost_page_of(page)) return;
    if (result.empty() || result.back().end != page) result.push_back({page, page});
    result.back().end += kPageBytes;
  };
  for (size_t part = 0; part < records_.size(); ++part) {
    // From where on all is nobody's.
    std::optional<CacheAddr> since;
    const auto end_at = [&](CacheAddr end) {
      if (!since) return;
      CacheAddr page(page_of(since->value()));
      for (; page + kPageBytes <= end; page += kPageBytes) add_page(page);
      since.reset();
    };
    for (const CodeRecord& record : records_[part]) {
      const bool goes_on = is_nobodys(record, nobodys);
      if (!goes_on) end_at(record.begin);
      if (goes_on && !since) since = record.begin;
    }
    end_at(end_of_part(part));
  }
  return result;
}

// Those on which something lives.  Pages that are full are not told.
std::vector<SharedPages::Living> CodeCache::living_pages(const std::vector<bool>& nobodys) {
  std::vector<SharedPages::Living> result;
  const auto add = [&](uint64_t begin, uint64_t end) {
    while (begin < end) {
      const CacheAddr page(begin / kPageBytes * kPageBytes);
      const uint64_t stop = std::min(end, page.value() + kPageBytes);
      const bool is_full = stop - begin == kPageBytes;
      if (!is_full && (result.empty() || result.back().page != page)) result.push_back({page, {}});
      for (; !is_full && begin < stop; ++begin) result.back().lives.set(begin % kPageBytes);
      begin = stop;
    }
  };
  for (size_t part = 0; part < records_.size(); ++part) {
    const std::vector<CodeRecord>& records = records_[part];
    if (records.empty()) continue;
    // In front of the first units is the gateway; behind the last ones there will be more code.
    const uint64_t first = records.front().begin.value();
    const uint64_t last = end_of_part(part).value();
    if (part % Area::kParts == 0) add(first / kPageBytes * kPageBytes, first);
    for (size_t i = 0; i < records.size(); ++i) {
      if (is_nobodys(records[i], nobodys)) continue;
      add(records[i].begin.value(), i + 1 < records.size() ? records[i + 1].begin.value() : last);
    }
    if (!Area::is_for_staying(part % Area::kParts)) add(last, page_of(last));
  }
  return result;
}

// Pages of which little lives get their memory together.  What is not theirs there is overwritten.
void CodeCache::join_pages(const std::vector<bool>& nobodys) {
  constexpr uint8_t kTraps = 0xcc;
  SharedPages::Plan plan = shared_.plan(living_pages(nobodys));
  // What stays, and is yet to come, lies among others then, and shares its page with them.
  for (Area& area : region_.areas()) {
    area.staying_used_bytes = page_of(area.staying_used_bytes);
    area.staying_cold_used_bytes = page_of(area.staying_cold_used_bytes);
    area.is_staying_apart = false;
  }
  for (const SharedPages::Host& host : plan.hosts) {
    uint8_t* code = region_.code(host.home);
    for (uint64_t i = 0; i < kPageBytes; ++i) {
      if (!host.lives[i]) code[i] = kTraps;
    }
  }
  giving_back_.moves = std::move(plan.moves);
  giving_back_.is_move_begun = false;
}

// Whether the target has none there any more.
bool CodeCache::has_lost_page_of(CacheAddr code) const {
  const auto behind = std::ranges::upper_bound(given_back_, code, {}, &CacheRange::begin);
  return behind != given_back_.begin() && (behind - 1)->contains(code);
}

bool CodeCache::is_given_back(CacheAddr code) const {
  return has_lost_page_of(code) || shared_.is_dead(code);
}

// For code that is put in the place of other code.
uint8_t* CodeCache::code_at(CacheAddr address) {
  CHECK(!is_given_back(address)) << "code that was given back, at " << address.value();
  return region_.code(address);
}

// The target has lost its access to them.
void CodeCache::give_back(CacheRange pages) {
  if (shared_.size() == 0) return region_.give_back_code(pages);
  for (CacheAddr page = pages.begin; page < pages.end; page += kPageBytes) {
    const std::optional<CacheAddr> frame = shared_.leave(page);
    if (frame) region_.give_back_code({*frame, *frame + kPageBytes});
  }
}

// The monitor's view of a page moves first, since nobody runs meanwhile.
Status CodeCache::share_pages() {
  while (!giving_back_.moves.empty() && !giving_back_.are_moves_refused) {
    const SharedPages::Move& move = giving_back_.moves.back();
    if (!giving_back_.is_move_begun) {
      const uint8_t* from = region_.code(move.page);
      uint8_t* to = region_.code(move.to);
      for (uint64_t i = 0; i < kPageBytes; ++i) {
        if (move.lives[i]) to[i] = from[i];
      }
      giving_back_.is_move_begun = region_.view(move.page, move.to);
      giving_back_.are_moves_refused = !giving_back_.is_move_begun;
      if (giving_back_.are_moves_refused) break;
    }
    const auto map_to = [&](CacheAddr frame) {
      return remote_call_(SYS_mremap, {region_.in_attic(frame).value(), 0, kPageBytes,
                                       MREMAP_MAYMOVE | MREMAP_FIXED, move.page.value(), 0});
    };
    TRY_ASSIGN(const int64_t result, map_to(move.to));
    if (CacheAddr(static_cast<uint64_t>(result)) != move.page) {
      const CacheAddr before = shared_.frame_of(move.page);
      TRY_ASSIGN(const int64_t undone, map_to(before));
      if (CacheAddr(static_cast<uint64_t>(undone)) != move.page || !region_.view(move.page, before))
        return make_error("cannot map code where it was, at {:#x}", move.page.value());
      giving_back_.are_moves_refused = true;
      break;
    }
    const std::optional<CacheAddr> frame = shared_.move(move.page, move.to);
    if (frame) region_.give_back_code({*frame, *frame + kPageBytes});
    stats_.pages_shared += 1;
    giving_back_.moves.pop_back();
    giving_back_.is_move_begun = false;
  }
  giving_back_.moves.clear();
  giving_back_.is_move_begun = false;
  return Ok{};
}

// Where the kernel refuses, things stay as they are.  The program's filter of its system calls, if
// it has one by now, is not asked.
Status CodeCache::give_back() {
  if (region_.is_filtered()) {
    giving_back_ = {};
    giving_back_.are_moves_refused = true;
  }
  while (!giving_back_.pages.empty()) {
    const CacheRange pages = giving_back_.pages.back();
    TRY_ASSIGN(
        const int64_t result,
        remote_call_(SYS_mprotect, {pages.begin.value(), pages.size_bytes(), PROT_NONE, 0, 0, 0}));
    giving_back_.pages.pop_back();
    if (result != 0) continue;
    give_back(pages);
    given_back_.insert(std::ranges::upper_bound(given_back_, pages.begin, {}, &CacheRange::begin),
                       pages);
    stats_.given_back_bytes += pages.size_bytes();
  }
  TRY(share_pages());
  if (!giving_back_.numbers) return Ok{};
  TRY_ASSIGN(const int64_t result,
             remote_call_(SYS_madvise, {region_.tables_base() + uint64_t{tables::kLandingNumbers},
                                        tables::kLandingNumbersEnd - tables::kLandingNumbers,
                                        MADV_DONTNEED, 0, 0, 0}));
  // Memory that the program has locked stays, and all that leads through it.
  const bool are_gone = result == 0;
  if (are_gone && giving_back_.lends) {
    const CacheAddr none = region_.areas().front().gateway.entries.no_landing;
    TRY(region_.lend_landings(none, remote_call_));
  }
  giving_back_.numbers = false;
  const FlatMap<uint64_t> returns = std::exchange(giving_back_.returns, {});
  if (!are_gone || landings_.numbers_no_more()) return Ok{};
  const auto returned = [&](uint64_t original) -> Landings::Returned {
    const auto found = blocks_.find(original);
    if (!found || *found == kGone) return {};
    const uint64_t* times = returns.find(original);
    return {returns_expected_at(unpack(*found)), times == nullptr ? 0 : *times};
  };
  landings_.begin_again(
      returned, [this](size_t landings) { return numbered_pages_max(landings); },
      region_.landing_rows());
  return Ok{};
}

// A thread that makes a system call for us may yet be on its way into it.  A page that it maps is
// mapped as planned when it comes back; numbers that it takes away, or whose pointers it does, are
// given up.
void CodeCache::stop_giving_back() {
  std::vector<SharedPages::Move>& moves = giving_back_.moves;
  const bool numbers_may_be_gone =
      giving_back_.numbers && giving_back_.pages.empty() && moves.empty();
  if (numbers_may_be_gone) landings_.give_numbers_up();
  moves.erase(moves.begin(), moves.end() - (giving_back_.is_move_begun ? 1 : 0));
  giving_back_.numbers = false;
  giving_back_.returns = FlatMap<uint64_t>();
}

}  // namespace tally::engine
