// BOLT's .fdata, as `llvm-bolt --instrument` and perf2bolt write it.
//
//     1 main 25 1 main 40 0 12       branch at main+0x25 to main+0x40: 0 mispredicted, 12 taken
//     0 [unknown] 0 1 main 0 0 1     main was entered once from somewhere
//     no_lbr cycles                  the rest are samples:
//     1 main 25 17                   17 of them at main+0x25
//     4 main 25 4 table 8 3          a memory event: skipped
//
// A location is a flag (0 no symbol, 1 global, 2 local symbol; 3 to 5 the same for memory events),
// a name with blanks and backslashes escaped, and a hexadecimal offset.  BOLT makes names of local
// symbols unique by `/2` (the second one of the name, by address) or `/file.c/1`.  Names become
// link addresses by the program's symbol table.
//
// Whether counts are exact (instrumented) or samples of branches (perf2bolt) the file does not say;
// they are taken for counts.
#include <algorithm>

#include "claims/names.h"
#include "claims/reader.h"

namespace tally::claims {
namespace {

struct Location {
  bool symbol = false;
  bool memory = false;
  std::string name;
  uint64_t offset = 0;
};

// A word in which a backslash takes the next character as it is.
std::string next_escaped(std::string_view& rest) {
  rest = rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
  std::string word;
  while (!rest.empty() && rest.front() != ' ') {
    if (rest.front() == '\\' && rest.size() > 1) rest.remove_prefix(1);
    word += rest.front();
    rest.remove_prefix(1);
  }
  return word;
}

class Reader {
 public:
  explicit Reader(const Source& source) : source_(source), lines_(source) {}

  Result<Claims> run() {
    claims_.form = Form::kFdata;
    claims_.file = source_.path;
    claims_.producer = "BOLT";
    claims_.silences = {"returns are not recorded", "code without a symbol is not recorded",
                        "whether counts are exact or samples of branches is not recorded"};
    TRY_ASSIGN(image_, open_program(source_, claims_));
    names_.emplace(*image_);
    while (const auto line = lines_.next()) TRY(read_line(trimmed(*line)));
    if (memory_events_ > 0) {
      claims_.silences.push_back(fmt::format("{} memory events are not read", memory_events_));
    }
    if (elsewhere_ > 0) {
      claims_.silences.push_back(
          fmt::format("{} records name no address at one end (other modules, PLT)", elsewhere_));
    }
    return std::move(claims_);
  }

 private:
  Status read_line(std::string_view line) {
    if (lines_.cut()) return lines_.cut_error();
    if (line.empty()) return Ok{};
    if (lines_.number() <= 2 && line.starts_with("no_lbr")) {
      claims_.nature = Nature::kShares;
      return Ok{};
    }
    if (lines_.number() <= 2 && line == "boltedcollection") {
      return lines_.error(
          "collected from a program that BOLT had optimized: its offsets are those "
          "of the input of BOLT; run perf2bolt on the original program");
    }
    std::string_view rest = line;
    TRY_ASSIGN(const Location from, location(rest));
    if (claims_.nature == Nature::kShares && !from.memory) return read_sample(from, rest);
    TRY_ASSIGN(const Location to, location(rest));
    if (from.memory) return skip_memory_event(rest);
    TRY_ASSIGN(const uint64_t mispredicted, lines_.decimal(next_word(rest), "mispredictions"));
    (void)mispredicted;
    TRY_ASSIGN(const uint64_t count, lines_.decimal(next_word(rest), "the branch's count"));
    TRY(expect_end(rest));
    return add_branch(from, to, count);
  }

  Status expect_end(std::string_view rest) const {
    if (trimmed(rest).empty()) return Ok{};
    return lines_.error("{}: more than a record of .fdata has", quoted(trimmed(rest)));
  }

  Status skip_memory_event(std::string_view rest) {
    TRY(lines_.decimal(next_word(rest), "the event's count"));
    ++memory_events_;
    return expect_end(rest);
  }

  Result<Location> location(std::string_view& rest) {
    Location result;
    const std::string_view flag = next_word(rest);
    if (flag.size() != 1 || flag[0] < '0' || flag[0] > '5') {
      return lines_.error("{}: a location begins with a digit from 0 to 5; the profile is damaged",
                          quoted(flag));
    }
    result.memory = flag[0] >= '3';
    result.symbol = (flag[0] - '0') % 3 != 0;
    result.name = next_escaped(rest);
    // BOLT's own name for a stub of the procedure linkage table; no symbol table has it.
    if (result.name.ends_with("@PLT")) result.symbol = false;
    TRY_ASSIGN(result.offset, lines_.hex(next_word(rest), "a location's offset"));
    return result;
  }

  Result<Place> place_of(const Location& location) const {
    const elf::Symbol* found = names_->of_bolt(location.name);
    if (found == nullptr) {
      return lines_.error(
          "no symbol {} in '{}': the profile is of another build, or the program was "
          "stripped; name the right one with --program",
          quoted(location.name), claims_.modules[0].path);
    }
    const LinkAddr address = found->range.begin + location.offset;
    const uint64_t size_bytes = found->range.size_bytes();
    if (address < found->range.begin || (size_bytes != 0 && location.offset > size_bytes)) {
      return lines_.error(
          "{}+{:#x} is behind the symbol's {} bytes: the profile is of another "
          "build; name the right program with --program",
          quoted(location.name), location.offset, size_bytes);
    }
    return Place{0, address};
  }

  Status read_sample(const Location& location, std::string_view rest) {
    TRY_ASSIGN(const uint64_t count, lines_.decimal(next_word(rest), "the samples' count"));
    TRY(expect_end(rest));
    if (!location.symbol) {
      ++elsewhere_;
      return Ok{};
    }
    TRY_ASSIGN(const Place at, place_of(location));
    claims_.instructions.push_back({.at = at, .count = count, .record = lines_.number()});
    return Ok{};
  }

  Status add_branch(const Location& from, const Location& to, uint64_t count) {
    if (from.symbol && to.symbol) {
      EdgeClaim edge{.count = count, .record = lines_.number()};
      TRY_ASSIGN(edge.from, place_of(from));
      TRY_ASSIGN(edge.to, place_of(to));
      claims_.edges.push_back(edge);
      return Ok{};
    }
    ++elsewhere_;
    if (from.symbol) {
      TRY_ASSIGN(const Place at, place_of(from));
      claims_.abnormal.push_back(
          {.block = at, .left = count, .record = lines_.number(), .target = to.name});
    }
    if (!to.symbol) return Ok{};
    TRY_ASSIGN(const Place entry, place_of(to));
    claims_.abnormal.push_back({.block = entry, .entered = count, .record = lines_.number()});
    return Ok{};
  }

  const Source& source_;
  Lines lines_;
  Claims claims_;
  std::shared_ptr<elf::Image> image_;
  std::optional<SymbolNames> names_;
  uint64_t memory_events_ = 0;
  uint64_t elsewhere_ = 0;
};

}  // namespace

Result<Claims> read_fdata(const Source& source) {
  return Reader(source).run();
}

}  // namespace tally::claims
