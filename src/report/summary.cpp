// See summary.h.
#include "report/summary.h"

#include <algorithm>
#include <cstring>

namespace tally::report {
namespace {

using profile::Profile;
using profile::WideCount;

// Indexes of the largest values above zero, largest first; ties by index.
std::vector<uint32_t> largest(const std::vector<WideCount>& values, size_t top) {
  std::vector<uint32_t> order;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) order.push_back(static_cast<uint32_t>(i));
  }
  const auto middle = order.begin() + static_cast<ptrdiff_t>(std::min(top, order.size()));
  std::partial_sort(order.begin(), middle, order.end(), [&](uint32_t a, uint32_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  order.erase(middle, order.end());
  return order;
}

void count_edges(const Profile& profile, Summary& summary) {
  summary.edges = profile.edges.size();
  for (const profile::Edge& edge : profile.edges) {
    ++summary.edge_sources[static_cast<size_t>(edge.source)];
    if (edge.count > 0) ++summary.edges_executed;
  }
}

std::string block_name(const Profile& profile, Symbols& symbols, const profile::Block& block) {
  const profile::Procedure& procedure = profile.procedures[block.procedure_id];
  if (symbols.raw_name(procedure).empty() || block.address < procedure.entry) {
    return symbols.address_name(procedure.module_id, block.address);
  }
  return fmt::format("{}+{:#x}", symbols.procedure_name(procedure),
                     static_cast<uint64_t>(block.address - procedure.entry));
}

}  // namespace

Summary summarize(const Profile& profile, Symbols& symbols, size_t top) {
  Summary summary;
  std::vector<WideCount> by_block(profile.blocks.size(), 0);
  std::vector<WideCount> by_procedure(profile.procedures.size(), 0);
  std::vector<ModuleTotal> by_module(profile.modules.size());
  for (const profile::Module& module : profile.modules) by_module[module.id].module = module.id;
  summary.blocks = profile.blocks.size();
  for (const profile::Block& block : profile.blocks) {
    const uint32_t module = profile.procedures[block.procedure_id].module_id;
    by_block[block.id] = profile::instructions_executed(block);
    by_procedure[block.procedure_id] += by_block[block.id];
    by_module[module].instructions += by_block[block.id];
    summary.instructions += by_block[block.id];
    ++summary.block_sources[static_cast<size_t>(block.source)];
    ++by_module[module].blocks;
    if (block.count == 0) continue;
    ++summary.blocks_executed;
    ++by_module[module].blocks_executed;
  }
  count_edges(profile, summary);
  summary.flow = profile::check_flow(profile);
  summary.modules = by_module;
  std::stable_sort(
      summary.modules.begin(), summary.modules.end(),
      [](const ModuleTotal& a, const ModuleTotal& b) { return a.instructions > b.instructions; });
  for (uint32_t id : largest(by_procedure, top)) {
    const profile::Procedure& procedure = profile.procedures[id];
    summary.procedures.push_back({id, by_procedure[id], symbols.procedure_name(procedure),
                                  symbols.source_line(procedure.module_id, procedure.entry)});
  }
  for (uint32_t id : largest(by_block, top)) {
    const profile::Block& block = profile.blocks[id];
    const uint32_t module = profile.procedures[block.procedure_id].module_id;
    summary.hot_blocks.push_back({id, by_block[id], block_name(profile, symbols, block),
                                  symbols.source_line(module, block.address)});
  }
  summary.complaints = symbols.complaints();
  return summary;
}

RunLine summarize_run(const Profile& profile) {
  const profile::Run& run = profile.run;
  RunLine line;
  line.number = run.number;
  line.parent = run.parent;
  line.pid = run.pid;
  line.begun = run.begun;
  line.ended = run.ended == "exec" || run.ended == "detach" || run.ended == "monitor lost"
                   ? run.ended
               : run.exited ? fmt::format("status {}", run.exit_status)
                            : fmt::format("signal {}", run.signal);
  line.command = shell_words(run.command_line);
  for (const profile::Block& block : profile.blocks) {
    line.instructions += profile::instructions_executed(block);
  }
  line.balanced = profile::check_flow(profile).balanced();
  line.issues = profile.issues.size();
  return line;
}

std::string ending(const profile::Run& run) {
  if (run.ended == "exec") return "went on as another program";
  if (run.ended == "monitor lost") return "killed together with Tally, counted until then";
  if (run.ended == "detach") return "counted while it ran, then let go";
  if (run.exited) return fmt::format("exited with status {}", run.exit_status);
  const char* name = ::strsignal(run.signal);
  return fmt::format("killed by signal {} ({})", run.signal, name == nullptr ? "unknown" : name);
}

std::string shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789%+,-./:=@_") == std::string::npos;
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (char c : word) {
      if (c == '\'') {
        line += "'\\''";
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
        line += '?';  // never let a file name drive the terminal
      } else {
        line += c;
      }
    }
    line += '\'';
  }
  return line;
}

}  // namespace tally::report
