// Walking a stack, frame by frame.
//
// One step: find the module and its rules for the pc, compute the CFA, apply each register's rule,
// and the caller's registers are complete.
//
//   pc --- which pc to look up? ---> rules ---> CFA ---> saved registers ---> caller's pc
//
// A return address may be the first byte of the *next* procedure (the call was the last instruction
// of a procedure that never returns), so the lookup uses the byte before it.  Two kinds of pc are
// exact instead: the innermost, and one that a signal interrupted.
//
// The CFA must grow from frame to frame.  Exempt is a signal frame itself, since a handler may run
// on an alternate stack anywhere in memory; such steps are bounded by frames_max alone.
//
// Not handled: what unwind.h lists, and signal trampolines without CFI (musl's): kNoCfi.
#include "elf/unwind.h"

#include <elfutils/libdw.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "elf/dwarf_expression.h"

namespace tally::elf {
namespace {

constexpr uint64_t kPageSizeBytes = 4096;

struct FrameFree {
  void operator()(Dwarf_Frame* frame) const { std::free(frame); }
};
using FrameHandle = std::unique_ptr<Dwarf_Frame, FrameFree>;

// Reads through the last page used: a step needs some seven words, each a system call otherwise.
class PageCache {
 public:
  explicit PageCache(const UnwindTarget& target) : target_(target) {}

  bool read(uint64_t address, void* bytes, size_t size_bytes) {
    const uint64_t page = address & ~(kPageSizeBytes - 1);
    const uint64_t into = address - page;
    if (into + size_bytes <= kPageSizeBytes && load(page)) {
      std::memcpy(bytes, content_.data() + into, size_bytes);
      return true;
    }
    return target_.read_memory(TargetAddr(address), bytes, size_bytes);
  }

 private:
  bool load(uint64_t page) {
    if (loaded_ == page) return true;
    loaded_.reset();
    if (!target_.read_memory(TargetAddr(page), content_.data(), kPageSizeBytes)) return false;
    loaded_ = page;
    return true;
  }

  const UnwindTarget& target_;
  std::optional<uint64_t> loaded_;
  std::array<uint8_t, kPageSizeBytes> content_;
};

// libdw caches rules inside the module's handle, without locking.  Who is asked for a caller that
// nothing describes (UnwindTarget::caller_of) may unwind other frames to find it.
std::recursive_mutex& libdw_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

class Walker {
 public:
  Walker(const UnwindRegisters& registers, const UnwindTarget& target)
      : registers_(registers),
        target_(target),
        memory_(target),
        read_([this](uint64_t address, void* bytes, size_t size_bytes) {
          return memory_.read(address, bytes, size_bytes);
        }) {}

  BackTrace walk(size_t frames_max) {
    while (true) {
      if (trace_.frames.size() >= frames_max) {
        end(TraceEnd::kTooDeep, fmt::format("more than {} frames", frames_max));
        break;
      }
      if (!step()) break;
    }
    return std::move(trace_);
  }

 private:
  // Adds the frame of the current pc and moves the registers to its caller; false at the end.
  bool step() {
    if (!registers_.known[kDwarfPc]) return end(TraceEnd::kUnsupported, "the pc is not known");
    trace_.frames.push_back({.pc = pc(), .cfa = TargetAddr(0)});
    if (step_over_signal()) return true;
    if (target_.is_outermost && target_.is_outermost(registers_)) {
      return end(TraceEnd::kOutermost, "");
    }
    const FrameHandle rules = find_rules();
    if (rules == nullptr) return step_without_rules();
    bool signal_frame = false;
    const int return_column = dwarf_frame_info(rules.get(), nullptr, nullptr, &signal_frame);
    if (return_column < 0 || return_column >= kDwarfRegisterCount) {
      return end(TraceEnd::kUnsupported,
                 at_pc(fmt::format("return address in DWARF register {}", return_column)));
    }
    trace_.frames.back().signal_frame = signal_frame;
    if (signal_frame) trace_.frames.back().context = registers_.value[kDwarfRsp];
    return to_caller(*rules, return_column, signal_frame);
  }

