// Limits of address space that the program sets upon itself (RLIMIT_AS).
//
// What Tally has mapped in the target counts as the program's: a limit of half a gigabyte would
// leave it nothing.  So such limits are set higher by what is mapped, and shown without it.  What
// is mapped later (a code cache for code far away) is not added.
#include <sys/resource.h>
#include <sys/syscall.h>

#include "engine/service.h"

namespace tally::engine {

using namespace translate;

namespace {

struct LimitCall {
  uint64_t set = 0;  // where the program has the new limits; 0: none
  uint64_t get = 0;  // where it wants the present ones
};

std::optional<LimitCall> as_limit_call(uint64_t number, const std::array<uint64_t, 6>& arguments,
                                       pid_t pid) {
  const bool own = arguments[0] == 0 || arguments[0] == static_cast<uint64_t>(pid);
  if (number == SYS_prlimit64 && own && arguments[1] == RLIMIT_AS) {
    return LimitCall{arguments[2], arguments[3]};
  }
  if (number == SYS_setrlimit && arguments[0] == RLIMIT_AS) return LimitCall{arguments[1], 0};
  if (number == SYS_getrlimit && arguments[0] == RLIMIT_AS) return LimitCall{0, arguments[1]};
  return std::nullopt;
}

}  // namespace

uint64_t Service::mapped_bytes() const {
  return tables::kSizeBytes + kThreadsMax * tcb::kBlockSizeBytes + kAreasMax * kAreaSizeBytes +
         region_.areas().size() * kAreaSizeBytes;
}

// Gives the kernel other limits than the program named.
void Service::raise_limit(uint32_t slot, const PendingCall& call) {
  const auto limit = as_limit_call(call.number, call.arguments, process_.pid());
  rlimit wanted{};
  if (!limit || limit->set == 0 ||
      !process_.read_memory(TargetAddr(limit->set), &wanted, sizeof wanted)) {
    return;
  }
  const uint64_t added = limit_added_bytes_ != 0 ? limit_added_bytes_ : mapped_bytes();
  for (rlim_t* value : {&wanted.rlim_cur, &wanted.rlim_max}) {
    if (*value < RLIM_INFINITY - added) *value += added;
  }
  std::memcpy(region_.thread_memory(slot) + tcb::kFilter, &wanted, sizeof wanted);
  const uint64_t at = region_.thread_block(slot).value() + tcb::kFilter;
  constexpr unsigned kRdx = 2, kRsi = 6;  // in encoding order
  set_reg(slot, call.number == SYS_prlimit64 ? kRdx : kRsi, at);
}

// The call has succeeded: what it shows is what the program set.
void Service::show_limit(const PendingCall& call) {
  const auto limit = as_limit_call(call.number, call.arguments, process_.pid());
  if (!limit) return;
  rlimit shown{};
  if (limit_added_bytes_ != 0 && limit->get != 0 &&
      process_.read_memory(TargetAddr(limit->get), &shown, sizeof shown)) {
    for (rlim_t* value : {&shown.rlim_cur, &shown.rlim_max}) {
      if (*value != RLIM_INFINITY && *value >= limit_added_bytes_) *value -= limit_added_bytes_;
    }
    process_.write_memory(TargetAddr(limit->get), &shown, sizeof shown);
  }
  if (limit->set != 0 && limit_added_bytes_ == 0) limit_added_bytes_ = mapped_bytes();
}

}  // namespace tally::engine
