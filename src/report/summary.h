// The facts behind `tally report`, computed once and rendered three ways.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "profile/checks.h"
#include "profile/counts.h"
#include "profile/model.h"
#include "report/output.h"
#include "report/symbols.h"

namespace tally::report {

struct ModuleTotal {
  uint32_t module = 0;
  profile::WideCount instructions = 0;
  uint64_t blocks = 0;
  uint64_t blocks_executed = 0;
};

struct HotProcedure {
  uint32_t procedure = 0;
  profile::WideCount instructions = 0;
  std::string name;
  std::string line;
};

struct HotBlock {
  uint32_t block = 0;
  profile::WideCount instructions = 0;
  std::string name;  // "deflate+0x1c", or "gzip+0x4a10"
  std::string line;
};

// What a report says of one run among several.
struct RunLine {
  uint32_t number = 0;
  uint32_t parent = 0;
  uint32_t pid = 0;
  std::string begun;
  std::string ended;  // "status 0", "signal 9", "exec"
  std::string command;
  profile::WideCount instructions = 0;
  bool balanced = false;
  uint64_t issues = 0;
};

struct Summary {
  profile::WideCount instructions = 0;
  uint64_t blocks = 0;
  uint64_t blocks_executed = 0;
  uint64_t edges = 0;
  uint64_t edges_executed = 0;
  std::array<uint64_t, 3> block_sources = {};  // by CountSource
  std::array<uint64_t, 3> edge_sources = {};
  profile::FlowReport flow;
  std::vector<ModuleTotal> modules;      // most instructions first
  std::vector<HotProcedure> procedures;  // likewise, at most `top`
  std::vector<HotBlock> hot_blocks;      // likewise
  std::vector<std::string> complaints;   // why names or lines are missing
  std::vector<RunLine> runs;             // when all runs of a file are summed up
};

// `profile` is valid.
Summary summarize(const profile::Profile& profile, Symbols& symbols, size_t top);

RunLine summarize_run(const profile::Profile& profile);

// The report in the chosen format.
void render_report(const profile::Profile& profile, Symbols& symbols, const Summary& summary,
                   Format format, Output& output);

// "exited with status 0", "killed by signal 11 (Segmentation fault)".
std::string ending(const profile::Run& run);
// A command line for a person: quoted where a shell would need it.
std::string shell_words(const std::vector<std::string>& words);

}  // namespace tally::report