  // Over the frame of a signal that somebody else knows about.
  bool step_over_signal() {
    if (!target_.signal_context || !registers_.known[kDwarfRsp]) return false;
    const uint64_t context = registers_.value[kDwarfRsp];
    const auto interrupted = target_.signal_context(pc(), context);
    if (!interrupted) return false;
    Frame& frame = trace_.frames.back();
    frame.signal_frame = true;
    frame.context = context;
    frame.cfa = TargetAddr(interrupted->registers.value[kDwarfRsp]);
    last_cfa_ = frame.cfa.value();
    registers_ = interrupted->registers;
    pc_is_exact_ = interrupted->pc_is_exact;
    return true;
  }

  // To the caller that somebody else knows; the end stays what it is if nobody does.
  bool step_without_rules() {
    if (!target_.caller_of) return false;
    const size_t frames = trace_.frames.size();
    const TargetAddr inner = frames < 2 ? TargetAddr() : trace_.frames[frames - 2].pc;
    const auto caller = target_.caller_of(registers_, pc_is_exact_, inner);
    if (!caller) return false;
    const uint64_t cfa = caller->value[kDwarfRsp];
    if (last_cfa_ && cfa <= *last_cfa_) return false;
    if (module_) {
      trace_.frames.back().cfa = TargetAddr(cfa);
    } else {
      trace_.frames.pop_back();  // that was no return address
    }
    last_cfa_ = cfa;
    registers_ = *caller;
    pc_is_exact_ = false;
    end(TraceEnd::kOutermost, "");
    return registers_.value[kDwarfPc] != 0;
  }

  bool step_below_outermost() {
    end(TraceEnd::kOutermost, "");
    if (!target_.below_outermost) return false;
    const auto caller = target_.below_outermost(registers_);
    if (!caller) return false;
    last_cfa_ = caller->value[kDwarfRsp];
    registers_ = *caller;
    pc_is_exact_ = false;
    return registers_.value[kDwarfPc] != 0;
  }

  bool to_caller(Dwarf_Frame& rules, int return_column, bool signal_frame) {
    const std::optional<uint64_t> cfa = compute_cfa(rules);
    if (cfa) trace_.frames.back().cfa = TargetAddr(*cfa);
    // The CFI of _start and of thread starts says "no caller"; its CFA may be undefined too.
    if (is_undefined(rules, return_column)) return step_below_outermost();
    if (!cfa) return end(failure_.end, at_pc(failure_.detail));
    if (!signal_frame && last_cfa_ && *cfa <= *last_cfa_) {
      return end(TraceEnd::kUnsupported,
                 at_pc(fmt::format("CFA {:#x} does not lie above the inner frame's {:#x}", *cfa,
                                   *last_cfa_)));
    }
    last_cfa_ = cfa;
    UnwindRegisters caller;
    for (int number = 0; number < kDwarfRegisterCount; ++number) {
      set_register(caller, rules, number, *cfa);
    }
    if (!caller.known[kDwarfRsp]) set(caller, kDwarfRsp, *cfa);
    const std::optional<uint64_t> return_address = apply_rule(rules, return_column, *cfa);
    if (!return_address) return end(failure_.end, at_pc("return address: " + failure_.detail));
    if (*return_address == 0) return step_below_outermost();
    set(caller, kDwarfPc, *return_address);
    registers_ = caller;
    pc_is_exact_ = signal_frame;
    return true;
  }

  TargetAddr pc() const { return TargetAddr(registers_.value[kDwarfPc]); }
  TargetAddr lookup_pc() const { return pc_is_exact_ ? pc() : pc() - 1; }

  FrameHandle find_rules() {
    module_ = target_.module_at(lookup_pc());
    if (!module_ || module_->image == nullptr) {
      end(TraceEnd::kNoModule, fmt::format("no module at {:#x}", pc().value()));
      return nullptr;
    }
    auto* cfi = static_cast<Dwarf_CFI*>(module_->image->cfi());
    if (cfi == nullptr) {
      end(TraceEnd::kNoCfi, at_pc("the module has no call frame information"));
      return nullptr;
    }
    Dwarf_Frame* rules = nullptr;
    if (dwarf_cfi_addrframe(cfi, lookup_pc().value() - module_->bias, &rules) != 0) {
      end(TraceEnd::kNoCfi, at_pc(fmt::format("no call frame information ({})", dwarf_errmsg(-1))));
      return nullptr;
    }
    return FrameHandle(rules);
  }

