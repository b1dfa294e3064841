// See explain.h.
#include "cli/explain.h"

#include "cli/format_option.h"
#include "cli/run_option.h"
#include "profile/file.h"
#include "report/explain.h"

namespace tally::cli {
namespace {

struct Options {
  std::string file;
  std::optional<uint32_t> run;
  std::string address;
  std::string module;
  report::Format format = report::Format::kText;
};

Status run(const Options& options) {
  TRY_ASSIGN(const profile::Profile profile, profile::load(options.file, options.run));
  report::Symbols symbols(profile);
  TRY_ASSIGN(const report::Place place,
             report::locate(profile, symbols, options.address, options.module));
  return write_to_stdout([&](report::Output& output) {
    return report::explain(profile, symbols, place, options.format, output);
  });
}

}  // namespace

void register_explain(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "explain", "One address: which block, found how, counted how, from which equation");
  sub->add_option("FILE", options->file, "The profile, for example gzip.tally")->required();
  sub->add_option("ADDR", options->address,
                  "An address (0x4a10), gzip+0x4a10, a symbol, or symbol+0x1c")
      ->required();
  sub->add_option("--module", options->module, "Only this module: its path or file name");
  add_run_option(sub, options->run);
  add_format_option(sub, options->format, {"text", "json"});
  sub->footer(
      "Examples:\n"
      "  tally explain gzip.tally 0x4a10\n"
      "  tally explain gzip.tally libc.so.6+0x9f2c0\n"
      "  tally explain lua.tally luaV_execute --format=json");
  sub->callback([=] { outcome->status = run(*options); });
}

}  // namespace tally::cli
