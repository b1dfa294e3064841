// See verify.h.
#include "cli/verify.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>

#include "claims/read.h"
#include "cli/time_option.h"
#include "profile/file.h"
#include "report/output.h"
#include "tracee/program.h"
#include "verify/verify.h"

namespace tally::cli {
namespace {

struct Options {
  std::string profile;
  std::string profile_format;
  std::string output;
  std::string format = "text";
  std::string engine;
  std::string children = "follow";
  std::optional<uint32_t> run;
  size_t top = 30;
  bool no_ahead = false;
  bool once = false;
  unsigned runs = verify::VerifyOptions().runs_with_threads;
  double overlap_min = 0.5;
  std::string budget;
  std::string made_by;
};

std::atomic<bool> interrupted{false};

void note_interrupt(int) {
  interrupted.store(true);
}

// The first ^C ends the run and shows what is known; the second one ends us.
void watch_for_interrupt() {
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // no SA_RESTART: the wait has to end
  sigaction(SIGINT, &action, nullptr);
}

// A folder of its own below TMPDIR, gone with us.
class Scratch {
 public:
  Scratch() {
    const char* base = getenv("TMPDIR");
    path_ = std::string(base == nullptr ? "/tmp" : base) + "/tally-verify-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Scratch() {
    if (path_.empty()) return;
    unlink(file().c_str());
    rmdir(path_.c_str());
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  bool ok() const { return !path_.empty(); }
  std::string file() const { return path_ + "/run.tally"; }

 private:
  std::string path_;
};

// What our child does not want to know: it gets what we get (a terminal sends ^C to both, `kill`
// only to us), and when it stays all the same, it has to go.
void end_translation(pid_t pid, int asked) {
  constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGKILL};
  kill(pid, kSignals[std::min<size_t>(static_cast<size_t>(asked), kSignals.size() - 1)]);
}

// Standard error, if it is a terminal, by a descriptor of its own: while the program is run again,
// standard error is another one.  -1: it is none.
int terminal_for_progress() {
  return isatty(2) == 0 ? -1 : fcntl(2, F_DUPFD_CLOEXEC, 10);
}

// Translation cannot be looked at while it runs: what is known is how long a run takes, from the
// one before, or, of our own profiles, from the profile's.
class TranslationProgress {
 public:
  explicit TranslationProgress(double run_seconds)
      : terminal_(terminal_for_progress()), run_seconds_(run_seconds) {}
  bool shows() const { return terminal_ >= 0; }
  void tick(double seconds) {
    if (!shows() || seconds < next_seconds_) return;
    next_seconds_ = seconds + 0.5;
    if (run_seconds_ <= seconds) {
      dprintf(terminal_, "\r\033[Ktally: translated run %u, %.0f s", run_, seconds);
    } else {
      dprintf(terminal_, "\r\033[Ktally: translated run %u, about %.0f%%, %.0f s, %.0f s left",
              run_, 100 * seconds / run_seconds_, seconds, run_seconds_ - seconds);
    }
  }
  void ended(double seconds) {
    ++run_;
    run_seconds_ = seconds;
    next_seconds_ = 0;
  }

