// See check.h.
#include "report/check.h"

#include "report/table.h"

namespace tally::report {
namespace {

using claims::CheckReport;
using claims::Claims;
using claims::Finding;

std::string percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string claims_in_words(const Claims& claims) {
  std::string text;
  const auto add = [&text](size_t count, const char* what) {
    if (count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", with_commas(count), what);
  };
  add(claims.blocks.size(), "blocks");
  add(claims.edges.size(), "edges");
  add(claims.instructions.size(), "instructions");
  add(claims.procedures.size(), "procedures");
  add(claims.lines.size(), "lines");
  return text.empty() ? "none" : text;
}

void render_findings(const CheckReport& report, size_t top, Output& output) {
  output.write("\n");
  size_t shown = 0;
  for (const Finding& finding : report.findings) {
    if (shown++ == top) break;
    output.bad(finding.where.empty() ? "?" : finding.where);
    output.print("  {}", to_string(finding.kind));
    if (!finding.record.empty()) output.print("  ({})", finding.record);
    output.print("\n    {}\n", finding.message);
  }
  if (report.findings_total > shown) {
    output.print("... and {} more: --top=N, or --format=csv\n",
                 with_commas(report.findings_total - std::min<uint64_t>(top, shown)));
  }
}

void render_text(const Claims& claims, const CheckReport& report, size_t top, Output& output) {
  output.print("{}: {}{}{}\n", claims.file, to_string(claims.form),
               claims.producer.empty() ? "" : " by ", claims.producer);
  output.print("\nClaims     {}\n", claims_in_words(claims));
  output.print("Equations  {} compared, {} open\n", with_commas(report.equations),
               with_commas(report.open));
  output.write("Findings   ");
  if (report.findings_total == 0) {
    output.good("none");
  } else {
    output.print("{}:", with_commas(report.findings_total));
    for (size_t kind = 0; kind < claims::kFaultKinds; ++kind) {
      if (report.by_kind[kind] == 0) continue;
      output.print(" {} {}", with_commas(report.by_kind[kind]),
                   to_string(static_cast<claims::FaultKind>(kind)));
    }
  }
  output.write("\n");
  for (const claims::Known& known : report.known) {
    output.print(
        "Code       {} of {} bytes known ({}), {} executed: {}\n", with_commas(known.known_bytes),
        with_commas(known.code_bytes), percent(known.known_bytes, known.code_bytes),
        percent(known.executed_bytes, known.code_bytes), claims.modules[known.module].path);
  }
  for (const std::string& silence : claims.silences) output.print("Not said   {}\n", silence);
  for (const std::string& admission : claims.admissions) {
    output.print("Admitted   {}\n", admission);
  }
  for (const std::string& note : report.notes) output.print("Note       {}\n", note);
  if (report.findings_total > 0) render_findings(report, top, output);
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string result = "[";
  for (const std::string& text : texts) {
    result += (result.size() > 1 ? ", " : "") + json_string(text);
  }
  return result + "]";
}

std::string module_of(const Claims& claims, const Finding& finding) {
  return finding.place.module < claims.modules.size() ? claims.modules[finding.place.module].path
                                                      : std::string();
}

void render_json(const Claims& claims, const CheckReport& report, Output& output) {
  output.print("{{\"file\": {}, \"profile_format\": \"{}\", \"producer\": {},\n",
               json_string(claims.file), to_string(claims.form), json_string(claims.producer));
  output.print(
      " \"claims\": {{\"blocks\": {}, \"edges\": {}, \"instructions\": {}, "
      "\"procedures\": {}, \"lines\": {}}},\n",
      claims.blocks.size(), claims.edges.size(), claims.instructions.size(),
      claims.procedures.size(), claims.lines.size());
  output.print(" \"equations\": {}, \"open\": {}, \"findings_total\": {},\n \"kinds\": {{",
               report.equations, report.open, report.findings_total);
  for (size_t kind = 0; kind < claims::kFaultKinds; ++kind) {
    output.print("{}\"{}\": {}", kind == 0 ? "" : ", ",
                 to_string(static_cast<claims::FaultKind>(kind)), report.by_kind[kind]);
  }
  output.write("},\n \"findings\": [");
  bool first = true;
  for (const Finding& finding : report.findings) {
    output.print(
        "{}\n  {{\"kind\": \"{}\", \"where\": {}, \"module\": {}, \"address\": \"{:#x}\", "
        "\"claimed\": {}, \"implied\": \"{}\", \"record\": {}, \"message\": {}}}",
        first ? "" : ",", to_string(finding.kind), json_string(finding.where),
        json_string(module_of(claims, finding)), finding.place.address.value(), finding.claimed,
        finding.implied, json_string(finding.record), json_string(finding.message));
    first = false;
  }
  output.write("],\n \"code\": [");
  first = true;
  for (const claims::Known& known : report.known) {
    output.print(
        "{}\n  {{\"module\": {}, \"code_bytes\": {}, \"known_bytes\": {}, "
        "\"executed_bytes\": {}}}",
        first ? "" : ",", json_string(claims.modules[known.module].path), known.code_bytes,
        known.known_bytes, known.executed_bytes);
    first = false;
  }
  output.print("],\n \"silences\": {},\n \"admissions\": {},\n \"notes\": {}}}\n",
               json_list(claims.silences), json_list(claims.admissions), json_list(report.notes));
}

void render_csv(const Claims& claims, const CheckReport& report, Output& output) {
  TableWriter table(output, Format::kCsv,
                    {{"kind"},
                     {"where"},
                     {"module"},
                     {"address"},
                     {"claimed"},
                     {"implied"},
                     {"record"},
                     {"message"}});
  for (const Finding& finding : report.findings) {
    table.row({to_string(finding.kind), finding.where, module_of(claims, finding),
               finding.place.address, finding.claimed, fmt::format("{}", finding.implied),
               finding.record, finding.message});
  }
  table.finish();
}

}  // namespace

void render_check(const Claims& claims, const CheckReport& report, size_t top, Format format,
                  Output& output) {
  switch (format) {
    case Format::kText:
      return render_text(claims, report, top, output);
    case Format::kJson:
      return render_json(claims, report, output);
    case Format::kCsv:
      return render_csv(claims, report, output);
  }
}

}  // namespace tally::report
