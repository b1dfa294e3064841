// LLVM's coverage export (`llvm-cov export`, JSON).
//
//     { "data": [ { "files": [ { "filename": "t.c",
//                                "segments": [[line, column, count, has_count, entry, gap], ...] }
//                                ],
//                   "functions": [ { "name": "main", "count": 1, "filenames": ["t.c"],
//                                    "regions": [[line, column, line, column, count, file, ..]],
//                                    "branches": [[l, c, l, c, true, false, file, ...]] } ] } ],
//       "type": "llvm.coverage.json.export", "version": "2.0.1" }
//
// Segments cut a file where the count changes; a line's count is the largest of the count that
// reaches into it and of the regions that begin on it, as LLVM's own listings have it.  Where they
// differ it is the count of a part of the line only, and marked so.  A function's count is that of
// its first region, and a branch's two counts add up to its own region's, unless several share
// their place: a macro's argument `a && b` has two branches and one place.
//
// Not in the profile: addresses, edges; code that was not compiled with -fcoverage-mapping.
#include <algorithm>
#include <map>
#include <tuple>

#include "claims/json.h"
#include "claims/names.h"

namespace tally::claims {
namespace {

// What a damaged line number may make us list at most.
constexpr uint64_t kLinesMax = 5'000'000;

struct Segment {
  uint64_t line = 0;
  uint64_t count = 0;
  bool has_count = false;
  bool is_entry = false;
  bool is_gap = false;
  bool starts_region() const { return !is_gap && has_count && is_entry; }
};

class Reader {
 public:
  explicit Reader(const Source& source) : source_(source) {}

  Result<Claims> run() {
    claims_.form = Form::kLlvmCoverage;
    claims_.file = source_.path;
    claims_.silences = {"code that was not compiled with -fcoverage-mapping is not in the profile",
                        "counts are those of source regions and functions, not of addresses"};
    TRY_ASSIGN(const Json json, parse_json(source_));
    claims_.producer = "llvm-cov " + json_text(json, "version");
    if (!source_.options.program_path.empty()) {
      TRY_ASSIGN(image_, open_program(source_, claims_));
      names_.emplace(*image_);
    }
    TRY_ASSIGN(const Json* data, json_list(source_, json, "data", "the profile"));
    for (size_t i = 0; i < data->size(); ++i) {
      TRY(read_export((*data)[i], fmt::format("data[{}]", i)));
    }
    return std::move(claims_);
  }

 private:
  Status read_export(const Json& data, const std::string& where) {
    TRY_ASSIGN(const Json* files, json_list(source_, data, "files", where));
    for (size_t i = 0; i < files->size(); ++i) {
      TRY(read_file((*files)[i], fmt::format("{}.files[{}]", where, i)));
    }
    const Json& functions = json_member(data, "functions");
    if (!functions.is_array()) return Ok{};  // --skip-functions
    for (size_t i = 0; i < functions.size(); ++i) {
      TRY(read_function(functions[i], fmt::format("{}.functions[{}]", where, i)));
    }
    return Ok{};
  }

  Result<uint64_t> at(const Json& row, size_t index, const std::string& where) const {
    if (row.is_array() && index < row.size()) {
      return json_count(source_, row[index], fmt::format("{}[{}]", where, index));
    }
    return make_error("{}: {}: has to be a list of more than {} numbers", source_.path, where,
                      index);
  }

  Status read_file(const Json& file, const std::string& where) {
    const std::string name = json_text(file, "filename");
    const Json& rows = json_member(file, "segments");
    if (!rows.is_array()) return Ok{};  // --summary-only
    std::vector<Segment> segments;
    for (size_t i = 0; i < rows.size(); ++i) {
      TRY_ASSIGN(const Segment segment,
                 read_segment(rows[i], fmt::format("{}.segments[{}]", where, i)));
      if (!segments.empty() && segment.line < segments.back().line) {
        return make_error("{}: {}.segments[{}]: not in the order of lines; the profile is damaged",
                          source_.path, where, i);
      }
      segments.push_back(segment);
    }
    return add_lines(name, segments);
  }

  Result<Segment> read_segment(const Json& row, const std::string& where) const {
    Segment segment;
    TRY_ASSIGN(segment.line, at(row, 0, where));
    TRY(at(row, 1, where));
    TRY_ASSIGN(segment.count, at(row, 2, where));
    const auto flag = [&row](size_t index) {
      return index < row.size() && row[index].is_boolean() && row[index].get<bool>();
    };
    segment.has_count = flag(3);
    segment.is_entry = flag(4);
    segment.is_gap = flag(5);
    return segment;
  }

  Status add_lines(const std::string& name, const std::vector<Segment>& segments) {
    const Segment* wrapped = nullptr;
    for (size_t i = 0; i < segments.size();) {
      size_t end = i;
      while (end < segments.size() && segments[end].line == segments[i].line) ++end;
      const std::span<const Segment> on_line(&segments[i], end - i);
      add_line(name, segments[i].line, wrapped, on_line);
      wrapped = &segments[end - 1];
      const uint64_t next = end < segments.size() ? segments[end].line : segments[i].line + 1;
      if (next > UINT32_MAX || claims_.lines.size() + (next - segments[i].line) > kLinesMax) {
        return make_error("{}: '{}' has a region of {} lines; the profile is damaged", source_.path,
                          name, next - segments[i].line);
      }
      for (uint64_t line = segments[i].line + 1; line < next; ++line) {
        add_line(name, line, wrapped, {});
      }
      i = end;
    }
    return Ok{};
  }

