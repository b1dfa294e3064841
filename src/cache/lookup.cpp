// The lookup chains of the code cache: links, pairs, landings, arrivals.  See code_cache.h.
#include <string.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "cache/code_cache.h"

namespace tally::engine {

using namespace translate;

// ---- patching ----------------------------------------------------------------------------------
// Every field lies within 8 aligned bytes, so that a thread running through it sees the old or the
// new value.  What was given back (compact.cpp) is left alone: nobody is there any more, and
// another's code may be; those who cut all ways to somewhere need not know.

void CodeCache::set_branch(CacheAddr field, CacheAddr target) {
  const int64_t distance = target - (field + 4);
  CHECK(distance == static_cast<int32_t>(distance)) << "link out of reach";
  if (is_given_back(field)) return;
  auto* p = reinterpret_cast<uint32_t*>(region_.code(field));
  __atomic_store_n(p, static_cast<uint32_t>(distance), __ATOMIC_RELEASE);
}

// A `jmp rel32` becomes something else of its size.
void CodeCache::set_jmp(CacheAddr field, const std::array<uint8_t, 5>& code) {
  const uint64_t at = (field.value() - 1) & 7;
  CHECK(at <= 3) << "a jump that cannot be replaced as a whole";
  if (is_given_back(field)) return;
  auto* word = reinterpret_cast<uint64_t*>(region_.code(field) - 1 - at);
  uint64_t now = std::atomic_ref<uint64_t>(*word).load();
  memcpy(reinterpret_cast<uint8_t*>(&now) + at, code.data(), code.size());
  std::atomic_ref<uint64_t>(*word).store(now, std::memory_order_release);
}

// Nothing; the code behind it is there already.
void CodeCache::erase_jmp(CacheAddr field) {
  set_jmp(field, {0x0f, 0x1f, 0x44, 0x00, 0x00});
}

// A jump again, erased or not.
void CodeCache::put_jmp(CacheAddr field, CacheAddr target) {
  const int64_t distance = target - (field + 4);
  CHECK(distance == static_cast<int32_t>(distance)) << "a jump out of reach";
  std::array<uint8_t, 5> code{0xe9};
  const auto narrow = static_cast<int32_t>(distance);
  memcpy(code.data() + 1, &narrow, sizeof narrow);
  set_jmp(field, code);
}

void CodeCache::set_table_head(uint32_t table_offset, uint8_t hash, CacheAddr value) {
  auto* heads = reinterpret_cast<uint64_t*>(region_.tables() + table_offset);
  std::atomic_ref<uint64_t>(heads[hash]).store(value.value(), std::memory_order_release);
}

// Puts an entry at the front of a chain: the newest is the likeliest.
void CodeCache::insert(Chain& chain, const ChainEntry& entry, CacheAddr miss,
                       const std::function<void(CacheAddr)>& set_head) {
  // The new one knows its successor before anyone can reach it.
  set_branch(entry.mismatch_field, chain.empty() ? miss : chain.front().entry);
  set_head(entry.entry);
  chain.insert(chain.begin(), entry);
}

// Who comes from the site to the first of its chain has the target in rcx; who comes to another one
// has not.
CacheAddr CodeCache::first_of(const SiteState& state, CacheAddr head) const {
  const bool loads = compare_ == Compare::kLow32 && !state.site.unspilled && !state.site.slot;
  return loads && head != state.site.miss_stub ? head + kLoadTargetBytes : head;
}

Status CodeCache::check_room() const {
  constexpr uint32_t kSpareCounters = 200000;
  constexpr uint64_t kSpareBytes = 64 << 10;
  if (next_counter_ + kSpareCounters > tcb::kCountersMax) {
    return make_error("the program needs more than {} counters", tcb::kCountersMax);
  }
  for (const Area& area : region_.areas()) {
    if (area.used_bytes + kSpareBytes > kAreaBodiesEnd ||
        kAreaHalfBytes + area.cold_used_bytes + kSpareBytes > kAreaColdEnd) {
      return make_error("the code cache is full ({} MB); the program runs more code than fits",
                        kAreaSizeBytes >> 20);
    }
  }
  return Ok{};
}

// Entries say where the thread is by themselves.  A jump's counter belongs to the flow out of the
// unit it comes from, any other only to the flow into this one.
Whereabouts CodeCache::whereabouts(BlockRef to, bool jump) const {
  if (kept_ == nullptr || is_entry(to)) return {};
  return {to.unit + 1, jump};
}

// ---- arrivals ----------------------------------------------------------------------------------

ArrivalStub& CodeCache::arrival_at(BlockRef ref) {
  CHECK(ref.block < (1u << 24) && ref.insn < (1u << 20)) << "a procedure too large to number";
  const uint64_t key =
      static_cast<uint64_t>(ref.unit) << 44 | static_cast<uint64_t>(ref.block) << 20 | ref.insn;
  if (const uint32_t* found = arrival_index_.find(key)) return arrivals_[*found];
  const Unit& unit = *units_[ref.unit];
  Area& area = area_of(ref);
  ArrivalStub arrival;
  arrival.to = ref;
  arrival.counter = allocate_counter(Expected::kSome);
  const CacheAddr entry = way_into(ref);
  const auto index = static_cast<uint32_t>(arrivals_.size());
  arrival.stub =
      emit_piece(area, {CacheAddr(), CodeRecord::Kind::kArrival, index, 0}, [&](auto& as) {
        const Whereabouts at = whereabouts(ref, false);
        const Stub stub =
            emit_stub(as, address_of(ref).value(), counted(arrival.counter), flags_at(ref), entry,
                      area.gateway.entries.lookup, compare_, at);
        arrival.sent = emit_link_stub(as, counted(arrival.counter), flags_at(ref), entry, at);
        return stub;
      });
  arrivals_.push_back(arrival);
  if (kept_ != nullptr) kept_->arrival(arrival);
  arrival_index_.set(key, index);
  if (unit.replaceable) incoming_[ref.unit].push_back({Incoming::Kind::kArrival, index, 0});
  return arrivals_.back();
}

// Where a direct branch enters a block.  Entries count by themselves; elsewhere each branch has a
// way of its own, so that a thread that dies there is known to come from it.
CacheAddr CodeCache::way_in(uint32_t link_id, BlockRef ref) {
  if (enters_as_it_is(link_id, ref)) return way_through(link_id, ref);
  return link_pair(link_id, ref);
}

bool CodeCache::enters_as_it_is(uint32_t link_id, BlockRef ref) const {
  const Unit& from = *units_[links_[link_id].first];
  const Unit& to = *units_[ref.unit];
  if (from.replaceable || to.replaceable || !is_entry(ref)) return false;
  return !to.counts_branches && (!to.left_to_callers() || from.rank < to.rank);
}

Result<CacheAddr> CodeCache::arrive(BlockRef ref) {
  TRY(check_room());
  return arrival_at(ref).sent.entry;
}

Result<CacheAddr> CodeCache::take_link(uint32_t link_id) {
  TRY(check_room());
  const auto [unit_id, index] = links_[link_id];
  const Link link = units_[unit_id]->code.links[index];
  const Module& module = *units_[unit_id]->module;
  const bool call = link_is_call(link_id);
  const TargetAddr target = module.to_target(link.target);
  TRY_ASSIGN(const BlockRef ref, resolve(target, call ? Arrival::kCall : Arrival::kJump));
  if (call) enter_landing({unit_id, link.block});
  if (!ref.valid()) return CacheAddr(target.value());  // faults there, as it would natively
  const CacheAddr entry = way_in(link_id, ref);
  set_branch(link.field, entry);
  link_waits_[link_id] = 0;
  return entry;
}

bool CodeCache::link_is_call(uint32_t link_id) const {
  const auto [unit_id, index] = links_[link_id];
  return units_[unit_id]->code.links[index].edge == Link::kCallLink;
}

// Joins the links of a new unit with the entries that are there already and with its own, and those
// that have been waiting for it.  Ways that need a counter of their own wait until they are taken.
void CodeCache::join_links(const Unit& unit) {
  const PhaseTimer timer(phases_, Phase::kLink);
  next_waiting_.resize(links_.size());
  link_waits_.resize(links_.size());
  if (unit.replaceable || !optimizations_.has(Optimization::kJoins)) return;
  const BlockRef own{unit.id, unit.procedure.entry_block};
  if (has_code(own)) join_waiting(address_of(own), own);
  for (uint32_t i = 0; i < unit.code.links.size(); ++i) {
    if (unit.code.links[i].field != CacheAddr()) join_or_wait(unit.first_link + i);
  }
}

void CodeCache::join_or_wait(uint32_t link_id) {
  const TargetAddr target = link_target(link_id);
  const auto found = blocks_.find(target.value());
  if (found && *found != kGone) {
    const BlockRef to = unpack(*found);
    if (has_code(to) && enters_as_it_is(link_id, to)) return join_link(link_id, to);
  }
  const uint32_t* head = waiting_.find(target.value());
  next_waiting_[link_id] = head == nullptr ? 0 : *head;
  link_waits_[link_id] = 1;
  waiting_.set(target.value(), link_id + 1);
}

void CodeCache::join_link(uint32_t link_id, BlockRef to) {
  const auto [unit_id, index] = links_[link_id];
  const Link& link = units_[unit_id]->code.links[index];
  if (link_is_call(link_id)) enter_landing({unit_id, link.block});
  set_branch(link.field, way_in(link_id, to));
}

void CodeCache::join_waiting(TargetAddr entry, BlockRef to) {
  const uint32_t* head = waiting_.find(entry.value());
  if (head == nullptr) return;
  uint32_t kept = 0;
  for (uint32_t next = *head; next != 0;) {
    const uint32_t link_id = next - 1;
    next = next_waiting_[link_id];
    if (link_waits_[link_id] == 0) continue;
    if (enters_as_it_is(link_id, to)) {
      link_waits_[link_id] = 0;
      join_link(link_id, to);
    } else {
      next_waiting_[link_id] = kept;
      kept = link_id + 1;
    }
  }
  waiting_.set(entry.value(), kept);
}

// ---- direct branches ---------------------------------------------------------------------------

// The counted way from a link to where it leads at the moment.
CacheAddr CodeCache::link_pair(uint32_t link_id, BlockRef to) {
  if (auto it = current_pair_.find(link_id); it != current_pair_.end()) {
    // Another thread may have asked for the same a moment ago.
    if (link_pairs_[it->second].to == to) return link_pairs_[it->second].stub.entry;
  }
  const Unit& source = *units_[links_[link_id].first];
  const Unit& destination = *units_[to.unit];
  LinkPair pair;
  pair.link = link_id;
  pair.to = to;
  pair.counter = allocate_counter(expected_of(to));
  const CacheAddr entry = way_into(to);
  const auto index = static_cast<uint32_t>(link_pairs_.size());
  pair.stub =
      emit_piece(*source.area, {CacheAddr(), CodeRecord::Kind::kLinkPair, index, 0}, [&](auto& as) {
        return emit_link_stub(as, counted(pair.counter), flags_at(to), entry,
                              whereabouts(to, false));
      });
  link_pairs_.push_back(pair);
  if (kept_ != nullptr) kept_->link_pair(pair);
  current_pair_[link_id] = index;
  if (destination.replaceable) {
    incoming_[to.unit].push_back({Incoming::Kind::kLinkPair, index, 0});
  }
  return pair.stub.entry;
}

// ---- returns -----------------------------------------------------------------------------------

// Makes the return address behind a call known.
void CodeCache::enter_landing(BlockRef call_block) {
  const Unit& unit = *units_[call_block.unit];
  if (unit.dead) return;
  const LinkAddr back = unit.end_of(call_block.block);
  const uint32_t block = unit.procedure.block_at(back);
  if (block == cfg::kExitBlock) return;
  const BlockCode& code = unit.code.blocks[block];
  if (code.landing == BlockCode::kNone) return;
  add_landing({unit.id, block}, unit.code.address(code.landing));
}

// `code` is where returns to the block go.
void CodeCache::add_landing(BlockRef ref, CacheAddr code) {
  landings_.add(address_of(ref).value(), code, returns_expected_at(ref));
}

ReturnsTo CodeCache::returns_expected_at(BlockRef ref) const {
  if (ref.insn == 0 && is_busiest(ref)) return ReturnsTo::kMost;
  if (ref.insn == 0 && is_busy(ref)) return ReturnsTo::kMany;
  if (ref.insn == 0 && is_seldom(ref)) return ReturnsTo::kFew;
  return ref.insn == 0 && units_[ref.unit]->weighed ? ReturnsTo::kOften : ReturnsTo::kSome;
}

void CodeCache::is_returned_to_often(TargetAddr return_address) {
  lookup_pace_.note(LookupPace::Clock::now());
  const bool matters = weights_ == nullptr || lookup_pace_.lookups() == LookupPace::kOften;
  landings_.is_returned_to_often(return_address.value(),
                                 matters ? Landings::Page::kToBeNumbered : Landings::Page::kStays);
}

void CodeCache::write_landings() {
  const uint64_t numbers = region_.tables_base() + uint64_t{tables::kLandingNumbers};
  landings_.write([&](uint64_t at, std::span<const uint8_t> bytes) {
    return process_.write_memory_if_there(TargetAddr(numbers + at), bytes.data(), bytes.size());
  });
}

Result<CacheAddr> CodeCache::take_return(TargetAddr target) {
  TRY(check_room());
  TRY_ASSIGN(const BlockRef ref, resolve(target, Arrival::kReturn));
  if (!ref.valid()) return CacheAddr(target.value());
  const Unit& unit = *units_[ref.unit];
  const BlockCode& code = unit.code.blocks[ref.block];
  if (code.landing != BlockCode::kNone && ref.insn == 0) {
    add_landing(ref, unit.code.address(code.landing));
    return unit.code.address(code.landing_accept);
  }
  const Stub stub = arrival_at(ref).stub;
  add_landing(ref, compare_ == Compare::kAll64 ? stub.entry : stub.accept);
  return stub.accept;
}

// ---- indirect branches -------------------------------------------------------------------------

Pair& CodeCache::add_pair(SiteState& state, TargetAddr target, BlockRef to, MayBeRest may) {
  allow_for_entry_at(to);
  const Unit& destination = *units_[to.unit];
  Area& area = *units_[state.unit]->area;
  const auto site_id = static_cast<uint32_t>(&state - sites_.data());
  Pair pair;
  pair.target = target;
  pair.to = to;
  pair.rest = may == MayBeRest::kYes && may_be_rest(state, to);
  pair.counter = allocate_counter(pair.rest ? Expected::kSeldom : expected_of(to));
  const bool inside = to.unit == state.unit && !state.site.call;
  const auto index = static_cast<uint32_t>(state.pairs.size());
  if (pair.rest) state.rest = index;
  stats_.rests += pair.rest ? 1 : 0;
  const CodeRecord record{CacheAddr(), CodeRecord::Kind::kPair, site_id, index};
  const CacheAddr entry = way_into(to);
  const auto emit = [&](auto& as, Ends ends) {
    const Whereabouts at = inside ? Whereabouts{} : whereabouts(to, !state.site.call);
    const CacheAddr next = state.site.miss_stub;
    const uint32_t counter = pair.rest ? kCountNothing : counted(pair.counter);
    if (state.site.slot) return emit_sealed_stub(as, counter, flags_at(to), entry, next, at, ends);
    if (const auto& jump = state.site.unspilled) {
      return emit_unspilled_stub(as, target.value(), counter, flags_at(to), entry, next, *jump, at,
                                 ends);
    }
    return emit_stub(as, target.value(), counter, flags_at(to), entry, next, compare(), at, ends);
  };
  // Where an index leads there, another stub is in front.
  std::optional<Stub> in_front;
  if (!state.site.head) {
    in_front = emit_in_front(state, pair, record, [&](auto& as) { return emit(as, Ends::kFalls); });
  }
  pair.stub = in_front ? *in_front
                       : emit_piece(area, record, [&](auto& as) { return emit(as, Ends::kJumps); });
  stats_.pairs += 1;
  if (state.site.slot) stats_.sealed += 1;
  if (destination.replaceable) {
    incoming_[to.unit].push_back({Incoming::Kind::kPair, site_id, index});
  }
  state.pairs.push_back(pair);
  if (kept_ != nullptr) kept_->pair(site_id, pair);
  pair_order_.emplace_back(site_id, index);
  return state.pairs.back();
}

Result<CacheAddr> CodeCache::take_indirect(uint32_t site_id, TargetAddr target) {
  TRY(check_room());
  const bool call = sites_[site_id].site.call;
  if (call) enter_landing({sites_[site_id].unit, sites_[site_id].site.block});
  TRY_ASSIGN(const BlockRef ref, resolve(target, call ? Arrival::kCall : Arrival::kJump));
  if (!ref.valid()) return CacheAddr(target.value());
  if (!units_[sites_[site_id].unit]->dead) join_table(site_id, target);
  const CacheAddr way = join_pair(site_id, target, ref);
  make_known(target, ref);
  return way;
}

// Leads from the site to a target; the way of a thread that is there, behind the comparison.
CacheAddr CodeCache::join_pair(uint32_t site_id, TargetAddr target, BlockRef ref, MayBeRest may) {
  SiteState& state = sites_[site_id];
  for (const Pair& pair : state.pairs) {
    // Another thread may have asked for the same pair a moment ago.
    if (!pair.cut && pair.target == target) return pair.stub.accept;
  }
  // Nobody else will come by what was translated again: who is there yet goes on by a way of its
  // own.
  if (units_[state.unit]->renewed_by) {
    Pair& pair = add_pair(state, target, ref, MayBeRest::kNo);
    pair.cut = true;
    return pair.stub.accept;
  }
  if (!may_join(state, target)) compare_always(site_id);
  if (came_to_compare_whole_ && state.site.unspilled) keep_flags(site_id);
  const Pair& pair = add_pair(state, target, ref, may);
  const CacheAddr accept = pair.stub.accept;
  const ChainEntry entry{target.value(), pair.stub.entry, pair.stub.mismatch_field};
  lead_by_index(site_id);
  const size_t led = state.by_index ? state.by_index->led : 0;
  const size_t in_chain = runs_seldom(state) ? kSeldomPairsInChain : kPairsInChain;
  if (state.buckets == nullptr && state.chain.size() >= in_chain + led &&
      optimizations_.has(Optimization::kHashes)) {
    build_hash(state, site_id);
  }
  if (state.buckets != nullptr) {
    const uint8_t hash = hash_of(state.hash, target.value());
    insert((*state.buckets)[hash], entry, state.site.miss_stub,
           [&](CacheAddr head) { set_table_head(state.table_offset, hash, head); });
  } else {
    insert(state.chain, entry, state.site.miss_stub, [&](CacheAddr head) { lead(state, head); });
  }
  return accept;
}

// Whether a table of two kilobytes, and a stub more for each pair, would hardly be used.  How often
// a call is made, its block's edges say.  Of a jump that goes by the whole procedure: how often
// control comes to a block by indirect jumps, no edge says.
bool CodeCache::runs_seldom(const SiteState& state) const {
  const Unit& unit = *units_[state.unit];
  if (!optimizations_.has(Optimization::kSparse) || !unit.weighed) return false;
  if (unit.busy_blocks.empty()) return true;
  return state.site.call && !is_busy({state.unit, state.site.block});
}

// Replaces a site's chain by a hash table of chains, with the hash that spreads its targets best.
void CodeCache::build_hash(SiteState& state, uint32_t site_id) {
  if (next_table_ + tables::kHashTableBytes > tables::kHashTablesEnd) return;  // stays a chain
  size_t best = 0;
  for (HashKind kind :
       {HashKind::kBits4to11, HashKind::kBits5to12, HashKind::kBits8to15, HashKind::kBits0to7}) {
    std::array<bool, 256> used{};
    size_t distinct = 0;
    for (const Pair& pair : state.pairs) {
      bool& slot = used[hash_of(kind, pair.target.value())];
      distinct += slot ? 0 : 1;
      slot = true;
    }
    if (distinct > best) {
      best = distinct;
      state.hash = kind;
    }
  }
  stats_.hashed += 1;
  state.table_offset = next_table_;
  next_table_ += tables::kHashTableBytes;
  state.buckets = std::make_unique<std::array<Chain, 256>>();
  for (uint32_t h = 0; h < 256; ++h) {
    set_table_head(state.table_offset, static_cast<uint8_t>(h), state.site.miss_stub);
  }
  // From the back, so that the order among equals is kept.  A thread that is inside the old chain
  // meanwhile may walk into a shorter one; it then asks the monitor, which finds the pair.
  const Chain old = std::move(state.chain);
  state.chain.clear();
  for (size_t i = old.size(); i-- > 0;) {
    const uint8_t hash = hash_of(state.hash, old[i].original);
    insert((*state.buckets)[hash], old[i], state.site.miss_stub,
           [&](CacheAddr head) { set_table_head(state.table_offset, hash, head); });
  }
  lead_to_table(state, site_id);
}

void CodeCache::lead_to_table(const SiteState& state, uint32_t site_id) {
  const uint32_t table = region_.tables_base() + state.table_offset;
  const unsigned reg = state.site.unspilled ? state.site.unspilled->reg : kDispatchRegister;
  if (state.site.room_bytes != 0 && state.hash != HashKind::kBits0to7) {
    const CacheAddr begin = state.site.field + 4;
    isa::Assembler as(code_at(begin), state.site.room_bytes, begin);
    emit_hash_dispatch(as, state.hash, table, reg);
    CHECK(!as.overflowed()) << "a dispatch longer than its room";
    erase_jmp(state.site.field);
    return;
  }
  Area& area = *units_[state.unit]->area;
  set_branch(state.site.field,
             emit_piece(area, {CacheAddr(), CodeRecord::Kind::kDispatch, site_id, 0},
                        [&](auto& as) { return emit_hash_dispatch(as, state.hash, table, reg); }));
}

// ---- jumps that keep nothing -------------------------------------------------------------------

void CodeCache::allow_for_entry_at(BlockRef ref) {
  if (ref.insn == 0) return;
  const Unit& unit = *units_[ref.unit];
  for (uint32_t i = 0; i < unit.code.sites.size(); ++i) {
    if (unit.code.sites[i].block != ref.block) continue;
    SiteState& state = sites_[unit.first_site + i];
    if (const auto& head = state.site.head) {
      const bool unbounded = ref.insn > head->jump.bounded_by && ref.insn < head->jump.first;
      if (unbounded) leave_index(state);
    }
    const auto& jump = state.site.unspilled;
    if (jump && ref.insn > jump->flags.insn) keep_flags(unit.first_site + i);
  }
}

// From now on the site's comparisons change no flag.  Who is on the way through the old ones has
// come by what made the flags.
void CodeCache::keep_flags(uint32_t site_id) {
  leave_index(sites_[site_id]);
  compare_always(site_id);
}

bool CodeCache::may_join(const SiteState& state, TargetAddr target) {
  const auto& slot = state.site.slot;
  if (!slot) return true;
  return sealed_.holds(*units_[state.unit]->module, *slot) && sealed_.pointer_at(*slot) == target;
}

void CodeCache::unseal(TargetRange range) {
  if (!sealed_.changed(range)) return;
  for (uint32_t id = 0; id < sites_.size(); ++id) {
    const auto& slot = sites_[id].site.slot;
    // Who has not been led anywhere yet asks, and then finds what is there.
    const bool is_led = slot && !sites_[id].chain.empty();
    if (is_led && overlaps(range, {*slot, *slot + sizeof(uint64_t)})) compare_always(id);
  }
}

// From now on the site compares, and its comparisons change no flag.  Its pairs are made anew as
// they are asked for.
void CodeCache::compare_always(uint32_t site_id) {
  SiteState& state = sites_[site_id];
  Area& area = *units_[state.unit]->area;
  const CodeRecord record{CacheAddr(), CodeRecord::Kind::kDispatch, site_id, 0};
  const auto slot = std::exchange(state.site.slot, std::nullopt);
  if (slot && !state.pairs.empty()) stats_.unsealed += 1;
  for (Pair& pair : state.pairs) pair.cut = true;
  state.chain.clear();
  if (state.site.alone) lead_shortcuts(state, state.site.miss_stub);
  state.site.alone = false;
  shortcuts_.erase(site_id);
  state.buckets.reset();
  state.site.unspilled.reset();
  state.site.room_bytes = 0;
  const CacheAddr old_field = state.site.field;
  state.site.miss_stub = emit_piece(area, record, [&](auto& as) {
    const CacheAddr begin = as.here();
    as.mov_gs32_imm(tcb::kArgument, site_id);
    const Gateways& ways = area.gateway.entries;
    as.jmp((state.site.call ? ways.visit_by_call : ways.visit).value());
    return begin;
  });
  const CacheAddr head = emit_piece(area, record, [&](auto& as) {
    const CacheAddr begin = as.here();
    if (slot) {
      emit_load_slot(as, *slot);
    } else {
      as.mov_gs_rcx(tcb::kSpillRcx);
      as.mov_rcx_gs(tcb::kTarget);
    }
    as.align_patch_jmp();
    as.jmp(state.site.miss_stub.value());
    state.site.field = CacheAddr(as.here().value() - 4);
    return begin;
  });
  put_jmp(old_field, head);
}

// ---- unmapping ---------------------------------------------------------------------------------

void CodeCache::cut(TargetRange range) {
  for (uint32_t id = 0; id < links_.size(); ++id) {
    const auto [unit_id, index] = links_[id];
    const Unit& unit = *units_[unit_id];
    const Link& link = unit.code.links[index];
    const bool leads_there = range.contains(unit.module->to_target(link.target));
    if (leads_there && link.field != CacheAddr()) set_branch(link.field, link.miss_stub);
    if (leads_there || range.contains(address_of({unit_id, link.block}))) link_waits_[id] = 0;
  }
  auto inside = [&](const ChainEntry& e) { return range.contains(TargetAddr(e.original)); };
  auto rebuild = [&](Chain& chain, CacheAddr miss, const std::function<void(CacheAddr)>& set_head) {
    if (std::none_of(chain.begin(), chain.end(), inside)) return;
    Chain kept;
    for (const ChainEntry& e : chain) {
      if (!inside(e)) kept.push_back(e);
    }
    chain = std::move(kept);
    for (size_t i = 0; i < chain.size(); ++i) {
      set_branch(chain[i].mismatch_field, i + 1 < chain.size() ? chain[i + 1].entry : miss);
    }
    set_head(chain.empty() ? miss : chain[0].entry);
  };
  landings_.remove(range);
  known_targets_.forget_if([&](TargetAddr target, BlockRef) { return range.contains(target); });
  for (SiteState& state : sites_) {
    for (uint32_t i = 0; i < state.pairs.size(); ++i) {
      if (!range.contains(state.pairs[i].target)) continue;
      state.pairs[i].cut = true;
      unset_index(state, i);
    }
    rebuild(state.chain, state.site.miss_stub, [&](CacheAddr head) { lead(state, head); });
    if (state.buckets == nullptr) continue;
    for (uint32_t h = 0; h < 256; ++h) {
      rebuild((*state.buckets)[h], state.site.miss_stub, [&](CacheAddr head) {
        set_table_head(state.table_offset, static_cast<uint8_t>(h), head);
      });
    }
  }
  for (const auto& unit : units_) {
    for (uint32_t b = 0; b < unit->procedure.blocks.size(); ++b) {
      const TargetAddr address = unit->module->to_target(unit->address_of(b));
      if (!range.contains(address)) continue;
      const auto found = blocks_.find(address.value());
      if (found && *found >> 32 == unit->id) blocks_.set(address.value(), ~0ull);
      if (call_blocks_.find(address.value()) != nullptr) call_blocks_.set(address.value(), ~0ull);
    }
  }
}

}  // namespace tally::engine
