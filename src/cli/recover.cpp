// See recover.h.
#include "cli/recover.h"

#include <cstdio>
#include <optional>

#include "cli/issue_names.h"
#include "cli/profile.h"
#include "ledger/recover.h"
#include "profile/file.h"

namespace tally::cli {
namespace {

struct Options {
  std::string file;
  std::string output;
};

Status run(const Options& options) {
  std::optional<profile::Writer> writer;
  std::string output = options.output;
  IssueNames names;
  TRY(engine::recover(options.file, [&](profile::Profile profile) -> Status {
    if (!writer) {
      const auto& words = profile.run.command_line;
      if (output.empty()) output = default_output(words.empty() ? profile.run.program : words[0]);
      TRY_ASSIGN(writer, profile::Writer::create(output));
    }
    names.add(profile);
    return writer->add(std::move(profile));
  }));
  TRY(writer->commit());
  names.print();
  std::fprintf(stderr, "tally: profile written to %s; %s can be removed\n", output.c_str(),
               options.file.c_str());
  return Ok{};
}

}  // namespace

void register_recover(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "recover", "Make a profile of what was counted until Tally itself was killed");
  sub->add_option("file", options->file, "As given to `tally profile --keep-counters=FILE`")
      ->required();
  sub->add_option("-o,--output", options->output, "Profile to write (default: PROGRAM.tally)");
  sub->footer(
      "The procedure that each thread was in is named as not exact; all other counts are.\n"
      "Examples:\n"
      "  tally profile --keep-counters=server.kept -- ./server\n"
      "  tally recover server.kept -o server.tally");
  sub->callback([=] { outcome->status = run(*options); });
}

}  // namespace tally::cli
