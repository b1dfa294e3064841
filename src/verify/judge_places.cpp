// Comparing counts of any form with the truth, by address or line.  See truth.h.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "claims/counts.h"
#include "claims/read.h"
#include "verify/truth.h"

namespace tally::verify {
namespace {

using claims::Form;
using claims::RecordKind;

std::string short_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

class PlaceJudge {
 public:
  PlaceJudge(const claims::Claims& claims, const Truth& truth, bool complete, Judgement& judgement)
      : claims_(claims), truth_(truth), complete_(complete), judgement_(judgement) {}

  void run() {
    blocks();
    edges();
    entered_from_elsewhere();
    left_for_elsewhere();
    instructions();
    procedures();
    lines();
  }

 private:
  const std::string& path_of(const claims::Place& place) const {
    return claims_.modules[place.module].path;
  }
  const TruthModule* module_of(const claims::Place& place) const {
    return truth_.module(path_of(place));
  }

  Finding finding(FindingKind kind, const claims::Place& at, RecordKind record_kind,
                  claims::Record record) const {
    Finding f;
    f.kind = kind;
    f.where = fmt::format("{}+{:#x}", short_name(path_of(at)), at.address.value());
    f.module = path_of(at);
    f.address = at.address;
    f.record = claims::describe_record(claims_.form, record_kind, record);
    const TruthModule* module = module_of(at);
    if (module != nullptr && module->image) {
      if (const elf::Symbol* symbol = module->image->symbol_at(at.address)) f.name = symbol->name;
      f.procedure = procedure_around(*module->image, at.address);
    }
    return f;
  }

  void compare(Tally& tally, Finding&& f, uint64_t claimed, uint64_t counted) {
    ++tally.judged;
    tally.executions += counted;
    const std::string name = name_in_source(f);
    if (!name.empty()) ++judgement_.named[name];
    if (!differs(claimed, counted, complete_)) {
      if (!name.empty()) judgement_.confirmed.insert(name);
      return;
    }
    ++tally.wrong;
    f.claimed = claimed;
    f.counted = counted;
    judgement_.findings.push_back(std::move(f));
  }

  // Blocks at one address count together: procedures share them.
  void blocks() {
    std::map<claims::Place, std::pair<uint64_t, claims::Record>> sums;
    for (const claims::BlockClaim& b : claims_.blocks) {
      ++judgement_.blocks.claims;
      if (b.unsure) continue;
      auto& sum = sums[b.begin];
      sum.first = claims::joined(sum.first, b.count);
      if (sum.second == 0) sum.second = b.record;
    }
    for (const auto& [place, sum] : sums) {
      const TruthModule* module = module_of(place);
      uint64_t counted = 0;
      if (module != nullptr) {
        const auto it = module->blocks.find(place.address.value());
        if (it != module->blocks.end()) counted = it->second;
      }
      compare(judgement_.blocks,
              finding(FindingKind::kBlockCount, place, RecordKind::kBlock, sum.second), sum.first,
              counted);
    }
  }

  uint64_t count_edge(const claims::EdgeClaim& e) const {
    const TruthModule* module = module_of(e.from);
    if (module == nullptr) return 0;
    const auto& index =
        e.origin == claims::EdgeOrigin::kBlockBegin ? module->by_begin : module->by_last;
    const auto it = index.find(e.from.address.value());
    if (it == index.end()) return 0;
    uint64_t sum = 0;
    for (const TruthEdge& t : it->second) {
      if (t.to != e.to.address || t.to_module != path_of(e.to)) continue;
      const bool same = t.role == e.role ||
                        (t.role == EdgeRole::kCall && e.role == EdgeRole::kBranch) ||
                        (t.role == EdgeRole::kBranch && e.role == EdgeRole::kCall);
      const bool any = e.role == EdgeRole::kUnknown && t.role != EdgeRole::kCallReturn;
      if (same || any) sum += t.count;
    }
    return sum;
  }

