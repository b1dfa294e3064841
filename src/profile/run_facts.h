// The named facts of a run, listed once for everyone who walks over them.
//
// Saving, loading and the digest all visit the scalar members of `Run`; with one list they cannot
// forget one another's.  The names are part of the file format (docs/formats.md).
#pragma once

#include "profile/model.h"

namespace tally::profile {

// Calls visit(name, member) for each scalar fact, in a fixed order.  `RunType` is Run or const Run.
// The command line and `more` are lists and are not visited.
template <class RunType, class Visitor>
void visit_run_facts(RunType& run, Visitor&& visit) {
  visit("number", run.number);
  visit("parent", run.parent);
  visit("pid", run.pid);
  visit("begun", run.begun);
  visit("ended", run.ended);
  visit("program", run.program);
  visit("working_directory", run.working_directory);
  visit("environment_digest", run.environment_digest);
  visit("host", run.host);
  visit("kernel", run.kernel);
  visit("cpu", run.cpu);
  visit("tally_version", run.tally_version);
  visit("placement", run.placement);
  visit("start_unix_ms", run.start_unix_ms);
  visit("exited", run.exited);
  visit("exit_status", run.exit_status);
  visit("signal", run.signal);
  visit("threads", run.threads);
  visit("wall_seconds", run.wall_seconds);
  visit("target_cpu_seconds", run.target_cpu_seconds);
  visit("monitor_cpu_seconds", run.monitor_cpu_seconds);
  visit("counters", run.counters);
  visit("counter_increments", run.counter_increments);
  visit("code_cache_bytes", run.code_cache_bytes);
  visit("instructions_translated", run.instructions_translated);
  visit("misses", run.misses);
}

}  // namespace tally::profile
