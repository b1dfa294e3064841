// See descriptors.h.
#include "verify/descriptors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "profile/file.h"

namespace tally::verify {
namespace {

constexpr std::array kFacts = {"standard_input", "standard_output", "standard_error"};
constexpr std::array kNames = {"standard input", "standard output", "standard error"};

// "regular file, 12 bytes, at 0" -> "a regular file, 12 bytes, at 0".
std::string with_article(const std::string& words) {
  const bool none = words.starts_with('/') || words == "closed" || words == "other";
  return none ? words : "a " + words;
}

// A file without a name, where the one that it stands for lies if that can be: what is copied
// within a file system is copied otherwise.
int nameless_file(int fd, int access) {
  std::error_code error;
  const auto named = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", fd), error);
  const char* scratch = getenv("TMPDIR");
  std::vector<std::string> folders = {".", scratch == nullptr ? "/tmp" : scratch};
  struct stat status {};
  if (!error && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    folders.insert(folders.begin(), named.parent_path().string());
  }
  for (const std::string& folder : folders) {
    const int file = open(folder.c_str(), O_TMPFILE | access | O_CLOEXEC, 0600);
    if (file >= 0) return file;
  }
  return memfd_create("tally-verify", MFD_CLOEXEC);
}

int file_like(int fd, const Descriptor& wanted) {
  const int file = nameless_file(fd, fd == 0 ? O_RDWR : O_WRONLY);
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(wanted.size_bytes)) != 0 ||
      lseek(file, static_cast<off_t>(wanted.offset), SEEK_SET) < 0 ||
      fcntl(file, F_SETFL, wanted.appends ? O_APPEND : 0) != 0) {
    close(file);
    return -1;
  }
  return file;
}

}  // namespace