  // What goes on from an instruction to the one behind it, where the profile's blocks end and ours
  // need not: the whole of it, or of a call what came back.
  std::optional<uint64_t> count_going_on(const claims::EdgeClaim& e) const {
    const TruthModule* module = module_of(e.from);
    if (module == nullptr || !module->image || path_of(e.from) != path_of(e.to)) return {};
    const isa::Insn insn =
        isa::decode(module->image->bytes_at(e.from.address), e.from.address.value());
    if (insn.size == 0 || e.from.address + insn.size != e.to.address) return {};
    if (insn.flow == isa::Flow::kNone) {
      const auto it = module->instructions.find(e.from.address.value());
      return it == module->instructions.end() ? 0 : static_cast<uint64_t>(it->second.count);
    }
    const bool is_call = insn.flow == isa::Flow::kCall || insn.flow == isa::Flow::kIndirectCall;
    if (!is_call) return {};
    uint64_t sum = 0;
    const auto it = module->by_last.find(e.from.address.value());
    if (it == module->by_last.end()) return 0;
    for (const TruthEdge& t : it->second) {
      if (t.role == EdgeRole::kCallReturn && t.to == e.to.address) sum += t.count;
    }
    return sum;
  }

  // How often a claimed edge was taken.
  uint64_t count_claimed(const claims::EdgeClaim& e) const {
    const bool may_go_on =
        e.role == EdgeRole::kUnknown && e.origin == claims::EdgeOrigin::kBranchInstruction;
    return (may_go_on ? count_going_on(e) : std::nullopt).value_or(count_edge(e));
  }

  // Callgrind shows each further repetition of a `rep` instruction as a jump to itself.
  bool is_repetition(const claims::EdgeClaim& e) const {
    if (e.from != e.to) return false;
    const TruthModule* module = module_of(e.from);
    if (module == nullptr || !module->image) return false;
    return isa::decode(module->image->bytes_at(e.from.address), e.from.address.value()).repeated;
  }

  void edges() {
    uint64_t repetitions = 0;
    struct Sum {
      uint64_t count = 0;
      const claims::EdgeClaim* first = nullptr;
    };
    std::map<std::tuple<claims::Place, claims::Place, EdgeRole>, Sum> sums;
    for (const claims::EdgeClaim& e : claims_.edges) {
      ++judgement_.edges.claims;
      Sum& sum = sums[{e.from, e.to, e.role}];
      sum.count = claims::joined(sum.count, e.count);
      if (sum.first == nullptr) sum.first = &e;
    }
    for (const auto& [key, sum] : sums) {
      const claims::EdgeClaim& e = *sum.first;
      // Only whole modules are left out: code that valgrind brings along, for example.
      if (module_of(e.from) == nullptr && sum.count != 0) {
        unseen_.insert(path_of(e.from));
        continue;
      }
      if (is_repetition(e)) {
        ++repetitions;
        continue;
      }
      Finding f = finding(FindingKind::kEdgeCount, e.from, RecordKind::kEdge, e.record);
      f.to = fmt::format("{}+{:#x}", short_name(path_of(e.to)), e.to.address.value());
      f.role = e.role;
      f.to_module = path_of(e.to);
      f.to_address = e.to.address;
      compare(judgement_.edges, std::move(f), sum.count, count_claimed(e));
    }
    if (repetitions != 0) {
      judgement_.remarks.push_back(fmt::format(
          "{} jumps of `rep` instructions to themselves are not judged: repetitions", repetitions));
    }
    for (const std::string& path : unseen_) {
      judgement_.remarks.push_back(path + ": in the profile, but not in the run; not judged");
    }
  }

