// What has been translated, and how control gets from anywhere to anywhere in it.
//
// Problem.  An original address must lead to its translation, exactly, from every kind of branch,
// and each way into a block must be counted if nothing else counts it.
//
// Idea.  Blocks are registered by their original address.  `resolve` finds the block of an address
// or discovers and translates the procedure around it.  The ways in:
//
//   root of a procedure   calls and jumps link straight to it; its count is derived (EXIT -> root)
//   any other block       through a counted stub of the branch that leads there from elsewhere, or
//                         one for whoever else comes ("arrival")
//   indirect branch       through a stub of the pair (site, target), counted
//   return                through the landing behind the call, or through a counted arrival
//   middle of a block     an address that discovery did not know to be a target, found at run time:
//                         a counted arrival at that instruction; the profile splits the block there
//
// No instruction is translated twice, but for code that truly overlaps (a jump into the middle of
// an instruction).
//
// Returns find their landing by a number that stands at the low 32 bits of the address, or by a
// hash of the address (landings.h).  A site's pairs form a chain; above four, a hash table of
// chains.  Threads find by themselves what only other sites have led to (known_targets.h).
//
// Code that was changed or unmapped is cut out of all chains, links and tables (invalidate.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/flat_map.h"
#include "cache/block_map.h"
#include "cache/edge_weights.h"
#include "cache/events.h"
#include "cache/found_procedures.h"
#include "cache/known_procedures.h"
#include "cache/known_targets.h"
#include "cache/landings.h"
#include "cache/lookup_pace.h"
#include "cache/modules.h"
#include "cache/optimizations.h"
#include "cache/phases.h"
#include "cache/plan.h"
#include "cache/recall.h"
#include "cache/region.h"
#include "cache/renewal_of.h"
#include "cache/sealed_memory.h"
#include "cache/shared_pages.h"
#include "cache/translated.h"
#include "cache/unit_index.h"
#include "profile/model.h"

namespace tally::engine {

struct EventState {
  EventKind kind = EventKind::kSnapshot;
  uint32_t unit = 0;
  uint32_t block = 0;
  uint32_t insn = 0;       // block-local index of the instruction behind the probe
  int32_t slot_bytes = 0;  // WantedEvent's
  CacheAddr resume;
};

// What a place in the code cache is.
struct CodeRecord {
  enum class Kind : uint8_t {
    kUnit,
    kUnitCold,
    kPair,
    kArrival,
    kDispatch,
    kLinkPair,
    kIndexed,
    kDoor
  };
  CacheAddr begin;
  Kind kind = Kind::kUnit;
  uint32_t index = 0;  // unit, site, arrival, link pair, door
  uint32_t pair = 0;   // kPair; the stub of kIndexed
  bool in_unit() const { return kind == Kind::kUnit || kind == Kind::kUnitCold; }
};

// The way into the middle of a loop that a register counts, for whoever comes from elsewhere.
struct Door {
  BlockRef to;
  CacheAddr entry;
  CacheAddr entered;  // from here on the loop's counter knows of it
  CacheAddr end;
};

struct CacheStats {
  uint64_t units = 0, instructions = 0, blocks = 0, edges = 0, code_bytes = 0, pairs = 0;
  uint64_t counters = 0;
  uint64_t known = 0;           // units whose procedure another image run had found
  uint64_t weighed = 0;         // procedures whose counters were placed by an earlier run's weights
  uint64_t apart = 0;           // blocks that lie apart, since by these weights they never ran
  uint64_t deferred = 0;        // of them, those that were left out at first ...
  uint64_t made_late = 0;       // ... and those that got their code after all
  uint64_t asks_with_code = 0;  // places that ask and take memory (Region::map_asks)
  uint64_t noted = 0;           // visits that threads have noted by themselves
  uint64_t reread = 0;          // units whose procedure an earlier run of the program had found
  uint64_t recalled = 0;     // units made because an earlier run of the program had executed them
  uint64_t invalidated = 0;  // units that went because their code had changed
  uint64_t left_to_callers = 0;   // units whose entries their callers count (entry_callers.h)
  uint64_t rests = 0;             // indirect branches with a target that is not counted (rest.cpp)
  uint64_t renewed = 0;           // units that others stand for, with this run's own weights ...
  uint64_t compactions = 0;       // times that all was translated again ...
  uint64_t most_bytes = 0;        // of the target's memory for us, before some was given back
  uint64_t given_back_bytes = 0;  // ... and the code cache that was given back then
  uint64_t left_out = 0;          // procedures without code, since they seemed to be over
  uint64_t pages_shared = 0;      // of it, whose memory is another's (shared_pages.h)
  uint64_t paired_late = 0;       // ... and of them, those whose returns no longer jump
  uint64_t sealed = 0;            // branches through pointers that last, which are not compared ...
  uint64_t unsealed = 0;          // ... and of them, those that are again
  uint64_t shortcuts = 0;  // how often direct branches were led on from a linkage stub's site
  uint64_t hashed = 0;     // branches that have got a hash table
  uint64_t indexed = 0;    // jumps through tables that the program's own index leads through
  uint64_t induced = 0;    // loops that a register counts
  uint64_t fronts = 0;     // stubs in front of the blocks that they lead to
};

// A block in the map of addresses.
inline constexpr uint64_t kGone = ~0ull;
inline uint64_t pack(BlockRef ref) {
  return static_cast<uint64_t>(ref.unit) << 32 | ref.block;
}
inline BlockRef unpack(uint64_t value) {
  return {static_cast<uint32_t>(value >> 32), static_cast<uint32_t>(value)};
}

// Who writes down what the cache contains, so that counters can be read without it.
class CacheJournal {
 public:
  virtual ~CacheJournal() = default;
  virtual void reserve_counter(uint32_t counter) = 0;
  virtual void unit(const Unit& unit, const ModuleMap& modules) = 0;
  virtual void pair(uint32_t site, const Pair& pair) = 0;
  virtual void arrival(const ArrivalStub& arrival) = 0;
  virtual void link_pair(const LinkPair& pair) = 0;
};

// Sites with more targets find them through a table.
inline constexpr size_t kPairsInChain = 4;
// ... and those that, by an earlier run's counts, run seldom, only if there are as many as this.
inline constexpr size_t kSeldomPairsInChain = 24;

// Whether returns that jump may be paired with calls in mid-run.
enum class ReturnsHint : uint8_t { kFixed, kMayChange };

class CodeCache : public Translated {
 public:
  CodeCache(Region& region, ModuleMap& modules, tracee::Process& process, PlacementKind placement,
            PhaseTimes& phases)
      : region_(region),
        modules_(modules),
        process_(process),
        sealed_(process, modules),
        placement_(placement),
        phases_(phases) {}