  void add_line(const std::string& name, uint64_t line, const Segment* wrapped,
                std::span<const Segment> on_line) {
    const bool starts = std::any_of(on_line.begin(), on_line.end(),
                                    [](const Segment& s) { return s.starts_region(); });
    const bool skipped = !on_line.empty() && !on_line[0].has_count && on_line[0].is_entry;
    const bool covered = wrapped != nullptr && wrapped->has_count;
    if (skipped || (!covered && !starts)) return;
    uint64_t count = wrapped == nullptr ? 0 : wrapped->count;
    bool mixed = false;
    for (const Segment& segment : on_line) {
      // Where a gap begins nothing is executed, but what is there has a count of its own.
      mixed = mixed || (segment.has_count && covered && segment.count != wrapped->count) ||
              (segment.has_count && segment.count != on_line[0].count);
      if (segment.starts_region()) count = std::max(count, segment.count);
    }
    claims_.lines.push_back({.file = name,
                             .line = static_cast<uint32_t>(line),
                             .count = count,
                             .record = claims_.lines.size() + 1,
                             .mixed = mixed});
  }

  Status read_function(const Json& function, const std::string& where) {
    ProcedureClaim claim{.entry = {Place::kNowhere, {}}};
    claim.name = json_text(function, "name");
    claim.record = claims_.procedures.size() + 1;
    const Json& names = json_member(function, "filenames");
    if (names.is_array() && !names.empty() && names[0].is_string()) claim.file = names[0];
    TRY_ASSIGN(claim.count, json_count(source_, json_member(function, "count"), where + ".count"));
    TRY_ASSIGN(const Json* regions, json_list(source_, function, "regions", where));
    Counts counts;
    for (size_t i = 0; i < regions->size(); ++i) {
      TRY(read_region((*regions)[i], fmt::format("{}.regions[{}]", where, i), i == 0, claim,
                      counts));
    }
    TRY(read_branches(function, where, claim, counts));
    // "t.c:cmp" is a local function.
    const size_t colon = claim.name.rfind(':');
    const std::string symbol_name =
        colon == std::string::npos ? claim.name : claim.name.substr(colon + 1);
    const elf::Symbol* symbol = names_ ? names_->of_file(symbol_name, claim.file) : nullptr;
    if (symbol != nullptr) claim.entry = {0, symbol->range.begin};
    claims_.procedures.push_back(std::move(claim));
    return Ok{};
  }

  using Extent = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t, uint64_t>;  // file first
  using Counts = std::multimap<Extent, uint64_t>;

  Result<Extent> extent(const Json& row, size_t file_index, const std::string& where) const {
    Extent result;
    TRY_ASSIGN(std::get<0>(result), at(row, file_index, where));
    TRY_ASSIGN(std::get<1>(result), at(row, 0, where));
    TRY_ASSIGN(std::get<2>(result), at(row, 1, where));
    TRY_ASSIGN(std::get<3>(result), at(row, 2, where));
    TRY_ASSIGN(std::get<4>(result), at(row, 3, where));
    return result;
  }

  Status read_region(const Json& row, const std::string& where, bool first, ProcedureClaim& claim,
                     Counts& counts) {
    constexpr uint64_t kCodeRegion = 0;
    TRY_ASSIGN(const Extent place, extent(row, 5, where));
    TRY_ASSIGN(const uint64_t count, at(row, 4, where));
    TRY_ASSIGN(const uint64_t kind, at(row, 7, where));
    if (kind == kCodeRegion) counts.emplace(place, count);
    if (!first) return Ok{};
    const uint64_t line = std::get<1>(place);
    claim.line = static_cast<uint32_t>(std::min<uint64_t>(line, UINT32_MAX));
    claims_.sums.push_back({.what = "the function's first region, of its count",
                            .place = claim.name,
                            .claimed = claim.count,
                            .sum = count,
                            .record = claim.record});
    return Ok{};
  }

  Status read_branches(const Json& function, const std::string& where, const ProcedureClaim& claim,
                       const Counts& counts) {
    const Json& rows = json_member(function, "branches");
    if (!rows.is_array()) return Ok{};
    std::map<Extent, int> branches;
    for (size_t i = 0; i < rows.size(); ++i) {
      TRY_ASSIGN(const Extent place, extent(rows[i], 6, fmt::format("{}.branches[{}]", where, i)));
      ++branches[place];
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string place = fmt::format("{}.branches[{}]", where, i);
      TRY_ASSIGN(const Extent at_source, extent(rows[i], 6, place));
      TRY_ASSIGN(uint64_t sum, at(rows[i], 4, place));
      TRY_ASSIGN(const uint64_t other, at(rows[i], 5, place));
      if (!add(sum, other)) {
        return make_error("{}: {}: the two ways add up to more than 64 bits", source_.path, place);
      }
      if (branches[at_source] != 1 || counts.count(at_source) != 1) continue;
      const auto region = counts.find(at_source);
      claims_.sums.push_back({.what = "a branch's two ways, of its condition's count",
                              .place = fmt::format("{}:{}:{}", claim.name, std::get<1>(at_source),
                                                   std::get<2>(at_source)),
                              .claimed = region->second,
                              .sum = sum,
                              .record = claim.record});
    }
    return Ok{};
  }

  const Source& source_;
  Claims claims_;
  std::shared_ptr<elf::Image> image_;
  std::optional<SymbolNames> names_;
};

}  // namespace

Result<Claims> read_llvm_coverage(const Source& source) {
  return Reader(source).run();
}

}  // namespace tally::claims
