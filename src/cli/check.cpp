// See check.h.
#include "cli/check.h"

#include "claims/check.h"
#include "cli/format_option.h"
#include "cli/profile_format_option.h"
#include "cli/run_option.h"
#include "report/check.h"

namespace tally::cli {
namespace {

constexpr int kFoundSomething = 1;

struct Options {
  std::string file;
  claims::ReadOptions read;
  report::Format format = report::Format::kText;
  size_t top = 20;
};

Status run(const Options& options, int& exit_code) {
  TRY_ASSIGN(const claims::Claims claims, claims::read_claims(options.file, options.read));
  const claims::CheckReport found = claims::check(claims);
  if (found.findings_total > 0) exit_code = kFoundSomething;
  return write_to_stdout([&](report::Output& output) -> Status {
    report::render_check(claims, found, options.top, options.format, output);
    return Ok{};
  });
}

}  // namespace

void register_check(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "check", "Does a profile, of Tally or another tool, contradict itself? Without a run");
  sub->add_option("FILE", options->file, "The profile")->required();
  add_profile_format_option(sub, options->read.form);
  sub->add_option("--program", options->read.program_path,
                  "The program the profile is of, where the profile does not name it");
  add_run_option(sub, options->read.run);
  add_format_option(sub, options->format, {"text", "json", "csv"});
  sub->add_option("--top", options->top, "How many findings to list in text")
      ->capture_default_str();
  sub->footer(
      "Examples:\n"
      "  tally check gzip.tally\n"
      "  tally check callgrind.out.4711\n"
      "  tally check prof.fdata --program=./prog\n"
      "Exit status: 0 nothing found, 1 findings, 2 usage, 125 the profile could not be read.");
  sub->callback([=] { outcome->status = run(*options, outcome->exit_code); });
}

}  // namespace tally::cli
