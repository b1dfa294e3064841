// What can be said of a process from outside: the facts of its run.
#pragma once

#include "profile/model.h"
#include "tracee/process.h"

namespace tally::engine {

// Program, command line, folder, environment, machine, and the time: now.
void describe_process(const tracee::Process& process, profile::Run& run);

}  // namespace tally::engine