  std::optional<uint64_t> compute_cfa(Dwarf_Frame& rules) {
    Dwarf_Op* operations = nullptr;
    size_t count = 0;
    if (dwarf_frame_cfa(&rules, &operations, &count) != 0) return failed(dwarf_errmsg(-1));
    if (count == 0) return failed("the CFA is undefined");
    ExpressionEvaluator evaluator(registers_, std::nullopt, read_);
    const auto result = evaluator.evaluate({operations, count});
    if (!result) {
      failure_ = evaluator.failure();
      return std::nullopt;
    }
    return result->value;
  }

  std::nullopt_t failed(std::string detail) {
    failure_ = {TraceEnd::kUnsupported, std::move(detail)};
    return std::nullopt;
  }

  bool is_undefined(Dwarf_Frame& rules, int number) const {
    Dwarf_Op memory[3];
    Dwarf_Op* operations = memory;
    size_t count = 0;
    return dwarf_frame_register(&rules, number, memory, &operations, &count) == 0 && count == 0 &&
           operations != nullptr;
  }

  // The register's value in the caller; nullopt on failure, which is in failure_.
  std::optional<uint64_t> apply_rule(Dwarf_Frame& rules, int number, uint64_t cfa) {
    Dwarf_Op memory[3];
    Dwarf_Op* operations = memory;
    size_t count = 0;
    if (dwarf_frame_register(&rules, number, memory, &operations, &count) != 0) {
      return failed(dwarf_errmsg(-1));
    }
    if (count == 0) return apply_empty_rule(static_cast<size_t>(number), operations == nullptr);
    ExpressionEvaluator evaluator(registers_, cfa, read_);
    const auto location = evaluator.evaluate({operations, count});
    if (!location) {
      failure_ = evaluator.failure();
      return std::nullopt;
    }
    if (location->kind == LocationKind::kValue) return location->value;
    uint64_t saved = 0;
    if (read_(location->value, &saved, sizeof(saved))) return saved;
    failure_ = {TraceEnd::kUnreadable,
                fmt::format("memory at {:#x} is not readable", location->value)};
    return std::nullopt;
  }

  std::optional<uint64_t> apply_empty_rule(size_t number, bool same_value) {
    if (same_value && registers_.known[number]) return registers_.value[number];
    return failed("the register is not saved");
  }

  // A register whose rule fails is unknown in the caller; that matters only if it is needed there.
  void set_register(UnwindRegisters& caller, Dwarf_Frame& rules, int number, uint64_t cfa) {
    if (number == kDwarfPc) return;
    if (const auto value = apply_rule(rules, number, cfa)) set(caller, number, *value);
  }

  static void set(UnwindRegisters& registers, int number, uint64_t value) {
    registers.value[static_cast<size_t>(number)] = value;
    registers.known[static_cast<size_t>(number)] = true;
  }

  std::string at_pc(const std::string& what) const {
    return fmt::format("{} at {:#x} ({} + {:#x})", what, pc().value(), module_->image->path(),
                       pc().value() - module_->bias);
  }

  bool end(TraceEnd reason, std::string detail) {
    trace_.end = reason;
    trace_.detail = std::move(detail);
    return false;
  }

  UnwindRegisters registers_;
  const UnwindTarget& target_;
  PageCache memory_;
  ExpressionEvaluator::ReadWord read_;
  BackTrace trace_;
  bool pc_is_exact_ = true;
  std::optional<UnwindModule> module_;
  std::optional<uint64_t> last_cfa_;
  UnwindFailure failure_;
};

}  // namespace

BackTrace unwind(const UnwindRegisters& registers, const UnwindTarget& target, size_t frames_max) {
  const std::lock_guard lock(libdw_mutex());
  return Walker(registers, target).walk(frames_max);
}

}  // namespace tally::elf
