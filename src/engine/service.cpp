// See service.h.  System calls are in syscalls.cpp.
#include "engine/service.h"

#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <numeric>

#include "isa/emulate.h"
#include "ledger/kept_run.h"

namespace tally::engine {

using namespace translate;

namespace {

long futex(void* word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

std::atomic_ref<uint32_t> atomic_u32(uint8_t* p) {
  return std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(p));
}

}  // namespace

uint64_t Service::reg(uint32_t slot, unsigned number) const {
  return load<uint64_t>(slot, tcb::kRegisters + 8 * number);
}

void Service::set_reg(uint32_t slot, unsigned number, uint64_t value) {
  store(slot, tcb::kRegisters + 8 * number, value);
}

std::optional<uint32_t> Service::open_slot(std::optional<uint64_t> stack) {
  uint32_t slot = 0;
  if (!free_.empty()) {
    // Its counters go on where the last owner left them: only sums matter.
    slot = free_.back();
    free_.pop_back();
  } else {
    if (slots_used_ == kThreadsMax) return std::nullopt;
    slot = slots_used_++;
    if (stack) region_.place_thread(slot, *stack);
  }
  if (kept_ != nullptr) {
    kept_->reserve_slot(slot);
    if (kept_->error()) fail(*kept_->error());
    kept_->thread_begins(region_.thread_memory(slot));
  }
  store(slot, tcb::kSelf, region_.thread_block(slot).value());
  store(slot, tcb::kState, static_cast<uint32_t>(MailboxState::kIdle));
  store(slot, tcb::kRequest, uint32_t{0});
  store(slot, tcb::kResume, uint64_t{0});
  store(slot, tcb::kLookupsLeft, cache_.lookups());
  store(slot, tcb::kDirectLeft, cache_.direct_lookups());
  active_.push_back(slot);
  return slot;
}

void Service::close_slot(uint32_t slot) {
  CHECK(load<uint32_t>(slot, tcb::kNoteCount) == 0) << "notes of thread " << slot << " are lost";
  std::erase(active_, slot);
  if (caller_ == slot) caller_.reset();
  pending_.erase(slot);
  exec_backups_.erase(slot);
  rseq_.erase(slot);
  ledger_.forget(slot);
  if (kept_ != nullptr) KeptRun::thread_ends(region_.thread_memory(slot));
  free_.push_back(slot);
}

void Service::fail(Error error) {
  const bool first = !error_;
  if (first) error_ = std::move(error);
  if (on_failure_) {
    if (first) on_failure_();
    return;
  }
  kill(process_.pid(), SIGKILL);
}

const uint32_t* Service::doorbell() const {
  return reinterpret_cast<const uint32_t*>(region_.tables() + tables::kDoorbell);
}

uint32_t Service::fall_asleep() {
  const uint32_t ticket = atomic_u32(region_.tables() + tables::kDoorbell).load();
  atomic_u32(region_.tables() + tables::kMonitorAsleep).store(1);
  return ticket;
}

void Service::wake_up() {
  atomic_u32(region_.tables() + tables::kMonitorAsleep).store(0);
}

uint64_t Service::requests() const {
  return std::accumulate(requests_.begin(), requests_.end(), uint64_t{0});
}

bool Service::serve_all() {
  if (error_ && on_failure_) return false;
  bool any = false;
  for (size_t i = 0; i < active_.size(); ++i) {
    const uint32_t slot = active_[i];
    if (is_held_back(slot)) continue;
    const uint32_t state = atomic_u32(region_.thread_memory(slot) + tcb::kState).load();
    if (state == static_cast<uint32_t>(MailboxState::kPosted) ||
        state == static_cast<uint32_t>(MailboxState::kAsleep)) {
      serve(slot);
      any = true;
    }
  }
  return any;
}

bool Service::serve_now(uint32_t slot) {
  const uint32_t state = atomic_u32(region_.thread_memory(slot) + tcb::kState).load();
  if (state == static_cast<uint32_t>(MailboxState::kPosted) ||
      state == static_cast<uint32_t>(MailboxState::kAsleep)) {
    if (caller_ && *caller_ != slot) return false;
    serve(slot);
  }
  return true;
}

std::optional<Request> Service::posted_request(uint32_t slot) const {
  const uint32_t state = atomic_u32(region_.thread_memory(slot) + tcb::kState).load();
  if (state != static_cast<uint32_t>(MailboxState::kPosted) &&
      state != static_cast<uint32_t>(MailboxState::kAsleep)) {
    return std::nullopt;
  }
  return asked(slot).request;
}

// Whoever stood at an ask has asked what is asked there.
Ask Service::asked(uint32_t slot) const {
  const Ask posted{static_cast<Request>(load<uint32_t>(slot, tcb::kRequest)),
                   load<uint32_t>(slot, tcb::kArgument)};
  if (posted.request != Request::kAsk) return posted;
  const CacheAddr stood(load<uint64_t>(slot, tcb::kAsked));
  const Ask* ask = region_.ask_at(stood, stood);
  CHECK(ask != nullptr && ask->request != Request::kAsk)
      << "nothing is asked at " << stood.value() << ", by thread " << slot;
  return *ask;
}

void Service::answer(uint32_t slot, Action action) {
  cache_.write_landings();
  store(slot, tcb::kAction, static_cast<uint32_t>(action));
  uint8_t* word = region_.thread_memory(slot) + tcb::kState;
  const uint32_t before = atomic_u32(word).exchange(static_cast<uint32_t>(MailboxState::kAnswered));
  if (before == static_cast<uint32_t>(MailboxState::kAsleep)) futex(word, FUTEX_WAKE, 1, nullptr);
}

Result<int64_t> Service::call_in_target(long number, const std::array<uint64_t, 6>& arguments) {
  if (stopped_thread_call_) return stopped_thread_call_(number, arguments);
  // Those that a step is done with are not made again.
  for (size_t i = calls_replayed_; i < call_results_.size(); ++i) {
    const auto& [call, result] = call_results_[i];
    if (call.number != static_cast<uint64_t>(number) || call.arguments != arguments) continue;
    calls_replayed_ = i + 1;
    return result;
  }
  wanted_call_ = PendingCall{static_cast<uint64_t>(number), arguments};
  return make_error("a system call in the target is under way");
}

// True if serving the request needs a system call of the thread first: it is on its way.
bool Service::send_to_call(uint32_t slot) {
  if (!wanted_call_) return false;
  caller_ = slot;
  sent_call_ = *wanted_call_;
  store(slot, tcb::kCall, wanted_call_->number);
  for (uint32_t i = 0; i < 6; ++i) {
    store(slot, tcb::kCall + 8 * (i + 1), wanted_call_->arguments[i]);
  }
  wanted_call_.reset();
  answer(slot, Action::kMonitorSyscall);
  return true;
}

// For what is translated ahead.  If not, the thread has been sent to map some, and asks again.
bool Service::has_asks(uint32_t slot) {
  const Status status = cache_.reserve_asks();
  if (!status && !send_to_call(slot)) fail(status.error());
  return status.ok();
}

// Memory that nobody uses any more.  If not, as above.
bool Service::has_given_back(uint32_t slot) {
  const Status status = cache_.give_back();
  if (!status && !send_to_call(slot)) fail(status.error());
  if (status && renewals_.giver() == slot) {
    renewals_.has_given_back();
    ask_for_rest_();  // which is over now
  }
  return status.ok();
}

void Service::serve(uint32_t slot) {
  // One thread at a time makes calls for us; the others wait.
  if (caller_ && *caller_ != slot) return;
  const bool asks_again = caller_.has_value();
  if (asks_again) {
    call_results_.emplace_back(sent_call_, load<int64_t>(slot, tcb::kCallResult));
    caller_.reset();
  } else {
    call_results_.clear();
    places_.clear();
  }
  calls_replayed_ = 0;
  ledger_.handler_is_back(slot);
  const auto [request, argument] = asked(slot);
  store(slot, tcb::kRequest, static_cast<uint32_t>(request));
  store(slot, tcb::kArgument, argument);
  const bool call = request == Request::kSyscall || request == Request::kSyscallDone;
  const PhaseTimer timer(phases_, call ? Phase::kSystemCall : Phase::kServe);
  cache_.take_notes(slot, CodeCache::AfterVisits::kGoesOn);
  if (!asks_again) ++requests_[static_cast<size_t>(request) % requests_.size()];
  const TargetAddr target(load<uint64_t>(slot, tcb::kTarget));
  Result<CacheAddr> resume = CacheAddr();
  // A probe is answered once: before that.
  if (request == Request::kEvent && !has_asks(slot)) return;
  switch (request) {
    case Request::kLink:
      resume = cache_.take_link(argument);
      break;
    case Request::kIndirect:
      if (renewals_.is_waiting() && !has_asks(slot)) return;
      renew(slot, Ledger::Way::kJump);
      if (!has_given_back(slot)) return;
      resume = cache_.take_indirect(argument, target);
      break;
    case Request::kReturn:
      if (renewals_.is_waiting() && !has_asks(slot)) return;
      renew(slot, Ledger::Way::kReturn);
      if (!has_given_back(slot)) return;
      if (load<uint32_t>(slot, tcb::kLookupsLeft) == 0) {
        cache_.is_returned_to_often(target);
        store(slot, tcb::kLookupsLeft, cache_.lookups());
      }
      if (load<uint32_t>(slot, tcb::kDirectLeft) == 0) {
        cache_.is_found_often(target);
        store(slot, tcb::kDirectLeft, cache_.direct_lookups());
      }
      resume = cache_.take_return(target);
      if (resume) ledger_.returned(slot, target);
      break;
    case Request::kEvent:
      resume = answer_event(slot);
      break;
    case Request::kSyscall:
      if (Status status = before_syscall(slot); !status) {
        if (!send_to_call(slot)) fail(status.error());
      }
      return;
    case Request::kSyscallDone:
      if (Status status = after_syscall(slot); !status) {
        if (!send_to_call(slot)) fail(status.error());
      }
      return;
    case Request::kAsk:
      CHECK(false) << "an ask that is not settled";
  }
  if (send_to_call(slot)) return;
  if (resume && kept_ != nullptr && kept_->error()) resume = *kept_->error();
  if (!resume) {
    fail(resume.error());
    return;
  }
  if (request != Request::kEvent && !has_asks(slot)) return;
  cache_.translate_ahead();
  store(slot, tcb::kResume, resume->value());
  answer(slot, Action::kResume);
}

Renewals::Company Service::company() const {
  if (is_alone()) return Renewals::Company::kAlone;
  const bool can_rest = ask_for_rest_ && slots_used_ <= Renewals::kThreadsMax;
  return can_rest ? Renewals::Company::kThreads : Renewals::Company::kUnknown;
}

void Service::look_for_renewals(Renewals::Clock::time_point now) {
  if (renewals_.look(now, company(), slots_used_)) ask_for_rest_();
}

bool Service::is_held_back(uint32_t slot) const {
  if (caller_) return false;
  if (const auto giver = renewals_.giver()) return slot != *giver;
  if (!renewals_.is_resting()) return false;
  const std::optional<Request> request = posted_request(slot);
  return request == Request::kReturn ||
         (request == Request::kIndirect && cache_.is_jump(load<uint32_t>(slot, tcb::kArgument)));
}

std::optional<std::vector<BlockRef>> Service::open_calls_of_held(uint32_t slot) const {
  const bool returns = posted_request(slot) == Request::kReturn;
  return ledger_.open_calls(slot, returns ? Ledger::Way::kReturn : Ledger::Way::kJump,
                            registers_of(slot, TargetAddr(load<uint64_t>(slot, tcb::kTarget))));
}

void Service::at_rest(std::span<const Renewals::Standing> threads, std::optional<uint32_t> giver) {
  for (const Renewals::Standing& thread : threads) {
    cache_.take_notes(thread.slot, CodeCache::AfterVisits::kGoesOn);
  }
  renewals_.at_rest(threads, slots_used_, giver);
}

// Between two blocks hot procedures can be translated again.
void Service::renew(uint32_t slot, Ledger::Way way) {
  if (!renewals_.is_waiting()) return;
  const bool jumps = way == Ledger::Way::kJump;
  if (jumps && !cache_.is_jump(load<uint32_t>(slot, tcb::kArgument))) return;
  const TargetAddr target(load<uint64_t>(slot, tcb::kTarget));
  renewals_.at_request(way, registers_of(slot, target), is_alone());
}

elf::UnwindRegisters Service::registers_of(uint32_t slot, TargetAddr pc) const {
  elf::UnwindRegisters u =
      unwind_registers(registers_put_down(region_.thread_memory(slot), user_regs_struct{}));
  u.value[elf::kDwarfPc] = pc.value();
  return u;
}

// The code of a block has changed: the thread goes on in a new translation.
Result<CacheAddr> Service::answer_check(uint32_t slot, uint32_t check) {
  TRY_ASSIGN(const CodeCache::WayOn on, cache_.take_stale(check));
  ledger_.leave_changed(slot, cache_.check_point(check), on.to);
  return on.resume;
}

// Where an indirect jump at `at` would go now; 0 if that cannot be told.
uint64_t Service::jump_destination(uint32_t slot, const Unit& unit, LinkAddr at) const {
  const isa::Operation jump = isa::decode_operation(unit.module->view.code_at(at), at.value());
  const isa::Operand& to = jump.operands[0];
  if (jump.op != isa::Op::kIndirectJump || to.from_fs) return 0;
  if (to.kind == isa::Operand::Kind::kRegister) return reg(slot, static_cast<unsigned>(to.number));
  if (to.kind != isa::Operand::Kind::kMemory) return 0;
  auto address = static_cast<uint64_t>(to.value);
  if (to.base == isa::kRip) {
    address = unit.module->to_target(LinkAddr(address)).value();
  } else if (to.base >= 0) {
    address += reg(slot, static_cast<unsigned>(to.base));
  }
  if (to.index >= 0) address += reg(slot, static_cast<unsigned>(to.index)) * to.scale;
  uint64_t destination = 0;
  return process_.read_memory(TargetAddr(address), &destination, sizeof destination) ? destination
                                                                                     : 0;
}

Result<CacheAddr> Service::answer_event(uint32_t slot) {
  const auto argument = load<uint32_t>(slot, tcb::kArgument);
  if (argument >= CodeCache::kStaleEventBase && argument < CodeCache::kUnsupportedEventBase) {
    return answer_check(slot, argument - CodeCache::kStaleEventBase);
  }
  if (argument >= CodeCache::kEdgeWaitEventBase) {
    return cache_.take_edge_wait(argument - CodeCache::kEdgeWaitEventBase);
  }
  if (argument >= CodeCache::kWaitEventBase) {
    return cache_.take_wait(argument - CodeCache::kWaitEventBase);
  }
  if (argument >= CodeCache::kUnsupportedEventBase) {
    const BlockRef ref = cache_.global_block(argument - CodeCache::kUnsupportedEventBase);
    const Unit& unit = cache_.unit(ref.unit);
    const uint32_t last = unit.procedure.blocks[ref.block].insn_count - 1;
    const LinkAddr at = unit.address_of(ref.block, last);
    return make_error("{}+{:#x}: {}", unit.module->path, at.value(),
                      isa::describe(unit.module->view.code_at(at), at.value()));
  }
  const EventState& event = cache_.event(argument);
  const Unit& unit = cache_.unit(event.unit);
  const LinkAddr begin = unit.address_of(event.block);
  if (event.kind == EventKind::kSnapshot) {
    ledger_.snapshot(slot, event.unit, registers_of(slot, unit.module->to_target(begin)));
    return event.resume;
  }
  if (event.kind == EventKind::kReturnSlot) {
    const TargetAddr stack_pointer(reg(slot, 4));
    ledger_.return_slot(slot, stack_pointer,
                        stack_pointer + static_cast<uint64_t>(event.slot_bytes));
    return event.resume;
  }
  if (event.kind == EventKind::kReturnChanged) {
    ledger_.commit_return(slot, TargetAddr(reg(slot, 4) + static_cast<uint64_t>(event.slot_bytes)));
    return event.resume;
  }
  // The jump or return behind the probe decides where the stack ends up.
  const LinkAddr at = unit.address_of(event.block, event.insn);
  const cfg::Block& block = unit.procedure.blocks[event.block];
  uint64_t stack_pointer = reg(slot, 4);
  uint64_t destination = 0;
  // A block that goes on returns right behind its procedure (cache/events.cpp).
  const bool by_return = block.end == isa::Flow::kReturn || block.end == isa::Flow::kNone;
  if (by_return) {
    if (process_.read_memory(TargetAddr(stack_pointer), &destination, sizeof destination)) {
      stack_pointer += sizeof destination;
    }
  } else {
    destination = jump_destination(slot, unit, at);
  }
  elf::UnwindRegisters after = registers_of(slot, TargetAddr(destination));
  after.value[elf::kDwarfRsp] = stack_pointer;
  if (event.kind == EventKind::kJumpByReturn) {
    ledger_.commit_jump_by_return(slot, event.unit, after);
  } else {
    ledger_.commit(slot, event.unit, after, by_return);
  }
  return event.resume;
}

}  // namespace tally::engine