  // How areas can be mapped at the moment; set by the session.
  void set_remote_call(RemoteCall call) { remote_call_ = std::move(call); }
  void set_feedback(std::function<FeedbackWeights(const Module&)> feedback) {
    feedback_ = std::move(feedback);
  }
  // Fills the tables that generated code looks at; once an area exists, and it is known how
  // addresses are told apart.
  void initialize_tables();

  // Everything is written down as it is made, for a monitor that may be killed; threads say where
  // they are.  Must be set before anything is translated.
  void keep_in(CacheJournal* journal) { kept_ = journal; }

  // How addresses are told apart; must be set before anything is translated.
  void set_compare(translate::Compare compare) { compare_ = compare; }
  // From now on indirect branches and returns look at whole addresses (compare_whole.cpp).
  void compare_whole();
  bool came_to_compare_whole() const { return came_to_compare_whole_; }
  translate::Compare compare() const {
    return came_to_compare_whole_ ? translate::Compare::kAll64 : compare_;
  }

  // `hint`: whether this may be changed later on.
  void set_returns(translate::Returns form, ReturnsHint hint) {
    returns_form_ = form;
    returns_hint_ = hint;
  }
  translate::Returns returns_form() const { return returns_form_; }
  // If returns are jumps, they can be paired with calls in all that is translated from now on.
  bool may_pair_returns() const {
    return returns_form_ == translate::Returns::kJump && returns_hint_ == ReturnsHint::kMayChange;
  }
  void pair_returns();
  // For those of units that are translated again.
  bool has_room_for_pieces() const;
  // Translated before that.
  bool has_former_returns(const Unit& unit) const { return unit.code.returns != returns_form_; }
  // How much code the program has; chooses the size of tables.
  void set_code_bytes(uint64_t code_bytes) { code_bytes_ = code_bytes; }

  // The block at a target address, translated if need be.  An invalid reference when no code of
  // the program is there (the jump must fault as it would natively).  Errors: generated code, no
  // room.
  Result<BlockRef> resolve(TargetAddr address, Arrival how);

  // Which of the ways to be faster are used; before anything is translated.
  void set_optimizations(Optimizations optimizations) { optimizations_ = optimizations; }

  // All but the first block of each procedure is left out until control gets there: for tests.
  void defer_always() { defers_always_ = true; }
  // A jump's first target is enough for a table of its own: for tests.
  void index_always() { indexed_above_pairs_ = 0; }

  // The answers to requests: where to go on.
  Result<CacheAddr> take_link(uint32_t link);
  Result<CacheAddr> take_indirect(uint32_t site, TargetAddr target);
  Result<CacheAddr> take_return(TargetAddr target);
  // For an edge whose stub had been left out, by its number (global_edge).
  Result<CacheAddr> take_edge_wait(uint32_t edge);
  // For a block that had been left out, by its number (global_block).
  Result<CacheAddr> take_wait(uint32_t block);
  // Translates what is sure to be asked for after what the last answers have translated, and what
  // an earlier run has been asked for.
  void translate_ahead();
  // Before that: sees to it that there are asks for what will be translated next.
  Status reserve_asks();

