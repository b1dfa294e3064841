// Dumps that others can check against: instructions, edges, blocks.
//
// `dump_instructions` and `dump_edges` are stable interfaces in CSV (docs/formats.md): counts by
// address in the module's own ELF addresses, independent of how Tally cut the code into blocks.
// Code that lies in several blocks (blocks overlap when a jump enters the middle of one, or when
// two procedures share code) is summed.
#pragma once

#include <cstdint>

#include "profile/model.h"
#include "report/output.h"

namespace tally::report {

// What a dump had to leave out; printed on stderr by the command.
struct DumpGaps {
  uint64_t unknown = 0;  // blocks whose count is unknown
};

// `module,build_id,address,count` of every executed instruction, sorted by module and address.
DumpGaps dump_instructions(const profile::Profile& profile, Format format, Output& output);

// `module,from_block,to_module,to_block,kind,count,source` of every edge, executed or not.  Edges
// that agree in everything but count and source are one row: its count is the sum, its source
// `measured` when all were, `unknown` when any was.
void dump_edges(const profile::Profile& profile, Format format, Output& output);

// `module,block,size_bytes,instructions,last_instruction,count,source,procedure` of every block.
void dump_blocks(const profile::Profile& profile, Format format, Output& output);

}  // namespace tally::report