  // Entries whose callers the profile does not know: with those it knows they are all there were.
  void entered_from_elsewhere() {
    std::map<claims::Place, std::pair<uint64_t, claims::Record>> sums;
    if (claims_.form != Form::kFdata) return;
    for (const claims::AbnormalClaim& a : claims_.abnormal) {
      if (!a.target.empty()) continue;
      ++judgement_.procedures.claims;
      auto& sum = sums[a.block];
      sum.first = claims::joined(sum.first, a.entered);
      sum.second = a.record;
    }
    for (const claims::EdgeClaim& e : claims_.edges) {
      const auto sum = sums.find(e.to);
      if (sum != sums.end()) sum->second.first = claims::joined(sum->second.first, e.count);
    }
    for (const auto& [place, sum] : sums) {
      const TruthModule* module = module_of(place);
      if (module == nullptr) continue;
      const auto it = module->instructions.find(place.address.value());
      compare(judgement_.procedures,
              finding(FindingKind::kProcedureCount, place, RecordKind::kProcedure, sum.second),
              sum.first,
              it == module->instructions.end() ? 0 : static_cast<uint64_t>(it->second.count));
    }
  }

  // Calls and jumps to what the profile has no address of: stubs of the linkage table, other
  // modules.
  void left_for_elsewhere() {
    struct Sum {
      uint64_t count = 0;
      const claims::AbnormalClaim* first = nullptr;
    };
    std::map<claims::Place, Sum> sums;
    if (claims_.form != Form::kFdata) return;
    for (const claims::AbnormalClaim& a : claims_.abnormal) {
      if (a.target.empty()) continue;
      ++judgement_.edges.claims;
      Sum& sum = sums[a.block];
      sum.count = claims::joined(sum.count, a.left);
      if (sum.first == nullptr) sum.first = &a;
    }
    std::map<claims::Place, std::set<claims::Place>> known;
    for (const claims::EdgeClaim& e : claims_.edges) {
      if (sums.contains(e.from)) known[e.from].insert(e.to);
    }
    for (const auto& [place, sum] : sums) {
      const TruthModule* module = module_of(place);
      if (module == nullptr) continue;
      uint64_t counted = 0;
      const auto edges = module->by_last.find(place.address.value());
      if (edges != module->by_last.end()) {
        for (const TruthEdge& t : edges->second) {
          if (t.role != EdgeRole::kCall && t.role != EdgeRole::kBranch) continue;
          const bool here = t.to_module == path_of(place);
          if (!here || !known[place].contains({place.module, t.to})) counted += t.count;
        }
      }
      Finding f = finding(FindingKind::kEdgeCount, place, RecordKind::kEdge, sum.first->record);
      f.to = sum.first->target;
      compare(judgement_.edges, std::move(f), sum.count, counted);
    }
  }

  static bool calls_linkage_table(const TruthModule& module, LinkAddr at) {
    if (!module.image) return false;
    const isa::Insn insn = isa::decode(module.image->bytes_at(at), at.value());
    return insn.flow == isa::Flow::kCall &&
           module.image->linkage_table_at(LinkAddr(insn.target)) != nullptr;
  }

  void instructions() {
    std::map<claims::Place, std::pair<uint64_t, claims::Record>> sums;
    for (const claims::InstructionClaim& i : claims_.instructions) {
      ++judgement_.instructions.claims;
      auto& sum = sums[i.at];
      sum.first = claims::joined(sum.first, i.count);
      if (sum.second == 0) sum.second = i.record;
    }
    uint64_t repeated = 0;
    uint64_t with_stubs = 0;
    std::set<uint32_t> knows_stubs;
    for (const auto& [place, sum] : sums) {
      const TruthModule* module = module_of(place);
      if (module == nullptr || !module->image) continue;
      if (module->image->linkage_table_at(place.address)) knows_stubs.insert(place.module);
    }
    for (const auto& [place, sum] : sums) {
      const TruthModule* module = module_of(place);
      if (module == nullptr) {
        unseen_.insert(path_of(place));
        continue;
      }
      const auto it = module->instructions.find(place.address.value());
      const bool found = it != module->instructions.end();
      if (found && it->second.repeated) {
        ++repeated;
        continue;
      }
      const uint64_t counted = found ? static_cast<uint64_t>(it->second.count) : 0;
      // A call executes at least one instruction of the stub.
      const bool twice = counted != 0 && sum.first / 2 >= counted;
      if (twice && !knows_stubs.contains(place.module) &&
          calls_linkage_table(*module, place.address)) {
        ++with_stubs;
      }
      compare(judgement_.instructions,
              finding(FindingKind::kInstructionCount, place, RecordKind::kInstruction, sum.second),
              sum.first, counted);
    }
    if (claims_.form == Form::kCallgrind && with_stubs != 0) {
      judgement_.remarks.push_back(
          fmt::format("{} counts are of calls through the linkage table: callgrind adds the stubs' "
                      "instructions to them, and calls the callee from there, but for "
                      "--skip-plt=no",
                      with_stubs));
    }
    if (repeated != 0) {
      judgement_.remarks.push_back(fmt::format(
          "{} `rep` instructions are not judged: the profile counts repetitions", repeated));
    }
  }

