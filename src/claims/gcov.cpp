// gcov's JSON (`gcov --json-format`, packed or not).
//
//     { "gcc_version": "12.2.0", "files": [ { "file": "t.c",
//         "lines": [ { "line_number": 8, "function_name": "main", "count": 1,
//                      "branches": [ { "count": 3, ... } ] } ],
//         "functions": [ { "name": "main", "execution_count": 1, "blocks": 12,
//                          "blocks_executed": 11, "start_line": 8 } ] } ] }
//
// Of a program of several source files there are as many documents, one behind the other
// (`gcov --json-format --stdout`, or its packed files joined by `cat`).
//
// A line's count is the sum over the blocks that begin on it and are not entered from it.  With a
// program, functions get the address of their symbol.
//
// gcov counts some edges and derives all other counts from them.  Where threads lost increments the
// differences can be negative: such counts are kept, as 2^64 less, for `check` and `verify` to
// name.
//
// Not in the profile: edges by address, anything of code that was not compiled with --coverage.
#include <map>
#include <tuple>

#include "claims/counts.h"
#include "claims/json.h"
#include "claims/names.h"

namespace tally::claims {
namespace {

class Reader {
 public:
  explicit Reader(const Source& source) : source_(source) {}

  Result<Claims> run() {
    claims_.form = Form::kGcov;
    claims_.file = source_.path;
    claims_.silences = {"code that was not compiled with --coverage is not in the profile",
                        "counts are those of source lines and functions, not of addresses"};
    TRY_ASSIGN(const std::vector<Json> documents, parse_json_documents(source_));
    if (!source_.options.program_path.empty()) {
      TRY_ASSIGN(image_, open_program(source_, claims_));
      names_.emplace(*image_);
    }
    for (size_t i = 0; i < documents.size(); ++i) {
      TRY(read_document(documents[i], documents.size() == 1 ? "" : fmt::format("[{}].", i)));
    }
    if (negative_ != 0) {
      claims_.admissions.push_back(fmt::format("{} counts are negative", negative_));
    }
    return std::move(claims_);
  }

 private:
  Status read_document(const Json& json, const std::string& where) {
    const std::string version = json_text(json, "gcc_version");
    if (!version.empty()) claims_.producer = "gcov " + version;
    TRY_ASSIGN(const Json* files, json_list(source_, json, "files", where + "the profile"));
    for (size_t i = 0; i < files->size(); ++i) {
      TRY(read_file((*files)[i], fmt::format("{}files[{}]", where, i)));
    }
    return Ok{};
  }

  Status read_file(const Json& file, const std::string& where) {
    const std::string name = json_text(file, "file");
    TRY_ASSIGN(const Json* functions, json_list(source_, file, "functions", where));
    for (size_t i = 0; i < functions->size(); ++i) {
      TRY(read_function((*functions)[i], name, fmt::format("{}.functions[{}]", where, i)));
    }
    TRY_ASSIGN(const Json* lines, json_list(source_, file, "lines", where));
    for (size_t i = 0; i < lines->size(); ++i) {
      TRY(read_line((*lines)[i], name, fmt::format("{}.lines[{}]", where, i)));
    }
    return Ok{};
  }

  Result<uint64_t> number(const Json& object, const char* name, const std::string& where) const {
    return json_count(source_, json_member(object, name), where + "." + name);
  }

  // A count that gcov may have derived.
  Result<uint64_t> derived(const Json& object, const char* name, const std::string& where) {
    const Json& value = json_member(object, name);
    if (!value.is_number_integer() || value.is_number_unsigned())
      return number(object, name, where);
    ++negative_;
    return static_cast<uint64_t>(value.get<int64_t>());
  }

  Result<uint32_t> line_number(const Json& object, const char* name,
                               const std::string& where) const {
    TRY_ASSIGN(const uint64_t line, number(object, name, where));
    if (line <= UINT32_MAX) return static_cast<uint32_t>(line);
    return make_error("{}: {}.{}: {} is no source line", source_.path, where, name, line);
  }

  Status read_function(const Json& function, const std::string& file, const std::string& where) {
    ProcedureClaim claim{.entry = {Place::kNowhere, {}}, .file = file};
    claim.name = json_text(function, "name");
    claim.record = claims_.procedures.size() + 1;
    TRY_ASSIGN(claim.count, derived(function, "execution_count", where));
    TRY_ASSIGN(claim.line, line_number(function, "start_line", where));
    TRY_ASSIGN(const uint64_t blocks, number(function, "blocks", where));
    TRY_ASSIGN(const uint64_t executed, number(function, "blocks_executed", where));
    claims_.sums.push_back({.what = "blocks executed, of the function's",
                            .place = claim.name,
                            .claimed = blocks,
                            .sum = executed,
                            .record = claim.record,
                            .at_most = true});
    const elf::Symbol* symbol = names_ ? names_->of_file(claim.name, file) : nullptr;
    if (symbol != nullptr) claim.entry = {0, symbol->range.begin};
    const auto [known, is_new] =
        functions_.try_emplace({file, claim.name}, claims_.procedures.size());
    if (is_new) {
      claims_.procedures.push_back(std::move(claim));
    } else {
      uint64_t& count = claims_.procedures[known->second].count;
      count = joined(count, claim.count);
    }
    return Ok{};
  }

  Status read_line(const Json& line, const std::string& file, const std::string& where) {
    LineClaim claim{.file = file};
    claim.function = json_text(line, "function_name");
    claim.record = claims_.lines.size() + 1;
    TRY_ASSIGN(claim.line, line_number(line, "line_number", where));
    TRY_ASSIGN(claim.count, derived(line, "count", where));
    TRY(read_branches(line, claim, where));
    const auto [known, is_new] =
        lines_.try_emplace({file, claim.function, claim.line}, claims_.lines.size());
    if (is_new) {
      claims_.lines.push_back(std::move(claim));
    } else {
      uint64_t& count = claims_.lines[known->second].count;
      count = joined(count, claim.count);
    }
    return Ok{};
  }

  // What a line that was never executed branches to has to be nothing.
  Status read_branches(const Json& line, const LineClaim& claim, const std::string& where) {
    const Json& branches = json_member(line, "branches");
    if (!branches.is_array()) return Ok{};
    uint64_t sum = 0;
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string place = fmt::format("{}.branches[{}]", where, i);
      const uint64_t negative_before = negative_;
      TRY_ASSIGN(const uint64_t count, derived(branches[i], "count", place));
      if (negative_ != negative_before) return Ok{};
      if (!add(sum, count)) {
        return make_error("{}: {}: the line's branches add up to more than 64 bits", source_.path,
                          place);
      }
    }
    if (claim.count == 0) {
      claims_.sums.push_back({.what = "branches of a line that was not executed",
                              .place = fmt::format("{}:{}", claim.file, claim.line),
                              .claimed = 0,
                              .sum = sum,
                              .record = claim.record});
    }
    return Ok{};
  }

  const Source& source_;
  Claims claims_;
  uint64_t negative_ = 0;
  // An inline function of a header is in the document of each object file that has it, with the
  // counts in any of them: they are summed.  One that is negative anywhere stays so.
  std::map<std::pair<std::string, std::string>, size_t> functions_;
  std::map<std::tuple<std::string, std::string, uint32_t>, size_t> lines_;
  std::shared_ptr<elf::Image> image_;
  std::optional<SymbolNames> names_;
};

}  // namespace

Result<Claims> read_gcov(const Source& source) {
  return Reader(source).run();
}

}  // namespace tally::claims
