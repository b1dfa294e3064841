// See seccomp.h.
#include "engine/seccomp.h"

#include <linux/seccomp.h>

#include <cstddef>

namespace tally::engine {

namespace {

constexpr uint32_t kAddressLow = offsetof(seccomp_data, instruction_pointer);
constexpr uint32_t kAddressHigh = kAddressLow + 4;

bool looks_at_address(const sock_filter& insn) {
  return BPF_CLASS(insn.code) == BPF_LD && BPF_MODE(insn.code) == BPF_ABS &&
         (insn.k == kAddressLow || insn.k == kAddressHigh);
}

}  // namespace

Result<std::vector<sock_filter>> allow_calls_from(const std::vector<uint64_t>& addresses,
                                                  const std::vector<sock_filter>& filter) {
  for (const sock_filter& insn : filter) {
    if (looks_at_address(insn)) {
      return make_error(
          "the program installs a seccomp filter that looks at the address of system calls, which "
          "is another under Tally");
    }
  }
  std::vector<sock_filter> result;
  const auto load = [&](uint32_t offset) {
    result.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
  };
  for (const uint64_t address : addresses) {
    load(kAddressLow);
    result.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(address), 0, 3));
    load(kAddressHigh);
    result.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(address >> 32), 0, 1));
    result.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  // The accumulator is zero when a filter begins.
  result.push_back(BPF_STMT(BPF_LD | BPF_IMM, 0));
  result.insert(result.end(), filter.begin(), filter.end());
  if (result.size() > BPF_MAXINSNS) {
    return make_error(
        "the program installs a seccomp filter of {} instructions; under Tally it may "
        "have at most {}",
        filter.size(), BPF_MAXINSNS - (result.size() - filter.size()));
  }
  return result;
}

}  // namespace tally::engine
