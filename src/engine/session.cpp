// See session.h.
#include "engine/session.h"

#include <fmt/format.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "engine/bell.h"
#include "engine/end_steps.h"
#include "engine/finisher.h"
#include "engine/image_run.h"
#include "engine/service_thread.h"
#include "engine/signal_forwarding.h"
#include "engine/wish.h"
#include "tracee/process.h"
#include "tracee/watch.h"

namespace tally::engine {

using tracee::Event;
using Kind = tracee::EventKind;

namespace {

// Stops us as the command was stopped, for whoever waits for us: the shell.  Returns when we are
// continued.
void stop_by(int number) {
  struct sigaction stop {};
  struct sigaction before {};
  stop.sa_handler = SIG_DFL;
  const bool catchable = sigaction(number, &stop, &before) == 0;
  raise(number);
  if (catchable) sigaction(number, &before, nullptr);
}

// The conductor: receives the events of all threads and hands each to the image run it belongs to.
class Session {
 public:
  Session(pid_t main_pid, const RunOptions& options, Bell& bell)
      : options_(options), main_pid_(main_pid), bell_(bell), finisher_(options.keep) {
    set_check_dump_hook([this](std::ostream& out) {
      for (const auto& [image, owned] : images_) image->dump_state(out);
    });
  }
  ~Session();

  Status run(std::unique_ptr<tracee::Process> process);
  // The same for a process that runs already.
  Status run_attached(EndWishes& wishes);
  const RunResult& result() const { return end_; }

 private:
  ImageRun& begin_image(std::unique_ptr<ImageRun> image, const char* begun, const ImageRun* parent);
  Result<std::optional<Event>> next_event();
  void handle(const Event& event);
  void handle_stop(const Event& event, ImageRun& image);
  void resume(pid_t tid, const ImageRun& image);
  Status step_to_end();
  void look_after_held();
  void thread_born(const Event& event, ImageRun& maker);
  void take_born(pid_t tid, uint64_t flags, pid_t maker_tid, ImageRun& maker);
  Event first_stop_of(pid_t tid);
  void thread_exiting(const Event& event, ImageRun& image);
  void fork_child(pid_t tid, pid_t maker_tid, ImageRun& maker);
  void process_execed(const Event& event);
  pid_t former_tid(const Event& event) const;
  std::optional<std::string> why_not_followed(pid_t pid, const ImageRun& old);
  Status follow_exec(pid_t pid, ImageRun& old);
  void thread_gone(const Event& event);
  void caller_gone(ImageRun& image);
  void finish_if_over(ImageRun& image);
  void group_stopped(const Event& event);
  void stop_with_command(int number);
  void fail(Error error);
  void end_process(pid_t pid, ImageRun& image, const Error& error);
  void look_for_failures();
  void begin_rest();
  bool can_rest(const ImageRun& image) const;
  bool comes_to_rest(const Event& event);
  void go_on_with_rest();
  void end_rest();
  void begin_letting_go();
  void stop_all();
  bool park(const Event& event);
  void let_go_of_parked();

