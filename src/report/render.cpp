// `tally report` in text, JSON and CSV.  See summary.h.
//
// Text is for reading: sections, thousands separated, shares in percent.  JSON nests the same
// facts. CSV is one long table `section,name,field,value`, which spreadsheets and awk filter
// easily.
#include <cmath>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "report/summary.h"
#include "report/table.h"

namespace tally::report {
namespace {

using profile::CountSource;
using profile::FlowReport;
using profile::Profile;
using profile::WideCount;

double percent(WideCount part, WideCount whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string start_time(uint64_t unix_ms) {
  const time_t seconds = static_cast<time_t>(unix_ms / 1000);
  tm parts = {};
  if (unix_ms == 0 || ::gmtime_r(&seconds, &parts) == nullptr) return "unknown";
  char text[40];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

// "1 block", "1,234 blocks".
std::string plural(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

// What a person should know about flow, in a sentence.
std::string flow_words(const FlowReport& flow) {
  if (flow.balanced()) {
    return fmt::format("balanced: {} and the entries of {}", plural(flow.blocks_checked, "block"),
                       plural(flow.procedures_checked, "procedure"));
  }
  std::string words = "no equation fails";
  if (flow.faults_total > 0) {
    words = fmt::format("NOT BALANCED: {} violated", plural(flow.faults_total, "equation"));
  }
  if (flow.undetermined_total > 0) {
    words += fmt::format("; {} undetermined, as counts around them are unknown",
                         plural(flow.undetermined_total, "block"));
  }
  return words;
}

std::string block_place(const Profile& profile, const Symbols& symbols, uint32_t id) {
  const profile::Block& block = profile.blocks[id];
  return symbols.address_name(profile.procedures[block.procedure_id].module_id, block.address);
}

// Compilers have command lines of many words; JSON has them in full.
std::string shortened(const std::string& command) {
  constexpr size_t kBytesMax = 80;
  return command.size() <= kBytesMax ? command : command.substr(0, kBytesMax - 3) + "...";
}

// Threads choose their names; none of them may drive the terminal.
std::string printable(std::string name) {
  for (char& c : name) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return name;
}

class TextReport {
  static constexpr size_t kRunsShown = 40;
  static constexpr size_t kThreadsShown = 40;

 public:
  TextReport(const Profile& profile, const Symbols& symbols, const Summary& summary, Output& output)
      : profile_(profile), symbols_(symbols), summary_(summary), output_(output) {}

  void render() {
    run();
    totals();
    flow();
    issues();
    instrumentation();
    if (summary_.runs.size() > 1) runs();
    threads();
    modules();
    procedures();
    blocks();
    for (const std::string& line : summary_.complaints) {
      output_.print("\nNo names or lines from a module: {}\n", line);
    }
  }

 private:
  void fact(std::string_view name, std::string_view value) {
    output_.print("{:<22}{}\n", name, value);
  }

  void section(std::string_view title) {
    output_.write("\n");
    output_.heading(title);
    output_.write("\n");
  }

  void run() {
    const profile::Run& run = profile_.run;
    output_.heading(shell_words(run.command_line));
    if (summary_.runs.size() > 1) {
      output_.print("   (sum of {} runs; --run=N shows one)", with_commas(summary_.runs.size()));
    }
    output_.print("\n{}, {}; {}, placement {}, Tally {}\n\n", ending(run),
                  plural(run.threads, "thread"), start_time(run.start_unix_ms), run.placement,
                  run.tally_version);
  }

  static std::string sources(const std::array<uint64_t, 3>& by_source) {
    return fmt::format("{} measured, {} derived, {} unknown", with_commas(by_source[0]),
                       with_commas(by_source[1]), with_commas(by_source[2]));
  }

  void totals() {
    const uint64_t unknown = summary_.block_sources[static_cast<size_t>(CountSource::kUnknown)];
    fact("Instructions", with_commas(summary_.instructions) + " executed" +
                             (unknown > 0 ? " or more (blocks with unknown counts left out)" : ""));
    fact("Blocks", fmt::format("{} executed of {} known; {}", with_commas(summary_.blocks_executed),
                               with_commas(summary_.blocks), sources(summary_.block_sources)));
    fact("Edges", fmt::format("{} executed of {} known; {}", with_commas(summary_.edges_executed),
                              with_commas(summary_.edges), sources(summary_.edge_sources)));
  }

  void flow() {
    const FlowReport& flow = summary_.flow;
    output_.print("{:<22}", "Flow");
    if (flow.balanced()) {
      output_.good(flow_words(flow));
    } else {
      output_.bad(flow_words(flow));
    }
    output_.write("\n");
    for (const profile::FlowFault& fault : flow.faults) {
      output_.print("  {}\n", describe(profile_, fault));
    }
    if (flow.faults_total > flow.faults.size()) {
      output_.print("  ... and {} more\n", with_commas(flow.faults_total - flow.faults.size()));
    }
    for (uint32_t block : flow.undetermined) {
      output_.print("  undetermined: block {}\n", block_place(profile_, symbols_, block));
    }
    if (flow.undetermined_total > flow.undetermined.size()) {
      output_.print("  ... and {} more\n",
                    with_commas(flow.undetermined_total - flow.undetermined.size()));
    }
  }

  void issues() {
    if (profile_.issues.empty()) {
      fact("Not exact", "nothing known");
      return;
    }
    output_.print("{:<22}", "Not exact");
    output_.bad(plural(profile_.issues.size(), "reason"));
    output_.write("\n");
    for (const profile::Issue& issue : profile_.issues) {
      output_.print("  {}: {} ({})\n", issue.scope, issue.message, with_commas(issue.amount));
    }
  }

  void instrumentation() {
    const profile::Run& run = profile_.run;
    fact("Counters", fmt::format("{} placed, {} increments", with_commas(run.counters),
                                 with_commas(run.counter_increments)));
    fact("Translated", fmt::format("{} instructions into {} bytes of code cache, {} misses",
                                   with_commas(run.instructions_translated),
                                   with_commas(run.code_cache_bytes), with_commas(run.misses)));
    fact("Time", fmt::format("{:.3f} s elapsed; CPU {:.3f} s target, {:.3f} s monitor",
                             run.wall_seconds, run.target_cpu_seconds, run.monitor_cpu_seconds));
    // The free facts of the run are for programs: JSON and `tally dump profile` have them.
  }

  void runs() {
    section("Runs by instructions executed");
    std::vector<const RunLine*> lines;
    for (const RunLine& line : summary_.runs) lines.push_back(&line);
    std::stable_sort(lines.begin(), lines.end(), [](const RunLine* a, const RunLine* b) {
      return a->instructions > b->instructions;
    });
    TableWriter table(output_, Format::kText,
                      {{"instructions", 20},
                       {"share", 6},
                       {"run", 5},
                       {"of", 5},
                       {"begun", -5},
                       {"ended", -10},
                       {"flow", -12},
                       {"command", -1}});
    const size_t shown = std::min(lines.size(), kRunsShown);
    for (size_t i = 0; i < shown; ++i) {
      const RunLine& line = *lines[i];
      table.row({with_commas(line.instructions), share(line.instructions), line.number, line.parent,
                 line.begun, line.ended,
                 !line.balanced     ? "NOT BALANCED"
                 : line.issues == 0 ? "balanced"
                                    : "not exact",
                 shortened(line.command)});
    }
    if (lines.size() > shown) {
      output_.print("  ... and {} more; --format=json lists all\n",
                    with_commas(lines.size() - shown));
    }
  }

  // The threads of runs that had several; what a run of one thread executed is the run's line.
  void threads() {
    std::map<uint32_t, size_t> threads_of;
    for (const profile::Thread& thread : profile_.threads) ++threads_of[thread.run];
    std::vector<const profile::Thread*> lines;
    for (const profile::Thread& thread : profile_.threads) {
      if (threads_of[thread.run] > 1) lines.push_back(&thread);
    }
    if (lines.empty()) return;
    std::stable_sort(lines.begin(), lines.end(),
                     [](const profile::Thread* a, const profile::Thread* b) {
                       return a->instructions > b->instructions;
                     });
    section("Threads by instructions executed");
    TableWriter table(output_, Format::kText,
                      {{"instructions", 20},
                       {"share", 6},
                       {"run", 5},
                       {"tid", 8},
                       {"begun", -6},
                       {"ended", -11},
                       {"name", -1}});
    const size_t shown = std::min(lines.size(), kThreadsShown);
    for (size_t i = 0; i < shown; ++i) {
      const profile::Thread& line = *lines[i];
      table.row({with_commas(line.instructions), share(line.instructions), line.run, line.tid,
                 line.begun, line.ended, printable(line.name)});
    }
    if (lines.size() > shown) {
      output_.print("  ... and {} more; --format=json lists all\n",
                    with_commas(lines.size() - shown));
    }
  }

  void modules() {
    section("Modules by instructions executed");
    TableWriter table(
        output_, Format::kText,
        {{"instructions", 20}, {"share", 6}, {"executed", 9}, {"blocks", 9}, {"module", -1}});
    for (const ModuleTotal& total : summary_.modules) {
      table.row({with_commas(total.instructions), share(total.instructions),
                 with_commas(total.blocks_executed), with_commas(total.blocks),
                 profile_.modules[total.module].path});
    }
  }

  void procedures() {
    section("Hottest procedures");
    TableWriter table(
        output_, Format::kText,
        {{"instructions", 20}, {"share", 6}, {"entries", 16}, {"module", -16}, {"procedure", -1}});
    for (const HotProcedure& hot : summary_.procedures) {
      const profile::Procedure& procedure = profile_.procedures[hot.procedure];
      const bool known = procedure.entries_source != CountSource::kUnknown;
      table.row({with_commas(hot.instructions), share(hot.instructions),
                 known ? with_commas(procedure.entries) : std::string("unknown"),
                 symbols_.module_name(procedure.module_id), with_line(hot.name, hot.line)});
    }
  }

  void blocks() {
    section("Hottest blocks");
    TableWriter table(
        output_, Format::kText,
        {{"instructions", 20}, {"share", 6}, {"count", 16}, {"address", -24}, {"block", -1}});
    for (const HotBlock& hot : summary_.hot_blocks) {
      table.row({with_commas(hot.instructions), share(hot.instructions),
                 with_commas(profile_.blocks[hot.block].count),
                 block_place(profile_, symbols_, hot.block), with_line(hot.name, hot.line)});
    }
  }

  std::string share(WideCount part) const {
    return fmt::format("{:.1f}%", percent(part, summary_.instructions));
  }
  static std::string with_line(const std::string& name, const std::string& line) {
    return line.empty() ? name : name + "  " + line;
  }

  const Profile& profile_;
  const Symbols& symbols_;
  const Summary& summary_;
  Output& output_;
};

using Json = nlohmann::ordered_json;

// A count as a JSON number; nlohmann-json has none wider than 64 bits.
Json wide(WideCount value) {
  if (value >> 64 == 0) return static_cast<uint64_t>(value);
  return fmt::format("{}", value);
}

std::string hex(LinkAddr address) {
  return fmt::format("{:#x}", address.value());
}

Json run_json(const profile::Run& run) {
  Json more = Json::object();
  for (const auto& [name, value] : run.more) more[name] = value;
  return {{"number", run.number},
          {"parent", run.parent},
          {"pid", run.pid},
          {"begun", run.begun},
          {"ended", run.ended},
          {"program", run.program},
          {"command_line", run.command_line},
          {"working_directory", run.working_directory},
          {"host", run.host},
          {"kernel", run.kernel},
          {"cpu", run.cpu},
          {"tally_version", run.tally_version},
          {"placement", run.placement},
          {"start_unix_ms", run.start_unix_ms},
          {"exited", run.exited},
          {"exit_status", run.exit_status},
          {"signal", run.signal},
          {"threads", run.threads},
          {"wall_seconds", run.wall_seconds},
          {"target_cpu_seconds", run.target_cpu_seconds},
          {"monitor_cpu_seconds", run.monitor_cpu_seconds},
          {"counters", run.counters},
          {"counter_increments", run.counter_increments},
          {"code_cache_bytes", run.code_cache_bytes},
          {"instructions_translated", run.instructions_translated},
          {"misses", run.misses},
          {"more", more}};
}

Json totals_json(const Summary& summary) {
  return {{"instructions", wide(summary.instructions)},
          {"blocks", summary.blocks},
          {"blocks_executed", summary.blocks_executed},
          {"blocks_measured", summary.block_sources[0]},
          {"blocks_derived", summary.block_sources[1]},
          {"blocks_unknown", summary.block_sources[2]},
          {"edges", summary.edges},
          {"edges_executed", summary.edges_executed},
          {"edges_measured", summary.edge_sources[0]},
          {"edges_derived", summary.edge_sources[1]},
          {"edges_unknown", summary.edge_sources[2]}};
}

Json flow_json(const Profile& profile, const Symbols& symbols, const FlowReport& flow) {
  Json faults = Json::array();
  for (const profile::FlowFault& fault : flow.faults) faults.push_back(describe(profile, fault));
  Json undetermined = Json::array();
  for (uint32_t block : flow.undetermined) {
    undetermined.push_back(block_place(profile, symbols, block));
  }
  return {{"balanced", flow.balanced()},
          {"blocks_checked", flow.blocks_checked},
          {"procedures_checked", flow.procedures_checked},
          {"faults_total", flow.faults_total},
          {"faults", faults},
          {"undetermined_total", flow.undetermined_total},
          {"undetermined", undetermined}};
}

Json runs_json(const Summary& summary) {
  Json runs = Json::array();
  for (const RunLine& line : summary.runs) {
    runs.push_back({{"number", line.number},
                    {"parent", line.parent},
                    {"pid", line.pid},
                    {"begun", line.begun},
                    {"ended", line.ended},
                    {"command", line.command},
                    {"instructions", wide(line.instructions)},
                    {"balanced", line.balanced},
                    {"issues", line.issues}});
  }
  return runs;
}

Json threads_json(const Profile& profile) {
  Json threads = Json::array();
  for (const profile::Thread& thread : profile.threads) {
    threads.push_back({{"run", thread.run},
                       {"tid", thread.tid},
                       {"name", thread.name},
                       {"begun", thread.begun},
                       {"ended", thread.ended},
                       {"instructions", thread.instructions}});
  }
  return threads;
}

Json report_json(const Profile& profile, const Symbols& symbols, const Summary& summary) {
  Json issues = Json::array();
  for (const profile::Issue& issue : profile.issues) {
    issues.push_back(
        {{"scope", issue.scope}, {"message", issue.message}, {"amount", issue.amount}});
  }
  Json modules = Json::array();
  for (const ModuleTotal& total : summary.modules) {
    const profile::Module& module = profile.modules[total.module];
    modules.push_back({{"path", module.path},
                       {"build_id", module.build_id},
                       {"instructions", wide(total.instructions)},
                       {"blocks", total.blocks},
                       {"blocks_executed", total.blocks_executed}});
  }
  Json procedures = Json::array();
  for (const HotProcedure& hot : summary.procedures) {
    const profile::Procedure& procedure = profile.procedures[hot.procedure];
    procedures.push_back({{"name", hot.name},
                          {"module", profile.modules[procedure.module_id].path},
                          {"entry", hex(procedure.entry)},
                          {"entries", procedure.entries},
                          {"entries_source", to_string(procedure.entries_source)},
                          {"instructions", wide(hot.instructions)},
                          {"line", hot.line}});
  }
  Json blocks = Json::array();
  for (const HotBlock& hot : summary.hot_blocks) {
    const profile::Block& block = profile.blocks[hot.block];
    const uint32_t module = profile.procedures[block.procedure_id].module_id;
    blocks.push_back({{"name", hot.name},
                      {"module", profile.modules[module].path},
                      {"address", hex(block.address)},
                      {"count", block.count},
                      {"source", to_string(block.source)},
                      {"instructions", wide(hot.instructions)},
                      {"line", hot.line}});
  }
  return {{"run", run_json(profile.run)},
          {"runs", runs_json(summary)},
          {"threads", threads_json(profile)},
          {"totals", totals_json(summary)},
          {"flow", flow_json(profile, symbols, summary.flow)},
          {"issues", issues},
          {"modules", modules},
          {"procedures", procedures},
          {"blocks", blocks},
          {"complaints", summary.complaints}};
}

std::string plain(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The JSON flattened: objects of a section are rows named "", members of its lists by their index.
void report_csv(const Json& report, Output& output) {
  TableWriter table(output, Format::kCsv, {{"section"}, {"name"}, {"field"}, {"value"}});
  for (const auto& [section, content] : report.items()) {
    if (content.is_object()) {
      for (const auto& [field, value] : content.items()) {
        table.row({section, "", field, plain(value)});
      }
      continue;
    }
    size_t index = 0;
    for (const Json& member : content) {
      const std::string name = fmt::format("{}", ++index);
      if (!member.is_object()) {
        table.row({section, name, "text", plain(member)});
        continue;
      }
      for (const auto& [field, value] : member.items()) {
        table.row({section, name, field, plain(value)});
      }
    }
  }
  table.finish();
}

}  // namespace

void render_report(const Profile& profile, Symbols& symbols, const Summary& summary, Format format,
                   Output& output) {
  switch (format) {
    case Format::kText:
      TextReport(profile, symbols, summary, output).render();
      return;
    case Format::kJson:
      output.write(report_json(profile, symbols, summary)
                       .dump(2, ' ', false, Json::error_handler_t::replace));
      output.write("\n");
      return;
    case Format::kCsv:
      report_csv(report_json(profile, symbols, summary), output);
      return;
  }
}

}  // namespace tally::report
