// Translation on demand and registration of what was translated.  See code_cache.h.
#include "cache/code_cache.h"

#include <string.h>
#include <sys/syscall.h>

#include <algorithm>

#include "cache/inductions.h"

namespace tally::engine {

using profile::Provenance;
using namespace translate;

namespace {

// Code that neither .eh_frame nor a symbol describes is taken in pieces of at most this size.
constexpr uint64_t kUnknownCodeBytes = 64 << 10;

}  // namespace

// What a unit keeps of a procedure: all but its instructions.  Others may be found in the memory
// that the procedure has.
cfg::Procedure CodeCache::outline(const cfg::Procedure& p) {
  cfg::Procedure result;
  result.entry = p.entry;
  result.range = p.range;
  result.blocks = p.blocks.copied();
  result.edges = p.edges.copied();
  result.entry_block = p.entry_block;
  return result;
}

// The procedure with its instructions again, for which there is memory; nothing where its code is
// another by now.
std::optional<cfg::Procedure> CodeCache::with_instructions(const Unit& unit,
                                                           const cfg::CodeView& view,
                                                           std::vector<isa::Insn> memory) {
  cfg::Procedure result = unit.procedure;
  result.insns = std::move(memory);
  result.insns.resize(unit.insn_sizes.size());
  for (const cfg::Block& block : result.blocks) {
    if (!decode_block(view, unit.insn_sizes, block, result)) return std::nullopt;
  }
  return result;
}

void CodeCache::initialize_tables() {
  uint8_t* tables = region_.tables();
  // System calls that concern the monitor; see service.cpp for what each is about.
  for (long number :
       {SYS_mmap,        SYS_mprotect,      SYS_munmap,    SYS_mremap,     SYS_rt_sigreturn,
        SYS_execve,      SYS_execveat,      SYS_exit,      SYS_exit_group, SYS_rseq,
        SYS_arch_prctl,  SYS_pkey_mprotect, SYS_shmat,     SYS_prctl,      SYS_seccomp,
        SYS_personality, SYS_prlimit64,     SYS_setrlimit, SYS_getrlimit,  SYS_ptrace,
        SYS_clone,       SYS_clone3,        SYS_mlockall}) {
    tables[tables::kSyscallClass + static_cast<size_t>(number)] = 1;
  }
  known_targets_.begin(tables, code_bytes_);
  const GatewayCode& gateway = region_.areas().front().gateway;
  landings_.begin(tables, returns_form_, gateway.entries.no_landing, compare_,
                  optimizations_.has(Optimization::kSparse) ? Landings::Numbered::kWhereMany
                                                            : Landings::Numbered::kAll,
                  optimizations_.has(Optimization::kDirect) ? &gateway : nullptr);
}

uint32_t CodeCache::allocate_counter(Expected expected) {
  // In a file, each page of counters is reserved before it is there.
  const bool packed = optimizations_.has(Optimization::kPacked) && kept_ == nullptr;
  const uint32_t counter = packed ? counter_numbers_.take(expected) : next_counter_;
  CHECK(counter < tcb::kCountersMax) << "out of counters";
  if (kept_ != nullptr) kept_->reserve_counter(counter);
  next_counter_ = std::max(next_counter_, counter + 1);
  stats_.counters += 1;
  return counter;
}

// By an earlier run's weights.
bool CodeCache::is_busy(BlockRef ref) const {
  const std::vector<bool>& busy = units_[ref.unit]->busy_blocks;
  return !busy.empty() && busy[ref.block];
}

bool CodeCache::is_busiest(BlockRef ref) const {
  const std::vector<bool>& busiest = units_[ref.unit]->busiest_blocks;
  return !busiest.empty() && busiest[ref.block];
}

bool CodeCache::is_seldom(BlockRef ref) const {
  const std::vector<bool>& seldom = units_[ref.unit]->seldom_blocks;
  return !seldom.empty() && seldom[ref.block];
}

// Of the counters of ways into a block from elsewhere.
Expected CodeCache::expected_of(BlockRef to) const {
  return is_busy(to) ? Expected::kBusy : Expected::kSome;
}

// ---- finding and translating -------------------------------------------------------------------

Result<BlockRef> CodeCache::resolve(TargetAddr address, Arrival how) {
  if (const auto found = blocks_.find(address.value()); found && *found != kGone) {
    return with_code(unpack(*found));
  }
  Module* module = modules_.at(address);
  if (module == nullptr) return BlockRef{};
  const LinkAddr link = module->to_link(address);
  if (const BlockRef ref = inside(link, units_meeting(*module, {link, link + 1})); ref.valid()) {
    TRY(give_code(ref));
    allow_for_entry_at(ref);
    return ref;
  }
  TRY(translate_at(*module, link, how));
  const auto found = blocks_.find(address.value());
  if (!found || *found == kGone) {
    return make_error("control reached bytes that are no instruction, at {}+{:#x}", module->path,
                      module->to_link(address).value());
  }
  return with_code(unpack(*found));
}

// Nothing describes generated code: it is followed from where control is, forwards.
CodeCache::Bounds CodeCache::bounds_of_generated(Module& module, LinkAddr address) const {
  constexpr uint64_t kBytesMax = 16 << 10;
  const TargetRange* range = module.executable.at(module.to_target(address));
  CHECK(range != nullptr) << "no code at " << address.value();
  const LinkAddr end = std::min(module.to_link(range->end), address + kBytesMax);
  return {{address, end}, address, Provenance::kRunTime};
}

// Where the procedure around an address begins and ends.
CodeCache::Bounds CodeCache::bounds_of(Module& module, LinkAddr address, Arrival how) {
  if (module.generated) return bounds_of_generated(module, address);
  const elf::Image& image = *module.image;
  LinkRange segment;
  for (const elf::Segment& s : image.segments()) {
    if (s.executable && s.range.contains(address)) segment = s.range;
  }
  if (segment.empty()) {
    // Data of a file that the program made executable.
    const TargetRange* range = module.executable.at(module.to_target(address));
    CHECK(range != nullptr) << "no code at " << address.value();
    return {{address, std::min(module.to_link(range->end), address + kUnknownCodeBytes)},
            address,
            Provenance::kRunTime};
  }
  if (const elf::Section* stubs = image.linkage_table_at(address)) {
    // Each slot is a procedure of its own.
    constexpr uint64_t kSlotBytes = 16;
    const LinkRange all = stubs->range;
    const LinkAddr slot =
        all.begin + (static_cast<uint64_t>(address - all.begin) & ~(kSlotBytes - 1));
    return {{slot, std::min(slot + kSlotBytes, all.end)}, address, Provenance::kSymbol};
  }
  const std::optional<LinkRange> fde = image.unwind_range_at(address);
  const elf::Symbol* symbol = image.symbol_at(address);
  if (fde && fde->end <= segment.end) {
    // Hand-written code may put many procedures under one description; symbols and calls tell.
    LinkAddr entry = fde->begin;
    Provenance provenance = Provenance::kUnwindRange;
    if (symbol != nullptr && symbol->range.begin > entry && symbol->range.begin <= address) {
      entry = symbol->range.begin;
      provenance = Provenance::kSymbol;
    }
    if (how == Arrival::kCall && entry != address) {
      return {*fde, address, Provenance::kDirectCall};
    }
    return {*fde, entry, provenance};
  }
  if (symbol != nullptr && !symbol->range.empty() && symbol->range.end <= segment.end) {
    if (how == Arrival::kCall) return {symbol->range, address, Provenance::kSymbol};
    return {symbol->range, symbol->range.begin, Provenance::kSymbol};
  }
  LinkAddr end = std::min(segment.end, address + kUnknownCodeBytes);
  const auto& known = image.unwind_ranges();
  auto next = std::upper_bound(known.begin(), known.end(), address,
                               [](LinkAddr a, const LinkRange& r) { return a < r.begin; });
  if (next != known.end()) end = std::min(end, next->begin);
  return {{address, end}, address, Provenance::kRunTime};
}

Status CodeCache::translate_at(Module& module, LinkAddr address, Arrival how) {
  const PhaseTimer timer(phases_, Phase::kDiscover);
  if (module.area == nullptr || module.area->is_for_pieces()) {
    TRY(give_area(module, region_, process_, remote_call_));
  }
  modules_.drop_snapshot();
  const Bounds bounds = bounds_of(module, address, how);
  cfg::DiscoverRequest request;
  request.range = bounds.range;
  request.entry = bounds.entry;
  const std::vector<uint32_t> overlapping = units_meeting(module, bounds.range);
  // Nearly always this is the first unit in its range, and then nothing in it is known yet.
  if (!overlapping.empty()) {
    request.known_elsewhere = [&](LinkAddr a) {
      const auto found = blocks_.find(module.to_target(a).value());
      return (found && *found != kGone) || inside(a, overlapping).valid();
    };
    // If the procedure's beginning is translated already, what is new begins right here.
    if (request.known_elsewhere(request.entry)) request.entry = address;
  }
  if (request.entry != address) request.extra_entries.push_back(address);
  request.never_returns = [&](LinkAddr target) { return module.never_returns(target); };
  request.replaceable = module.from_memory;
  // Back-traces do not show for sure what is active in code without call frame information.
  request.open_calls = request.replaceable || kept_ != nullptr ||
                       !module.image->unwind_range_at(bounds.entry).has_value();
  request.unstable =
      module.from_memory && module.writable.meets({module.to_target(bounds.range.begin),
                                                   module.to_target(bounds.range.end)});
  auto unit = std::make_unique<Unit>();
  unit->replaceable = request.replaceable;
  unit->open_calls = request.open_calls;
  unit->checked = request.unstable;
  unit->asked = address;
  unit->asked_how = how;
  unit->id = static_cast<uint32_t>(units_.size());
  unit->module = &module;
  unit->provenance = request.entry == address && request.entry != bounds.entry
                         ? Provenance::kRunTime
                         : bounds.provenance;
  // What other units are in the way of is this run's own.
  KnownProcedures* shared = overlapping.empty() && optimizations_.has(Optimization::kShared)
                                ? module.shared_procedures()
                                : nullptr;
  const std::shared_ptr<const KnownProcedure> known =
      find_procedure(*unit, request, address, shared);
  if (known == nullptr) return Ok{};  // the caller names it
  unit->procedure = outline(known->procedure);
  unit->insn_sizes = SharedVector<uint8_t>(known->insn_sizes);
  if (unit->replaceable) {
    keep_source(*unit, module.view);
    const LinkAddr begin = unit->procedure.range.begin + unit->source_offset;
    modules_.expect_translation(
        {module.to_target(begin), module.to_target(begin + unit->source.size())});
  }
  number_probes(*unit, *known);
  unit->weighed = known->weighed;
  unit->confirmed = known->confirmed;
  unit->rank = known->rank;
  unit->area = module.area;
  TRY(emit(*unit, known->procedure, *module.area));
  take_entry(*unit);
  register_unit(*unit, *module.area);
  if (kept_ != nullptr) kept_->unit(*unit, modules_);
  fresh_.push_back(unit->id);
  units_.push_back(std::move(unit));
  join_links(*units_.back());
  return Ok{};
}

// The procedure with its counters placed, as another image run has found it or found now; nullptr
// when the address is no code.
std::shared_ptr<const KnownProcedure> CodeCache::find_procedure(Unit& unit,
                                                                cfg::DiscoverRequest& request,
                                                                LinkAddr address,
                                                                KnownProcedures* shared) {
  const ProcedureKey key{request.range, request.entry, address, request.open_calls};
  FoundProcedures* before = may_be_found(unit, request) ? found_.get() : nullptr;
  if (shared != nullptr) {
    auto known = shared->find(key);
    if (known != nullptr && may_be_placed(unit, *known)) {
      stats_.known += 1;
      return known;
    }
  }
  if (before != nullptr && reread(unit, key)) return unshared_;
  cfg::Discoverer& discoverer = *unit.module->discoverer;
  // What nobody else will have is found in memory that is there already.
  auto fresh = shared == nullptr ? unshared_ : std::make_shared<KnownProcedure>();
  fresh->forget();
  cfg::Procedure& p = fresh->procedure;
  discoverer.discover(request, p);
  if (p.block_at(address) == cfg::kExitBlock) return nullptr;
  if (p.entry_block == cfg::kExitBlock) {
    // The supposed beginning is no code; begin where control is.
    request.entry = address;
    request.extra_entries.clear();
    discoverer.discover(request, p);
    unit.provenance = Provenance::kRunTime;
    shared = nullptr;
    before = nullptr;
  }
  fresh->insn_sizes.reserve(p.insns.size());
  for (const isa::Insn& insn : p.insns) fresh->insn_sizes.push_back(insn.size);
  place(unit, *fresh);
  if (shared == nullptr && before == nullptr) return fresh;
  const std::vector<LinkRange> sources = discoverer.sources(p);
  fresh->sources.insert(fresh->sources.end(), sources.begin(), sources.end());
  if (before != nullptr && fresh->weighed) {
    before->add(*unit.module->image, key, *weights_, *fresh);
  }
  if (shared != nullptr) shared->add(key, fresh);
  return fresh;
}

// Whether counters may be placed as they are in `procedure`, where the number of entries is known.
// Of units that begin at one address callers count the sum.
bool CodeCache::may_be_placed(const Unit& unit, const KnownProcedure& procedure) const {
  if (procedure.rank == 0) return true;
  return optimizations_.has(Optimization::kCallers) && kept_ == nullptr && !unit.replaceable &&
         !unit.open_calls && !unit.checked &&
         entries_.find(unit.module->key_of(procedure.procedure.entry)) == nullptr;
}

// Where the first unit at an address leaves its entries to callers, branches to others there have
// counters.
void CodeCache::take_entry(Unit& unit) {
  const uint64_t key = unit.module->key_of(unit.procedure.entry);
  const EntryOf* first = entries_.find(key);
  unit.counts_branches = first != nullptr && *first == EntryOf::kLeftToCallers;
  if (first != nullptr) return;
  entries_.set(key, unit.left_to_callers() ? EntryOf::kLeftToCallers : EntryOf::kCounts);
  if (unit.left_to_callers()) stats_.left_to_callers += 1;
}

void CodeCache::place(const Unit& unit, KnownProcedure& procedure) {
  const PhaseTimer timer(phases_, Phase::kPlace);
  const Module& module = *unit.module;
  const EdgeWeights::Known known = weights_of(module, procedure.procedure);
  stats_.weighed += known.weighed != nullptr;
  procedure.weighed = known.weighed != nullptr;
  procedure.confirmed = known.weighed != nullptr && known.weighed->confirmed;
  procedure.rank = known.weighed == nullptr ? 0 : known.weighed->rank;
  if (!may_be_placed(unit, procedure)) procedure.rank = 0;
  MeasuredWeights measured{feedback_ ? feedback_(module) : FeedbackWeights(),
                           known.steps,
                           optimizations_.has(Optimization::kOrder),
                           procedure.rank != 0,
                           may_defer(unit),
                           followed()};
  if (may_induce(unit)) {
    measured.is_inductive =
        inductive_blocks(procedure.procedure, procedure.insn_sizes, module.view);
  }
  procedure.plan = make_plan(procedure.procedure, module.view, placement_, measured,
                             [&] { return procedure.counters++; });
  if (placement_ == PlacementKind::kEdges) {
    find_inductions(procedure.procedure, procedure.insn_sizes, module.view, procedure.plan);
  }
  if (known.weighed != nullptr) {
    procedure.expected = expected_counts(procedure.procedure, procedure.plan, procedure.counters,
                                         known.steps, known.weighed->heaviest_bits);
  }
  if (module.generated || module.image->unwind_ranges().empty()) return;
  procedure.events = find_events(procedure.procedure, module.view, procedure.sources);
}

// Counters and events of the unit's own.
void CodeCache::number_probes(Unit& unit, const KnownProcedure& known) {
  unit.plan = known.plan;
  unit.busiest_blocks = known.expected.busiest_blocks;
  unit.busy_blocks = known.expected.busy_blocks;
  unit.seldom_blocks = known.expected.seldom_blocks;
  unit.idle_edges = known.expected.idle_edges;
  unit.led_from = known.expected.led_from;
  // What is not known to run may have code later or never: its counters lie in the order in which
  // that is made.
  const std::vector<Expected>& each = known.expected.counters;
  const bool when_made = !unit.plan.followed.empty() && may_defer(unit);
  std::vector<int32_t> numbers(known.counters, kUnnumbered);
  for (uint32_t i = 0; i < known.counters; ++i) {
    const bool may_never_be_made = each.empty() || each[i] == Expected::kIdle;
    if (when_made && may_never_be_made) continue;
    const Expected expected = each.empty() ? Expected::kSome : each[i];
    numbers[i] = static_cast<int32_t>(allocate_counter(expected));
  }
  for (auto* counters : {&unit.plan.block_counter, &unit.plan.edge_counter}) {
    for (int32_t& counter : *counters) {
      if (counter != kNoCounter) counter = numbers[static_cast<size_t>(counter)];
    }
  }
  take_inductions(unit);
  for (const WantedEvent& wanted : known.events) {
    EventState event;
    event.kind = wanted.kind;
    event.unit = unit.id;
    event.block = wanted.block;
    event.insn = wanted.insn_in_block;
    event.slot_bytes = wanted.slot_bytes;
    unit.plan.events.push_back({wanted.insn, static_cast<uint32_t>(events_.size())});
    events_.push_back(event);
  }
}

void CodeCache::number_counter(Unit& unit, EmitRequest::Counts what, uint32_t index) {
  const bool of_block = what == EmitRequest::Counts::kBlock;
  int32_t& counter = (of_block ? unit.plan.block_counter : unit.plan.edge_counter)[index];
  CHECK(counter == kUnnumbered) << "counter " << counter;
  counter = static_cast<int32_t>(allocate_counter(Expected::kSome));
}

Status CodeCache::emit(Unit& unit, const cfg::Procedure& procedure, Area& area) {
  const PhaseTimer timer(phases_, Phase::kEmit);
  unit.first_link = static_cast<uint32_t>(links_.size());
  unit.first_site = static_cast<uint32_t>(sites_.size());
  unit.first_syscall = static_cast<uint32_t>(syscalls_.size());
  unit.first_block = next_block_;
  unit.first_edge = next_edge_;
  unit.first_check = static_cast<uint32_t>(checks_.size());
  EmitRequest request = emit_request(unit, procedure, area);
  request.defer = may_defer(unit) && (unit.confirmed || !unit.plan.followed.empty());
  const bool is_over = !unit.plan.order.empty() && unit.plan.in_body == 0;
  if (defers_always_ && may_defer(unit) && !is_over) {
    leave_entry_alone_in_body(procedure, unit.id % 2 == 0 ? LeftOut::kTogether : LeftOut::kInParts,
                              unit.plan);
    unit.idle_edges.assign(procedure.edges.size(), 1);
    request.defer = true;
  }
  request.give_number = [&](EmitRequest::Counts what, uint32_t index) {
    number_counter(unit, what, index);
  };
  request.idle_edges = unit.idle_edges;
  set_led(unit, procedure, request);
  unit.lies = place_of(unit, procedure, area);
  const Room bodies = area.bodies(unit.lies), seldom = area.cold(unit.lies);
  isa::Assembler hot = area.assembler(bodies), cold = area.assembler(seldom);
  unit.code = emit_unit(hot, cold, request);
  if (unit.code.has_overflowed) {
    return make_error("the code cache is full ({} MB); the program runs more code than fits",
                      kAreaSizeBytes >> 20);
  }
  const uint64_t behind_body =
      unit.plan.order.empty() ? 0 : unit.plan.order.size() - unit.plan.in_body;
  if (unit.weighed) stats_.apart += behind_body;
  if (!unit.code.is_whole) stats_.deferred += behind_body;
  take_asks(unit.code, area);
  unit.code.links.shrink_to_fit();
  unit.code.order.shrink_to_fit();
  std::vector<uint32_t>().swap(unit.plan.order);  // the code has it
  std::vector<uint8_t>().swap(unit.idle_edges);
  std::vector<uint32_t>().swap(unit.led_from);
  // Not before: what does not fit was perhaps made ahead, and then the run goes on without it.
  next_block_ += static_cast<uint32_t>(unit.procedure.blocks.size());
  next_edge_ += static_cast<uint32_t>(unit.procedure.edges.size());
  bodies.used_bytes += (unit.code.body_bytes + 15u) & ~15u;
  seldom.used_bytes += (unit.code.cold_bytes + 15u) & ~15u;
  note_resumes(unit.code);
  return Ok{};
}

void CodeCache::take_asks(UnitCode& code, Area& area) {
  stats_.asks_with_code += code.asks_with_code;
  code.asks_with_code = 0;
  area.asks.insert(area.asks.end(), code.asks.begin(), code.asks.end());
  std::vector<Ask>().swap(code.asks);
}

// Where threads go on behind the probes.
void CodeCache::note_resumes(const UnitCode& code) {
  for (const UnitCode::EventResume& e : code.events) {
    if (e.event < kUnsupportedEventBase) events_[e.event].resume = e.resume;
  }
}

EmitRequest CodeCache::emit_request(const Unit& unit, const cfg::Procedure& procedure,
                                    const Area& area) const {
  EmitRequest request;
  request.procedure = &procedure;
  request.plan = &unit.plan;
  request.view = &unit.module->view;
  request.bias = unit.module->bias;
  request.tables_base = region_.tables_base();
  request.gateways = area.gateway.entries;
  request.compare = compare_;
  request.returns = returns_form_;
  request.unspilled = optimizations_.has(Optimization::kUnspilled);
  request.by_index = optimizations_.has(Optimization::kIndex) && !unit.replaceable;
  if (optimizations_.has(Optimization::kSealed) && !unit.replaceable) {
    request.may_last = [&unit](TargetAddr slot) {
      return SealedMemory::may_hold(*unit.module, slot);
    };
  }
  request.near_jumps = optimizations_.has(Optimization::kNear);
  request.flags_assumed_live = flags_assumed_live();
  request.first_link = unit.first_link;
  request.first_site = unit.first_site;
  request.first_syscall = unit.first_syscall;
  request.first_block_event = kUnsupportedEventBase + unit.first_block;
  request.where = kept_ == nullptr ? 0 : unit.id + 1;
  request.checked = unit.checked;
  request.first_check_event = kStaleEventBase + unit.first_check;
  request.first_wait_event = kWaitEventBase + unit.first_block;
  request.first_edge_wait_event = kEdgeWaitEventBase + unit.first_edge;
  request.area = area.base;
  if (optimizations_.has(Optimization::kAsks)) {
    request.first_ask = static_cast<uint32_t>(area.asks.size());
    request.asks_end = area.asks_max();
  }
  return request;
}

BlockRef CodeCache::inside(LinkAddr address, const std::vector<uint32_t>& candidates) const {
  for (const uint32_t id : candidates) {
    const Unit& unit = *units_[id];
    const cfg::Procedure& p = unit.procedure;
    // Each way into a block that checks itself begins with its check.
    if (!p.range.contains(address) || unit.checked) continue;
    const auto offset = static_cast<uint32_t>(address - p.range.begin);
    auto it = std::upper_bound(p.blocks.begin(), p.blocks.end(), offset,
                               [](uint32_t o, const cfg::Block& b) { return o < b.offset; });
    // With overlapping code, more than one block may cover the address.
    for (int back = 0; back < 4 && it != p.blocks.begin(); ++back) {
      --it;
      if (offset >= it->offset + it->size_bytes) continue;
      uint32_t at = it->offset;
      for (uint32_t i = 0; i < it->insn_count && at <= offset; ++i) {
        if (at == offset) return {id, static_cast<uint32_t>(it - p.blocks.begin()), i};
        at += unit.insn_sizes[it->first_insn + i];
      }
    }
  }
  return {};
}

void CodeCache::register_unit(Unit& unit, Area& area) {
  const PhaseTimer timer(phases_, Phase::kLink);
  add_record(area, CodeRecord{unit.code.begin, CodeRecord::Kind::kUnit, unit.id, 0});
  for (const Front& front : unit.code.fronts) {
    add_record(area, CodeRecord{front.entry, CodeRecord::Kind::kUnit, unit.id, 0});
    add_record(area, CodeRecord{unit.label(front.block), CodeRecord::Kind::kUnit, unit.id, 0});
  }
  add_record(area, CodeRecord{unit.code.cold_begin, CodeRecord::Kind::kUnitCold, unit.id, 0});
  for (uint32_t i = 0; i < unit.code.links.size(); ++i) links_.push_back({unit.id, i});
  for (const Site& site : unit.code.sites) {
    SiteState state;
    state.unit = unit.id;
    state.site = site;
    sites_.push_back(std::move(state));
  }
  for (const SyscallSite& s : unit.code.syscalls) syscalls_.push_back({unit.id, s});
  for (uint32_t i = 0; i < unit.code.checks.size(); ++i) checks_.push_back({unit.id, i});
  const cfg::Procedure& p = unit.procedure;
  blocks_.add(unit.id, p, unit.module->bias);
  by_range_.add(unit.module->id, p.range, unit.id);
  stats_.units += 1;
  stats_.instructions += unit.insn_sizes.size();
  stats_.blocks += p.blocks.size();
  stats_.edges += p.edges.size();
  stats_.code_bytes += unit.code.size_bytes;
}

void CodeCache::seal() {
  for (const auto& unit : units_) {
    unit->code.forget_places();
    std::vector<uint8_t>().swap(unit->source);
  }
  for (SiteState& state : sites_) state.forget_chains();
  for (const auto& module : modules_.all()) {
    module->discoverer.reset();
    module->image->drop_pages();
  }
  blocks_ = BlockMap();
  call_blocks_ = FlatMap<uint64_t>();
  waiting_ = FlatMap<uint32_t>();
  std::vector<uint32_t>().swap(next_waiting_);
  std::vector<uint8_t>().swap(link_waits_);
  std::vector<std::vector<CodeRecord>>().swap(records_);
}

// ---- looking up --------------------------------------------------------------------------------

size_t CodeCache::record_index(const Area& area, CacheAddr address) {
  const size_t first = Area::kParts * area.index;
  const auto offset = static_cast<uint64_t>(address - area.base);
  constexpr std::array kEnds = {kAreaBodiesEnd, kAreaPieces, kAreaHalfBytes, kAreaColdEnd};
  static_assert(kEnds.size() + 1 == Area::kParts);
  return first + static_cast<size_t>(std::ranges::upper_bound(kEnds, offset) - kEnds.begin());
}

void CodeCache::add_record(const Area& area, const CodeRecord& record) {
  const size_t part = record_index(area, record.begin);
  if (records_.size() <= part) records_.resize(part + 1);
  records_[part].push_back(record);
}

void CodeCache::for_each_dispatch(const std::function<void(CacheAddr, CacheAddr)>& visit) const {
  for (const auto& half : records_) {
    for (size_t i = 0; i + 1 < half.size(); ++i) {
      if (half[i].kind == CodeRecord::Kind::kDispatch) visit(half[i].begin, half[i + 1].begin);
    }
  }
}

const CodeRecord* CodeCache::record_at(CacheAddr address) const {
  CHECK(!is_given_back(address)) << "a way to code that was given back, at " << address.value();
  for (const Area& area : region_.areas()) {
    if (address < area.base || address >= area.base + kAreaCodeEnd) continue;
    const size_t part = record_index(area, address);
    if (part >= records_.size()) return nullptr;
    const auto& records = records_[part];
    auto it = std::upper_bound(records.begin(), records.end(), address,
                               [](CacheAddr a, const CodeRecord& r) { return a < r.begin; });
    if (it == records.begin()) return nullptr;
    const bool is_nobodys = (it - 1)->in_unit() && units_[(it - 1)->index]->is_nobodys;
    CHECK(!is_nobodys) << "a way to a unit of nobody's, at " << address.value();
    return &*(it - 1);
  }
  return nullptr;
}

bool CodeCache::is_boundary(CacheAddr address) const {
  const CodeRecord* record = record_at(address);
  if (record == nullptr) return false;
  if (record->kind == CodeRecord::Kind::kIndexed) return is_boundary_of_tail(*record, address);
  if (!record->in_unit()) return false;
  const Unit& unit = *units_[record->index];
  const uint32_t offset = unit.code.offset_of(address);
  if (offset >= unit.code.part_of(offset).thunks_begin) return false;
  const std::optional<uint32_t> b = unit.code.block_at(offset);
  if (!b) return false;
  const BlockCode& code = unit.code.blocks[*b];
  if (code.label == offset) return true;
  const uint32_t* first = unit.code.insn_offset.data() + code.first_insn;
  return std::binary_search(first, first + unit.procedure.blocks[*b].insn_count, offset);
}

const SyscallSite* CodeCache::syscall_site_of(BlockRef ref) const {
  for (const SyscallSite& site : units_[ref.unit]->code.syscalls) {
    if (site.block == ref.block) return &site;
  }
  return nullptr;
}

BlockRef CodeCache::call_block_of(TargetAddr return_address) {
  if (const uint64_t* memo = call_blocks_.find(return_address.value()); memo && *memo != kGone) {
    return unpack(*memo);
  }
  Module* module = modules_.at(return_address - 1);
  if (module == nullptr) return {};
  const LinkAddr end = module->to_link(return_address);
  // The newest generation first: of several, it is the likeliest.
  for (auto it = units_.rbegin(); it != units_.rend(); ++it) {
    const auto& unit = *it;
    if (unit->module != module || !unit->procedure.range.contains(end - 1)) continue;
    for (uint32_t b = 0; b < unit->procedure.blocks.size(); ++b) {
      const isa::Flow flow = unit->procedure.blocks[b].end;
      if (unit->end_of(b) != end) continue;
      if (flow != isa::Flow::kCall && flow != isa::Flow::kIndirectCall) continue;
      call_blocks_.set(return_address.value(), pack({unit->id, b}));
      return {unit->id, b};
    }
  }
  return {};
}

bool CodeCache::has_landing(TargetAddr return_address) const {
  return landings_.has(return_address.value());
}

BlockRef CodeCache::block_at(TargetAddr address) const {
  const auto found = blocks_.find(address.value());
  return found && *found != kGone ? unpack(*found) : BlockRef{};
}

bool CodeCache::is_procedure_entry(TargetAddr address) const {
  const auto found = blocks_.find(address.value());
  return found && *found != kGone && is_entry(unpack(*found));
}

// Itself, or what the stub leads to that it is.
bool CodeCache::is_undescribed(const Unit& unit) const {
  if (unit.open_calls) return true;
  const uint32_t entry = unit.procedure.entry_block;
  if (unit.procedure.blocks[entry].end != isa::Flow::kIndirectJump) return false;
  const SiteState* site = site_of({unit.id, entry});
  return site != nullptr &&
         std::any_of(site->pairs.begin(), site->pairs.end(),
                     [&](const Pair& pair) { return units_[pair.to.unit]->open_calls; });
}

bool CodeCache::leaves_description(BlockRef call) const {
  if (units_[call.unit]->open_calls) return false;
  return any_callee(call, [&](uint32_t callee) { return is_undescribed(*units_[callee]); });
}

bool CodeCache::leads_to(BlockRef call, uint32_t unit) const {
  return any_callee(call, [&](uint32_t callee) { return callee == unit; });
}

bool CodeCache::enters_generated_code(BlockRef call) const {
  if (units_[call.unit]->module->generated) return false;
  const UnitTest is_generated = [&](uint32_t unit) { return units_[unit]->module->generated; };
  constexpr int kJumpsMost = 3;  // a linkage stub's, and some more
  return any_callee(call, [&](uint32_t callee) {
    return is_generated(callee) || any_jumped_to(callee, is_generated, kJumpsMost);
  });
}

// Where procedures are that end in jumps from one to the next, of which the call's comes first: it
// is the call that control comes back to.
bool CodeCache::any_jumped_to(uint32_t id, const UnitTest& test, int most) const {
  if (most == 0) return false;
  const Unit& unit = *units_[id];
  const UnitTest or_farther = [&](uint32_t to) {
    return to != id && (test(to) || any_jumped_to(to, test, most - 1));
  };
  for (uint32_t i = 0; i < unit.code.sites.size(); ++i) {
    const SiteState& state = sites_[unit.first_site + i];
    if (state.site.call) continue;
    if (std::ranges::any_of(state.pairs,
                            [&](const Pair& pair) { return or_farther(pair.to.unit); })) {
      return true;
    }
  }
  return std::ranges::any_of(unit.code.links, [&](const Link& link) {
    if (link.edge == Link::kCallLink) return false;
    const auto found = blocks_.find(unit.module->to_target(link.target).value());
    return found && *found != kGone && or_farther(unpack(*found).unit);
  });
}

bool CodeCache::any_callee(BlockRef call, const UnitTest& test) const {
  if (const SiteState* site = site_of(call)) {
    return std::any_of(site->pairs.begin(), site->pairs.end(),
                       [&](const Pair& pair) { return test(pair.to.unit); });
  }
  const Unit& unit = *units_[call.unit];
  for (const Link& link : unit.code.links) {
    if (link.block != call.block || link.edge != Link::kCallLink) continue;
    const auto found = blocks_.find(unit.module->to_target(link.target).value());
    return found && *found != kGone && test(unpack(*found).unit);
  }
  return false;
}

const SiteState* CodeCache::site_of(BlockRef ref) const {
  const Unit& unit = *units_[ref.unit];
  for (uint32_t i = 0; i < unit.code.sites.size(); ++i) {
    if (unit.code.sites[i].block == ref.block) return &sites_[unit.first_site + i];
  }
  return nullptr;
}

BlockRef CodeCache::link_block(uint32_t id) const {
  const auto& [unit, index] = links_[id];
  return {unit, units_[unit]->code.links[index].block};
}

// The unit that has the block or edge of this number, by what its first one is.
const Unit& CodeCache::unit_with(uint32_t id, uint32_t Unit::*first) const {
  auto it = std::upper_bound(
      units_.begin(), units_.end(), id,
      [&](uint32_t value, const std::unique_ptr<Unit>& unit) { return value < (*unit).*first; });
  CHECK(it != units_.begin()) << "no unit has number " << id;
  return **(it - 1);
}

BlockRef CodeCache::global_block(uint32_t id) const {
  const Unit& unit = unit_with(id, &Unit::first_block);
  return {unit.id, id - unit.first_block};
}

CodeCache::EdgeRef CodeCache::global_edge(uint32_t id) const {
  const Unit& unit = unit_with(id, &Unit::first_edge);
  return {unit.id, id - unit.first_edge};
}

BlockRef CodeCache::from_of(EdgeRef ref) const {
  return {ref.unit, units_[ref.unit]->procedure.edges[ref.edge].from};
}

TargetAddr CodeCache::target_of(EdgeRef ref) const {
  return address_of({ref.unit, units_[ref.unit]->procedure.edges[ref.edge].to});
}

}  // namespace tally::engine
