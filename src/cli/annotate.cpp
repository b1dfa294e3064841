// See annotate.h.
#include "cli/annotate.h"

#include "cli/format_option.h"
#include "cli/run_option.h"
#include "profile/file.h"
#include "report/annotate.h"

namespace tally::cli {
namespace {

struct Options {
  std::string file;
  std::optional<uint32_t> run;
  std::string function;
  std::string module;
  std::string syntax = "intel";
  report::Format format = report::Format::kText;
};

Status run(const Options& options) {
  TRY_ASSIGN(const profile::Profile profile, profile::load(options.file, options.run));
  report::Symbols symbols(profile);
  TRY_ASSIGN(const report::Place place,
             report::locate(profile, symbols, options.function, options.module));
  const auto syntax = options.syntax == "att" ? report::Syntax::kAtt : report::Syntax::kIntel;
  return write_to_stdout([&](report::Output& output) {
    return report::annotate(profile, symbols, place, syntax, options.format, output);
  });
}

}  // namespace

void register_annotate(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      app.add_subcommand("annotate", "The instructions of a function with their counts");
  sub->add_option("FILE", options->file, "The profile, for example gzip.tally")->required();
  sub->add_option("--function", options->function,
                  "A symbol, an address (0x4a10), or both (gzip+0x4a10, deflate+0x1c)")
      ->required();
  sub->add_option("--module", options->module, "Only this module: its path or file name");
  sub->add_option("--syntax", options->syntax, "Assembler syntax")
      ->check(CLI::IsMember({"intel", "att"}))
      ->capture_default_str();
  add_run_option(sub, options->run);
  add_format_option(sub, options->format, {"text", "json", "csv"});
  sub->footer(
      "The module's file must be the one that ran (same build-id).\n\n"
      "Examples:\n"
      "  tally annotate gzip.tally --function=gzip+0x4a10\n"
      "  tally annotate lua.tally --function=luaV_execute --syntax=att\n"
      "  tally annotate gzip.tally --function=memcpy --module=libc.so.6 --format=csv");
  sub->callback([=] { outcome->status = run(*options); });
}

}  // namespace tally::cli
