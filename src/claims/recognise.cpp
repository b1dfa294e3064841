// Which form a profile is of, from its content.
//
// Binary forms and JSON say it themselves.  Of the textual ones the first line that says something
// decides; the tests go from the most to the least telling, so that no form is taken for another.
#include <algorithm>
#include <array>

#include "claims/reader.h"

namespace tally::claims {
namespace {

constexpr int kWordsMax = 16;

struct Words {
  std::array<std::string_view, kWordsMax> word;
  int count = 0;
  explicit Words(std::string_view line) {
    while (count < kWordsMax) {
      const std::string_view next = next_word(line);
      if (next.empty()) return;
      word[static_cast<size_t>(count++)] = next;
    }
  }
  std::string_view operator[](int index) const { return word[static_cast<size_t>(index)]; }
};

// A number, well-formed or at fault: one that is too large is still meant as a number.
bool numeric(Number number) {
  return number.fault != NumberFault::kNotANumber;
}

bool is_callgrind(std::string_view line) {
  for (const char* key : {"# callgrind format", "version:", "creator:", "events:", "positions:"}) {
    if (line.starts_with(key)) return true;
  }
  return false;
}

bool is_fdata(std::string_view line, const Words& words) {
  if (line == "boltedcollection" || line.starts_with("no_lbr")) return true;
  if (words.count < 4 || words[0].size() != 1) return false;
  const char type = words[0][0];
  if (type < '0' || type > '5' || !numeric(parse_hex(words[2]))) return false;
  return words.count == 4 || (words[3].size() == 1 && words[3][0] >= '0' && words[3][0] <= '5');
}

// function:total:head
bool is_llvm_samples(std::string_view line) {
  const size_t last = line.rfind(':');
  if (line.empty() || line[0] == ' ' || last == std::string_view::npos || last == 0) return false;
  const size_t middle = line.rfind(':', last - 1);
  if (middle == std::string_view::npos || middle == 0) return false;
  return numeric(parse_decimal(line.substr(middle + 1, last - middle - 1))) &&
         numeric(parse_decimal(trimmed(line.substr(last + 1))));
}

bool is_plain(const Words& words) {
  return words.count >= 3 && (words.count == 3 || words[3].starts_with('#')) &&
         numeric(parse_hex(words[0])) && numeric(parse_hex(words[1])) &&
         numeric(parse_decimal(words[2]));
}

// An address and what it lies in, the last word in parentheses; or the header of a sample.
bool is_perf_script(std::string_view line, const Words& words) {
  if (words.count == 0) return false;
  if (line.find("PERF_RECORD_") != std::string_view::npos) return true;
  if (words[words.count - 1].ends_with(')') && numeric(parse_hex(words[0]))) return true;
  // comm pid time: period event: [ip sym (dso)]
  const bool has_time =
      std::any_of(words.word.begin(), words.word.begin() + words.count, [](std::string_view word) {
        return word.ends_with(':') && word.find('.') != std::string_view::npos &&
               word.find_first_not_of("0123456789.:") == std::string_view::npos;
      });
  return has_time && words.count >= 4;
}

std::optional<Form> recognise_line(std::string_view line) {
  const Words words(line);
  if (is_callgrind(line)) return Form::kCallgrind;
  if (is_fdata(line, words)) return Form::kFdata;
  if (is_plain(words)) return Form::kPlain;
  if (is_llvm_samples(line)) return Form::kLlvmSamples;
  if (is_perf_script(line, words)) return Form::kPerfScript;
  return std::nullopt;
}

}  // namespace

std::optional<Form> recognise(std::string_view bytes) {
  if (bytes.starts_with("SQLite format 3")) return Form::kTally;
  size_t at = bytes.find_first_not_of(" \t\r\n");
  if (at == std::string_view::npos) return std::nullopt;
  if (bytes[at] == '{') {
    if (bytes.find("\"llvm.coverage.json.export\"") != std::string_view::npos ||
        bytes.substr(at).starts_with("{\"data\":[")) {
      return Form::kLlvmCoverage;
    }
    if (bytes.find("\"gcc_version\"") != std::string_view::npos ||
        bytes.find("\"current_working_directory\"") != std::string_view::npos) {
      return Form::kGcov;
    }
    return std::nullopt;
  }
  while (at < bytes.size()) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view line = trimmed(bytes.substr(at, end - at));
    const bool says_something = !line.empty() && (line[0] != '#' || is_callgrind(line));
    if (says_something) return recognise_line(line);
    at = end + 1;
  }
  return std::nullopt;
}

}  // namespace tally::claims
