// Checks of profiles that name source lines and functions instead of addresses (gcov, LLVM).
//
//   * Lines of a function that was never entered were not executed.
//   * A function that was entered executed one of its lines.
//   * Where a function's first line has a count, it is at least that of its entries; a difference
//     that is a multiple of 2^32 means that one of the two counters wrapped.
#include <algorithm>
#include <unordered_map>

#include "claims/counts.h"
#include "claims/equations.h"

namespace tally::claims {
namespace {

struct Function {
  uint64_t lines = 0;
  uint64_t most = 0;  // the largest count of its lines
  const LineClaim* hottest = nullptr;
  const LineClaim* first = nullptr;  // the line it begins on
};

std::string key_of(const std::string& file, const std::string& function) {
  return file + '\0' + function;
}

void fault(Inspection& inspection, FaultKind kind, const ProcedureClaim& procedure,
           uint64_t claimed, Wide implied, const std::string& message) {
  inspection.find({.kind = kind,
                   .place = procedure.entry,
                   .where = fmt::format("{}:{} {}", procedure.file, procedure.line, procedure.name),
                   .claimed = claimed,
                   .implied = implied,
                   .record = inspection.record_of(RecordKind::kProcedure, procedure.record),
                   .message = message});
}

void check_function(Inspection& inspection, const ProcedureClaim& procedure,
                    const Function& function) {
  if (is_impossible(procedure.count)) return;  // said as impossible
  ++inspection.report.equations;
  if (procedure.count == 0 && function.most > 0) {
    return fault(inspection, FaultKind::kEntries, procedure, 0, function.most,
                 fmt::format("never entered, but its line {} was executed {} times",
                             function.hottest->line, function.most));
  }
  if (procedure.count > 0 && function.most == 0) {
    return fault(inspection, FaultKind::kFlow, procedure, procedure.count, 0,
                 fmt::format("entered {} times, but none of its {} lines was executed",
                             procedure.count, function.lines));
  }
  if (function.first == nullptr) return;
  ++inspection.report.equations;
  const Wide missing = static_cast<Wide>(procedure.count) - function.first->count;
  if (missing > 0) {
    const bool wrapped = missing % (Wide{1} << 32) == 0;
    return fault(
        inspection, wrapped ? FaultKind::kOverflow32 : FaultKind::kFlow, procedure, procedure.count,
        function.first->count,
        fmt::format("entered {} times, but its first line was executed {} times{}", procedure.count,
                    function.first->count, wrapped ? ": a counter of 32 bits wrapped" : ""));
  }
}

}  // namespace

void check_lines(Inspection& inspection) {
  const Claims& claims = inspection.claims;
  if (claims.form != Form::kGcov) return;
  // Several functions on one line, and templates, have the same place: their lines are not told
  // apart by it, so functions go by name.
  std::unordered_map<std::string, Function> functions;
  std::unordered_map<std::string, uint32_t> begins;
  for (const ProcedureClaim& procedure : claims.procedures) {
    begins.emplace(key_of(procedure.file, procedure.name), procedure.line);
  }
  for (const LineClaim& line : claims.lines) {
    if (is_impossible(line.count)) continue;  // said as impossible
    const std::string key = key_of(line.file, line.function);
    Function& function = functions[key];
    ++function.lines;
    if (function.hottest == nullptr || line.count > function.most) {
      function.hottest = &line;
      function.most = line.count;
    }
    const auto begin = begins.find(key);
    if (begin != begins.end() && begin->second == line.line) function.first = &line;
  }
  for (const ProcedureClaim& procedure : claims.procedures) {
    const auto function = functions.find(key_of(procedure.file, procedure.name));
    if (function == functions.end()) {
      ++inspection.report.open;
      continue;
    }
    check_function(inspection, procedure, function->second);
  }
}

}  // namespace tally::claims
