// See report.h.
#include "cli/report.h"

#include "cli/format_option.h"
#include "profile/file.h"
#include "report/summary.h"

namespace tally::cli {
namespace {

struct Options {
  std::string file;
  report::Format format = report::Format::kText;
  size_t top = 10;
};

Status run(const Options& options) {
  TRY_ASSIGN(const profile::Profile profile, profile::load(options.file));
  report::Symbols symbols(profile);
  const report::Summary summary = report::summarize(profile, symbols, options.top);
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
  add_format_option(sub, options->format, {"text", "json", "csv"});
  sub->add_option("--top", options->top, "How many procedures and blocks to list")
      ->capture_default_str();
  sub->footer(
      "Examples:\n"
      "  tally report gzip.tally\n"
      "  tally report gzip.tally --top=30\n"
      "  tally report gzip.tally --format=json | jq .totals.instructions");
  sub->callback([=] { outcome->status = run(*options); });
}

}  // namespace tally::cli
