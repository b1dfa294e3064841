// callgrind's output, with instruction addresses (--dump-instr=yes).
//
//     positions: instr line          ob=(4) /usr/bin/gzip       object, file, function: by number
//     events: Ir                     fn=(12) deflate            once their name was given
//     0x4a10 381 17                  17 executions of the instruction at 0x4a10
//     +3 * 17                        relative to the last position
//     calls=5 0x98930 3281           5 calls from the position on the next line; what that line
//     * * 1723                       costs is the callee's
//     jcnd=3/17 +23 *                3 times taken of 17, from the position on the next line
//     jump=4 0x1080 0                an unconditional or indirect jump
//
// Addresses are link addresses of the object.  Several parts in one file, and one instruction in
// several functions, add up.  `cob` and `cfn` hold for the next `calls` only.
//
// Not in the profile: returns, system calls, and fall-throughs (they follow from the counts of
// instructions).  A `rep` instruction counts once per repetition.
#include <algorithm>
#include <unordered_map>

#include "claims/reader.h"

namespace tally::claims {
namespace {

// "(4) name" defines a number, "(4)" refers to it, a bare name is itself.
class Names {
 public:
  Result<std::string> resolve(const Lines& lines, std::string_view text) {
    if (!text.starts_with('(')) return std::string(text);
    const size_t close = text.find(')');
    if (close == std::string_view::npos) {
      return lines.error("{}: a name's number does not end; the profile is damaged", quoted(text));
    }
    TRY_ASSIGN(const uint64_t id, lines.decimal(text.substr(1, close - 1), "the number of a name"));
    const std::string_view name = trimmed(text.substr(close + 1));
    if (!name.empty()) {
      names_[id] = std::string(name);
      return std::string(name);
    }
    const auto found = names_.find(id);
    if (found == names_.end()) {
      return lines.error(
          "name number {} was never given a name; the profile's beginning is missing", id);
    }
    return found->second;
  }

 private:
  std::unordered_map<uint64_t, std::string> names_;
};

class Reader {
 public:
  explicit Reader(const Source& source) : source_(source), lines_(source) {}

  Result<Claims> run() {
    claims_.form = Form::kCallgrind;
    claims_.file = source_.path;
    claims_.silences = {"returns and system calls are not recorded",
                        "a `rep` instruction counts once per repetition",
                        "code without an object file is not compared"};
    while (const auto line = lines_.next()) TRY(read_line(trimmed(*line)));
    if (lines_.cut()) return lines_.cut_error();
    if (instr_column_ < 0) {
      return make_error(
          "{}: has no instruction addresses; run callgrind with --dump-instr=yes "
          "--collect-jumps=yes",
          source_.path);
    }
    if (!ended_) {
      return make_error(
          "{}:{}: the file ends without the line `totals:` of its last part: it was "
          "cut short; make the profile again",
          source_.path, lines_.number());
    }
    if (!jumps_seen_) {
      claims_.silences.emplace_back("jumps are not recorded (--collect-jumps=yes)");
    }
    mark_program();
    return std::move(claims_);
  }

 private:
  enum class Pending : uint8_t { kNone, kCall, kJump, kConditional };

  Status read_line(std::string_view line) {
    if (line.empty() || line[0] == '#') return Ok{};
    const char first = line[0];
    if (first == '+' || first == '-' || first == '*' || (first >= '0' && first <= '9')) {
      return read_costs(line);
    }
    if (pending_ != Pending::kNone) {
      return lines_.error(
          "{}: the line behind `calls=` or `jump=` has to be a position; the "
          "profile is damaged",
          quoted(line));
    }
    const size_t equals = line.find('=');
    const size_t colon = line.find(':');
    if (equals != std::string_view::npos && (colon == std::string_view::npos || equals < colon)) {
      return read_assignment(line.substr(0, equals), trimmed(line.substr(equals + 1)));
    }
    if (colon != std::string_view::npos) {
      return read_header(line.substr(0, colon), trimmed(line.substr(colon + 1)));
    }
    if (lines_.cut()) return lines_.cut_error();
    return lines_.error("{}: not a line of callgrind's format", quoted(line));
  }