  const RunOptions& options_;
  const pid_t main_pid_;
  KnownFiles files_;
  std::map<ImageRun*, std::unique_ptr<ImageRun>> images_;  // that are not over
  std::map<pid_t, ImageRun*> owner_;                       // of each thread
  std::map<pid_t, Event> early_;  // first stops of threads whose birth is not yet announced
  std::set<pid_t> stopped_;       // threads in a group stop
  // Threads at a stop that others are about to end (ImageRun::is_ending): they are left there until
  // their end is reported, or they are not ended after all.
  struct Held {
    std::optional<Event> signal;  // that is still to be delivered
    std::chrono::steady_clock::time_point since;
  };
  std::map<pid_t, Held> held_;
  uint32_t runs_begun_ = 0;
  bool main_ended_ = false;
  bool letting_go_ = false;  // attached: the end has come, every thread is to be stopped
  std::set<pid_t> parked_;   // ... and these are
  struct Rest {              // all threads of an image are to stand still (renewal.h)
    ImageRun* image = nullptr;
    std::set<pid_t> here;   // stopped in a system call
    std::set<pid_t> asked;  // to be
    std::chrono::steady_clock::time_point until;
    std::optional<pid_t> giver;  // gives memory back, while all others stand still
    std::vector<Event> later;    // what has happened to them meanwhile
  };
  std::optional<Rest> rest_;
  std::set<pid_t> interrupted_;  // whose next stop is one that was asked for
  RunResult end_;
  std::optional<Error> error_;
  Bell& bell_;
  Finisher finisher_;
  ServiceThread service_thread_;
};

Session::~Session() {
  set_check_dump_hook(nullptr);
  service_thread_.stop();
}

ImageRun& Session::begin_image(std::unique_ptr<ImageRun> image, const char* begun,
                               const ImageRun* parent) {
  ImageRun& run = *image;
  run.facts().number = ++runs_begun_;
  run.facts().begun = begun;
  run.facts().parent = parent == nullptr ? 0 : parent->facts().number;
  if (options_.label) options_.label(run.facts());
  run.begin_keeping();
  owner_[run.pid()] = &run;
  if (options_.attach_to) {
    run.service().spare_target(wish_to_end);
  } else if (bell_.works()) {
    run.service().set_rest([this] { bell_.ring(); });
  }
  service_thread_.add(run.service());
  images_.emplace(&run, std::move(image));
  return run;
}

Status Session::run(std::unique_ptr<tracee::Process> process) {
  auto image = std::make_unique<ImageRun>(std::move(process), options_, files_);
  TRY(image->set_up());
  service_thread_.start();
  finisher_.start();
  {
    std::lock_guard lock(service_thread_.mutex());
    ImageRun& run = begin_image(std::move(image), "start", nullptr);
    if (options_.stress_end_steps == 0) run.process().resume(main_pid_);
  }
  if (options_.stress_end_steps != 0) TRY(step_to_end());
  while (!main_ended_ || !owner_.empty()) {
    auto event = next_event();
    if (!event) return event.error();
    std::lock_guard lock(service_thread_.mutex());
    if (*event) handle(**event);
    look_after_held();
    go_on_with_rest();
    begin_rest();
  }
  service_thread_.stop();
  end_.failure = error_;
  return finisher_.finish();
}

// Whatever is not the end of a step ends the stepping, and all goes on as always.
Status Session::step_to_end() {
  TRY_ASSIGN(const auto other, go_steps(main_pid_, owner_.at(main_pid_)->end_steps()));
  std::lock_guard lock(service_thread_.mutex());
  if (other) {
    handle(*other);
  } else {
    kill(main_pid_, SIGKILL);
  }
  return Ok{};
}

Result<std::optional<Event>> Session::next_event() {
  if (held_.empty()) return tracee::wait_for_event_or_signal();
  // That a thread need not be held any longer is no event.
  constexpr useconds_t kLookAgain = 200;
  TRY_ASSIGN(const std::optional<Event> event, tracee::poll_event());
  if (!event) usleep(kLookAgain);
  return event;
}

void Session::handle(const Event& event) {
  held_.erase(event.tid);
  if (event.kind != Kind::kGroupStop) stopped_.erase(event.tid);
  const bool interrupted = interrupted_.erase(event.tid) != 0;
  if (interrupted && event.kind == Kind::kThreadReady) tracee::hide_stop(event.tid);
  if (letting_go_ && park(event)) return;
  if (rest_ && comes_to_rest(event)) return;
  if (event.kind == Kind::kExec) return process_execed(event);
  if (event.kind == Kind::kGone) return thread_gone(event);
  auto it = owner_.find(event.tid);
  if (it == owner_.end()) {
    if (event.kind == Kind::kThreadReady || event.kind == Kind::kGroupStop) {
      early_[event.tid] = event;
    } else {
      tracee::resume(event.tid);
    }
    return;
  }
  handle_stop(event, *it->second);
}

void Session::handle_stop(const Event& event, ImageRun& image) {
  switch (event.kind) {
    case Kind::kThreadBorn:
    case Kind::kForked:
      return thread_born(event, image);
    case Kind::kExiting:
      return thread_exiting(event, image);
    case Kind::kSignal:
      if (image.is_ending(event.tid)) {
        held_[event.tid] = {event, std::chrono::steady_clock::now()};
        return;
      }
      if (auto other = image.signal_stop(event)) handle(*other);
      return;
    case Kind::kGroupStop:
      return group_stopped(event);
    case Kind::kThreadReady:  // continued after a stop
    case Kind::kSystemCall:   // only where tracee/watch.h asked for it
    case Kind::kExec:
    case Kind::kGone:
      return resume(event.tid, image);
    case Kind::kOther:
      return;  // it goes on to its end by itself
  }
}

void Session::resume(pid_t tid, const ImageRun& image) {
  if (!image.is_ending(tid)) return tracee::resume(tid);
  held_[tid] = {std::nullopt, std::chrono::steady_clock::now()};
}

void Session::look_after_held() {
  if (held_.empty()) return;
  // Who should have ended them may itself wait for one of them, in ways that are not for us to
  // know.
  constexpr auto kLongEnough = std::chrono::seconds(1);
  const auto now = std::chrono::steady_clock::now();
  for (const auto& [tid, held] : std::map(held_)) {
    auto it = owner_.find(tid);
    const bool known = it != owner_.end();
    if (known && it->second->is_ending(tid) && now - held.since < kLongEnough) continue;
    held_.erase(tid);
    if (!known) continue;
    if (!held.signal) {
      tracee::resume(tid);
    } else if (auto other = it->second->signal_stop(*held.signal)) {
      handle(*other);
    }
  }
}

// ---- all threads of an image stand still -------------------------------------------------------

// For one image at a time; others ask again.
void Session::begin_rest() {
  constexpr auto kPatience = std::chrono::milliseconds(8);
  for (const auto& [image, owned] : images_) {
    if (!image->service().wants_rest() || (rest_ && rest_->image == image)) continue;
    if (rest_ || !can_rest(*image)) {
      image->service().end_rest();
      service_thread_.ring();
      continue;
    }
    rest_ = Rest{image, {}, {}, std::chrono::steady_clock::now() + kPatience, {}, {}};
    go_on_with_rest();
  }
  if (!rest_) bell_.silence();
}

// Whoever is in the middle of something that must not be disturbed is left alone until another
// time.  Who has children, too: the signal at the end of one, ignored by most, would go to a thread
// that is not stopped, and cut its system call short.
bool Session::can_rest(const ImageRun& image) const {
  return !image.has_vfork_child() && std::ranges::none_of(owner_, [&](const auto& entry) {
    const auto& [tid, owner] = entry;
    return owner == &image &&
           (held_.contains(tid) || stopped_.contains(tid) || tracee::may_have_children(tid));
  });
}

// True when the event is that a thread stands still as it should.
bool Session::comes_to_rest(const Event& event) {
  auto it = owner_.find(event.tid);
  if (it == owner_.end() || it->second != rest_->image) return false;
  if (rest_->giver) {
    if (event.tid == *rest_->giver) {
      end_rest();
      return false;
    }
    rest_->here.erase(event.tid);  // it stands where it is told of later
    rest_->later.push_back(event);
    return true;
  }
  const bool asked = rest_->asked.erase(event.tid) != 0;
  if (event.kind == Kind::kThreadReady) {
    if (asked) rest_->here.insert(event.tid);
    return asked;
  }
  rest_->here.erase(event.tid);
  const bool ends =
      event.kind == Kind::kGroupStop || event.kind == Kind::kExec || event.kind == Kind::kForked;
  if (ends) end_rest();
  return false;
}

// The bell rings as long as it takes: that a thread asks, or waits, is no event.
void Session::go_on_with_rest() {
  if (!rest_) return;
  ImageRun& image = *rest_->image;
  if (rest_->giver) {
    if (!image.service().gives_back()) end_rest();
    return;
  }
  const bool too_long = std::chrono::steady_clock::now() >= rest_->until;
  if (image.has_vfork_child() || too_long) return end_rest();
  const ImageRun::Rest now = image.look_at_rest(rest_->here);
  if (now.is_in_vain) return end_rest();
  if (now.is_complete) {
    auto renewed = image.renew_at_rest(rest_->asked);
    if (renewed && renewed->giver) {
      rest_->giver = renewed->giver;
      return service_thread_.ring();
    }
    if (renewed && renewed->other) rest_->here.erase(renewed->other->tid);
    end_rest();
    if (!renewed) return end_process(image.pid(), image, renewed.error());
    if (renewed->other) handle(*renewed->other);
    return;
  }
  for (const pid_t tid : now.to_stop) {
    if (!rest_->asked.insert(tid).second) continue;
    tracee::interrupt(tid);
    interrupted_.insert(tid);
  }
}

void Session::end_rest() {
  const Rest rest = std::move(*rest_);
  rest_.reset();
  bell_.silence();
  rest.image->service().end_rest();
  service_thread_.ring();  // who was held back is answered, and it may want to look again soon
  for (const pid_t tid : rest.here) resume(tid, *rest.image);
  for (const Event& event : rest.later) handle(event);
}

// ---- job control --------------------------------------------------------------------------------

void Session::group_stopped(const Event& event) {
  tracee::listen(event.tid);
  if (options_.attach_to) return;  // no job of ours
  stopped_.insert(event.tid);
  if (stopped_.contains(main_pid_)) stop_with_command(event.signal);
}

// We are what the shell waits for: when the command's whole job is stopped, so are we.  While one
// process of it still runs, it may be the one that continues the others, and needs us.
void Session::stop_with_command(int number) {
  const pid_t job = getpgid(main_pid_);
  for (const auto& [tid, image] : owner_) {
    if (!stopped_.contains(tid) && getpgid(tid) == job) return;
  }
  stop_by(number);
  // Who continues only us means the command, too.
  constexpr useconds_t kContinuedTogether = 20'000;
  usleep(kContinuedTogether);
  if (tracee::is_stopped(main_pid_)) kill(main_pid_, SIGCONT);
}

// The first error counts; everything that runs is killed, and its end is waited for.
void Session::fail(Error error) {
  if (error_) return;
  error_ = std::move(error);
  if (options_.attach_to) return begin_letting_go();  // not ours to kill
  for (const auto& [image, owned] : images_) {
    image->issue(fmt::format("process {}", image->pid()),
                 fmt::format("was ended by Tally, which could not go on: {}", error_->message));
  }
  for (const auto& [tid, image] : owner_) kill(tid, SIGKILL);
  kill(main_pid_, SIGKILL);
}

// A process that cannot be followed any further is killed; all others go on, unless it is the
// command itself.
void Session::end_process(pid_t pid, ImageRun& image, const Error& error) {
  if (pid == main_pid_ || options_.attach_to) return fail(error);
  kill(pid, SIGKILL);
  image.issue(fmt::format("process {}", pid),
              fmt::format("was ended by Tally, which could not go on with it: {}", error.message));
}

// ---- a process that runs already ----------------------------------------------------------------

Status Session::run_attached(EndWishes& wishes) {
  TRY(tracee::check_attachable(main_pid_));
  TRY_ASSIGN(const std::vector<tracee::SeizedThread> threads, tracee::seize_all(main_pid_));
  const auto give_up = [&](const Error& error) -> Status {
    for (const tracee::SeizedThread& t : threads) tracee::detach(t.tid);
    return error;
  };
  auto process = tracee::Process::adopt(main_pid_);
  if (!process) return give_up(process.error());
  auto image = std::make_unique<ImageRun>(std::move(*process), options_, files_);
  if (Status status = image->attach(threads); !status) {
    image->process().let_go();
    return give_up(status.error());
  }
  service_thread_.start();
  finisher_.start();
  {
    std::lock_guard lock(service_thread_.mutex());
    begin_image(std::move(image), "attach", nullptr);
    ImageRun& run = *images_.begin()->second;
    for (const tracee::SeizedThread& t : threads) {
      owner_[t.tid] = &run;
      if (t.group_stopped) {
        tracee::listen(t.tid);
      } else {
        tracee::resume(t.tid);
      }
    }
    if (options_.attached) options_.attached(run.facts().program, threads.size());
  }
  while (!owner_.empty()) {
    auto event = next_event();
    if (!event) return event.error();
    std::lock_guard lock(service_thread_.mutex());
    if (*event) handle(**event);
    look_after_held();
    look_for_failures();
    if (wishes.is_end_wished() && !letting_go_) begin_letting_go();
    if (letting_go_) {
      let_go_of_parked();
      if (*event) stop_all();
    }
  }
  service_thread_.stop();
  if (error_) return *error_;
  return finisher_.finish();
}

// What cannot go on ends the session; the processes go on natively.
void Session::look_for_failures() {
  for (const auto& [image, owned] : images_) {
    if (auto error = image->service().error()) return fail(*error);
  }
}

void Session::begin_letting_go() {
  letting_go_ = true;
  stop_all();
}

// Any other stop takes the place of the one that is asked for, so this is asked again after each.
// A vfork child is left alone until it execs: its maker cannot be stopped before.
void Session::stop_all() {
  for (const auto& [tid, image] : owner_) {
    if (!parked_.contains(tid) && !image->is_vfork_child(tid)) tracee::interrupt(tid);
  }
}

// True when the event is that a thread stands still, and it may stay so.
bool Session::park(const Event& event) {
  if (event.kind != Kind::kThreadReady && event.kind != Kind::kGroupStop) return false;
  auto it = owner_.find(event.tid);
  if (it == owner_.end() || it->second->is_vfork_child(event.tid)) return false;
  tracee::hide_stop(event.tid);
  parked_.insert(event.tid);
  return true;
}

// Image runs all of whose threads stand still.
void Session::let_go_of_parked() {
  std::vector<ImageRun*> ready;
  for (const auto& [image, owned] : images_) {
    if (image->all_parked(parked_)) ready.push_back(image);
  }
  for (ImageRun* image : ready) {
    auto let_go = image->detach();
    if (let_go && *let_go) {
      // Something happened to a thread on the way; what is left is tried again afterwards.
      const Event other = **let_go;
      parked_.erase(other.tid);
      if (other.kind == Kind::kOther) continue;  // killed: its end is still to be reported
      handle(other);
      continue;
    }
    if (!let_go) {
      if (!error_) {
        error_ = make_error("process {} could not be let go, and was killed: {}", image->pid(),
                            let_go.error().message);
      }
      kill(image->pid(), SIGKILL);
      for (const auto& [tid, owner] : owner_) {
        if (owner == image) parked_.erase(tid);
      }
      continue;
    }
    std::erase_if(owner_, [&](const auto& entry) { return entry.second == image; });
    finish_if_over(*image);
  }
}

// ---- threads and children ----------------------------------------------------------------------

// Nothing if the thread is in none of the system calls that make threads and processes.
std::optional<uint64_t> clone_flags(const tracee::Process& process, const user_regs_struct& regs) {
  uint64_t flags = 0;
  switch (regs.orig_rax) {
    case SYS_clone:
      return regs.rdi;
    case SYS_clone3:
      if (!process.read_memory(TargetAddr(regs.rdi), &flags, sizeof flags)) return 0;
      return flags;
    case SYS_vfork:
      return CLONE_VM | CLONE_VFORK;
    case SYS_fork:
      return 0;
    default:
      return std::nullopt;
  }
}

uint64_t clone_flags(const tracee::Process& process, const Event& event) {
  user_regs_struct regs{};
  if (process.try_registers(event.tid, regs)) return clone_flags(process, regs).value_or(0);
  // Killed at this very stop; what it has made says it nearly as well.
  if (event.vfork) return CLONE_VM | CLONE_VFORK;
  return event.kind == Kind::kForked ? 0 : CLONE_VM | CLONE_THREAD;
}

Event Session::first_stop_of(pid_t tid) {
  if (auto it = early_.find(tid); it != early_.end()) {
    Event first = it->second;
    early_.erase(it);
    return first;
  }
  if (auto waited = tracee::wait_for_event_of(tid)) return *waited;
  // A process that somebody has killed, and whose end was reported before its birth.
  Event gone;
  gone.kind = Kind::kGone;
  gone.tid = tid;
  return gone;
}

void Session::thread_born(const Event& event, ImageRun& maker) {
  take_born(event.new_tid, clone_flags(maker.process(), event), event.tid, maker);
  resume(event.tid, maker);
}

// The child is waited for and taken care of before its maker goes on: until then they share the
// region, and what is known of the maker's memory holds for the child's.
void Session::take_born(pid_t tid, uint64_t flags, pid_t maker_tid, ImageRun& maker) {
  const Event first = first_stop_of(tid);
  if (first.kind != Kind::kThreadReady && first.kind != Kind::kGroupStop) {
    return handle(first);  // killed before it began
  }
  if (flags & CLONE_VM) {
    maker.start_thread(tid, maker_tid, !(flags & CLONE_THREAD));
    owner_[tid] = &maker;
  } else {
    fork_child(tid, maker_tid, maker);
  }
  if (!owner_.contains(tid)) return;
  if (first.kind == Kind::kGroupStop) {
    tracee::listen(tid);
  } else {
    resume(tid, *owner_[tid]);
  }
}

// Who is killed at a birth comes here, and that is never announced.  A thread that was born is
// killed as well, but a process lives.
void Session::thread_exiting(const Event& event, ImageRun& image) {
  user_regs_struct regs{};
  if (image.process().try_registers(event.tid, regs)) {
    const auto flags = clone_flags(image.process(), regs);
    const auto born = static_cast<int64_t>(regs.rax);
    const bool lives = flags && (*flags & CLONE_THREAD) == 0 && born > 0;
    const auto tid = static_cast<pid_t>(born);
    if (lives && !owner_.contains(tid)) take_born(tid, *flags, event.tid, image);
  }
  image.thread_exiting(event);
}

void Session::fork_child(pid_t tid, pid_t maker_tid, ImageRun& maker) {
  if (!options_.follow_children) {
    return maker.release_child(tid, "child processes ran natively and were not counted");
  }
  auto process = tracee::Process::adopt(tid);
  if (!process) return fail(process.error());
  auto image = std::make_unique<ImageRun>(std::move(*process), options_, files_);
  const Status adopted = image->adopt(maker, maker_tid);
  if (adopted) {
    begin_image(std::move(image), "fork", &maker);
    return;
  }
  const bool untouched = image->is_untouched();
  image->process().let_go();
  if (tracee::is_dying(tid)) return;  // it has not run at all
  if (!untouched) {
    kill(tid, SIGKILL);
    return end_process(tid, maker, adopted.error());
  }
  maker.release_child(tid, fmt::format("a child could not be followed and ran natively: {}",
                                       adopted.error().message));
}

// ---- exec --------------------------------------------------------------------------------------

// Of one that was killed in its first instant nobody says who it was; but all other threads of its
// process are gone.
pid_t Session::former_tid(const Event& event) const {
  if (event.former_tid != 0) return event.former_tid;
  for (const auto& [tid, image] : owner_) {
    if (tid != event.tid && image->pid() == event.tid && !image->is_vfork_child(tid)) return tid;
  }
  return event.tid;
}

void Session::process_execed(const Event& event) {
  const pid_t former = former_tid(event);
  auto it = owner_.find(former);
  if (it == owner_.end()) return tracee::resume(event.tid);
  ImageRun& old = *it->second;
  owner_.erase(it);
  old.thread_execed(former);
  if (old.pid() == event.tid) {
    std::erase_if(owner_, [&](const auto& entry) {
      return entry.second == &old && !old.is_vfork_child(entry.first);
    });
    old.replaced();
  }
  if (auto refusal = why_not_followed(event.tid, old)) {
    if (!tracee::is_dying(event.tid)) {
      old.issue(event.tid == main_pid_ ? "the program" : "children", *refusal);
      tracee::detach(event.tid);
    }
  } else if (Status status = follow_exec(event.tid, old); !status) {
    // One that was killed meanwhile has not run at all.
    if (!tracee::is_dying(event.tid)) end_process(event.tid, old, status.error());
  }
  finish_if_over(old);
}

// Only a tracer that may do everything lets the kernel give a program other rights.
bool lost_rights(const std::string& program) {
  struct stat status {};
  if (geteuid() == 0 || stat(program.c_str(), &status) != 0) return false;
  return (status.st_mode & S_ISUID) != 0 ||
         ((status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0);
}

std::optional<std::string> Session::why_not_followed(pid_t pid, const ImageRun& old) {
  if (!options_.follow_children && pid != main_pid_) {
    return "child processes ran natively and were not counted";
  }
  const std::string program = tracee::executable_path(pid);
  if (old.is_filtered()) {
    return fmt::format(
        "became {}, which ran natively and was not counted: the seccomp filter that it inherited "
        "judges the system calls that Tally would make in it",
        program);
  }
  auto elf = files_.open(program);
  if (elf) return std::nullopt;
  return fmt::format("became {}, which ran natively and was not counted: {}", program,
                     elf.error().message);
}

Status Session::follow_exec(pid_t pid, ImageRun& old) {
  TRY_ASSIGN(std::unique_ptr<tracee::Process> process, tracee::Process::adopt(pid));
  auto image = std::make_unique<ImageRun>(std::move(process), options_, files_);
  image->service().inherit_limit(old.service().limit_added_bytes());
  Status status = tracee::Process::finish_exec(pid);
  if (status) status = image->set_up();
  if (!status) {
    image->process().let_go();
    return status;
  }
  ImageRun& run = begin_image(std::move(image), "exec", &old);
  if (lost_rights(run.facts().program)) {
    run.issue(
        "rights",
        "this program is set-uid or set-gid and ran without the rights of its owner, since it "
        "was traced");
  }
  run.process().resume(pid);
  return Ok{};
}

// ---- the end -----------------------------------------------------------------------------------

void Session::thread_gone(const Event& event) {
  if (event.tid == main_pid_) {
    end_ = {event.exited, event.exit_status, event.signal, std::nullopt};
    main_ended_ = true;
    SignalForwarding::end();
  }
  early_.erase(event.tid);
  parked_.erase(event.tid);
  if (rest_) rest_->here.erase(event.tid);
  auto it = owner_.find(event.tid);
  if (it == owner_.end()) return;
  ImageRun& image = *it->second;
  owner_.erase(it);
  if (event.tid == image.pid()) caller_gone(image);
  image.thread_gone(event);
  finish_if_over(image);
}

// A process is gone when all its threads are.  Of one in the middle of execve, when the kernel has
// ended the others already, nothing is reported: it has taken the process' number.
void Session::caller_gone(ImageRun& image) {
  std::erase_if(owner_, [&](const auto& entry) {
    const auto& [tid, owner] = entry;
    if (owner != &image || image.is_vfork_child(tid)) return false;
    image.thread_execed(tid);
    return true;
  });
}

void Session::finish_if_over(ImageRun& image) {
  if (!image.is_over()) return;
  if (rest_ && rest_->image == &image) end_rest();
  if (auto error = image.service().error()) end_process(image.pid(), image, *error);
  service_thread_.remove(image.service());
  auto it = images_.find(&image);
  CHECK(it != images_.end()) << "an image run ended twice";
  std::unique_ptr<ImageRun> owned = std::move(it->second);
  images_.erase(it);
  // What was counted until an error is kept, but of a process that goes on natively.
  if (!error_ || !options_.attach_to) finisher_.add(std::move(owned));
}

}  // namespace

Result<RunResult> run_attached(const RunOptions& options) {
  Bell bell;
  EndWishes wishes(bell, options.duration);
  Session session(*options.attach_to, options, bell);
  TRY(session.run_attached(wishes));
  return RunResult{};
}

Result<RunResult> run(const RunOptions& options) {
  if (options.attach_to) return run_attached(options);
  TRY_ASSIGN(std::unique_ptr<tracee::Process> process, tracee::Process::spawn(options.command));
  // ^C reaches the whole foreground group: it is for the target, and we follow when it goes.  Sent
  // to us alone, it is handed on.
  const SignalForwarding forwarding(process->pid());
  Bell bell;
  Session session(process->pid(), options, bell);
  const Status status = session.run(std::move(process));
  if (!status) return status.error();
  return session.result();
}

}  // namespace tally::engine
