// What is booked, and how it is taken back.  See ledger.h.
#include "ledger/ledger.h"

#include "ledger/kept_run.h"

namespace tally::engine {

namespace {

// Rows that say nothing are not kept: the profile would show them.
template <class Map>
void subtract(Map& map, const typename Map::key_type& key, typename Map::mapped_type amount) {
  const auto it = map.find(key);
  CHECK(it != map.end()) << "a booking to be taken back is not there";
  it->second -= amount;
  if (it->second == 0) map.erase(it);
}

}  // namespace

void Ledger::note(const BookingKey& key, int64_t times) {
  int64_t& sum = bookings_[booker_][key];
  sum += times;
}

Bookings Ledger::take_bookings(uint32_t slot) {
  const auto it = bookings_.find(slot);
  if (it == bookings_.end()) return {};
  Bookings taken = std::move(it->second);
  bookings_.erase(it);
  return taken;
}

void Ledger::book_term(const TermKey& key, uint64_t entered, uint64_t left,
                       const std::string& detail) {
  LedgerTerm& term = terms_[key];
  term.entered += entered;
  term.left += left;
  term.detail = detail;
  const auto& [unit, block, kind, insn] = key;
  if (entered > 0) {
    note({BookingKind::kEntered, unit, block}, static_cast<int64_t>(entered));
  }
  if (left > 0) note({BookingKind::kLeft, unit, block}, static_cast<int64_t>(left));
  keep_term(key, detail, static_cast<int64_t>(entered), static_cast<int64_t>(left));
  if (recording_ == nullptr) return;
  recording_->push_back([=, unit = unit, block = block](Ledger& l) {
    LedgerTerm& booked = l.terms_.at(key);
    booked.entered -= entered;
    booked.left -= left;
    if (booked.entered + booked.left == 0) l.terms_.erase(key);
    l.keep_term(key, detail, -static_cast<int64_t>(entered), -static_cast<int64_t>(left));
    l.note({BookingKind::kEntered, unit, block}, -static_cast<int64_t>(entered));
    l.note({BookingKind::kLeft, unit, block}, -static_cast<int64_t>(left));
  });
}

void Ledger::book_unexecuted(BlockRef ref, uint32_t first, uint32_t last) {
  const PartialKey key{ref.unit, ref.block, first, last};
  const BookingKey unexecuted{BookingKind::kUnexecuted, ref.unit, 0};
  const int64_t instructions = static_cast<int64_t>(last) - static_cast<int64_t>(first);
  partials_[key] -= 1;
  keep_partial(key, -1);
  note(unexecuted, instructions);
  const bool to_the_end = last == cache_.unit(ref.unit).procedure.blocks[ref.block].insn_count;
  if (to_the_end) note({BookingKind::kUncalled, ref.unit, ref.block}, 1);
  if (recording_ == nullptr) return;
  recording_->push_back([=](Ledger& l) {
    subtract(l.partials_, key, -1);
    l.keep_partial(key, 1);
    l.note(unexecuted, -instructions);
    if (to_the_end) l.note({BookingKind::kUncalled, ref.unit, ref.block}, -1);
  });
}

void Ledger::book_uncounted(BlockRef ref) {
  uncounted_[{ref.unit, ref.block}] += 1;
  note({BookingKind::kUncounted, ref.unit, ref.block}, 1);
  if (kept_ != nullptr) kept_->book(KeptBooking::kUncounted, {ref.unit, ref.block}, "", 1);
  if (recording_ == nullptr) return;
  recording_->push_back([=](Ledger& l) {
    subtract(l.uncounted_, {ref.unit, ref.block}, 1);
    if (l.kept_ != nullptr) l.kept_->book(KeptBooking::kUncounted, {ref.unit, ref.block}, "", -1);
    l.note({BookingKind::kUncounted, ref.unit, ref.block}, -1);
  });
}

void Ledger::book_overcounted(uint32_t unit, uint32_t edge) {
  overcounted_[{unit, edge}] += 1;
  if (kept_ != nullptr) kept_->book(KeptBooking::kOvercounted, {unit, edge}, "", 1);
  note({BookingKind::kOvercounted, unit, edge}, 1);
  CHECK(recording_ == nullptr) << "a thread began ahead of time";
}

// A loop's counter belongs to who is inside, so it is changed where it lies.  Threads that are gone
// have none: all that is summed up will do.
void Ledger::book_in_loop(const Position::InLoop& loop, uint64_t value) {
  const uint32_t slot = booker_ == kInheritedSlot || booker_ == kEndedSlot ? 0 : booker_;
  region_.add_to_counter(slot, loop.counter, static_cast<int64_t>(value));
  if (recording_ == nullptr) return;
  recording_->push_back([=](Ledger& l) {
    l.region_.add_to_counter(slot, loop.counter, -static_cast<int64_t>(value));
  });
}

void Ledger::unbook_entered(const TermKey& key) {
  const auto it = terms_.find(key);
  CHECK(it != terms_.end() && it->second.entered > 0) << "a thread that was not born";
  keep_term(key, it->second.detail, -1, 0);
  it->second.entered -= 1;
  if (it->second.entered + it->second.left == 0) terms_.erase(it);
  note({BookingKind::kEntered, std::get<0>(key), std::get<1>(key)}, -1);
}

void Ledger::unbook_overcounted(uint32_t unit, uint32_t edge) {
  subtract(overcounted_, {unit, edge}, 1);
  note({BookingKind::kOvercounted, unit, edge}, -1);
  if (kept_ != nullptr) kept_->book(KeptBooking::kOvercounted, {unit, edge}, "", -1);
}

void Ledger::book_unarrived(BlockRef ref) {
  unarrived_[{ref.unit, ref.block}] += 1;
  note({BookingKind::kUncalled, ref.unit, ref.block}, 1);
  if (kept_ != nullptr) kept_->book(KeptBooking::kUnarrived, {ref.unit, ref.block}, "", 1);
  if (recording_ == nullptr) return;
  recording_->push_back([=](Ledger& l) {
    subtract(l.unarrived_, {ref.unit, ref.block}, 1);
    l.note({BookingKind::kUncalled, ref.unit, ref.block}, -1);
    if (l.kept_ != nullptr) l.kept_->book(KeptBooking::kUnarrived, {ref.unit, ref.block}, "", -1);
  });
}

void Ledger::take_back_issue(const std::string& scope, const std::string& message,
                             uint64_t amount) {
  for (auto it = issues_.begin(); it != issues_.end(); ++it) {
    if (it->scope != scope || it->message != message) continue;
    it->amount -= amount;
    keep_issue(scope, message, -static_cast<int64_t>(amount));
    if (it->amount == 0) issues_.erase(it);
    return;
  }
}

void Ledger::keep_term(const TermKey& key, const std::string& detail, int64_t entered,
                       int64_t left) {
  if (kept_ == nullptr) return;
  const auto& [unit, block, kind, insn] = key;
  const std::vector<uint64_t> parts = {unit, block, static_cast<uint64_t>(kind), insn};
  if (entered != 0) kept_->book(KeptBooking::kEntered, parts, detail, entered);
  if (left != 0) kept_->book(KeptBooking::kLeft, parts, detail, left);
}

void Ledger::keep_partial(const PartialKey& key, int64_t delta) {
  if (kept_ == nullptr) return;
  const auto& [unit, block, first, last] = key;
  kept_->book(KeptBooking::kPartial, {unit, block, first, last}, "", delta);
}

void Ledger::keep_move(const BlockRef& from, const BlockRef& to) {
  if (kept_ == nullptr) return;
  kept_->book(KeptBooking::kMove, {from.unit, from.block, from.insn, to.unit, to.block, to.insn},
              "", 1);
}

void Ledger::keep_issue(const std::string& scope, const std::string& message, int64_t amount) {
  if (kept_ == nullptr) return;
  kept_->book(KeptBooking::kIssue, {scope.size()}, scope + message, amount);
}

// The thread is brought to a block by other ways than those that say so themselves.
void Ledger::keep_where(uint32_t slot, BlockRef at) {
  if (kept_ != nullptr) KeptRun::set_where(region_.thread_memory(slot), at.unit);
}

void Ledger::keep_interruptions(uint32_t slot) {
  if (kept_ == nullptr) return;
  KeptRun::set_interruptions(region_.thread_memory(slot), interruptions_.of(slot));
}

void Ledger::name_switched_stacks(const std::string& message) {
  stacks_switched_ = true;
  issue("stacks", message);
}

Ledger::Ahead Ledger::close_ahead(const user_regs_struct& regs, uint32_t slot,
                                  profile::AbnormalKind kind, const std::string& detail) {
  Ahead ahead;
  ahead.interruptions = interruptions_.of(slot);
  recording_ = &ahead.undo;
  close_thread(regs, slot, kind, detail);
  recording_ = nullptr;
  return ahead;
}

void Ledger::take_back(uint32_t slot, Ahead ahead) {
  const KeptBusy busy(kept_);
  booker_ = slot;
  for (size_t i = ahead.undo.size(); i-- > 0;) ahead.undo[i](*this);
  interruptions_.restore(slot, std::move(ahead.interruptions));
  keep_interruptions(slot);
}

}  // namespace tally::engine
