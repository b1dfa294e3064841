// A list of what lies where in the code cache, for reading samples of a time-based profiler.
//
// `TALLY_CODE_MAP=FILE tally profile ...` writes one line per piece: begin, end, kind, original
// address.  bench/where.py puts it together with `perf script`.
#pragma once

#include <string>

#include "base/result.h"
#include "cache/code_cache.h"

namespace tally::engine {

Status write_code_map(const CodeCache& cache, const std::string& path);

}  // namespace tally::engine
