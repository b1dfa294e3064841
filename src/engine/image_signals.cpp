// Signals that a target gets, and the safety net.  See image_run.h.
#include <fmt/format.h>
#include <signal.h>
#include <string.h>

#include <cstdio>
#include <cstdlib>

#include "engine/image_run.h"

namespace tally::engine {

using tracee::Event;

// The kernel executes calls into the vsyscall page itself, at the fault, and returns to the
// original address: such a return goes to its landing like any other, where rcx is taken from the
// spill.
bool ImageRun::back_from_vsyscall(uint32_t slot, user_regs_struct& regs) {
  constexpr uint64_t kVsyscallPage = 0xffffffffff600000;
  constexpr uint64_t kPageBytes = 4096;
  if (ledger_.requested_target(slot) - kVsyscallPage >= kPageBytes) return false;
  const std::optional<uint32_t> site = service_.asking_site(slot);
  const auto landing = cache_.take_return(TargetAddr(regs.rip));
  if (!landing || !site) return false;
  const SiteState& from = cache_.sites()[*site];
  if (!from.site.call) ledger_.leave_to_kernel(slot, {from.unit, from.site.block});
  const uint64_t rcx = regs.rcx;
  memcpy(region_.thread_memory(slot) + translate::tcb::kSpillRcx, &rcx, sizeof rcx);
  regs.rip = landing->value();
  return true;
}

// Control reached the program's own text, which cannot be executed: nobody foresaw this transfer.
bool ImageRun::caught_by_net(const Event& event) {
  if (event.signal != SIGSEGV || event.info.si_code != SEGV_ACCERR) return false;
  user_regs_struct regs = process_->registers(event.tid);
  if (reinterpret_cast<uint64_t>(event.info.si_addr) != regs.rip ||
      modules_.at(TargetAddr(regs.rip)) == nullptr) {
    return false;
  }
  const auto thread = threads_.find(event.tid);
  if (thread != threads_.end() && thread->second.slot &&
      back_from_vsyscall(*thread->second.slot, regs)) {
    process_->set_registers(event.tid, regs);
    process_->resume(event.tid);
    return true;
  }
  auto ref = cache_.resolve(TargetAddr(regs.rip), Arrival::kReturn);
  if (!ref || !ref->valid()) return false;
  if (!net_named_) {
    net_named_ = true;
    ledger_.issue("safety net",
                  "control reached original code by a way Tally did not foresee; counts around it "
                  "may be incomplete");
  }
  regs.rip = cache_.way_into(*ref).value();
  process_->set_registers(event.tid, regs);
  process_->resume(event.tid);
  return true;
}

std::optional<Event> ImageRun::signal_stop(Event event) {
  if (caught_by_net(event) || signals_.is_of_alignment_checks(event)) return std::nullopt;
  if (!signals_.admit(event)) {
    process_->resume(event.tid);
    return std::nullopt;
  }
  auto it = threads_.find(event.tid);
  const bool ours = it != threads_.end() && it->second.slot;
  const auto fate = ours ? signals_.fate_of(event) : Signals::Fate::kHarmless;
  if (fate == Signals::Fate::kHandler) {
    auto other = signals_.deliver(event, *it->second.slot);
    if (other) return *other;
    service_.fail(other.error());
    process_->resume(event.tid);
    return std::nullopt;
  }
  if (ours) it->second.fatal_signal = true;
  if (ours && !it->second.own_process && fate == Signals::Fate::kEndsProcess) expect_end();
  if (std::getenv("TALLY_DEBUG") != nullptr) explain_signal(event);
  tracee::hide_stop(event.tid);  // a signal that is ignored natively interrupts nothing
  process_->resume(event.tid, event.signal);
  return std::nullopt;
}

// TALLY_DEBUG: where in the program and in the code cache a signal hit.
void ImageRun::explain_signal(const Event& event) {
  const user_regs_struct regs = process_->registers(event.tid);
  const uint32_t slot = threads_[event.tid].slot.value_or(0);
  const Position p = ledger_.locate(regs, slot);
  std::string text = fmt::format(
      "tally: debug: signal {} code {} address {:#x} rip {:#x} rsp {:#x} rcx {:#x} rax {:#x} "
      "target "
      "{:#x} pc {:#x}\n",
      event.signal, event.info.si_code, reinterpret_cast<uint64_t>(event.info.si_addr), regs.rip,
      regs.rsp, regs.rcx, regs.rax, ledger_.requested_target(slot), p.pc.value());
  text += fmt::format("tally: debug: in {}\n", ledger_.name_of(p));
  uint8_t bytes[160];
  if (process_->read_memory(TargetAddr(regs.rip - 32), bytes, sizeof bytes)) {
    text += "tally: debug: bytes around rip:";
    for (const uint8_t b : bytes) text += fmt::format(" {:02x}", b);
    text += '\n';
  }
  const elf::BackTrace trace = ledger_.back_trace(
      [&] {
        elf::UnwindRegisters u = unwind_registers(regs);
        u.value[elf::kDwarfPc] = p.pc.value();
        return u;
      }(),
      slot);
  for (const elf::Frame& frame : trace.frames) {
    text += fmt::format("tally: debug:   frame {}\n", modules_.name_of(frame.pc));
  }
  std::fputs(text.c_str(), stderr);
}

}  // namespace tally::engine
