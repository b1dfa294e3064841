// See clocks.h.
#include "verify/clocks.h"

#include <fmt/format.h>

#include <algorithm>

namespace tally::verify {

bool is_about_chance(const std::string& name) {
  for (const char* begin : {"_ZNSt6chrono", "_ZNSt13random_device", "arc4random"}) {
    if (name.starts_with(begin)) return true;
  }
  const std::string plain = name.substr(std::min(name.find_first_not_of('_'), name.size()));
  for (const char* whole : {"clock_gettime", "clock_getres", "gettimeofday", "time", "times",
                            "clock", "getrusage", "ftime", "timespec_get", "getrandom",
                            "getentropy", "vdso_clock_gettime", "vdso_gettimeofday", "vdso_time"}) {
    if (plain == whole) return true;
  }
  return false;
}

Clocks::Clocks(const Truth& truth) : truth_(truth) {
  for (const auto& [path, module] : truth.modules) {
    if (!module.image) continue;
    mark_readers(path, module);
    note_calls(path, module);
  }
  mark_told();
}

void Clocks::mark_readers(const std::string& path, const TruthModule& module) {
  for (const auto& [address, instruction] : module.instructions) {
    if (instruction.count <= 0) continue;
    const auto bytes = module.image->bytes_at(LinkAddr(address));
    if (!isa::reads_chance(bytes)) continue;
    if (path != "[vdso]") readings_[path] += static_cast<uint64_t>(instruction.count);
    why_.try_emplace(procedure_at(truth_, path, LinkAddr(address)),
                     fmt::format("executes `{}`", isa::format(bytes, address)));
  }
}

void Clocks::note_calls(const std::string& path, const TruthModule& module) {
  for (const auto& [last, edges] : module.by_last) {
    for (const TruthEdge& edge : edges) {
      if (edge.count == 0) continue;
      if (edge.role != EdgeRole::kCall && edge.role != EdgeRole::kBranch) continue;
      const Procedure from = procedure_at(truth_, path, edge.from_begin);
      const Procedure to = procedure_at(truth_, edge.to_module, edge.to);
      if (from == to) continue;
      callees_[from].insert(to);
      if (edge.to_module == path) callers_[to].insert(from);
      // A stub's first call does not lead there by an edge; what leads from it is the same call.
      const bool from_stub = module.image->linkage_table_at(edge.from_begin) != nullptr;
      std::string name = symbol_name(truth_.module(edge.to_module), edge.to);
      if (edge.to_module == path) {
        const std::string called = called_by_stub(*module.image, edge.to);
        if (!called.empty()) name = called;
      }
      if (!is_about_chance(name) || from_stub) continue;
      // One reading goes through libc and the vdso, by that name each time.
      const std::string by = symbol_name(truth_.module(from.first), LinkAddr(from.second));
      if (!is_about_chance(by)) readings_[path] += edge.count;
      why_.try_emplace(from, "calls " + name);
    }
  }
}

void Clocks::mark_told() {
  std::set<Procedure> readers;
  for (const auto& [procedure, why] : why_) readers.insert(procedure);
  for (const Procedure& reader : readers) {
    const auto callers = callers_.find(reader);
    if (callers == callers_.end()) continue;
    for (const Procedure& caller : callers->second) {
      why_.try_emplace(caller,
                       fmt::format("calls {}, which {}", name_of(truth_, reader), why_.at(reader)));
    }
  }
  std::set<Procedure> all;
  for (const auto& [procedure, why] : why_) all.insert(procedure);
  const std::set<Procedure> handed = mark_handed(all);
  mark_handed(handed);
}

// It computes with what it is handed: makes no calls, or calls only what makes none.
bool Clocks::is_shallow(const Procedure& procedure) const {
  const auto callees = callees_.find(procedure);
  if (callees == callees_.end()) return true;
  return std::ranges::all_of(callees->second, [&](const Procedure& callee) {
    return callee.first == procedure.first && !callees_.contains(callee);
  });
}

std::set<Procedure> Clocks::mark_handed(const std::set<Procedure>& callers) {
  std::set<Procedure> handed;
  for (const auto& [called, by] : callers_) {
    if (!is_shallow(called)) continue;
    const auto caller =
        std::ranges::find_if(by, [&](const auto& p) { return callers.contains(p); });
    if (caller == by.end()) continue;
    const bool marked =
        why_.try_emplace(called, fmt::format("is called by {}, which {}", name_of(truth_, *caller),
                                             why_.at(*caller)))
            .second;
    if (marked) handed.insert(called);
  }
  return handed;
}

std::string Clocks::why(const Finding& finding) const {
  const auto readings = readings_.find(finding.module);
  const uint64_t most = readings == readings_.end() ? 0 : readings->second;
  // What the vdso does for a reading is many instructions, each once.
  if (finding.module != "[vdso]" && std::max(finding.claimed, finding.counted) > most) return {};
  const auto found = why_.find(procedure_at(truth_, finding.module, finding.address));
  if (found == why_.end()) return {};
  return fmt::format("{} {}", name_of(truth_, found->first), found->second);
}

}  // namespace tally::verify