  // What an earlier run has left; before anything is translated.
  void set_recollection(Recollection recollection);
  // What this run leaves, from the sums of its counters, but for weights and ...
  Recollected recollect(const std::vector<uint64_t>& counters) const;
  // ... where indirect branches led: when all is solved, with the counts of those without a
  // counter.
  void recollect_led(const std::vector<uint64_t>& counters, Recollected& left) const;
  // Those of an earlier run, or nullptr; before anything is translated.
  void set_weights(std::shared_ptr<const EdgeWeights> weights) { weights_ = std::move(weights); }
  const std::shared_ptr<const EdgeWeights>& weights() const { return weights_; }
  // What an earlier run has found; before anything is translated, and only with weights.
  void set_found(std::unique_ptr<FoundProcedures> found) { found_ = std::move(found); }
  // With what this run has added; nullptr if none was set.
  const FoundProcedures* found() const { return found_.get(); }

  // Where control enters at any instruction that comes from nowhere inside its unit; it is not
  // counted.  No register is touched.
  CacheAddr way_into(BlockRef ref);
  const std::vector<Door>& doors() const { return doors_; }
  // A counted way to any instruction, for control that comes by no branch; no register is touched.
  Result<CacheAddr> arrive(BlockRef ref);
  // What the thread of this slot has noted of its indirect branches (known_targets.h).  It waits
  // for an answer, is in a system call, or will never run again (`kEnds`): it must not be in the
  // middle of a note.
  enum class AfterVisits : uint8_t { kGoesOn, kEnds };
  void take_notes(uint32_t slot, AfterVisits after);
  // The block of a visit that went on at `code`.
  BlockRef visited_block(CacheAddr code) const;

  // True if a unit's code is not the program's any more; it is then taken out of all chains.
  bool discard_if_changed(uint32_t id);
  // True where a thread may be interrupted: an instruction of the program begins here, and all
  // registers are the program's.
  bool is_boundary(CacheAddr address) const;
  // The `syscall` that ends a block.
  const translate::SyscallSite* syscall_site_of(BlockRef ref) const;

  // Whether it may pay to translate the unit again.
  bool is_renewable(uint32_t id) const;
  // Does so, and leads all ways to the new ones; `counters` say which are the likeliest.  No thread
  // may be in the old units, but for open calls: these come back to the new ones.  What cannot be
  // translated again stays as it is; the others know who renews them.
  void renew(std::span<const Renewal> wanted, std::span<const uint64_t> counters);
  // The same for all that may be translated again, whatever it has counted; the memory of what was
  // there before can be given back then (compact.cpp).  All threads, of which there have been
  // `slots` at once, stand still, and none is in the old units or on the way there.
  enum class GiveNumbers : uint8_t {
    kKept,
    kAnew,  // to landings for which there is memory: nothing runs until `give_back` has done it
    kAnewToAll,  // whatever memory that takes
  };
  bool is_movable(uint32_t id) const;
  bool may_compact() const;
  // Whether that is to be expected: what will be left out is to have its places (`reserve_asks`).
  void expect_to_compact(bool soon);
  void compact(std::vector<Renewal> wanted, std::span<const uint64_t> counters, uint32_t slots,
               GiveNumbers numbers);
  // Whether landings are to get their numbers anew: they must not be held then.
  bool is_about_to_number() const { return giving_back_.numbers; }
  // Gives it back.  Errors: a system call of the target's is under way; then once more.
  Status give_back();
  // Whether that has something to do for which all threads but the caller's must stand still.
  bool gives_back_at_rest() const { return giving_back_.numbers || !giving_back_.moves.empty(); }
  // They do not any more: what is left of that is left alone.
  void stop_giving_back();
  // Of the target's, that there is for us.
  uint64_t memory_bytes() const;
  // Whether code was there that nobody should run any more.
  bool is_given_back(CacheAddr code) const;
  // All returns ask the monitor, and the indirect jumps of these units, until that is over.
  void hold(std::span<const uint32_t> units);
  void release();
  // Whether that is an indirect jump; the number may be anything.
  bool is_jump(uint32_t site) const { return site < sites_.size() && !sites_[site].site.call; }

  // Memory was mapped, unmapped or protected: branches through pointers there are compared again.
  void unseal(TargetRange range);

  // Removes everything that leads to original addresses in `range`.
  void cut(TargetRange range);
  // Removes everything that leads to the unit: its code is not there any more.
  void invalidate(uint32_t id);
  // The living units that have a place in the range.
  std::vector<uint32_t> units_in(const Module& module, TargetRange range) const;
  // True if the unit's code is in memory as it was when it was translated.
  bool is_as_translated(uint32_t id) const;
  // The module's code may change from now on: remembers what its units were made from.
  void keep_sources(const Module& module);
  // A check failed: the way on, in a new translation, from the instruction in front of which it
  // is.  The address itself when no code is there any more.
  struct WayOn {
    CacheAddr resume;
    BlockRef to;  // not valid: in the same unit, or no code at all
  };
  Result<WayOn> take_stale(uint32_t check);
  // The way on behind a system call, in the unit that made it or the one that replaced it.
  Result<WayOn> behind_syscall(uint32_t site);
  // Where a thread is that is in the stub of an indexed jump (index_tables.cpp).
  enum class Side : uint8_t { kTail, kTarget };
  struct TailPlace {
    BlockRef ref;  // in front of its instruction `ref.insn`
    Side side = Side::kTail;
  };
  TailPlace tail_place(const CodeRecord& record, CacheAddr address) const;
  // Who goes on at `resume` has an index in the register that has been bounded already, and is yet
  // to be led by it.
  struct BoundIndex {
    uint32_t site = 0;
    uint8_t reg = 0;
  };
  std::optional<BoundIndex> index_bounded_at(CacheAddr resume) const;
  // No index leads from the site any more.
  void leave_index_of(uint32_t site) { leave_index(sites_[site]); }
  struct CheckPoint {
    BlockRef ref;          // with the instruction that is next
    bool counted = false;  // the block's own counter has run
  };
  CheckPoint check_point(uint32_t check) const;

