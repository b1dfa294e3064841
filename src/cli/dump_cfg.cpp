// See dump_cfg.h.
#include "cli/dump_cfg.h"

#include <set>

#include "cfg/procedure.h"
#include "cfg/view.h"
#include "cli/dump_profile.h"
#include "elf/image.h"
#include "report/output.h"

namespace tally::cli {
namespace {

struct Options {
  std::string file;
  std::string function;
  std::string format = "text";
};

// All procedures the file itself speaks of: .eh_frame, symbols, the entry.
std::vector<LinkRange> ranges_of(const elf::Image& image) {
  std::vector<LinkRange> ranges = image.unwind_ranges();
  std::set<uint64_t> seen;
  for (const LinkRange& r : ranges) seen.insert(r.begin.value());
  for (const elf::Symbol& s : image.symbols()) {
    if (!s.range.empty() && seen.insert(s.range.begin.value()).second) ranges.push_back(s.range);
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const LinkRange& a, const LinkRange& b) { return a.begin < b.begin; });
  return ranges;
}

Result<LinkRange> find_function(const elf::Image& image, const std::string& what) {
  LinkAddr address;
  if (const elf::Symbol* symbol = image.symbol_named(what)) {
    if (!symbol->range.empty()) return symbol->range;
    address = symbol->range.begin;
  } else {
    char* end = nullptr;
    address = LinkAddr(std::strtoull(what.c_str(), &end, 0));
    if (end == what.c_str() || *end != '\0') {
      return make_error("{}: no function named {}; give an address such as 0x4a10", image.path(),
                        what);
    }
  }
  if (auto range = image.unwind_range_at(address)) return *range;
  if (const elf::Symbol* symbol = image.symbol_at(address); symbol && !symbol->range.empty()) {
    return symbol->range;
  }
  for (const elf::Segment& s : image.segments()) {
    if (s.executable && s.range.contains(address)) return LinkRange{address, s.range.end};
  }
  return make_error("{}: {:#x} is in no executable segment", image.path(), address.value());
}

Status run(const Options& options) {
  if (options.format != "text" && options.format != "dot") {
    return make_error(ErrorKind::kUsage, "--format={}: must be text or dot", options.format);
  }
  TRY_ASSIGN(const std::shared_ptr<elf::Image> image, elf::Image::open(options.file));
  std::vector<LinkRange> ranges;
  if (options.function.empty()) {
    ranges = ranges_of(*image);
  } else {
    TRY_ASSIGN(const LinkRange range, find_function(*image, options.function));
    ranges.push_back(range);
  }
  const cfg::CodeView view = cfg::view_of(image);
  cfg::Discoverer discoverer(view);
  return write_to_stdout([&](report::Output& output) -> Status {
    for (const LinkRange& range : ranges) {
      cfg::DiscoverRequest request;
      request.entry = range.begin;
      request.range = range;
      const cfg::Procedure procedure = discoverer.discover(request);
      const elf::Symbol* symbol = image->symbol_at(range.begin);
      const std::string name =
          symbol != nullptr ? symbol->name : fmt::format("{:#x}", range.begin.value());
      output.write(options.format == "dot" ? cfg::dump_dot(procedure, view, name)
                                           : cfg::dump_text(procedure, view, name));
    }
    return Ok{};
  });
}

}  // namespace

void register_dump_cfg(CLI::App& app, std::shared_ptr<CommandOutcome> outcome) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = dump_parent(app)->add_subcommand(
      "cfg", "Control-flow graphs of a program file, without running it");
  sub->add_option("PROGRAM", options->file, "The program or library")->required();
  sub->add_option("--function", options->function, "Only this one, by name or address");
  sub->add_option("--format", options->format, "text or dot")->capture_default_str();
  sub->footer(
      "Examples:\n"
      "  tally dump cfg /usr/bin/gzip --function=0x4a10\n"
      "  tally dump cfg ./a.out --function=main --format=dot | dot -Tsvg > main.svg");
  sub->callback([=] { outcome->status = run(*options); });
}

}  // namespace tally::cli