 private:
  int terminal_;
  double run_seconds_;
  double next_seconds_ = 0;
  unsigned run_ = 1;
};

// Waits for the child; on ^C asks it to end, and every two seconds more firmly.
int wait_for_translation(pid_t pid, TranslationProgress& progress) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point began = Clock::now();
  constexpr auto kPatience = std::chrono::seconds(2);
  std::optional<Clock::time_point> last;
  int asked = 0;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (interrupted.load() && (!last || Clock::now() - *last > kPatience)) {
      end_translation(pid, asked++);
      last = Clock::now();
    }
    progress.tick(std::chrono::duration<double>(Clock::now() - began).count());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return status;
}

// What a program writes that has a profiler in it (gcov adds to what is there): nowhere.
void keep_profile_as_it_is() {
  setenv("GCOV_PREFIX", "/dev/null", 1);
  setenv("LLVM_PROFILE_FILE", "/dev/null", 1);
}

// The program that made the profile, if it is known.
Status read_maker(const Options& options, claims::ReadOptions read,
                  verify::VerifyOptions& verify_options) {
  if (options.made_by.empty()) return Ok{};
  TRY_ASSIGN(const std::string found, tracee::find_program(options.made_by));
  TRY_ASSIGN(read.program_path, tracee::check_program(found));
  verify::MadeBy maker{.program = options.made_by, .claims = {}};
  auto claims_read = claims::read_claims(options.profile, read);
  if (!claims_read) return make_error("{}", claims_read.error().message);
  maker.claims = std::move(*claims_read);
  verify_options.made_by = std::make_shared<const verify::MadeBy>(std::move(maker));
  return Ok{};
}

// Our own engine, as a child: `tally profile` with the same command.
Result<std::string> translate(const std::string& file, const std::vector<std::string>& command,
                              const std::string& children, const verify::Variation& variation,
                              TranslationProgress& progress, verify::Outcome& outcome) {
  std::vector<std::string> line = {"/proc/self/exe",         "profile", "-o", file,
                                   "--children=" + children, "--"};
  line.insert(line.end(), command.begin(), command.end());
  std::vector<char*> arguments;
  arguments.reserve(line.size() + 1);
  for (std::string& a : line) arguments.push_back(a.data());
  arguments.push_back(nullptr);
  unlink(file.c_str());  // of a run before: it must not be taken for this one's
  const auto began = std::chrono::steady_clock::now();
  const pid_t pid = fork();
  if (pid < 0) return make_error("cannot fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (variation.made_by) keep_profile_as_it_is();
    const verify::Randomization randomization(variation.addresses, variation.upwards());
    execv(arguments[0], arguments.data());
    _exit(125);
  }
  const int status = wait_for_translation(pid, progress);
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  progress.ended(outcome.seconds);
  outcome.exited = WIFEXITED(status);
  outcome.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (interrupted.load()) {
    outcome.complete = false;
    outcome.why_incomplete = "interrupted";
  }
  if (access(file.c_str(), R_OK) != 0) return make_error("the translated run left no profile");
  return file;
}

// Said before the program runs, which may take long.
Status check_output(const Options& options) {
  if (options.output.empty()) return Ok{};
  const bool exists = access(options.output.c_str(), F_OK) == 0;
  const std::string folder = std::filesystem::path(options.output).parent_path();
  const std::string& asked = exists ? options.output : folder.empty() ? "." : folder;
  if (access(asked.c_str(), W_OK) == 0) return Ok{};
  return make_error("{}: cannot be written", options.output);
}

Status write_report(const Options& options, const std::string& text) {
  if (options.output.empty()) {
    return write_to_stderr([&](report::Output& output) -> Status {
      output.write(text);
      return Ok{};
    });
  }
  FILE* file = std::fopen(options.output.c_str(), "w");
  if (file == nullptr) return make_error("{}: cannot be written", options.output);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written)
    return make_error("{}: cannot be written", options.output);
  return Ok{};
}

// On a terminal: which share of the claimed executions is done, and how long the rest may take.
void read_progress(const claims::Claims& claims, verify::WatchOptions& watch) {
  double total = 0;
  for (const claims::BlockClaim& b : claims.blocks) total += static_cast<double>(b.count);
  const int terminal = terminal_for_progress();
  if (terminal < 0) return;
  watch.progress = [total, terminal](uint64_t blocks, double seconds) {
    const double share = total > 0 ? static_cast<double>(blocks) / total : 0;
    if (share <= 0 || share > 1) {
      dprintf(terminal, "\r\033[Ktally: %.0f s, %llu blocks", seconds,
              static_cast<unsigned long long>(blocks));
    } else {
      dprintf(terminal, "\r\033[Ktally: %.1f%% of the run, %.0f s, about %.0f s left", 100 * share,
              seconds, seconds / share - seconds);
    }
  };
}

// How long the profile's own run took; 0: it does not say.
Result<double> profiled_seconds(const Options& options, claims::Form form) {
  if (form != claims::Form::kTally) return 0.0;
  TRY_ASSIGN(const profile::Reader reader, profile::Reader::open(options.profile));
  double longest = 0;
  for (const profile::Run& r : reader.runs()) longest = std::max(longest, r.wall_seconds);
  return longest;
}