  // For unwinding and threads that stop: what is at a cache address.
  const CodeRecord* record_at(CacheAddr address) const;
  // The block that ends in the call whose return address this is.
  BlockRef call_block_of(TargetAddr return_address);
  // Whether returns to this address are known.
  bool has_landing(TargetAddr return_address) const;
  // A thread has looked returns up so often that it asks about this one (tcb::kLookupsLeft).
  void is_returned_to_often(TargetAddr return_address);
  // The same of those that are found directly (tcb::kDirectLeft).
  void is_found_often(TargetAddr return_address) {
    landings_.is_returned_to_often(return_address.value(), Landings::Page::kToBeNumbered);
  }
  // In front of an answer: writes to the target what its returns find their landings by.
  void write_landings();
  const Landings& landings() const { return landings_; }
  // How many returns are looked up before one asks.  Where an earlier run's weights are known, most
  // of what is returned to often has a number from the start.
  uint32_t lookups() const {
    if (landings_.numbers_no_more() && !landings_.may_be_direct()) return kLookupsEndless;
    // Those for which there is neither memory nor room would ask again and again.
    if (landings_.has_all_pages()) return LookupPace::kSeldom;
    return weights_ != nullptr || stats_.compactions > 0 ? lookup_pace_.lookups()
                                                         : landings_.lookups();
  }
  uint32_t direct_lookups() const {
    if (landings_.has_all_pages()) return kLookupsEndless;
    return weights_ != nullptr ? kDirectMaxWeighed : kDirectMax;
  }
  // Whether a call of described code may lead to code without call frame information, through a
  // stub of the linker's or not.
  bool leaves_description(BlockRef call) const;
  // Whether a call of other code led to generated code, by jumps of its callee perhaps.
  bool enters_generated_code(BlockRef call) const;
  // Whether a call has led to a unit.
  bool leads_to(BlockRef call, uint32_t unit) const;
  // Whether a procedure that has been translated begins there.
  bool is_procedure_entry(TargetAddr address) const;
  // The block that begins there, if it has been translated.
  BlockRef block_at(TargetAddr address) const;
  // The indirect branch that ends a block; nullptr if none does.
  const SiteState* site_of(BlockRef ref) const;

  // Nothing will run any more: gives back what only running needs.
  void seal();

  // The pieces of code that lead from a site to its hash table.
  void for_each_dispatch(const std::function<void(CacheAddr, CacheAddr)>& visit) const;
  const EventState& event(uint32_t id) const { return events_[id]; }
  const translate::SyscallSite& syscall_site(uint32_t id) const { return syscalls_[id].site; }
  BlockRef syscall_block(uint32_t id) const {
    return {syscalls_[id].unit, syscalls_[id].site.block};
  }
  BlockRef link_block(uint32_t id) const;
  uint32_t link_edge(uint32_t id) const {
    return units_[links_[id].first]->code.links[links_[id].second].edge;
  }
  TargetAddr link_target(uint32_t id) const {
    const Unit& unit = *units_[links_[id].first];
    return unit.module->to_target(unit.code.links[links_[id].second].target);
  }
  BlockRef global_block(uint32_t id) const;  // by Unit::first_block
  struct EdgeRef {
    uint32_t unit = 0, edge = 0;
  };
  EdgeRef global_edge(uint32_t id) const;  // by Unit::first_edge
  BlockRef from_of(EdgeRef ref) const;
  TargetAddr target_of(EdgeRef ref) const;  // of one inside its unit
  const CacheStats& stats() const { return stats_; }

  static constexpr uint32_t kStaleEventBase = 0x20000000;
  static constexpr uint32_t kUnsupportedEventBase = 0x40000000;
  static constexpr uint32_t kWaitEventBase = 0x60000000;
  static constexpr uint32_t kEdgeWaitEventBase = 0x70000000;

