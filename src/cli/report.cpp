// See report.h.
#include "cli/report.h"

#include "cli/format_option.h"
#include "cli/run_option.h"
#include "profile/file.h"
#include "profile/merge.h"
#include "report/summary.h"

namespace tally::cli {
namespace {

struct Options {
  std::string file;
  std::optional<uint32_t> run;
  report::Format format = report::Format::kText;
  size_t top = 10;
};

// One run, or the sum of all; what is said of each run is found out on the way.
Result<profile::Profile> read_runs(const Options& options, std::vector<report::RunLine>& lines) {
  if (options.run) return profile::load(options.file, options.run);
  TRY_ASSIGN(profile::Reader reader, profile::Reader::open(options.file));
  profile::Merger merger;
  for (size_t i = 0; i < reader.runs().size(); ++i) {
    TRY_ASSIGN(profile::Profile profile, reader.read(i));
    lines.push_back(report::summarize_run(profile));
    if (reader.runs().size() == 1) return profile;
    merger.add(profile);
  }
  return merger.result();
}

Status run(const Options& options) {
  std::vector<report::RunLine> lines;
  TRY_ASSIGN(const profile::Profile profile, read_runs(options, lines));
  report::Symbols symbols(profile);
  report::Summary summary = report::summarize(profile, symbols, options.top);
  summary.runs = std::move(lines);
  return write_to_stdout([&](report::Output& output) -> Status {
    report::render_report(profile, symbols, summary, options.format, output);
    return Ok{};
  });
}

}  // namespace

void register_report(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "report", "Totals, balance of flow, hottest procedures and blocks of a profile");
  sub->add_option("FILE", options->file, "The profile, for example gzip.tally")->required();
  add_run_option(sub, options->run);
  add_format_option(sub, options->format, {"text", "json", "csv"});
  sub->add_option("--top", options->top, "How many procedures and blocks to list")
      ->capture_default_str();
  sub->footer(
      "Examples:\n"
      "  tally report gzip.tally\n"
      "  tally report gzip.tally --top=30\n"
      "  tally report make.tally --run=3\n"
      "  tally report gzip.tally --format=json | jq .totals.instructions");
  sub->callback([=] { outcome->status = run(*options); });
}

}  // namespace tally::cli
