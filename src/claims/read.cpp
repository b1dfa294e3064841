// Recognising a profile's form and handing it to the reader; see read.h.
#include "claims/read.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "claims/reader.h"
#include "claims/unpack.h"
#include "elf/file_bytes.h"

namespace tally::claims {
namespace {

struct FormEntry {
  Form form;
  const char* name;
  Result<Claims> (*read)(const Source& source);
};
constexpr std::array<FormEntry, 8> kForms = {{
    {Form::kTally, "tally", read_tally},
    {Form::kPlain, "plain", read_plain},
    {Form::kFdata, "fdata", read_fdata},
    {Form::kCallgrind, "callgrind", read_callgrind},
    {Form::kGcov, "gcov", read_gcov},
    {Form::kLlvmCoverage, "llvm-coverage", read_llvm_coverage},
    {Form::kLlvmSamples, "llvm-samples", read_llvm_samples},
    {Form::kPerfScript, "perf-script", read_perf_script},
}};

const FormEntry& entry_of(Form form) {
  return *std::find_if(kForms.begin(), kForms.end(),
                       [form](const FormEntry& entry) { return entry.form == form; });
}

// LLVM's sample profiles in binary begin with "SPROF42" and a byte for the kind, as one LEB128.
bool is_binary_samples(std::string_view text) {
  uint64_t value = 0;
  for (size_t i = 0; i < 10 && i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    value |= uint64_t{byte & 0x7fU} << (7 * i);
    if ((byte & 0x80) == 0) break;
  }
  return value >> 8 == 0x5350524f463432;
}

// What can be made readable.
const char* conversion_of(std::string_view text) {
  if (is_binary_samples(text)) return "llvm-profdata merge --sample --text -o TEXT";
  if (text.starts_with("\x81rforpl\xff") || text.starts_with("\xfflprofr\x81") ||
      text.starts_with("\xfflprofi\x81")) {
    return "llvm-profdata merge -o MERGED, and llvm-cov export PROGRAM -instr-profile=MERGED of";
  }
  if (text.starts_with("PERFILE2")) return "perf script --show-mmap-events -i";
  return nullptr;
}

Error unrecognised(const std::string& path, std::string_view text) {
  if (const char* conversion = conversion_of(text)) {
    return make_error("{}: a binary form; give what `{} {}` makes of it", path, conversion, path);
  }
  std::string names;
  for (const FormEntry& entry : kForms)
    names += std::string(names.empty() ? "" : ", ") + entry.name;
  return make_error(
      "{}: not a profile of any form that Tally knows ({}); say which it is with "
      "--profile-format",
      path, names);
}

// Addresses that all miss the program mean the wrong program, not thousands of wrong counts.
Status check_program(const Claims& claims) {
  if (claims.modules.size() != 1 || claims.form == Form::kTally) return Ok{};
  const auto image = elf::Image::open(claims.modules[0].path);
  if (!image) return Ok{};
  const auto inside = [&](const Place& place) {
    return std::any_of((*image)->segments().begin(), (*image)->segments().end(),
                       [&](const elf::Segment& segment) {
                         return segment.executable && segment.range.contains(place.address);
                       });
  };
  const bool any =
      std::any_of(claims.edges.begin(), claims.edges.end(),
                  [&](const EdgeClaim& edge) { return inside(edge.from) || inside(edge.to); }) ||
      std::any_of(claims.instructions.begin(), claims.instructions.end(),
                  [&](const InstructionClaim& claim) { return inside(claim.at); }) ||
      std::any_of(claims.procedures.begin(), claims.procedures.end(),
                  [&](const ProcedureClaim& claim) { return inside(claim.entry); });
  if (any || (claims.edges.empty() && claims.instructions.empty())) return Ok{};
  return make_error(
      "{}: none of its addresses lies in '{}': it is a profile of another program; name the right "
      "one with --program",
      claims.file, claims.modules[0].path);
}

bool claims_nothing(const Claims& claims) {
  return claims.blocks.empty() && claims.edges.empty() && claims.instructions.empty() &&
         claims.procedures.empty() && claims.lines.empty();
}

}  // namespace

const char* to_string(Form form) {
  return entry_of(form).name;
}

std::optional<Form> form_named(std::string_view name) {
  for (const FormEntry& entry : kForms) {
    if (name == entry.name) return entry.form;
  }
  return std::nullopt;
}

std::vector<std::string> form_names() {
  std::vector<std::string> names;
  names.reserve(std::size(kForms));
  for (const FormEntry& entry : kForms) names.emplace_back(entry.name);
  return names;
}

std::string describe_record(Form form, RecordKind kind, Record record) {
  if (record == 0) return {};
  static constexpr std::array<const char*, 5> kTables = {"blocks", "edges", "instructions",
                                                         "procedures", "lines"};
  const char* table = kTables[static_cast<size_t>(kind)];
  switch (form) {
    case Form::kTally:
      return fmt::format("{}.id {}", table, record - 1);
    case Form::kGcov:
    case Form::kLlvmCoverage:
      return fmt::format("entry {} of {}", record, table);
    default:
      return fmt::format("line {}", record);
  }
}

Result<Claims> read_claims(const std::string& path, const ReadOptions& options) {
  std::error_code no_status;
  const auto status = std::filesystem::status(path, no_status);
  if (!std::filesystem::exists(status)) {
    return make_error("{}: no such file; give the profile that the run wrote", path);
  }
  if (!std::filesystem::is_regular_file(status)) {
    return make_error("{}: not a regular file; give the profile itself", path);
  }
  auto mapped = elf::FileBytes::map(path);
  if (!mapped) return make_error("{}: cannot be read by this user", path);
  const elf::FileBytes file = std::move(*mapped);
  const auto bytes = file.span();
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.empty()) {
    return make_error("{}: the file is empty; the profiler wrote nothing: profile again", path);
  }
  std::string unpacked;
  if (is_gzip(text)) {
    TRY_ASSIGN(unpacked, gunzip(path, text));
    text = unpacked;
  }
  const std::optional<Form> form = options.form ? options.form : recognise(text);
  if (!form) return unrecognised(path, text);
  TRY_ASSIGN(Claims claims, entry_of(*form).read(Source{path, text, options}));
  TRY(check_program(claims));
  if (claims_nothing(claims)) {
    return make_error("{}: holds no counts at all (form {}); profile again", path,
                      to_string(*form));
  }
  return claims;
}

}  // namespace tally::claims