  Status read_header(std::string_view key, std::string_view value) {
    if (key == "creator") claims_.producer = value;
    if (key == "cmd") {
      claims_.command_line.clear();
      std::string_view rest = value;
      for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
        claims_.command_line.emplace_back(word);
      }
    }
    if (key == "positions") return read_positions(value);
    if (key == "events") return read_events(value);
    if (key == "part") {
      ended_ = false;
      part_sum_ = 0;
    }
    if (key != "summary" && key != "totals") return Ok{};
    std::string_view rest = value;
    std::string_view word;
    for (int i = 0; i <= ir_column_; ++i) word = next_word(rest);
    TRY_ASSIGN(const uint64_t total, lines_.decimal(word, "the total of instructions"));
    if (key == "summary") return Ok{};
    ended_ = true;
    claims_.sums.push_back({.what = "instructions of this part",
                            .place = "the whole profile",
                            .claimed = total,
                            .sum = part_sum_,
                            .record = lines_.number()});
    part_sum_ = 0;
    return Ok{};
  }

  Status read_positions(std::string_view value) {
    instr_column_ = -1;
    position_count_ = 0;
    for (std::string_view word = next_word(value); !word.empty(); word = next_word(value)) {
      if (word == "instr" || word == "addr") instr_column_ = position_count_;
      if (++position_count_ > 2) return lines_.error("more than two positions; not callgrind's");
    }
    if (instr_column_ >= 0) return Ok{};
    return lines_.error(
        "no instruction addresses among the positions; run callgrind with "
        "--dump-instr=yes --collect-jumps=yes");
  }

  Status read_events(std::string_view value) {
    ir_column_ = -1;
    int column = 0;
    for (std::string_view word = next_word(value); !word.empty(); word = next_word(value)) {
      if (word == "Ir") ir_column_ = column;
      ++column;
    }
    if (ir_column_ >= 0) return Ok{};
    return lines_.error("no event `Ir` (instructions executed) in the profile");
  }

  Status read_assignment(std::string_view key, std::string_view value) {
    if (key == "ob") {
      TRY_ASSIGN(const std::string name, objects_.resolve(lines_, value));
      object_ = module_of(name);
      return Ok{};
    }
    if (key == "cob") {
      TRY_ASSIGN(const std::string name, objects_.resolve(lines_, value));
      called_object_ = module_of(name);
      return Ok{};
    }
    if (key == "fn" || key == "cfn" || key == "jfn") {
      TRY_ASSIGN(const std::string name, functions_.resolve(lines_, value));
      (void)name;
      return Ok{};
    }
    if (key == "fl" || key == "fi" || key == "fe" || key == "cfi" || key == "cfl" || key == "jfi") {
      TRY_ASSIGN(const std::string name, files_.resolve(lines_, value));
      (void)name;
      return Ok{};
    }
    if (key == "calls" || key == "jump" || key == "jcnd") return read_transfer(key, value);
    return lines_.error("{}: not a line of callgrind's format", quoted(key));
  }

  // "COUNT TARGET...", or "TAKEN/EXECUTED TARGET..." of a conditional jump.
  Status read_transfer(std::string_view key, std::string_view value) {
    std::string_view counts = next_word(value);
    if (key == "jcnd") {
      const size_t slash = counts.find('/');
      if (slash == std::string_view::npos) {
        return lines_.cut() ? lines_.cut_error()
                            : lines_.error("{}: has to be TAKEN/EXECUTED", quoted(counts));
      }
      TRY_ASSIGN(executed_, lines_.decimal(counts.substr(slash + 1), "times executed"));
      counts = counts.substr(0, slash);
    }
    if (instr_column_ < 0) return lines_.error("counts in front of the line `positions:`");
    TRY_ASSIGN(transfer_.count, lines_.decimal(counts, "times taken"));
    TRY_ASSIGN(const uint64_t target, read_position(value));
    transfer_.to = {key == "calls" ? called_object_.value_or(object_) : object_, LinkAddr(target)};
    transfer_.record = lines_.number();
    transfer_.role = key == "calls" ? EdgeRole::kCall : EdgeRole::kBranch;
    pending_ = key == "calls"  ? Pending::kCall
               : key == "jump" ? Pending::kJump
                               : Pending::kConditional;
    called_object_.reset();
    jumps_seen_ = jumps_seen_ || key != "calls";
    return Ok{};
  }

  // Takes the positions off `rest`; the address among them.
  Result<uint64_t> read_position(std::string_view& rest) {
    uint64_t address = 0;
    for (int i = 0; i < position_count_; ++i) {
      const std::string_view word = next_word(rest);
      if (i == instr_column_) {
        TRY_ASSIGN(address, relative(word));
      } else if (word.empty() && lines_.cut()) {
        return lines_.cut_error();
      }
    }
    return address;
  }

  Result<uint64_t> relative(std::string_view word) {
    if (word == "*") return last_address_;
    if (word.starts_with('+') || word.starts_with('-')) {
      TRY_ASSIGN(const uint64_t distance,
                 lines_.number_of(word, parse_either(word.substr(1)), "an address"));
      return word[0] == '+' ? last_address_ + distance : last_address_ - distance;
    }
    return lines_.number_of(word, parse_either(word), "an address");
  }

