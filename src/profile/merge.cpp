// See merge.h.
#include "profile/merge.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace tally::profile {
namespace {

CountSource weaker(CountSource a, CountSource b) {
  return std::max(a, b);
}

void add_partial_runs(Block& sum, const Block& block) {
  std::vector<PartialRun> all(sum.partial.begin(), sum.partial.end());
  for (const PartialRun& partial : block.partial) {
    auto same = std::find_if(all.begin(), all.end(), [&](const PartialRun& p) {
      return p.first_instruction == partial.first_instruction &&
             p.last_instruction == partial.last_instruction;
    });
    if (same == all.end()) {
      all.push_back(partial);
    } else {
      same->delta += partial.delta;
    }
  }
  sum.partial.clear();
  for (const PartialRun& partial : all) sum.partial.push_back(partial);
}

// Free facts that are numbers in both are numbers of things, and are added up.
void add_free_facts(Run& sum, const Run& run) {
  const auto number = [](const std::string& text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole ? std::optional(value) : std::nullopt;
  };
  for (const auto& fact : run.more) {
    const std::string& name = fact.first;
    const std::string& value = fact.second;
    const auto known = std::find_if(sum.more.begin(), sum.more.end(),
                                    [&](const auto& other) { return other.first == name; });
    if (known == sum.more.end()) {
      sum.more.emplace_back(name, value);
      continue;
    }
    const auto a = number(known->second);
    const auto b = number(value);
    if (a && b) known->second = std::to_string(*a + *b);
  }
}

}  // namespace

uint32_t Merger::module_of(const Module& module) {
  const auto id = static_cast<uint32_t>(sum_.modules.size());
  const auto [it, fresh] = modules_.try_emplace({module.path, module.build_id}, id);
  if (fresh) {
    sum_.modules.push_back(module);
    sum_.modules.back().id = id;
  }
  sum_.modules[it->second].main_program |= module.main_program;
  return it->second;
}

uint32_t Merger::procedure_of(const Procedure& procedure, uint32_t module) {
  const auto id = static_cast<uint32_t>(sum_.procedures.size());
  const auto [it, fresh] = procedures_.try_emplace({module, procedure.entry.value()}, id);
  if (fresh) {
    sum_.procedures.push_back(procedure);
    sum_.procedures.back().id = id;
    sum_.procedures.back().module_id = module;
    return id;
  }
  Procedure& known = sum_.procedures[it->second];
  known.size_bytes = std::max(known.size_bytes, procedure.size_bytes);
  known.entries += procedure.entries;
  known.entries_source = weaker(known.entries_source, procedure.entries_source);
  return it->second;
}

uint32_t Merger::block_of(const Block& block, uint32_t procedure) {
  const auto id = static_cast<uint32_t>(sum_.blocks.size());
  const auto [it, fresh] = blocks_.try_emplace(
      {procedure, block.address.value(),
       std::vector<uint8_t>(block.instruction_sizes.begin(), block.instruction_sizes.end())},
      id);
  if (fresh) {
    sum_.blocks.push_back(block);
    sum_.blocks.back().id = id;
    sum_.blocks.back().procedure_id = procedure;
    return id;
  }
  Block& known = sum_.blocks[it->second];
  known.count += block.count;
  known.source = weaker(known.source, block.source);
  // Counters have different numbers in different runs.
  if (known.counter != block.counter) known.counter = Block::kNoCounter;
  known.returns |= block.returns;
  if (!block.partial.empty()) add_partial_runs(known, block);
  return it->second;
}

void Merger::add_facts(const Run& run) {
  Run& sum = sum_.run;
  if (empty_) {
    sum = run;
    empty_ = false;
    return;
  }
  Run first = run.number < sum.number ? run : sum;
  add_free_facts(first, run.number < sum.number ? sum : run);
  first.threads = sum.threads + run.threads;
  first.target_cpu_seconds = sum.target_cpu_seconds + run.target_cpu_seconds;
  first.monitor_cpu_seconds = sum.monitor_cpu_seconds + run.monitor_cpu_seconds;
  first.counters = sum.counters + run.counters;
  first.counter_increments = sum.counter_increments + run.counter_increments;
  first.code_cache_bytes = sum.code_cache_bytes + run.code_cache_bytes;
  first.instructions_translated = sum.instructions_translated + run.instructions_translated;
  first.misses = sum.misses + run.misses;
  const double end = std::max(static_cast<double>(sum.start_unix_ms) + sum.wall_seconds * 1000,
                              static_cast<double>(run.start_unix_ms) + run.wall_seconds * 1000);
  first.start_unix_ms = std::min(sum.start_unix_ms, run.start_unix_ms);
  first.wall_seconds = (end - static_cast<double>(first.start_unix_ms)) / 1000;
  sum = std::move(first);
}

void Merger::add(const Profile& profile) {
  add_facts(profile.run);
  std::vector<uint32_t> modules;
  for (const Module& module : profile.modules) modules.push_back(module_of(module));
  std::vector<uint32_t> procedures;
  for (const Procedure& procedure : profile.procedures) {
    procedures.push_back(procedure_of(procedure, modules[procedure.module_id]));
  }
  std::vector<uint32_t> blocks;
  for (const Block& block : profile.blocks) {
    blocks.push_back(block_of(block, procedures[block.procedure_id]));
  }
  for (Edge edge : profile.edges) {
    edge.from_block = blocks[edge.from_block];
    edge.to_block = blocks[edge.to_block];
    const auto [it, fresh] =
        edges_.try_emplace({edge.from_block, edge.to_block, edge.kind}, sum_.edges.size());
    if (fresh) {
      sum_.edges.push_back(edge);
    } else {
      sum_.edges[it->second].count += edge.count;
      sum_.edges[it->second].source = weaker(sum_.edges[it->second].source, edge.source);
    }
  }
  for (Abnormal term : profile.abnormal) {
    term.block = blocks[term.block];
    const auto [it, fresh] =
        abnormal_.try_emplace({term.block, term.kind, term.detail}, sum_.abnormal.size());
    if (fresh) {
      sum_.abnormal.push_back(term);
    } else {
      sum_.abnormal[it->second].entered += term.entered;
      sum_.abnormal[it->second].left += term.left;
    }
  }
  for (const Issue& issue : profile.issues) {
    const auto [it, fresh] = issues_.try_emplace({issue.scope, issue.message}, sum_.issues.size());
    if (fresh) {
      sum_.issues.push_back(issue);
    } else {
      sum_.issues[it->second].amount += issue.amount;
    }
  }
  for (Thread thread : profile.threads) {
    thread.run = profile.run.number;
    sum_.threads.push_back(std::move(thread));
  }
}

Profile Merger::result() {
  return std::move(sum_);
}

}  // namespace tally::profile
