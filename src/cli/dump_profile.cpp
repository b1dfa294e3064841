// See dump_profile.h.
#include "cli/dump_profile.h"

#include "cli/format_option.h"
#include "cli/run_option.h"
#include "profile/file.h"
#include "report/dump_profile.h"
#include "report/dumps.h"

namespace tally::cli {
namespace {

struct Options {
  std::string file;
  std::optional<uint32_t> run;
  report::Format format = report::Format::kText;
};

using Render = Status (*)(const profile::Profile&, report::Format, report::Output&);

Status instructions(const profile::Profile& profile, report::Format format,
                    report::Output& output) {
  const report::DumpGaps gaps = report::dump_instructions(profile, format, output);
  if (gaps.unknown > 0) {
    fmt::print(stderr, "tally: the instructions of {} blocks with unknown counts are left out\n",
               gaps.unknown);
  }
  return Ok{};
}

Status edges(const profile::Profile& profile, report::Format format, report::Output& output) {
  report::dump_edges(profile, format, output);
  return Ok{};
}

Status blocks(const profile::Profile& profile, report::Format format, report::Output& output) {
  report::dump_blocks(profile, format, output);
  return Ok{};
}

Status whole_profile(const profile::Profile& profile, report::Format format,
                     report::Output& output) {
  report::dump_profile(profile, format, output);
  return Ok{};
}

Status run(const Options& options, Render render) {
  TRY_ASSIGN(const profile::Profile profile, profile::load(options.file, options.run));
  return write_to_stdout(
      [&](report::Output& output) { return render(profile, options.format, output); });
}

struct Child {
  const char* name;
  const char* summary;
  const char* footer;
  Render render;
  report::Format format;
  std::vector<std::string> formats;
};

void add_child(CLI::App* dump, const Child& child, std::shared_ptr<CommandOutcome> outcome) {
  auto options = std::make_shared<Options>();
  options->format = child.format;
  CLI::App* sub = dump->add_subcommand(child.name, child.summary);
  sub->add_option("FILE", options->file, "The profile, for example gzip.tally")->required();
  add_run_option(sub, options->run);
  add_format_option(sub, options->format, child.formats);
  sub->footer(child.footer);
  const Render render = child.render;
  sub->callback([=] { outcome->status = run(*options, render); });
}

}  // namespace

CLI::App* dump_parent(CLI::App& app) {
  const auto named_dump = [](CLI::App* sub) { return sub->get_name() == "dump"; };
  const std::vector<CLI::App*> existing = app.get_subcommands(named_dump);
  if (!existing.empty()) return existing.front();
  CLI::App* dump = app.add_subcommand("dump", "Facts in full, for other programs to check");
  dump->require_subcommand(1);
  dump->footer(
      "Examples:\n"
      "  tally dump instructions gzip.tally --format=csv\n"
      "  tally dump edges gzip.tally --format=csv\n"
      "  tally dump cfg /usr/bin/gzip --function=0x4a10 --format=dot");
  return dump;
}

void register_dump_profile(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
  using report::Format;
  CLI::App* dump = dump_parent(app);
  const std::vector<std::string> all = {"csv", "json", "text"};
  const Child children[] = {
      {"instructions", "Count of every executed instruction: module,build_id,address,count",
       "Examples:\n"
       "  tally dump instructions gzip.tally > gzip.csv\n"
       "  tally dump instructions gzip.tally --format=json",
       instructions, Format::kCsv, all},
      {"edges", "Every edge: module,from_block,to_module,to_block,kind,count,source",
       "Examples:\n"
       "  tally dump edges gzip.tally > edges.csv\n"
       "  tally dump edges gzip.tally | awk -F, '$5 == \"call\" && $6 > 0'",
       edges, Format::kCsv, all},
      {"blocks",
       "Every block: module,block,size_bytes,instructions,last_instruction,count,source,procedure",
       "Examples:\n"
       "  tally dump blocks gzip.tally > blocks.csv\n"
       "  tally dump blocks gzip.tally --format=text",
       blocks, Format::kCsv, all},
      {"profile",
       "All tables of a profile file, for debugging Tally",
       "Examples:\n"
       "  tally dump profile gzip.tally | less\n"
       "  tally dump profile gzip.tally --format=json",
       whole_profile,
       Format::kText,
       {"text", "json"}},
  };
  for (const Child& child : children) add_child(dump, child, outcome);
}

}  // namespace tally::cli