 private:
  struct Bounds {
    LinkRange range;
    LinkAddr entry;
    profile::Provenance provenance;
  };
  Bounds bounds_of(Module& module, LinkAddr address, Arrival how);
  Status translate_at(Module& module, LinkAddr address, Arrival how);
  std::shared_ptr<const KnownProcedure> find_procedure(Unit& unit, cfg::DiscoverRequest& request,
                                                       LinkAddr address, KnownProcedures* shared);
  // Whether of the module's code anything is on record.
  static bool is_recalled(const Module& module);
  static bool is_lasting(const Unit& unit);
  bool may_be_found(const Unit& unit, const cfg::DiscoverRequest& request) const;
  bool reread(const Unit& unit, const ProcedureKey& key);
  void place(const Unit& unit, KnownProcedure& procedure);
  std::vector<bool> perhaps_executed(
      const std::vector<uint64_t>& counters,
      const std::function<bool(const Unit& unit)>& is_executed_itself) const;
  void take_entry(Unit& unit);
  bool may_be_placed(const Unit& unit, const KnownProcedure& procedure) const;
  // See rest.cpp.
  enum class MayBeRest : uint8_t { kNo, kYes };
  bool is_alone(const SiteState& state) const;
  bool may_be_rest(const SiteState& state, BlockRef to) const;
  bool is_most_led(const Recollection::Led& led) const;
  CacheAddr way_behind(const SiteState& state, CacheAddr stub) const;
  EdgeWeights::Known weights_of(const Module& module, const cfg::Procedure& procedure) const;
  void number_probes(Unit& unit, const KnownProcedure& known);
  void number_counter(Unit& unit, translate::EmitRequest::Counts what, uint32_t index);
  Status emit(Unit& unit, const cfg::Procedure& procedure, Area& area);
  translate::EmitRequest emit_request(const Unit& unit, const cfg::Procedure& procedure,
                                      const Area& area) const;
  // See defer.cpp.
  bool may_defer(const Unit& unit) const;
  std::vector<uint32_t> blocks_with(const Unit& unit, uint32_t block) const;
  Status make_late(Unit& unit, std::span<const uint32_t> blocks);
  Status emit_late(Unit& unit, std::span<const uint32_t> blocks);
  void register_late(Unit& unit);
  void end_waits(Unit& unit);
  void take_asks(translate::UnitCode& code, Area& area);
  bool has_code(BlockRef ref) const {
    return units_[ref.unit]->code.is_whole || units_[ref.unit]->code.blocks[ref.block].exists();
  }
  Status give_code(BlockRef ref);
  Result<BlockRef> with_code(BlockRef ref);
  void join_or_wait(uint32_t link_id);
  void note_resumes(const translate::UnitCode& code);
  void register_unit(Unit& unit, Area& area);
  bool may_induce(const Unit& unit) const;
  void take_inductions(Unit& unit);
  const Door& door_to(BlockRef ref, const translate::Plan::Induction& induction);
  static size_t record_index(const Area& area, CacheAddr address);
  void add_record(const Area& area, const CodeRecord& record);
  uint32_t allocate_counter(Expected expected);
  bool is_busiest(BlockRef ref) const;
  bool is_busy(BlockRef ref) const;
  bool is_seldom(BlockRef ref) const;
  Expected expected_of(BlockRef to) const;
  // What a stub increments.
  uint32_t counted(uint32_t counter) const {
    return placement_ == PlacementKind::kNone ? translate::kCountNothing : counter;
  }
  uint8_t flags_assumed_live() const {
    return optimizations_.has(Optimization::kFlags) ? 0 : isa::flag::kAll;
  }
  // Flags that a counter in front of the block must keep.
  uint8_t flags_at(BlockRef ref) const {
    return units_[ref.unit]->flags_live_at(ref) | flags_assumed_live();
  }
  // The instruction in the middle of a translated block, if the address is one; only units in
  // `candidates` are looked at.
  BlockRef inside(LinkAddr address, const std::vector<uint32_t>& candidates) const;
  // Control comes to the middle of a block: what makes the flags of its jump, and what bounds its
  // index, may not have run.
  void allow_for_entry_at(BlockRef ref);
  void keep_flags(uint32_t site_id);
  void compare_always(uint32_t site_id);
  void compare_whole_at(uint32_t site_id);
  // Whether what is known ahead may be joined: not to where a pointer does not lead for good yet.
  bool may_join(const SiteState& state, TargetAddr target);
  // Units of the module whose range meets [begin, end).
  std::vector<uint32_t> units_meeting(const Module& module, LinkRange range) const {
    return by_range_.meeting(module.id, range);
  }
  Bounds bounds_of_generated(Module& module, LinkAddr address) const;
  bool is_undescribed(const Unit& unit) const;
  using UnitTest = std::function<bool(uint32_t unit)>;
  bool any_callee(BlockRef call, const UnitTest& test) const;
  bool any_jumped_to(uint32_t id, const UnitTest& test, int most) const;
  void keep_source(Unit& unit, const cfg::CodeView& view);
  CacheAddr link_pair(uint32_t link_id, BlockRef to);
  static cfg::Procedure outline(const cfg::Procedure& procedure);
  static std::optional<cfg::Procedure> with_instructions(const Unit& unit,
                                                         const cfg::CodeView& view,
                                                         std::vector<isa::Insn> memory);
  std::unique_ptr<Unit> again(const Unit& old) const;
  bool is_current(const Unit& unit) const;
  bool make_again(Unit& old, const Renewal& renewal);
  bool make_again(Unit& old, const cfg::Procedure& procedure, const Renewal& renewal);
  // What is made together where it is not known what will run.
  Followed followed() const {
    return stats_.compactions > 0 ? Followed::kIfLikely : Followed::kUnlessUnlikely;
  }
  translate::Lies place_of(const Unit& unit, const cfg::Procedure& procedure, Area& area) const;
  uint32_t owner_of(const CodeRecord& record) const;
  std::vector<bool> units_of_nobody();
  bool is_nobodys(const CodeRecord& record, const std::vector<bool>& nobodys) const;
  bool has_lost_page_of(CacheAddr code) const;
  CacheAddr end_of_part(size_t part);
  std::vector<CacheRange> pages_of(const std::vector<bool>& nobodys);
  std::vector<SharedPages::Living> living_pages(const std::vector<bool>& nobodys);
  void join_pages(const std::vector<bool>& nobodys);
  void note_what_ran(std::span<const Renewal> renewals);
  size_t numbered_pages_max(size_t landings) const;
  void give_back(CacheRange pages);
  Status share_pages();
  uint8_t* code_at(CacheAddr address);
  void give_back_tables(const std::vector<bool>& nobodys);
  void forget_code_of(const std::vector<bool>& nobodys);
  BlockRef newest(BlockRef ref) const;
  // By where the branch is and where it went.
  using TimesLed = std::map<std::pair<uint64_t, uint64_t>, uint64_t>;
  TimesLed times_led_before_renewals(const std::vector<uint64_t>& counters) const;
  void move_landings(const Unit& old);
  void move_links(const std::vector<uint32_t>& made);
  void move_pairs(const std::vector<uint32_t>& made);
  void repeat_pairs(const Unit& old, std::span<const uint64_t> counters);
  CacheAddr branch_target(CacheAddr field);
  bool is_erased(CacheAddr field);
  void hold_jump(uint32_t site);
  void unlink(const Unit& unit);
  void remove_entry(Chain& chain, CacheAddr entry, CacheAddr miss,
                    const std::function<void(CacheAddr)>& set_head);
  void remove_pair(uint32_t site_id, uint32_t index);
  translate::Whereabouts whereabouts(BlockRef to, bool jump) const;
  Area& area_of(BlockRef ref) { return *units_[ref.unit]->area; }
  // Errors when counters or code cache are nearly used up: better named than run into.
  Status check_room() const;
  ArrivalStub& arrival_at(BlockRef ref);
  bool enters_as_it_is(uint32_t link_id, BlockRef ref) const;
  CacheAddr way_in(uint32_t link_id, BlockRef ref);
  void enter_landing(BlockRef call_block);
  // Direct branches are joined as soon as both ends are there, not only when one is taken.
  void join_links(const Unit& unit);
  void join_link(uint32_t link_id, BlockRef to);
  void join_waiting(TargetAddr entry, BlockRef to);
  bool link_is_call(uint32_t link_id) const;
  void add_landing(BlockRef ref, CacheAddr code);
  ReturnsTo returns_expected_at(BlockRef ref) const;
  Pair& add_pair(SiteState& state, TargetAddr target, BlockRef to, MayBeRest may);
  CacheAddr join_pair(uint32_t site_id, TargetAddr target, BlockRef ref,
                      MayBeRest may = MayBeRest::kYes);
  void make_known(TargetAddr target, BlockRef to);
  BlockRef block_beginning_at(CacheAddr code) const;  // invalid if branches enter none there
  CacheAddr known_way(BlockRef to) const;
  uint32_t pair_of_visit(uint32_t site_id, BlockRef to, AfterVisits after);
  // A place that is sure to be called or jumped to.
  struct Certain {
    TargetAddr target;
    Arrival how;
  };
  static std::vector<Certain> certain_callees(const Unit& unit);
  bool has_room_for_guesses() const;
  bool is_to_be_recalled(uint32_t index, const Module& module) const;
  uint32_t to_be_recalled(const Area& area) const;
  void recall_fresh();
  std::vector<Recollection::Asked> asked_of(uint32_t index, const Module& module) const;
  void recall_units(uint32_t index, const Module& module);
  void recall_links(uint32_t index, const Module& module);
  void recall_pairs();
  bool has_news(const Recollection& left) const;
  BlockRef make_ahead(const Certain& callee);
  void follow_linkage_slot(uint32_t id);
  void join_table(uint32_t site_id, TargetAddr asked);
  bool runs_seldom(const SiteState& state) const;
  const Unit& unit_with(uint32_t id, uint32_t Unit::*first) const;
  void build_hash(SiteState& state, uint32_t site_id);
  void lead_to_table(const SiteState& state, uint32_t site_id);

