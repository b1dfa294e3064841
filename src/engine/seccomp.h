// Filters of system calls that the program installs upon itself (seccomp).
//
// Problem.  A filter judges every system call of the thread, also those that generated code makes
// to wait for the monitor, and those that the monitor makes in a child's name: a strict filter
// would kill the program for them.
//
// Idea.  A filter sees the address of the instruction that makes the call.  The program's filter is
// installed with a prefix that lets calls pass which come from the three instructions of the first
// area's gateway that are ours (the other areas' lead there); everything else is judged by the
// program's own filter, as it is.
//
// Not handled, refused by name: strict mode (it takes no filter), filters that look at that address
// themselves, filters that with the prefix are longer than the kernel allows.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace tally::engine {

// `filter` behind a prefix that allows calls whose instruction ends at one of `addresses`.
Result<std::vector<sock_filter>> allow_calls_from(const std::vector<uint64_t>& addresses,
                                                  const std::vector<sock_filter>& filter);

}  // namespace tally::engine