  // An inline function of a header has a claim for each source file that includes it, and one
  // symbol: its claims are summed.
  std::vector<claims::ProcedureClaim> summed_procedures() const {
    std::map<claims::Place, claims::ProcedureClaim> sums;
    for (const claims::ProcedureClaim& p : claims_.procedures) {
      if (p.unsure || p.entry.module >= claims_.modules.size()) continue;
      const auto [it, is_new] = sums.try_emplace(p.entry, p);
      if (!is_new) it->second.count = claims::joined(it->second.count, p.count);
    }
    std::vector<claims::ProcedureClaim> result;
    result.reserve(sums.size());
    for (auto& [place, sum] : sums) result.push_back(std::move(sum));
    return result;
  }

  void procedures() {
    judgement_.procedures.claims += claims_.procedures.size();
    if (claims_.form == Form::kTally) return;  // judged block by block
    for (const claims::ProcedureClaim& p : summed_procedures()) {
      const TruthModule* module = module_of(p.entry);
      // Without a symbol there is no place where it is entered.
      if (module == nullptr || p.entry.address.value() == 0) continue;
      const auto it = module->arrivals.find(p.entry.address.value());
      const uint64_t counted = it == module->arrivals.end() ? 0 : it->second;
      const auto first = module->instructions.find(p.entry.address.value());
      const uint64_t executed =
          first == module->instructions.end() ? 0 : static_cast<uint64_t>(first->second.count);
      // Entered by calls or by tail calls: between the two the profile cannot be refuted.
      const bool possible = p.count >= counted && p.count <= executed;
      compare(judgement_.procedures,
              finding(FindingKind::kProcedureCount, p.entry, RecordKind::kProcedure, p.record),
              p.count, possible ? p.count : executed);
    }
  }

  // Lines whose instructions lie together and were executed equally often have one count.  Where
  // they are nothing but a jump back, they are the way round a loop: its line in the source
  // (`while (true)`, a closing brace) is the compiler's choice and says nothing of how often.
  struct Line {
    std::set<int64_t> counts;
    uint64_t begin = UINT64_MAX;
    uint64_t end = 0;
    uint64_t stretches = 0;
    bool jumps_back = false;
    std::string module;
    LinkAddr procedure;
    std::set<uint64_t> globals;  // by fixed addresses
    unsigned other_instructions = 0;
    bool has_one_count() const { return counts.size() == 1 && stretches == 1 && !jumps_back; }
    // mov, add, mov, jmp: no more than what a profiler puts there itself.
    bool only_counts() const { return globals.size() == 1 && other_instructions <= 2; }
  };
  static void note_operand(const TruthModule& module, uint64_t address, Line& line) {
    const isa::Insn insn = isa::decode(module.image->bytes_at(LinkAddr(address)), address);
    if (insn.disp_offset != 0 && insn.flow == isa::Flow::kNone) {
      line.globals.insert(insn.target);
    } else {
      ++line.other_instructions;
    }
  }
  static bool is_jump_back(const TruthModule& module, uint64_t address) {
    const isa::Insn insn = isa::decode(module.image->bytes_at(LinkAddr(address)), address);
    return insn.flow == isa::Flow::kJump && insn.target <= address;
  }

