// See profile.h.
#include "cli/profile.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/issue_names.h"
#include "cli/time_option.h"
#include "elf/image.h"
#include "engine/session.h"
#include "ledger/keeper.h"
#include "profile/file.h"
#include "tracee/attach.h"
#include "tracee/process.h"
#include "tracee/program.h"

namespace tally::cli {
namespace {

struct Options {
  std::string output;
  std::string placement = "edges";
  std::string children = "follow";
  bool verbose = false;
  std::optional<pid_t> pid;
  std::string duration;
  std::string keep_counters;
  std::vector<std::string> no_opt;
  bool stress_renewal = false;
  bool stress_defer = false;
  bool stress_index = false;
  uint64_t stress_end_steps = 0;
};

// Weights of another build would put counters at random: exact all the same, but not what was
// meant.
Status check_feedback(const profile::Profile& feedback, const std::string& program) {
  const auto main = std::ranges::find(feedback.modules, true, &profile::Module::main_program);
  if (main == feedback.modules.end()) {
    return make_error("--placement=feedback: the profile names no main program");
  }
  TRY_ASSIGN(const std::string path, tracee::find_program(program));
  TRY_ASSIGN(const std::string file, tracee::check_program(path));
  TRY_ASSIGN(const std::shared_ptr<elf::Image> image, elf::Image::open(file));
  // Without build-ids, the same file of the same size must do; one that has just vanished is not.
  std::error_code gone;
  const std::string real = std::filesystem::canonical(file, gone).string();
  const auto size_bytes = std::filesystem::file_size(file, gone);
  const bool same_file =
      image->build_id().empty() && main->path == real && main->size_bytes == size_bytes;
  const bool same = main->build_id.empty() ? same_file : main->build_id == image->build_id();
  if (same) return Ok{};
  const auto shown = [](const std::string& id) { return id.empty() ? "none" : id.c_str(); };
  return make_error(
      "--placement=feedback: the profile is of another build ({}, build-id {}) than {} (build-id "
      "{}); take a new profile first",
      main->path, shown(main->build_id), file, shown(image->build_id()));
}

Status choose_placement(const std::string& text, engine::RunOptions& run) {
  static constexpr std::string_view kFeedback = "feedback=";
  if (text == "blocks") {
    run.placement = engine::PlacementKind::kBlocks;
  } else if (text == "edges") {
    run.placement = engine::PlacementKind::kEdges;
  } else if (text == "none") {
    run.placement = engine::PlacementKind::kNone;
  } else if (text.starts_with(kFeedback)) {
    TRY_ASSIGN(run.feedback, profile::load(text.substr(kFeedback.size())));
    TRY(check_feedback(*run.feedback, run.attach_to ? fmt::format("/proc/{}/exe", *run.attach_to)
                                                    : run.command[0]));
    run.placement = engine::PlacementKind::kFeedback;
  } else {
    return make_error(ErrorKind::kUsage,
                      "--placement={}: must be edges, blocks, feedback=FILE or none", text);
  }
  return Ok{};
}

Status switch_off(const std::vector<std::string>& names, engine::RunOptions& run) {
  for (const std::string& name : names) {
    if (run.optimizations.switch_off(name)) continue;
    return make_error(ErrorKind::kUsage, "--no-opt={}: must be one of {}", name,
                      fmt::join(engine::kOptimizationNames, ", "));
  }
  return Ok{};
}

// Where runs leave what the next run of the same program is likely to need.
engine::RecallFolder recall_folder() {
  if (const char* folder = std::getenv("TALLY_CACHE")) return engine::RecallFolder(folder);
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/') {
    return engine::RecallFolder(fmt::format("{}/tally", cache));
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return {};
  return engine::RecallFolder(fmt::format("{}/.cache/tally", home));
}

// A command, or a process that runs already.
Status choose_target(const Options& options, engine::RunOptions& run) {
  if (!options.pid) {
    if (!options.duration.empty()) {
      return make_error(ErrorKind::kUsage, "profile: --duration goes with --pid");
    }
    if (!run.command.empty()) return Ok{};
    return make_error(ErrorKind::kUsage, "profile: no program given; try `tally profile -- ls`");
  }
  if (!run.command.empty()) {
    return make_error(ErrorKind::kUsage, "profile: --pid takes no program");
  }
  if (*options.pid <= 0) {
    return make_error(ErrorKind::kUsage, "profile: --pid={}: not a process", *options.pid);
  }
  if (!options.duration.empty()) {
    TRY_ASSIGN(run.duration, parse_time("--duration", options.duration));
  }
  if (!options.keep_counters.empty()) {
    return make_error(ErrorKind::kUsage,
                      "profile: --keep-counters takes a program, it does not work with --pid");
  }
  run.attach_to = options.pid;
  TRY(tracee::check_attachable(*options.pid));
  const bool talk = options.verbose || isatty(STDERR_FILENO) == 1;
  const bool endless = options.duration.empty();
  run.attached = [talk, endless](const std::string& program, size_t threads) {
    if (!talk) return;
    std::fprintf(stderr, "tally: counting %s (%zu thread%s)%s\n", program.c_str(), threads,
                 threads == 1 ? "" : "s", endless ? "; ^C lets it go" : "");
  };
  return Ok{};
}

Status run(const Options& options, const std::vector<std::string>& command,
           CommandOutcome& outcome) {
  engine::RunOptions run_options;
  run_options.command = command;
  TRY(choose_target(options, run_options));
  TRY(choose_placement(options.placement, run_options));
  TRY(switch_off(options.no_opt, run_options));
  run_options.stress_renewal = options.stress_renewal;
  run_options.stress_defer = options.stress_defer;
  run_options.stress_index = options.stress_index;
  run_options.stress_end_steps = options.stress_end_steps;
  run_options.recall = recall_folder();
  if (run_options.placement == engine::PlacementKind::kNone && !options.keep_counters.empty()) {
    return make_error(ErrorKind::kUsage, "--placement=none counts nothing that could be kept");
  }
  std::string output = options.output;
  if (output.empty()) {
    output = default_output(options.pid ? tracee::executable_path(*options.pid) : command[0]);
  }
  // Better to learn now than after an hour that the profile cannot be kept.
  TRY_ASSIGN(profile::Writer writer, profile::Writer::create(output));
  std::unique_ptr<engine::Keeper> keeper;
  if (!options.keep_counters.empty()) {
    TRY_ASSIGN(keeper, engine::Keeper::create(options.keep_counters));
    run_options.keeper = keeper.get();
  }
  IssueNames names;
  run_options.follow_children = options.children == "follow";
  run_options.label = [&](profile::Run& facts) {
    facts.tally_version = TALLY_VERSION;
    facts.placement = options.placement.substr(0, options.placement.find('='));
  };
  run_options.keep = [&](profile::Profile profile) {
    names.add(profile);
    return writer.add(std::move(profile));
  };
  TRY_ASSIGN(engine::RunResult result, engine::run(run_options));
  if (!result.failure) names.print();
  TRY(writer.commit());
  if (keeper) keeper->remove_all();
  if (result.failure) {
    return make_error("{}; what was counted until then is in {}", result.failure->message, output);
  }
  if (options.verbose) std::fprintf(stderr, "tally: profile written to %s\n", output.c_str());
  outcome.exit_code = result.exit_status;
  outcome.signal = result.exited ? 0 : result.signal;
  return Ok{};
}

}  // namespace

void register_profile(CLI::App& app, std::shared_ptr<CommandOutcome> outcome,
                      const std::vector<std::string>& command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub =
      app.add_subcommand("profile", "Run a program and count every block and edge, exactly");
  sub->add_option("-o,--output", options->output, "Profile to write (default: PROGRAM.tally)");
  sub->add_option("--placement", options->placement,
                  "Where counters go: edges (outside a maximum spanning tree), blocks (in every "
                  "block), feedback=FILE (weights from an earlier profile), none (nothing is "
                  "counted: what translating alone costs)")
      ->capture_default_str();
  sub->add_option(
         "--children", options->children,
         "Processes that the program makes: follow (count them), ignore (they run natively)")
      ->check(CLI::IsMember({"follow", "ignore"}))
      ->capture_default_str();
  sub->add_option("--pid", options->pid,
                  "Count a process that runs already, instead of a program; it goes on natively "
                  "afterwards");
  sub->add_option("--duration", options->duration,
                  "With --pid: for how long (10s, 500ms, 2m); without it, until ^C");
  sub->add_option("--keep-counters", options->keep_counters,
                  "Keep what is counted in this file meanwhile; should Tally be killed, `tally "
                  "recover FILE` makes a profile of it")
      ->option_text("FILE");
  sub->add_option(
         "--no-opt", options->no_opt,
         fmt::format("Do without something that makes runs faster and changes no count, to "
                     "find a fault: {}; several with commas",
                     fmt::join(engine::kOptimizationNames, ", ")))
      ->delimiter(',')
      ->option_text("NAME");
  // For tests (docs/hacking.md); nobody else gains by it.
  sub->add_flag("--stress-renewal", options->stress_renewal)->group("");
  sub->add_flag("--stress-defer", options->stress_defer)->group("");
  sub->add_flag("--stress-index", options->stress_index)->group("");
  sub->add_option("--stress-end", options->stress_end_steps)->group("");
  sub->add_flag("-v,--verbose", options->verbose, "Say where the profile was written");
  sub->footer(
      "The target's output, input and exit status pass through unchanged.\n"
      "Examples:\n"
      "  tally profile -- gzip -9 -c big.txt > /dev/null\n"
      "  tally profile -o lua.tally --placement=blocks -- lua5.4 fannkuch.lua 9\n"
      "  tally profile --placement=feedback=gzip.tally -- gzip -9 -c big.txt > /dev/null\n"
      "  tally profile --pid=4242 --duration=10s -o server.tally");
  sub->callback([=] { outcome->status = run(*options, command, *outcome); });
}

// gzip -> gzip.tally, in the current folder.
std::string default_output(const std::string& program) {
  const size_t slash = program.find_last_of('/');
  return (slash == std::string::npos ? program : program.substr(slash + 1)) + ".tally";
}

SplitCommandLine split_command_line(const std::vector<std::string>& arguments,
                                    const std::vector<std::string>& subcommands) {
  SplitCommandLine split;
  if (arguments.empty()) return split;
  const std::string& first = arguments[0];
  const bool known = std::find(subcommands.begin(), subcommands.end(), first) != subcommands.end();
  if (!known && !first.empty() && first[0] != '-') {
    split.ours = {"profile"};
    split.command = arguments;
    return split;
  }
  if (first == "--") {
    split.ours = {"profile"};
    split.command.assign(arguments.begin() + 1, arguments.end());
    return split;
  }
  if (first == "verify") {
    const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
    split.ours.assign(arguments.begin(), dashes);
    if (dashes != arguments.end()) split.command.assign(dashes + 1, arguments.end());
    return split;
  }
  if (first != "profile") {
    split.ours = arguments;
    return split;
  }
  size_t i = 0;
  split.ours.push_back(arguments[i++]);
  while (i < arguments.size()) {
    const std::string& a = arguments[i];
    if (a == "--") {
      ++i;
      break;
    }
    if (a.empty() || a[0] != '-') break;
    split.ours.push_back(a);
    ++i;
    const bool takes_value = a == "-o" || a == "--output" || a == "--placement" ||
                             a == "--no-opt" || a == "--children" || a == "--pid" ||
                             a == "--duration" || a == "--keep-counters";
    if (takes_value && i < arguments.size()) split.ours.push_back(arguments[i++]);
  }
  split.command.assign(arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
  return split;
}

}  // namespace tally::cli