Status run(const Options& options, const std::vector<std::string>& command,
           CommandOutcome& outcome) {
  if (command.empty()) {
    return make_error(ErrorKind::kUsage, "verify what? tally verify --profile=FILE -- PROG ARGS");
  }
  if (options.engine == "translate" && !options.budget.empty()) {
    return make_error(ErrorKind::kUsage,
                      "--budget goes with --engine=trap; translation counts everything or nothing");
  }
  TRY(check_output(options));
  claims::ReadOptions read;
  if (!options.profile_format.empty()) read.form = claims::form_named(options.profile_format);
  read.run = options.run;
  TRY_ASSIGN(const std::string found, tracee::find_program(command[0]));
  TRY_ASSIGN(read.program_path, tracee::check_program(found));
  auto claims_read = claims::read_claims(options.profile, read);
  // 127 is for programs.
  if (!claims_read) return make_error("{}", claims_read.error().message);
  const claims::Claims claims = std::move(*claims_read);
  verify::VerifyOptions verify_options;
  TRY(read_maker(options, read, verify_options));
  verify_options.watch.command = command;
  verify_options.second_run = !options.once;
  verify_options.runs_with_threads = options.runs;
  verify_options.overlap_min = options.overlap_min;
  verify_options.watch.follow_children = options.children == "follow";
  verify_options.watch.ahead = !options.no_ahead;
  verify_options.watch.deny_rseq = claims.form == claims::Form::kTally;
  if (!options.budget.empty()) {
    TRY_ASSIGN(const std::chrono::nanoseconds budget, parse_time("--budget", options.budget));
    verify_options.watch.budget_seconds = std::chrono::duration<double>(budget).count();
    // A program that never ends is ended; hot code runs natively meanwhile.
    verify_options.watch.seconds_max = 2 * verify_options.watch.budget_seconds + 10;
  }
  verify_options.watch.interrupted = &interrupted;
  verify_options.run = options.run;
  read_progress(claims, verify_options.watch);
  const bool own = claims.form == claims::Form::kTally;
  // Only traps can be taken out again, so that a budget chooses them.
  const bool trap =
      options.engine.empty() ? own || !options.budget.empty() : options.engine == "trap";
  verify_options.engine = trap ? verify::Engine::kTrap : verify::Engine::kTranslate;
  const Scratch scratch;
  if (!trap && !scratch.ok()) return make_error("cannot make a folder for the run in TMPDIR");
  verify_options.warn = [](const std::string& words) {
    std::fprintf(stderr, "tally: %s\n", words.c_str());
  };
  TRY_ASSIGN(const double seconds, profiled_seconds(options, claims.form));
  TranslationProgress translation_progress(seconds);
  verify_options.translate = [&](const verify::Variation& variation, verify::Outcome& ended) {
    std::vector<std::string> line = command;
    if (variation.made_by) line[0] = options.made_by;
    return translate(scratch.file(), line, options.children, variation, translation_progress,
                     ended);
  };
  watch_for_interrupt();
  TRY_ASSIGN(const verify::Verdict verdict, verify::verify(claims, verify_options));
  if (verify_options.watch.progress || translation_progress.shows()) {
    std::fprintf(stderr, "\r\033[K");
  }
  TRY(write_report(options, options.format == "json"
                                ? verify::render_json(claims, verdict)
                                : verify::render_text(claims, verdict, options.top)));
  if (!verdict.verified) outcome.exit_code = 1;
  return Ok{};
}

}  // namespace

void register_verify(CLI::App& app, std::shared_ptr<CommandOutcome> outcome,
                     const std::vector<std::string>& command) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand(
      "verify", "Run the unmodified program again and say where a profile of it is wrong");
  sub->add_option("--profile", options->profile, "The profile to verify, of whatever tool")
      ->required();
  sub->add_option("--profile-format", options->profile_format,
                  "What the profile is (default: recognised by its content)")
      ->check(CLI::IsMember(claims::form_names()));
  sub->add_option(
         "--engine", options->engine,
         "Who counts: trap (breakpoints in the unmodified program; default for Tally's own "
         "profiles), translate (the code cache; default for those of others)")
      ->check(CLI::IsMember({"trap", "translate"}));
  sub->add_option(
      "--budget", options->budget,
      "How long it may take (60s, 5m), by traps: for half of it everything is followed, then only "
      "what is cold; says which fraction was verified");
  sub->add_option("--made-by", options->made_by,
                  "The build that a compiled-in profiler (gcov, Clang) has counted in: counts that "
                  "this one has itself are not the profile's fault");
  sub->add_option("--overlap-min", options->overlap_min,
                  "What two distributions of samples must have in common")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  sub->add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  sub->add_option("-o,--output", options->output, "Where the report goes (default: stderr)");
  sub->add_option("--run", options->run, "Of a profile of several processes: only this one's run");
  sub->add_option("--children", options->children,
                  "Processes that the program makes: follow (verify them), ignore")
      ->check(CLI::IsMember({"follow", "ignore"}))
      ->capture_default_str();
  sub->add_option("--top", options->top, "How many findings to list")->capture_default_str();
  sub->add_flag("--once", options->once,
                "Never run the program again (which tells what differs by itself, or elsewhere)");
  sub->add_option("--runs", options->runs,
                  "How often a program with threads is run, at most, until a count that differs is "
                  "called wrong")
      ->check(CLI::Range(2U, 1000U))
      ->capture_default_str();
  sub->add_flag("--no-ahead", options->no_ahead,
                "Let the processor execute everything but branches");
  sub->footer(
      "Exit status: 0 verified, 1 wrong, not verified or not done, 2 usage, 125 Tally failed.\n"
      "Examples:\n"
      "  tally verify --profile=gzip.tally -- gzip -9 -c big.txt > /dev/null\n"
      "  tally verify --profile=gzip.tally --budget=60s -o verdict.txt -- gzip -9 -c big.txt\n"
      "  tally verify --profile=callgrind.out.17 -- ./prog args\n"
      "  tally verify --profile=prog.gcov.json.gz --engine=trap --format=json -- ./prog");
  sub->callback([=] { outcome->status = run(*options, command, *outcome); });
}

}  // namespace tally::cli