  using SourceLine = std::pair<std::string, uint32_t>;
  std::map<SourceLine, Line> lines_of_program() {
    std::map<SourceLine, Line> lines;
    for (const claims::Module& m : claims_.modules) {
      const TruthModule* module = truth_.module(m.path);
      if (module == nullptr || !module->image) continue;
      std::optional<SourceLine> before;
      for (const auto& [address, instruction] : module->instructions) {
        const auto at = module->image->line_at(LinkAddr(address));
        if (!at || at->line <= 0) {
          before.reset();
          continue;
        }
        const SourceLine key(source_key(at->file), static_cast<uint32_t>(at->line));
        Line& line = lines[key];
        line.counts.insert(instruction.count);
        note_operand(*module, address, line);
        line.begin = std::min(line.begin, address);
        line.end = std::max(line.end, address);
        const bool only = line.stretches == 0;
        if (before != key) ++line.stretches;
        line.jumps_back = only && is_jump_back(*module, address);
        line.module = m.path;
        if (only) line.procedure = procedure_around(*module->image, LinkAddr(address));
        before = key;
      }
    }
    return lines;
  }

  // A file's name without its folders, as compilers and profilers write them differently; with
  // them where the profile has several files of one name.
  std::string source_key(const std::string& path) {
    if (file_names_.empty()) {
      std::set<std::string> files;
      for (const claims::LineClaim& claim : claims_.lines) {
        if (files.insert(claim.file).second) ++file_names_[short_name(claim.file)];
      }
    }
    const std::string name = short_name(path);
    const auto it = file_names_.find(name);
    return it != file_names_.end() && it->second > 1 ? path : name;
  }

  // What is inlined or instantiated in several places has a claim for each: they are summed.
  struct LineSum {
    uint64_t count = 0;
    const claims::LineClaim* first = nullptr;
    bool mixed = false;
  };
  std::map<SourceLine, LineSum> sums_of_lines() {
    std::map<SourceLine, LineSum> sums;
    for (const claims::LineClaim& claim : claims_.lines) {
      LineSum& sum = sums[{source_key(claim.file), claim.line}];
      sum.count = claims::joined(sum.count, claim.count);
      sum.mixed = sum.mixed || claim.mixed;
      if (sum.first == nullptr) sum.first = &claim;
    }
    return sums;
  }

  void lines() {
    if (claims_.lines.empty()) return;
    judgement_.lines.claims = claims_.lines.size();
    const auto known = lines_of_program();
    uint64_t unclear = 0;
    for (const auto& [key, sum] : sums_of_lines()) {
      const auto it = known.find(key);
      if (sum.mixed || it == known.end() || !it->second.has_one_count()) {
        ++unclear;
        continue;
      }
      const claims::LineClaim& claim = *sum.first;
      Finding f;
      f.kind = FindingKind::kLineCount;
      f.where = fmt::format("{}:{}", claim.file, claim.line);
      f.name = claim.function;
      f.module = it->second.module;
      f.address = LinkAddr(it->second.begin);
      f.procedure = it->second.procedure;
      f.record = claims::describe_record(claims_.form, RecordKind::kLine, claim.record);
      compare(judgement_.lines, std::move(f), sum.count,
              static_cast<uint64_t>(*it->second.counts.begin()));
      if (it->second.only_counts()) {
        judgement_.confirmed.erase(fmt::format("{}:{}", claim.file, claim.line));
      }
    }
    if (unclear != 0) {
      judgement_.remarks.push_back(fmt::format(
          "{} lines are not judged: their code is in several places, runs unequally often, or was "
          "never reached",
          unclear));
    }
  }

  const claims::Claims& claims_;
  const Truth& truth_;
  bool complete_;
  Judgement& judgement_;
  std::set<std::string> unseen_;
  std::map<std::string, int> file_names_;  // how many files of the profile have this name
};

}  // namespace

void judge(const claims::Claims& claims, const Truth& truth, double overlap_min, bool complete,
           Judgement& judgement) {
  if (claims.nature == claims::Nature::kShares) {
    judge_shares(claims, truth, overlap_min, judgement);
  } else {
    PlaceJudge(claims, truth, complete, judgement).run();
    judge_missing(claims, truth, judgement);
  }
}

}  // namespace tally::verify