// Empties what the program writes to, or fills what it reads from, in a thread of its own.
class Redirection::Mover {
 public:
  Mover(int from, int to) : from_(from), to_(to) {
    if (pipe2(stop_.data(), O_CLOEXEC) != 0) stop_ = {-1, -1};
    // Signals are for the thread that waits for the program.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { move(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  // The program's ends are closed by now, but for those that a child of it still has.
  ~Mover() {
    close(stop_[1]);
    thread_.join();
    close(stop_[0]);
    close(from_);
    if (to_ >= 0) close(to_);
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

 private:
  // False: it is over.
  bool wait_for(int fd, int16_t what) const {
    std::array<pollfd, 2> asked = {{{fd, what, 0}, {stop_[0], POLLIN, 0}}};
    poll(asked.data(), asked.size(), -1);
    return asked[1].revents == 0;
  }
  void move() {
    std::array<char, 65536> bytes{};
    while (to_ >= 0 || wait_for(from_, POLLIN)) {
      const ssize_t size = read(from_, bytes.data(), bytes.size());
      if (size <= 0) return close_to();
      for (ssize_t done = 0; to_ >= 0 && done < size;) {
        if (!wait_for(to_, POLLOUT)) return;
        const auto left = static_cast<size_t>(size - done);
        const ssize_t written = write(to_, bytes.data() + done, left);
        if (written < 0 && errno != EAGAIN) return;
        if (written > 0) done += written;
      }
    }
  }
  // Whoever reads finds the end.
  void close_to() {
    if (to_ < 0) return;
    close(to_);
    to_ = -1;
  }

  int from_;
  int to_;  // negative: thrown away
  std::array<int, 2> stop_{};
  std::thread thread_;
};

int Redirection::moved(size_t number, int inner, int outer) {
  if (number != 0) {
    movers_.push_back(std::make_unique<Mover>(outer, -1));
    return inner;
  }
  // A description of its own, so that the file stays where it stands.
  const off_t offset = lseek(0, 0, SEEK_CUR);
  const int from = open("/proc/self/fd/0", O_RDONLY | O_CLOEXEC);
  if (from < 0 || lseek(from, std::max<off_t>(0, offset), SEEK_SET) < 0) return -1;
  fcntl(outer, F_SETFL, O_NONBLOCK);
  movers_.push_back(std::make_unique<Mover>(from, outer));
  return inner;
}

int Redirection::make(size_t number, const Descriptor& wanted) {
  std::array<int, 2> ends = {-1, -1};
  switch (wanted.kind) {
    case DescriptorKind::kFile:
      return file_like(static_cast<int>(number), wanted);
    case DescriptorKind::kNull:
      return open("/dev/null", (number == 0 ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    case DescriptorKind::kPipe:
      if (pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
      return number == 0 ? moved(number, ends[0], ends[1]) : moved(number, ends[1], ends[0]);
    case DescriptorKind::kSocket:
      if (number == 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return -1;
      }
      return moved(number, ends[1], ends[0]);
    case DescriptorKind::kTerminal: {
      winsize size{};
      size.ws_row = static_cast<uint16_t>(wanted.rows);
      size.ws_col = static_cast<uint16_t>(wanted.columns);
      if (number == 0 || openpty(&ends[0], &ends[1], nullptr, nullptr, &size) != 0) return -1;
      for (const int fd : ends) fcntl(fd, F_SETFD, FD_CLOEXEC);
      return moved(number, ends[1], ends[0]);
    }
    default:
      return -1;
  }
}

Redirection::Redirection(const Wanted& wanted) {
  for (size_t i = 0; i < wanted.size() && ok_; ++i) {
    if (!wanted[i]) continue;
    const int target = make(i, *wanted[i]);
    const int fd = static_cast<int>(i);
    if (target >= 0) saved_[i] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    ok_ = target >= 0 && saved_[i] >= 0 && dup2(target, fd) == fd;
    if (target >= 0) close(target);
  }
}

Redirection::~Redirection() {
  for (size_t i = 0; i < saved_.size(); ++i) {
    if (saved_[i] < 0) continue;
    dup2(saved_[i], static_cast<int>(i));
    close(saved_[i]);
  }
}

Descriptors::Descriptors(const claims::Claims& claims) {
  for (size_t i = 0; i < now_.size(); ++i) now_[i] = tracee::descriptor_of(static_cast<int>(i));
  if (claims.form != claims::Form::kTally) return;
  auto reader = profile::Reader::open(claims.file);
  if (!reader || reader->runs().empty()) return;
  for (const auto& [name, words] : reader->runs().front().more) {
    for (size_t i = 0; i < kFacts.size(); ++i) {
      if (name == kFacts[i]) then_[i] = Descriptor::parse(words);
    }
  }
  known_ = then_[1].kind != DescriptorKind::kUnknown;
}

bool Descriptors::is_alike(size_t number) const {
  const Descriptor& then = then_[number];
  const Descriptor& now = now_[number];
  if (then.kind == DescriptorKind::kUnknown) return true;
  if (then.kind != now.kind) return false;
  if (then.kind != DescriptorKind::kFile) return true;
  if (number != 0) return then.appends == now.appends;
  return then.size_bytes == now.size_bytes && then.offset == now.offset;
}

// Whether what it was can be had without knowing more.
bool Descriptors::can_be_had(size_t number) const {
  const DescriptorKind then = then_[number].kind;
  if (now_[number].kind == DescriptorKind::kClosed) return false;
  if (number == 0) {
    const bool from_file = now_[0].kind == DescriptorKind::kFile;
    if (then == DescriptorKind::kFile) return then_[0].size_bytes == 0;
    return then == DescriptorKind::kNull || (then == DescriptorKind::kPipe && from_file);
  }
  return then == DescriptorKind::kFile || then == DescriptorKind::kNull ||
         then == DescriptorKind::kPipe || then == DescriptorKind::kSocket ||
         then == DescriptorKind::kTerminal;
}

bool Descriptors::is_had_from_the_start(size_t number) const {
  return now_[number].kind == DescriptorKind::kNull && !is_alike(number) && can_be_had(number);
}

Wanted Descriptors::for_first_run() const {
  Wanted wanted;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (is_had_from_the_start(i)) wanted[i] = then_[i];
  }
  return wanted;
}

std::optional<Wanted> Descriptors::as_then() const {
  Wanted wanted = for_further_run();
  bool other = false;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (is_alike(i) || is_had_from_the_start(i) || !can_be_had(i)) continue;
    wanted[i] = then_[i];
    other = true;
  }
  if (!other) return std::nullopt;
  return wanted;
}

Wanted Descriptors::for_further_run() const {
  Wanted wanted = for_first_run();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) continue;
    if (as_then_ && !is_alike(i) && can_be_had(i)) {
      wanted[i] = then_[i];
    } else if (i != 0 && now_[i].kind != DescriptorKind::kClosed) {
      wanted[i] = now_[i];
    }
  }
  return wanted;
}

Wanted Descriptors::with_other_output(size_t attempt, std::string& words) const {
  constexpr std::array kKinds = {DescriptorKind::kFile, DescriptorKind::kNull,
                                 DescriptorKind::kPipe};
  Wanted wanted = for_further_run();
  std::vector<DescriptorKind> others;
  for (const DescriptorKind kind : kKinds) {
    if (kind != now_[1].kind) others.push_back(kind);
  }
  if (!wanted[1] || others.empty()) return wanted;
  wanted[1] = Descriptor{.kind = others[(attempt - 1) % others.size()]};
  words = with_article(to_string(wanted[1]->kind));
  return wanted;
}

bool Descriptors::is_made(size_t number) const {
  return is_had_from_the_start(number) || (as_then_ && !is_alike(number) && can_be_had(number));
}

// Of output the kind matters, of input how much there is.
std::string Descriptors::difference(size_t number) const {
  const auto words = [&](const Descriptor& d) {
    const std::string kind = to_string(d.kind);
    return with_article(number == 0 ? d.words() : d.appends ? kind + ", appended to" : kind);
  };
  return fmt::format("{} was {} when the profile was taken, and is {} now", kNames[number],
                     words(then_[number]), words(now_[number]));
}

std::string Descriptors::made_alike() const {
  std::string text;
  for (size_t i = 0; i < now_.size(); ++i) {
    if (is_made(i)) text += (text.empty() ? "" : "; ") + difference(i);
  }
  return text;
}

std::string Descriptors::unlike(bool with_input) const {
  std::string text;
  for (size_t i = with_input ? 0 : 1; i < now_.size(); ++i) {
    if (is_alike(i) || is_made(i)) continue;
    text += (text.empty() ? "" : "; ") + difference(i);
  }
  return text;
}

std::string Descriptors::warning() const {
  std::string text;
  for (size_t i = 0; i < now_.size(); ++i) {
    const bool hardly_read = i == 0 && then_[i].kind == DescriptorKind::kTerminal;
    if (is_alike(i) || can_be_had(i) || hardly_read) continue;
    text += (text.empty() ? "" : "; ") + difference(i);
  }
  return text.empty() ? text : text + ": counts that depend on it differ; give it the same";
}

bool Descriptors::input_usable() const {
  const DescriptorKind kind = now_[0].kind;
  return kind == DescriptorKind::kClosed || kind == DescriptorKind::kFile ||
         kind == DescriptorKind::kNull || kind == DescriptorKind::kDevice ||
         for_further_run()[0].has_value();
}

void Descriptors::rewind() const {
  if (now_[0].kind != DescriptorKind::kFile) return;
  lseek(0, static_cast<off_t>(now_[0].offset), SEEK_SET);
}

}  // namespace tally::verify