  // Stubs in front of blocks (fronts.cpp).
  bool indexes_always() const { return indexed_above_pairs_ == 0; }
  void set_led(Unit& unit, const cfg::Procedure& procedure, translate::EmitRequest& request) const;
  static uint64_t key_of_led(uint32_t module, uint64_t address);
  void note_led();
  const Recollection::Led* led_most_to(const Module& module, LinkAddr address) const;
  bool leads_most(const SiteState& state, BlockRef to) const;
  translate::Front* front_for(const SiteState& state, const Pair& pair);
  void take_front(translate::Front& front, const Area& area, CodeRecord record);
  // Writes a stub to the room in front of a block; nothing if there is none for the pair, or it
  // does not fit.
  template <class Emit>
  auto emit_in_front(const SiteState& state, const Pair& pair, const CodeRecord& record, Emit emit)
      -> std::optional<decltype(emit(std::declval<isa::Assembler&>()))>;

  // Jumps through tables (index_tables.cpp).
  std::vector<LinkAddr> tables_of(const Unit& unit, const isa::IndexedJump& jump) const;
  std::vector<TargetAddr> guess_table(const SiteState& state) const;
  CacheAddr copy_in_tail(const SiteState& state, uint32_t insn) const;
  CacheAddr tail_of(const SiteState& state) const;
  CacheAddr make_fallback(SiteState& state, uint32_t site_id);
  bool make_index(SiteState& state, uint32_t site_id);
  void lead_by_index(uint32_t site_id);
  void add_indexed(SiteState& state, uint32_t site_id, uint32_t index);
  void set_index(const SiteState& state, uint32_t pair, CacheAddr way);
  void unset_index(const SiteState& state, uint32_t pair);
  void leave_index(SiteState& state);
  uint32_t done_in_tail(const SiteState& state, const translate::IndexedStub& stub,
                        CacheAddr address) const;
  bool is_boundary_of_tail(const CodeRecord& record, CacheAddr address) const;
  CacheAddr first_of(const SiteState& state, CacheAddr head) const;
  void lead(const SiteState& state, CacheAddr head) {
    set_branch(state.site.field, first_of(state, head));
    if (state.site.alone) lead_shortcuts(state, head);
  }
  // Direct branches through linkage stubs (shortcuts.cpp).
  const SiteState* leads_on(BlockRef entry) const;
  CacheAddr way_through(uint32_t link_id, BlockRef entry);
  void lead_shortcuts(const SiteState& state, CacheAddr head);
  void set_jmp(CacheAddr field, const std::array<uint8_t, 5>& code);
  void erase_jmp(CacheAddr field);
  void put_jmp(CacheAddr field, CacheAddr target);
  void insert(Chain& chain, const ChainEntry& entry, CacheAddr miss,
              const std::function<void(CacheAddr)>& set_head);
  void set_branch(CacheAddr field, CacheAddr target);
  void set_table_head(uint32_t table_offset, uint8_t hash, CacheAddr value);
  enum class Begins : uint8_t { kAnywhere, kWithALine };  // of the instruction cache
  template <class Emit>
  auto emit_piece(Area& area, const CodeRecord& record, Emit emit,
                  Begins begins = Begins::kAnywhere);