  Status read_costs(std::string_view line) {
    if (instr_column_ < 0 || ir_column_ < 0) {
      return lines_.error("counts in front of the lines `positions:` and `events:`");
    }
    std::string_view rest = line;
    TRY_ASSIGN(const uint64_t address, read_position(rest));
    last_address_ = address;
    const Place here{object_, LinkAddr(address)};
    if (pending_ != Pending::kNone) return finish_transfer(here);
    std::string_view word;
    for (int i = 0; i <= ir_column_; ++i) word = next_word(rest);
    if (lines_.cut()) return lines_.cut_error();
    // Costs at the end of a line that are zero may be left out.
    uint64_t count = 0;
    if (!word.empty()) {
      TRY_ASSIGN(count, lines_.decimal(word, "times executed"));
    }
    if (!add(part_sum_, count)) return overflow();
    return add_instruction(here, count);
  }

  Status add_instruction(const Place& at, uint64_t count) {
    if (at.module == kUnknownObject) return Ok{};
    const auto [slot, is_new] = instructions_.try_emplace(at, claims_.instructions.size());
    if (is_new) {
      claims_.instructions.push_back({.at = at, .count = 0, .record = lines_.number()});
    }
    if (!add(claims_.instructions[slot->second].count, count)) return overflow();
    return Ok{};
  }

  Status finish_transfer(const Place& from) {
    const Pending kind = pending_;
    pending_ = Pending::kNone;
    transfer_.from = from;
    if (kind == Pending::kConditional && executed_ < transfer_.count) {
      claims_.sums.push_back({.what = "a conditional jump: taken, of times executed",
                              .place = fmt::format("{:#x}", from.address.value()),
                              .claimed = executed_,
                              .sum = transfer_.count,
                              .record = transfer_.record,
                              .at_most = true});
    }
    if (from.module == kUnknownObject || transfer_.to.module == kUnknownObject) return Ok{};
    const Key key{from, transfer_.to, transfer_.role};
    const auto [slot, is_new] = edges_.try_emplace(key, claims_.edges.size());
    if (is_new) {
      claims_.edges.push_back(transfer_);
    } else if (!add(claims_.edges[slot->second].count, transfer_.count)) {
      return overflow();
    }
    return Ok{};
  }

  Error overflow() const {
    return lines_.error("counts add up to more than 64 bits; the profile is damaged");
  }

  uint32_t module_of(const std::string& name) {
    if (name == "???" || name.empty()) return kUnknownObject;
    const auto [slot, is_new] =
        module_ids_.try_emplace(name, static_cast<uint32_t>(claims_.modules.size()));
    if (is_new) claims_.modules.push_back({.path = name, .build_id = {}});
    return slot->second;
  }

  // The main program is the object that the user names, or the one of the command line's name.
  void mark_program() {
    const std::string& given = source_.options.program_path;
    const std::string name = !given.empty()                  ? given
                             : !claims_.command_line.empty() ? claims_.command_line[0]
                                                             : std::string();
    const auto base = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    for (Module& module : claims_.modules) {
      if (name.empty() || base(module.path) != base(name)) continue;
      module.main_program = true;
      if (!given.empty()) module.path = absolute(given);
      return;
    }
  }

  static constexpr uint32_t kUnknownObject = UINT32_MAX;

  struct Key {
    Place from;
    Place to;
    EdgeRole role;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Place& place) const {
      return std::hash<LinkAddr>()(place.address) ^ place.module * 0x9E3779B9u;
    }
    size_t operator()(const Key& key) const {
      return (*this)(key.from) * 31 ^ (*this)(key.to) ^ static_cast<size_t>(key.role);
    }
  };

  const Source& source_;
  Lines lines_;
  Claims claims_;
  Names objects_;
  Names files_;
  Names functions_;
  std::unordered_map<std::string, uint32_t> module_ids_;
  std::unordered_map<Place, size_t, Hash> instructions_;
  std::unordered_map<Key, size_t, Hash> edges_;
  int position_count_ = 0;
  int instr_column_ = -1;
  int ir_column_ = 0;
  uint32_t object_ = kUnknownObject;
  std::optional<uint32_t> called_object_;
  uint64_t last_address_ = 0;
  uint64_t part_sum_ = 0;
  Pending pending_ = Pending::kNone;
  EdgeClaim transfer_;
  uint64_t executed_ = 0;
  bool ended_ = false;
  bool jumps_seen_ = false;
};

}  // namespace

Result<Claims> read_callgrind(const Source& source) {
  return Reader(source).run();
}

}  // namespace tally::claims
