// See scheduling.h.
#include "verify/scheduling.h"

#include <fmt/format.h>

#include <algorithm>

namespace tally::verify {
bool is_about_threads(const std::string& name) {
  for (const char* begin : {"pthread_mutex_",
                            "pthread_cond_",
                            "pthread_rwlock_",
                            "pthread_barrier_",
                            "pthread_spin_",
                            "pthread_once",
                            "pthread_join",
                            "pthread_create",
                            "pthread_cancel",
                            "pthread_timedjoin",
                            "pthread_tryjoin",
                            "sem_",
                            "mtx_",
                            "cnd_",
                            "thrd_",
                            "sched_yield",
                            "nanosleep",
                            "clock_nanosleep",
                            "__pthread_",
                            "__lll_lock",
                            "_ZNSt18condition_variable",
                            "_ZNSt6thread",
                            "GOMP_",
                            "omp_"}) {
    if (name.starts_with(begin)) return true;
  }
  // libc's own names for them begin with underscores.
  const std::string plain = name.substr(std::min(name.find_first_not_of('_'), name.size()));
  for (const char* whole :
       {"usleep",  "sleep",   "pause",      "poll",    "ppoll",        "select",
        "pselect", "read",    "readv",      "recv",    "recvfrom",     "recvmsg",
        "accept",  "accept4", "epoll_wait", "sigwait", "epoll_pwait",  "sigsuspend",
        "wait",    "wait3",   "wait4",      "waitpid", "waitid",       "sigwaitinfo",
        "msgrcv",  "semop",   "mq_receive", "flock",   "sigtimedwait", "semtimedop"}) {
    if (plain == whole) return true;
  }
  return false;
}

bool is_about_taking(const std::string& name) {
  for (const char* begin :
       {"pthread_mutex_lock", "pthread_mutex_try", "pthread_mutex_timed", "pthread_cond_wait",
        "pthread_cond_timed", "pthread_rwlock_rd", "pthread_rwlock_wr", "pthread_rwlock_try",
        "pthread_spin_lock", "pthread_spin_try", "sem_wait", "sem_try", "sem_timed", "mtx_lock",
        "mtx_try", "cnd_wait"}) {
    if (name.starts_with(begin)) return true;
  }
  return false;
}

Scheduling::Scheduling(const Truth& truth, const Judgement& judgement) : truth_(truth) {
  for (const auto& [path, module] : truth.modules) {
    if (!module.image) continue;
    mark_by_instructions(path, module);
    mark_by_calls(path, module);
  }
  std::set<Procedure> lockers;
  for (const auto& [procedure, why] : why_) lockers.insert(procedure);
  mark_callers();
  mark_under_locks(lockers);
  mark_called(judgement);
  note_taken();
}

void Scheduling::mark_by_instructions(const std::string& path, const TruthModule& module) {
  for (const auto& [address, instruction] : module.instructions) {
    if (instruction.count <= 0) continue;
    const LinkAddr at(address);
    const auto bytes = module.image->bytes_at(at);
    if (isa::synchronises(bytes)) {
      takers_.insert(procedure_at(truth_, path, at));
      mark(procedure_at(truth_, path, at),
           fmt::format("executes `{}`", isa::format(bytes, address)));
      continue;
    }
    const isa::Insn insn = isa::decode(bytes, address);
    const bool back = insn.flow == isa::Flow::kConditional && insn.target <= address;
    if (back && only_looks_at_memory(module, insn.target, address)) {
      mark(procedure_at(truth_, path, at),
           fmt::format("has a loop at {:#x} that only looks at memory", insn.target));
    }
  }
}

// From `begin` up to the branch: loads from the same places each time, and comparisons.
bool Scheduling::only_looks_at_memory(const TruthModule& module, uint64_t begin,
                                      uint64_t branch) const {
  constexpr uint64_t kSizeMax = 64;  // bytes
  if (branch - begin > kSizeMax) return false;
  bool looks = false;
  uint32_t written = 0;
  uint32_t addressed = 0;
  for (uint64_t at = begin; at < branch;) {
    const auto bytes = module.image->bytes_at(LinkAddr(at));
    const isa::Insn insn = isa::decode(bytes, at);
    const bool goes_on = insn.flow == isa::Flow::kNone || insn.flow == isa::Flow::kConditional;
    if (insn.size == 0 || !goes_on || isa::writes_memory(bytes)) return false;
    const isa::TableInsn table = isa::decode_for_table(bytes, at);
    if (table.step == isa::TableStep::kAdd || table.step == isa::TableStep::kLea) return false;
    if (table.written_mask != 0 && !table.has_memory && table.step != isa::TableStep::kMove) {
      return false;
    }
    written |= table.written_mask;
    looks = looks || table.has_memory;
    for (const int reg : {table.memory.base, table.memory.index}) {
      if (table.has_memory && reg >= 0 && reg < 16) addressed |= 1u << reg;
    }
    at += insn.size;
  }
  return looks && (written & addressed) == 0;
}

void Scheduling::mark_by_calls(const std::string& path, const TruthModule& module) {
  for (const auto& [last, edges] : module.by_last) {
    for (const TruthEdge& edge : edges) {
      const bool in_procedure = edge.role == EdgeRole::kCall || edge.role == EdgeRole::kBranch;
      if (!in_procedure || edge.count == 0) continue;
      const Procedure from = procedure_at(truth_, path, edge.from_begin);
      const Procedure to = procedure_at(truth_, edge.to_module, edge.to);
      if (from == to) continue;
      if (edge.to_module == path) {
        callers_[to].insert(from);
        callees_[from][to] += edge.count;
      }
      std::string name = symbol_name(truth_.module(edge.to_module), edge.to);
      // A stub's first call does not lead there by an edge.
      if (name.empty() && edge.to_module == path) name = called_by_stub(*module.image, edge.to);
      if (is_about_threads(name)) mark(from, "calls " + name);
      if (is_about_taking(name)) takers_.insert(from);
    }
  }
}

// Who calls what is marked, in the same module; stubs of the linkage table are on the way.
void Scheduling::mark_callers() {
  std::vector<Procedure> work;
  for (const auto& [procedure, why] : why_) work.push_back(procedure);
  while (!work.empty()) {
    const Procedure marked = std::move(work.back());
    work.pop_back();
    const auto callers = callers_.find(marked);
    if (callers == callers_.end()) continue;
    const std::string why = why_.at(marked);
    const bool is_stub = symbol_name(truth_.module(marked.first), LinkAddr(marked.second)).empty();
    for (const Procedure& caller : callers->second) {
      const std::string words =
          is_stub ? why
          : why.starts_with("calls ") && why.find(", which") != why.npos
              ? why
              : fmt::format("calls {}, which {}", name_of(truth_, marked), why);
      if (mark(caller, words)) work.push_back(caller);
    }
  }
}

void Scheduling::mark_under_locks(const std::set<Procedure>& lockers) {
  for (const auto& [called, callers] : callers_) {
    for (const Procedure& caller : callers) {
      if (!lockers.contains(caller)) continue;
      mark(called,
           fmt::format("is called by {}, which {}", name_of(truth_, caller), why_.at(caller)));
    }
  }
}

// What a marked procedure called another number of times than claimed.
void Scheduling::mark_called(const Judgement& judgement) {
  for (bool more = true; more;) {
    more = false;
    for (const Finding& f : judgement.findings) {
      const bool by_edge = !f.to.empty();
      const Procedure called = by_edge ? procedure_at(truth_, f.to_module, f.to_address)
                                       : procedure_at(truth_, f.module, f.address);
      const LinkAddr entry = by_edge ? f.to_address : f.address;
      if (called.second != entry.value() || why_.contains(called)) continue;
      const auto callers = callers_.find(called);
      if (callers == callers_.end()) continue;
      for (const Procedure& caller : callers->second) {
        if (!why_.contains(caller)) continue;
        more = mark(called, fmt::format("is called by {}, which {}", name_of(truth_, caller),
                                        why_.at(caller))) ||
               more;
      }
    }
  }
}

// Stubs of the linkage table take nothing: who calls them does.
void Scheduling::note_taken() {
  for (const auto& [caller, callees] : callees_) {
    if (takers_.contains(caller)) continue;
    uint64_t times = 0;
    const Procedure* taker = nullptr;
    for (const auto& [callee, count] : callees) {
      const bool named = !symbol_name(truth_.module(callee.first), LinkAddr(callee.second)).empty();
      if (!takers_.contains(callee) || !named) continue;
      times += count;
      taker = &callee;
    }
    if (taker == nullptr) continue;
    note_below(caller, times,
               fmt::format("{}, which calls {}, which {}", name_of(truth_, caller),
                           name_of(truth_, *taker), why_.at(*taker)));
  }
}

void Scheduling::note_below(const Procedure& caller, uint64_t times, const std::string& words) {
  std::vector<Procedure> work = {caller};
  while (!work.empty()) {
    const auto callees = callees_.find(work.back());
    work.pop_back();
    if (callees == callees_.end()) continue;
    for (const auto& [callee, count] : callees->second) {
      Below& below = below_[callee];
      if (callee == caller || below.times >= times) continue;
      below = {.times = times, .why = words};
      work.push_back(callee);
    }
  }
}

std::string Scheduling::why_taken(const Finding& finding) const {
  const auto found = below_.find(procedure_at(truth_, finding.module, finding.address));
  if (found == below_.end()) return {};
  const TruthModule* module = truth_.module(finding.module);
  const auto first = module->instructions.find(found->first.second);
  const int64_t entered = first == module->instructions.end() ? 0 : first->second.count;
  const uint64_t most =
      std::max({finding.claimed, finding.counted, static_cast<uint64_t>(entered)});
  if (most > found->second.times) return {};
  return fmt::format("{} is called below {}; that was handed something {} times",
                     name_of(truth_, found->first), found->second.why, found->second.times);
}

std::string Scheduling::why(const Finding& finding) const {
  const auto found = why_.find(procedure_at(truth_, finding.module, finding.address));
  if (found == why_.end()) return why_taken(finding);
  return fmt::format("{} {}", name_of(truth_, found->first), found->second);
}

}  // namespace tally::verify