  Region& region_;
  ModuleMap& modules_;
  tracee::Process& process_;
  SealedMemory sealed_;
  PlacementKind placement_;
  PhaseTimes& phases_;
  Optimizations optimizations_;
  bool defers_always_ = false;
  std::vector<isa::Insn> late_insns_;  // of the procedure that is looked at once more
  size_t indexed_above_pairs_ = kPairsInChain;
  // The procedure that is being translated.
  std::shared_ptr<KnownProcedure> unshared_ = std::make_shared<KnownProcedure>();
  Recollection recollection_;
  std::vector<Recollection::Led> waiting_led_;  // those of it that wait for a module
  std::shared_ptr<const EdgeWeights> weights_;
  std::unique_ptr<FoundProcedures> found_;
  std::unordered_map<uint64_t, uint32_t> most_led_from_;  // by site: index of its last `led`
  std::unordered_map<uint64_t, uint32_t> most_led_;  // by where it leads: index of its last `led`
  std::vector<const Module*> recalled_;              // by its modules: those that have been made
  std::vector<uint32_t> fresh_;                      // units made since the last `translate_ahead`
  CacheJournal* kept_ = nullptr;
  translate::Compare compare_ = translate::Compare::kAll64;  // at the start; units go by it
  bool came_to_compare_whole_ = false;
  translate::Returns returns_form_ = translate::Returns::kPaired;
  ReturnsHint returns_hint_ = ReturnsHint::kFixed;
  uint64_t code_bytes_ = 0;
  RemoteCall remote_call_;
  std::function<FeedbackWeights(const Module&)> feedback_;
  BlockMap blocks_;  // by target address: unit << 32 | block; ~0: cut
  std::vector<std::pair<uint32_t, uint32_t>> links_;  // unit, index in its links
  // Links that nobody has taken yet, by where they lead: a chain through `next_waiting_`.
  FlatMap<uint32_t> waiting_;           // target address -> link + 1; 0: none
  std::vector<uint32_t> next_waiting_;  // by link: the next one with this target + 1
  std::vector<uint8_t> link_waits_;     // by link
  struct SyscallState {
    uint32_t unit;
    translate::SyscallSite site;
  };
  std::vector<SyscallState> syscalls_;
  std::vector<EventState> events_;
  std::vector<Door> doors_;
  FlatMap<uint32_t> arrival_index_;  // unit << 44 | block << 20 | insn
  Landings landings_;
  LookupPace lookup_pace_{LookupPace::Clock::now()};
  CounterNumbers counter_numbers_;
  KnownTargets known_targets_;
  std::vector<std::vector<CodeRecord>> records_;         // by part of an area, ascending
  FlatMap<uint64_t> call_blocks_;                        // memo of call_block_of
  UnitIndex by_range_;                                   // of the living units
  std::unordered_map<uint32_t, uint32_t> current_pair_;  // link -> index in link_pairs_
  std::vector<std::pair<uint32_t, uint32_t>> checks_;    // unit, index in its checks
  struct Incoming {                                      // a way into a replaceable unit
    enum class Kind : uint8_t { kLinkPair, kPair, kArrival } kind;
    uint32_t index = 0;  // link pair, site, arrival
    uint32_t pair = 0;
  };
  std::unordered_map<uint32_t, std::vector<Incoming>> incoming_;  // by unit
  struct HeldJump {
    uint32_t site = 0;
    CacheAddr field, miss_stub;
    bool erased = false;
    CacheAddr led_to;
    bool by_index = false;  // the head, too
  };
  std::vector<HeldJump> held_jumps_;
  struct GivingBack {
    std::vector<CacheRange> pages;
    std::vector<SharedPages::Move> moves;
    bool is_move_begun = false;      // the last one's
    bool are_moves_refused = false;  // by the kernel, once and for all
    bool numbers = false;            // of landings, all
    bool lends = false;              // rows of their pointers
    FlatMap<uint64_t> returns;       // by the landing's original address, where they are known
    // Of the program's code, more or less; nothing where there may be as many as are wanted.
    std::optional<uint64_t> executed_bytes;
    uint64_t counted = 0;  // counters that were not 0, of each thread
  };
  GivingBack giving_back_;              // as soon as can be
  std::vector<size_t> to_be_left_out_;  // blocks, by area, if all is made once more soon
  std::vector<CacheRange> given_back_;  // by address
  SharedPages shared_;
  struct Shortcut {  // a direct branch to a linkage stub, and where it was led
    uint32_t link = 0;
    CacheAddr led_to;
  };
  enum class EntryOf : uint8_t { kCounts, kLeftToCallers };
  FlatMap<EntryOf> entries_;  // by Module::key_of: the first unit that begins there
  std::unordered_map<uint32_t, std::vector<Shortcut>> shortcuts_;  // by the linkage stub's site
  uint32_t next_table_ = translate::tables::kHashTables;
  uint32_t next_block_ = 0;
  uint32_t next_edge_ = 0;
  CacheStats stats_;
};

template <class Emit>
auto CodeCache::emit_in_front(const SiteState& state, const Pair& pair, const CodeRecord& record,
                              Emit emit)
    -> std::optional<decltype(emit(std::declval<isa::Assembler&>()))> {
  translate::Front* front = front_for(state, pair);
  if (front == nullptr) return std::nullopt;
  const Unit& unit = *units_[pair.to.unit];
  const CacheAddr end = unit.label(front->block);
  isa::Assembler as(code_at(front->entry), static_cast<size_t>(end - front->entry), front->entry);
  auto stub = emit(as);
  if (as.overflowed()) return std::nullopt;
  as.fill(static_cast<size_t>(end - as.here()));
  stub.extend_to(end);
  take_front(*front, *unit.area, record);
  stats_.fronts += 1;
  return stub;
}

template <class Emit>
auto CodeCache::emit_piece(Area& area, const CodeRecord& record, Emit emit, Begins begins) {
  constexpr uint64_t kPieceBytesMax = 1024;
  // In the bodies' part if its own is full.
  const bool apart =
      optimizations_.has(Optimization::kOrder) && area.pieces().has_room_for(kPieceBytesMax);
  const Room room = apart ? area.pieces() : area.bodies(translate::Lies::kAmongOthers);
  if (apart && begins == Begins::kWithALine) {
    constexpr uint64_t kLineBytes = 64;
    room.used_bytes = (room.used_bytes + kLineBytes - 1) & ~(kLineBytes - 1);
  }
  isa::Assembler as = area.assembler(room);
  CodeRecord placed = record;
  placed.begin = as.here();
  auto result = emit(as);
  CHECK(!as.overflowed()) << "the code cache is full";
  // Units may follow, but where pieces have a part of the area to themselves.
  const uint64_t alignment = apart && !area.pieces_among_cold ? 8 : 16;
  room.used_bytes += (as.offset() + alignment - 1) & ~(alignment - 1);
  add_record(area, placed);
  stats_.code_bytes += as.offset();
  return result;
}

}  // namespace tally::engine
