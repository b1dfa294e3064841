// LLVM's sample profile in its textual form (AutoFDO, llvm-profgen, llvm-profdata --text).
//
//     main:184019:5           function, samples in it, samples at its entry
//      4: 534                 534 samples on the 4th line of main
//      4.2: 534               the same line, discriminator 2
//      5: 1075 fib:900        a call from there: how often to whom
//      9: cmp:1000            inlined: cmp and its samples; its lines follow, indented deeper
//       1: 1000
//      !CFGChecksum: 5        metadata: skipped
//
// Samples say how a total is distributed, so they are shares.  Line numbers count from the first
// line of the function.  Of a context-sensitive profile ("[main:3 @ fib]:5:1", fib as called from
// line 3 of main) each context is a claim about its innermost function.
#include "claims/names.h"
#include "claims/reader.h"

namespace tally::claims {
namespace {

class Reader {
 public:
  explicit Reader(const Source& source) : source_(source), lines_(source) {}

  Result<Claims> run() {
    claims_.form = Form::kLlvmSamples;
    claims_.nature = Nature::kShares;
    claims_.file = source_.path;
    claims_.silences = {"lines count from the beginning of their function",
                        "samples are shares: how often anything ran is not claimed"};
    if (!source_.options.program_path.empty()) {
      TRY_ASSIGN(image_, open_program(source_, claims_));
      names_.emplace(*image_);
    }
    while (const auto line = lines_.next()) {
      if (trimmed(*line).empty()) continue;
      if (lines_.cut()) return lines_.cut_error();
      const size_t indent = line->find_first_not_of(' ');
      TRY(indent == 0 ? read_function(trimmed(*line)) : read_body(indent, trimmed(*line)));
    }
    close(0);
    return std::move(claims_);
  }

 private:
  // A function, or one inlined into it: what its lines add up to.
  struct Open {
    size_t indent = 0;
    std::string name;
    uint64_t total = 0;
    uint64_t sum = 0;
    Record record = 0;
  };

  Status read_function(std::string_view line) {
    close(0);
    const size_t last = line.rfind(':');
    const size_t middle = last == std::string_view::npos || last == 0 ? std::string_view::npos
                                                                      : line.rfind(':', last - 1);
    if (middle == std::string_view::npos || middle == 0) {
      return lines_.error("{}: a function's line is NAME:SAMPLES:ENTRIES", quoted(line));
    }
    ProcedureClaim claim{.entry = {Place::kNowhere, {}}, .record = lines_.number()};
    claim.name = std::string(innermost(line.substr(0, middle)));
    TRY_ASSIGN(claim.count,
               lines_.decimal(line.substr(middle + 1, last - middle - 1), "a function's samples"));
    TRY(lines_.decimal(line.substr(last + 1), "the samples at its entry"));
    if (names_) {
      const elf::Symbol* symbol = names_->only(claim.name);
      if (symbol != nullptr) claim.entry = {0, symbol->range.begin};
    }
    open_.push_back({0, claim.name, claim.count, 0, claim.record});
    claims_.procedures.push_back(std::move(claim));
    return Ok{};
  }

  // "fib" of "fib" and of "[main:3 @ fib]".
  static std::string_view innermost(std::string_view name) {
    if (!name.starts_with('[') || !name.ends_with(']')) return name;
    name = name.substr(1, name.size() - 2);
    const size_t at = name.rfind(" @ ");
    return at == std::string_view::npos ? name : name.substr(at + 3);
  }

  Status read_body(size_t indent, std::string_view line) {
    if (line.starts_with('!')) return Ok{};
    close(indent);
    if (open_.empty()) return lines_.error("a line of a function before any function is named");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
      return lines_.error("{}: has to be LINE: SAMPLES", quoted(line));
    }
    std::string_view position = line.substr(0, colon);
    position = position.substr(0, position.find('.'));
    TRY_ASSIGN(const uint64_t number, lines_.decimal(trimmed(position), "a line's number"));
    if (number > UINT32_MAX) return lines_.error("line {} is no line of a function", number);
    std::string_view rest = line.substr(colon + 1);
    const std::string_view word = next_word(rest);
    const size_t inlined = word.rfind(':');
    if (inlined != std::string_view::npos) {
      Open open{indent, std::string(word.substr(0, inlined)), 0, 0, lines_.number()};
      TRY_ASSIGN(open.total,
                 lines_.decimal(word.substr(inlined + 1), "samples of what is inlined"));
      if (!add(open_.back().sum, open.total)) return overflow();
      open_.push_back(std::move(open));
      return Ok{};
    }
    TRY_ASSIGN(const uint64_t count, lines_.decimal(word, "a line's samples"));
    TRY(read_targets(rest));
    if (!add(open_.back().sum, count)) return overflow();
    claims_.lines.push_back({.line = static_cast<uint32_t>(number),
                             .function = open_.back().name,
                             .count = count,
                             .record = lines_.number()});
    return Ok{};
  }

  // "fib:900 cmp:3": understood, and not claimed, since targets are other samples than lines.
  Status read_targets(std::string_view rest) const {
    for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
      const size_t colon = word.rfind(':');
      if (colon == std::string_view::npos || colon == 0) {
        return lines_.error("{}: has to be CALLEE:SAMPLES", quoted(word));
      }
      TRY(lines_.decimal(word.substr(colon + 1), "a callee's samples"));
    }
    return Ok{};
  }

  Error overflow() const {
    return lines_.error("samples add up to more than 64 bits; the profile is damaged");
  }

  // What is indented at least as deep as the next line has ended.
  void close(size_t indent) {
    while (!open_.empty() && open_.back().indent >= indent && (indent == 0 || open_.size() > 1)) {
      const Open& open = open_.back();
      claims_.sums.push_back({.what = "samples of the lines, of the function's",
                              .place = open.name,
                              .claimed = open.total,
                              .sum = open.sum,
                              .record = open.record,
                              .at_most = true});
      open_.pop_back();
    }
  }

  const Source& source_;
  Lines lines_;
  Claims claims_;
  std::shared_ptr<elf::Image> image_;
  std::optional<SymbolNames> names_;
  std::vector<Open> open_;
};

}  // namespace

Result<Claims> read_llvm_samples(const Source& source) {
  return Reader(source).run();
}

}  // namespace tally::claims
