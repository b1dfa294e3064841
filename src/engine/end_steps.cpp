// See end_steps.h.
#include "engine/end_steps.h"

#include "tracee/watch.h"

namespace tally::engine {

Result<std::optional<tracee::Event>> go_steps(pid_t tid, EndSteps steps) {
  for (;;) {
    tracee::resume_for_one_step(tid);
    TRY_ASSIGN(const tracee::Event event, tracee::wait_for_event());
    if (!tracee::Process::is_step_end(event)) return std::optional<tracee::Event>(event);
    const CacheAddr at(reinterpret_cast<uint64_t>(event.info.si_addr));
    if (steps.is_end(at)) return std::optional<tracee::Event>();
  }
}

}  // namespace tally::engine
