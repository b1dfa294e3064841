// See undescribed_frames.h.
#include "ledger/undescribed_frames.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <vector>

#include "isa/call_before.h"

namespace tally::engine {

namespace {

constexpr uint64_t kFrameBytesMax = 16 << 20;
constexpr uint64_t kSearchBytesMax = 1 << 20;
constexpr uint64_t kPageBytes = 4096;

void set(elf::UnwindRegisters& registers, int number, uint64_t value) {
  registers.value[static_cast<size_t>(number)] = value;
  registers.known[static_cast<size_t>(number)] = true;
}

elf::UnwindRegisters nobody(uint64_t stack_pointer) {
  elf::UnwindRegisters registers;
  set(registers, elf::kDwarfPc, 0);
  set(registers, elf::kDwarfRsp, stack_pointer);
  return registers;
}

}  // namespace

elf::UnwindTarget unwind_target(const ModuleMap& modules, const tracee::Process& process) {
  elf::UnwindTarget target;
  target.module_at = [&modules](TargetAddr address) -> std::optional<elf::UnwindModule> {
    const Module* module = modules.containing(address);
    if (module == nullptr) return std::nullopt;
    return elf::UnwindModule{module->image, module->bias};
  };
  target.read_memory = [&process](TargetAddr address, void* data, size_t size_bytes) {
    return process.read_memory(address, data, size_bytes);
  };
  return target;
}

bool UndescribedFrames::read(uint64_t address, uint64_t& word) const {
  return process_.read_memory(TargetAddr(address), &word, sizeof word);
}

std::optional<elf::UnwindRegisters> UndescribedFrames::caller_of(const elf::UnwindRegisters& frame,
                                                                 bool pc_is_exact,
                                                                 TargetAddr inner) const {
  if (!frame.known[elf::kDwarfRsp]) return std::nullopt;
  const TargetAddr pc(frame.value[elf::kDwarfPc]);
  const uint64_t stack_pointer = frame.value[elf::kDwarfRsp];
  const Module* module = modules_.containing(pc);
  if (module == nullptr) return is_undescribed(inner) ? described_caller(frame) : std::nullopt;
  const bool clone = pc_is_exact && is_behind_clone(*module, module->to_link(pc));
  if (clone || (pc_is_exact && cache_.is_procedure_entry(pc))) {
    auto caller = return_at(stack_pointer);
    if (!caller && handler_return_(stack_pointer) == stack_pointer) {
      return to_restorer(stack_pointer);
    }
    if (caller) {
      // Nothing has been saved yet: every register is still the caller's.
      elf::UnwindRegisters all = frame;
      set(all, elf::kDwarfPc, caller->value[elf::kDwarfPc]);
      set(all, elf::kDwarfRsp, caller->value[elf::kDwarfRsp]);
      return all;
    }
    if (!clone) return std::nullopt;
    return nobody(stack_pointer + 8);
  }
  if (auto caller = by_frame_pointer(frame)) {
    if (auto nearer = keeper_of_frame_pointer(frame)) return nearer;
    return caller;
  }
  return module->generated ? by_search(stack_pointer) : described_caller(frame);
}

bool UndescribedFrames::begins_stack(TargetAddr pc, uint64_t stack_pointer) const {
  const Module* module = modules_.containing(pc);
  if (module == nullptr || module->generated || !is_undescribed(pc) || is_call_(pc)) return false;
  const LinkAddr at = module->to_link(pc);
  const LinkAddr before(at.value() - isa::kCallBytesMax);
  const auto bytes = module->view.code_at(before);
  if (bytes.size() < isa::kCallBytesMax) return false;
  return !isa::may_follow_call(bytes.first(isa::kCallBytesMax)) && !stack_end(stack_pointer) &&
         !has_waiting(stack_pointer);
}

// Code may go on at a label of its own, behind no call, on a stack that it has left with registers
// saved there; whoever had called it waits behind these.
bool UndescribedFrames::has_waiting(uint64_t stack_pointer) const {
  constexpr uint64_t kSavedBytesMax = 4096;  // the state of vector registers among them
  std::array<uint64_t, kSavedBytesMax / 8> words{};
  size_t bytes = kSavedBytesMax;
  if (!process_.read_memory(TargetAddr(stack_pointer), words.data(), bytes)) {
    bytes = kPageBytes - stack_pointer % kPageBytes;  // a stack may end with its page
    if (!process_.read_memory(TargetAddr(stack_pointer), words.data(), bytes)) return false;
  }
  return std::ranges::any_of(std::span(words).first(bytes / 8),
                             [&](uint64_t word) { return is_call_(TargetAddr(word)); });
}

// As the code cache sees it: debug information does not count.
bool UndescribedFrames::is_undescribed(TargetAddr pc) const {
  const Module* module = modules_.containing(pc);
  return module != nullptr && !module->image->unwind_range_at(module->to_link(pc)).has_value();
}

// Hand-written code whose description ends in front of a `syscall`, since what it says would be
// wrong for the thread that is born there.
bool UndescribedFrames::is_behind_clone(const Module& module, LinkAddr pc) {
  constexpr uint64_t kBytesMax = 64;
  if (module.generated) return false;
  const auto& ranges = module.image->unwind_ranges();
  auto next = std::upper_bound(ranges.begin(), ranges.end(), pc,
                               [](LinkAddr a, const LinkRange& r) { return a < r.begin; });
  if (next == ranges.begin()) return false;
  const LinkAddr end = std::prev(next)->end;
  if (pc < end || static_cast<uint64_t>(pc - end) > kBytesMax) return false;
  const auto bytes = module.view.code_at(end);
  return bytes.size() >= 2 && bytes[0] == 0x0f && bytes[1] == 0x05;
}

// The caller if a return address lies at the stack pointer.
std::optional<elf::UnwindRegisters> UndescribedFrames::return_at(uint64_t stack_pointer) const {
  uint64_t back = 0;
  if (!read(stack_pointer, back) || !is_call_(TargetAddr(back))) return std::nullopt;
  elf::UnwindRegisters caller;
  set(caller, elf::kDwarfPc, back);
  set(caller, elf::kDwarfRsp, stack_pointer + 8);
  return caller;
}

// A handler's return: registers are what the kernel's frame says, not what the handler has kept.
std::optional<elf::UnwindRegisters> UndescribedFrames::to_restorer(uint64_t at) const {
  uint64_t back = 0;
  if (!read(at, back)) return std::nullopt;
  elf::UnwindRegisters restorer;
  set(restorer, elf::kDwarfPc, back);
  set(restorer, elf::kDwarfRsp, at + 8);
  return restorer;
}

std::optional<elf::UnwindRegisters> UndescribedFrames::by_frame_pointer(
    const elf::UnwindRegisters& frame) const {
  if (!frame.known[elf::kDwarfRbp]) return std::nullopt;
  const uint64_t frame_pointer = frame.value[elf::kDwarfRbp];
  const uint64_t stack_pointer = frame.value[elf::kDwarfRsp];
  if (frame_pointer % 8 != 0 || frame_pointer < stack_pointer ||
      frame_pointer - stack_pointer > kFrameBytesMax) {
    return std::nullopt;
  }
  // A handler that leaves rbp alone: it is that of what the signal struck.
  const auto handler = handler_return_(stack_pointer);
  if (handler && *handler < frame_pointer) return std::nullopt;
  uint64_t outer = 0;
  if (!read(frame_pointer, outer)) return std::nullopt;
  auto caller = return_at(frame_pointer + 8);
  if (caller) set(*caller, elf::kDwarfRbp, outer);
  return caller;
}

// Whether a call from other code led to generated code and this is where it comes back to.
bool UndescribedFrames::enters_generated_code(TargetAddr return_address) const {
  if (!cache_.has_landing(return_address)) return false;
  const BlockRef call = cache_.call_block_of(return_address);
  return call.valid() && cache_.enters_generated_code(call);
}

std::optional<elf::UnwindRegisters> UndescribedFrames::by_search(uint64_t stack_pointer) const {
  std::vector<uint64_t> words(kPageBytes / 8);
  uint64_t at = stack_pointer & ~uint64_t{7};
  const uint64_t end = at + kSearchBytesMax;
  const auto handler = handler_return_(stack_pointer);
  while (at < end) {
    const uint64_t bytes = kPageBytes - at % kPageBytes;
    if (!process_.read_memory(TargetAddr(at), words.data(), bytes)) return std::nullopt;
    for (uint64_t i = 0; i < bytes / 8; ++i) {
      if (handler == at + 8 * i) return to_restorer(*handler);
      if (!enters_generated_code(TargetAddr(words[i]))) continue;
      auto caller = return_at(at + 8 * i);
      // Entries to generated code begin as procedures do that keep a frame pointer.
      uint64_t saved = 0;
      if (caller && read(at + 8 * i - 8, saved)) set(*caller, elf::kDwarfRbp, saved);
      return caller;
    }
    at += bytes;
  }
  return std::nullopt;
}

// A described procedure comes back to code, or to nobody.  Where neither is on the stack above its
// return address, that is a dead word, and what it belonged to has been written over.
bool UndescribedFrames::may_be_active(TargetAddr back, uint64_t at) const {
  elf::UnwindRegisters registers;
  set(registers, elf::kDwarfPc, back.value() - 1);  // behind the call another procedure may begin
  set(registers, elf::kDwarfRsp, at + 8);
  const elf::BackTrace trace = elf::unwind(registers, unwind_target(modules_, process_), 2);
  if (trace.frames.size() < 2) return trace.end != elf::TraceEnd::kNoModule;
  return modules_.containing(trace.frames[1].pc) != nullptr;
}

// Where on the stack calls from described code into other code left their return addresses; the
// first `most` of them.
std::vector<uint64_t> UndescribedFrames::calls_out_of_description(uint64_t begin, uint64_t end,
                                                                  size_t most) const {
  std::vector<uint64_t> found;
  std::vector<uint64_t> words(kPageBytes / 8);
  for (uint64_t at = (begin + 7) & ~uint64_t{7}; at + 8 <= end;) {
    const uint64_t bytes = std::min(kPageBytes - at % kPageBytes, (end - at) & ~uint64_t{7});
    if (process_.read_memory(TargetAddr(at), words.data(), bytes)) {
      for (uint64_t i = 0; i < bytes / 8; ++i) {
        const TargetAddr back(words[i]);
        if (modules_.containing(back) == nullptr || !cache_.has_landing(back)) continue;
        const BlockRef call = cache_.call_block_of(back);
        if (!call.valid() || !cache_.leaves_description(call)) continue;
        if (!may_be_active(back, at + 8 * i)) continue;
        found.push_back(at + 8 * i);
        if (found.size() == most) return found;
      }
    }
    at += bytes;
  }
  return found;
}

// Where the stack that a stack pointer is on begins to grow; nullopt if that is not known.
std::optional<uint64_t> UndescribedFrames::stack_end(uint64_t stack_pointer) const {
  constexpr uint64_t kStackBytesMax = 64 << 20;
  if (birth_ && stack_pointer <= *birth_ && *birth_ - stack_pointer <= kStackBytesMax)
    return birth_;
  if (main_stack_.contains(TargetAddr(stack_pointer))) return main_stack_.end.value();
  const auto mappings = process_.mappings();
  if (!mappings) return std::nullopt;
  for (const tracee::Mapping& m : *mappings) {
    if (m.path == "[stack]" && m.range.contains(TargetAddr(stack_pointer))) {
      main_stack_ = m.range;
      return m.range.end.value();
    }
  }
  return std::nullopt;
}

// The innermost described procedure that is active farther out.
std::optional<elf::UnwindRegisters> UndescribedFrames::described_caller(
    const elf::UnwindRegisters& frame) const {
  constexpr uint64_t kBirthStackBytes = 256 << 10;
  const uint64_t stack_pointer = frame.value[elf::kDwarfRsp];
  if (const auto handler = handler_return_(stack_pointer)) {
    const auto found = calls_out_of_description(stack_pointer, *handler, 1);
    return found.empty() ? to_restorer(*handler) : described_caller_at(frame, found.front());
  }
  if (const auto end = stack_end(stack_pointer)) {
    const auto found = calls_out_of_description(stack_pointer, *end, 1);
    return found.empty() ? nobody(*end) : described_caller_at(frame, found.front());
  }
  if (!birth_) return std::nullopt;
  // Words left over from earlier calls from the same place lie farther in than what is active.
  constexpr size_t kMost = 64;
  const auto found = calls_out_of_description(*birth_ - kBirthStackBytes, *birth_, kMost);
  std::set<uint64_t> places;
  for (const uint64_t at : found) {
    uint64_t back = 0;
    if (read(at, back)) places.insert(back);
  }
  if (places.size() != 1 || found.size() == kMost) return std::nullopt;
  return described_caller_at(frame, found.back());
}

// A described procedure whose frame rbp belongs to, and that has called what does not change rbp:
// the call that entered that frame leads to it.
std::optional<elf::UnwindRegisters> UndescribedFrames::keeper_of_frame_pointer(
    const elf::UnwindRegisters& frame) const {
  const uint64_t frame_pointer = frame.value[elf::kDwarfRbp];
  uint64_t entered_from = 0;
  uint64_t back = 0;
  if (!read(frame_pointer + 8, entered_from)) return std::nullopt;
  const auto found = calls_out_of_description(frame.value[elf::kDwarfRsp], frame_pointer, 1);
  if (found.empty() || !read(found.front(), back)) return std::nullopt;
  const BlockRef outer = cache_.call_block_of(TargetAddr(entered_from));
  const BlockRef inner = cache_.call_block_of(TargetAddr(back));
  if (!outer.valid() || !inner.valid() || !cache_.leads_to(outer, inner.unit)) return std::nullopt;
  return described_caller_at(frame, found.front());
}

std::optional<elf::UnwindRegisters> UndescribedFrames::below_outermost(
    const elf::UnwindRegisters& frame) const {
  if (!birth_ || !frame.known[elf::kDwarfRsp]) return std::nullopt;
  if (!is_undescribed(TargetAddr(frame.value[elf::kDwarfPc]))) return std::nullopt;
  return described_caller(frame);
}

std::optional<elf::UnwindRegisters> UndescribedFrames::described_caller_at(
    const elf::UnwindRegisters& frame, uint64_t at) const {
  auto caller = return_at(at);
  if (!caller) return caller;
  // Undescribed procedures in between keep rbp, or it is not needed.
  const uint64_t frame_pointer = frame.value[elf::kDwarfRbp];
  uint64_t back = 0;
  const bool kept = frame.known[elf::kDwarfRbp] && frame_pointer > at && frame_pointer % 8 == 0 &&
                    frame_pointer - at <= kFrameBytesMax && read(frame_pointer + 8, back) &&
                    is_call_(TargetAddr(back));
  if (kept) set(*caller, elf::kDwarfRbp, frame_pointer);
  return caller;
}

}  // namespace tally::engine
