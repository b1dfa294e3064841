// See file.h.  The header of the file is read by hand first, because SQLite's own words ("file is
// not a database") do not tell a text file from a profile of a newer Tally.
#include "profile/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>

#include "profile/database.h"
#include "profile/digest.h"
#include "profile/merge.h"
#include "profile/partial_file.h"
#include "profile/run_facts.h"
#include "profile/tables.h"
#include "profile/validate.h"

namespace tally::profile {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int value) : value_(value) {}
  ~FileDescriptor() {
    if (value_ >= 0) ::close(value_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return value_; }
  bool open() const { return value_ >= 0; }

 private:
  int value_;
};

// A file size limit (ulimit -f) sends SIGXFSZ, which would kill us with the profile in hand.  While
// this lives, the limit is an ordinary error of write.
class FileSizeSignalBlock {
 public:
  FileSizeSignalBlock() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~FileSizeSignalBlock() {
    if (sigismember(&before_, SIGXFSZ) == 1) return;
    // Take the signals that our own writes raised before letting others through again.
    const timespec no_wait = {};
    while (sigtimedwait(&signal_, nullptr, &no_wait) == SIGXFSZ) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
  FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

 private:
  sigset_t signal_;
  sigset_t before_;
};

Error cannot_write(const std::string& path, std::string_view why) {
  return make_error("cannot write profile '{}': {}; choose another place with -o", path, why);
}

// Where the bytes go in the end.  A symbolic link is followed, so that it stays a link; a device or
// a folder is never replaced by a file.
Result<std::string> final_path(const std::string& path) {
  struct stat info;
  if (path.empty()) return make_error(ErrorKind::kUsage, "the profile's file name is empty");
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT && ::lstat(path.c_str(), &info) != 0) return path;
    return cannot_write(path, std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return cannot_write(path, "it exists and is not a regular file");
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return cannot_write(path, std::strerror(errno));
  std::string result = resolved;
  ::free(resolved);
  return result;
}

constexpr std::string_view kMagic{"SQLite format 3\0", 16};
constexpr size_t kHeaderBytes = 100;
constexpr size_t kUserVersionOffset = 60;
constexpr size_t kApplicationIdOffset = 68;

uint32_t big_endian_32(const std::array<uint8_t, kHeaderBytes>& bytes, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | bytes[offset + i];
  return value;
}

Status check_header(const std::array<uint8_t, kHeaderBytes>& header) {
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) {
    return make_error("not a Tally profile (nor any SQLite database)");
  }
  if (big_endian_32(header, kApplicationIdOffset) != kApplicationId) {
    return make_error("not a Tally profile (a SQLite database of another application)");
  }
  const uint32_t version = big_endian_32(header, kUserVersionOffset);
  if (version > kFormatVersion) {
    return make_error(
        "profile format {} is newer than this Tally, which reads format {}; use a "
        "newer Tally",
        version, kFormatVersion);
  }
  if (version == 0) return make_error("profile format 0 does not exist; the file is damaged");
  if (version < kFormatVersion) {
    return make_error(
        "profile format {} is older than this Tally, which reads format {}; take a new profile",
        version, kFormatVersion);
  }
  return Ok{};
}

// Checks that `path` is a regular file that begins like a profile; returns its size.
Result<uint64_t> check_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not hang.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (!file.open() || ::fstat(file.get(), &info) != 0)
    return make_error("{}", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return make_error("not a regular file");
  std::array<uint8_t, kHeaderBytes> header;
  const ssize_t got = ::pread(file.get(), header.data(), header.size(), 0);
  if (got < 0) return make_error("{}", std::strerror(errno));
  if (got == 0) return make_error("not a Tally profile (the file is empty)");
  if (static_cast<size_t>(got) < header.size()) {
    return make_error("not a Tally profile (only {} bytes)", got);
  }
  TRY(check_header(header));
  return static_cast<uint64_t>(info.st_size);
}

}  // namespace

// ---- writing -----------------------------------------------------------------------------------

namespace {

// All of the file behind one descriptor, to the beginning of another.
bool copy_file(int from, int to) {
  std::vector<char> buffer(1 << 20);
  off_t at = 0;
  while (true) {
    const ssize_t got = ::pread(from, buffer.data(), buffer.size(), at);
    if (got <= 0) return got == 0;
    for (ssize_t done = 0; done < got;) {
      const ssize_t put =
          ::pwrite(to, buffer.data() + done, static_cast<size_t>(got - done), at + done);
      if (put <= 0) return false;
      done += put;
    }
    at += got;
  }
}

}  // namespace

struct Writer::State {
  std::string path;
  std::unique_ptr<PartialFile> file;
  std::string moved_because;  // empty as long as the file is where it was wanted
  size_t head_bytes = 0;      // of the pages in which the tables begin
  std::optional<BulkWriter> bulk;
  std::vector<StoredRun> runs;
  RowCounts rows;

  State(const std::string& wanted, const std::string& target)
      : path(wanted), file(std::make_unique<PartialFile>(target)) {}

  // Goes on with a copy in another place; its descriptor, or -1 if there is none.
  int move_elsewhere(const std::string& why) {
    if (!moved_because.empty()) return -1;
    const char* wanted = ::getenv("TMPDIR");
    for (const char* folder : {wanted, "/tmp", "/var/tmp"}) {
      if (folder == nullptr || *folder == 0) continue;
      const std::string name = std::filesystem::path(file->target()).filename().string();
      auto copy = std::make_unique<PartialFile>(fmt::format("{}/{}.{}", folder, name, ::getpid()));
      if (copy->create() != 0 || !copy_file(file->descriptor(), copy->descriptor())) continue;
      file = std::move(copy);
      moved_because = why;
      return file->descriptor();
    }
    return -1;
  }
  Status fill();
  Status move_to_target();
};

Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Writer::Writer(Writer&&) noexcept = default;
Writer& Writer::operator=(Writer&&) noexcept = default;
Writer::~Writer() = default;

namespace {

Result<BulkRoots> create_database(const PartialFile& file) {
  TRY_ASSIGN(Database database, Database::open_for_writing(file.name()));
  TRY_ASSIGN(const BulkRoots roots, create_tables(database));
  TRY(database.close());
  return roots;
}

Status fill_database(const PartialFile& file, const std::vector<StoredRun>& runs) {
  TRY_ASSIGN(Database database, Database::open_for_writing(file.name()));
  TRY(write_small_tables(database, runs));
  return database.close();
}

StoredRun stored(Profile profile) {
  StoredRun run;
  run.digest = content_digest(profile);
  for (const Block& block : profile.blocks) {
    for (const PartialRun& partial : block.partial) run.partial_runs.push_back({block.id, partial});
  }
  size_t facts = profile.run.command_line.size() + profile.run.more.size();
  visit_run_facts(profile.run, [&](const char*, const auto&) { ++facts; });
  run.rows = {facts,
              profile.modules.size(),
              profile.procedures.size(),
              profile.blocks.size(),
              run.partial_runs.size(),
              profile.edges.size(),
              profile.abnormal.size(),
              profile.issues.size(),
              profile.threads.size()};
  std::vector<Block>().swap(profile.blocks);
  std::vector<Edge>().swap(profile.edges);
  run.rest = std::move(profile);
  return run;
}

}  // namespace

Result<Writer> Writer::create(const std::string& path) {
  TRY_ASSIGN(const std::string target, final_path(path));
  const FileSizeSignalBlock no_size_signal;
  auto state = std::make_unique<State>(path, target);
  if (const int error = state->file->create()) return cannot_write(path, std::strerror(error));
  auto roots = create_database(*state->file);
  if (!roots) return cannot_write(path, roots.error().message);
  const int descriptor = state->file->descriptor();
  state->head_bytes = static_cast<size_t>(std::max<off_t>(::lseek(descriptor, 0, SEEK_END), 0));
  state->bulk.emplace(descriptor, *roots);
  state->bulk->on_failure(
      [s = state.get()](int error) { return s->move_elsewhere(std::strerror(error)); });
  if (Status opened = state->bulk->open(); !opened) {
    return cannot_write(path, opened.error().message);
  }
  return Writer(std::move(state));
}

Status Writer::add(Profile profile) {
  if (Status valid = validate(profile); !valid) {
    return cannot_write(
        state_->path,
        fmt::format("it would be malformed ({}); this is a bug of Tally", valid.error().message));
  }
  const FileSizeSignalBlock no_size_signal;
  if (Status added = state_->bulk->add(profile, state_->rows); !added) {
    return cannot_write(state_->path, added.error().message);
  }
  state_->runs.push_back(stored(std::move(profile)));
  state_->rows += state_->runs.back().rows;
  return Ok{};
}

// SQLite writes without a journal: when it fails, what it has changed is put back before the next
// attempt.
Status Writer::State::fill() {
  const off_t size = ::lseek(file->descriptor(), 0, SEEK_END);
  std::vector<char> head(head_bytes);
  if (::pread(file->descriptor(), head.data(), head.size(), 0) !=
      static_cast<ssize_t>(head.size())) {
    return make_error("what was written cannot be read");
  }
  Status filled = fill_database(*file, runs);
  if (filled) return filled;
  const bool restored = ::ftruncate(file->descriptor(), size) == 0 &&
                        ::pwrite(file->descriptor(), head.data(), head.size(), 0) ==
                            static_cast<ssize_t>(head.size());
  if (!restored || move_elsewhere(filled.error().message) < 0) return filled;
  return fill_database(*file, runs);
}

Status Writer::State::move_to_target() {
  int error = file->move_to_target();
  if (error != 0 && move_elsewhere(std::strerror(error)) >= 0) error = file->move_to_target();
  if (error != 0) return make_error("{}", std::strerror(error));
  return Ok{};
}

Status Writer::commit() {
  const FileSizeSignalBlock no_size_signal;
  Status written = state_->bulk->finish();
  if (written) written = state_->fill();
  if (written) written = state_->move_to_target();
  if (!written) return cannot_write(state_->path, written.error().message);
  if (state_->moved_because.empty()) return Ok{};
  return make_error("cannot write profile '{}': {}; it is in '{}' instead", state_->path,
                    state_->moved_because, state_->file->target());
}

Status save(const Profile& profile, const std::string& path) {
  TRY_ASSIGN(Writer writer, Writer::create(path));
  TRY(writer.add(profile));
  return writer.commit();
}

// ---- reading -----------------------------------------------------------------------------------

struct Reader::State {
  std::string path;
  Database database;
  StoredRuns index;
  std::vector<Run> runs;
  std::vector<size_t> places;  // in the file, of each of `runs`

  State(const std::string& name, Database opened) : path(name), database(std::move(opened)) {}

  Status read_runs() {
    TRY_ASSIGN(index, read_index(database));
    std::map<uint32_t, std::pair<Run, size_t>> by_number;
    for (size_t i = 0; i < index.rows.size(); ++i) {
      TRY_ASSIGN(Run run, read_facts(database, index, i));
      const uint32_t number = run.number;
      if (!by_number.emplace(number, std::pair(std::move(run), i)).second) {
        return make_error("damaged profile: two runs have the number {}", number);
      }
    }
    for (auto& [number, run] : by_number) {
      runs.push_back(std::move(run.first));
      places.push_back(run.second);
    }
    return Ok{};
  }
};

Reader::Reader(std::unique_ptr<State> state) : state_(std::move(state)) {}
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;
Reader::~Reader() = default;

namespace {

// SQLite's header says how long the file is; what was cut in its middle is shorter.
std::string said_of_length(const std::string& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return {};  // a pipe would have us wait
  std::array<uint8_t, 100> header{};
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(header.data()), header.size())) return {};
  const auto number = [&](size_t at, size_t size) {
    uint64_t value = 0;
    for (size_t i = at; i < at + size; ++i) value = value << 8 | header[i];
    return value;
  };
  constexpr uint64_t kLargestPage = 65536;  // which is written as 1
  const uint64_t page = number(16, 2) == 1 ? kLargestPage : number(16, 2);
  const uint64_t whole = page * number(28, 4);
  const uintmax_t size = std::filesystem::file_size(path, unknown);
  if (unknown || size >= whole) return {};
  return fmt::format("it was cut short, {} of {} bytes are there: ", size, whole);
}

Error cannot_read(const std::string& path, const Error& error) {
  return make_error("cannot read '{}': {}{}", path, said_of_length(path), error.message);
}

}  // namespace

Result<Reader> Reader::open(const std::string& path) {
  const Result<uint64_t> size_bytes = check_file(path);
  if (!size_bytes) return cannot_read(path, size_bytes.error());
  auto database = Database::open_for_reading(path, *size_bytes);
  if (!database) return cannot_read(path, database.error());
  auto state = std::make_unique<State>(path, std::move(*database));
  if (Status read = state->read_runs(); !read) return cannot_read(path, read.error());
  return Reader(std::move(state));
}

const std::vector<Run>& Reader::runs() const {
  return state_->runs;
}

Result<Profile> Reader::read(size_t index) {
  auto profile = read_run(state_->database, state_->index, state_->places[index]);
  if (!profile) return cannot_read(state_->path, profile.error());
  return profile;
}

Result<Profile> load(const std::string& path, std::optional<uint32_t> run_number) {
  TRY_ASSIGN(Reader reader, Reader::open(path));
  Merger merger;
  for (size_t i = 0; i < reader.runs().size(); ++i) {
    if (run_number && reader.runs()[i].number != *run_number) continue;
    TRY_ASSIGN(Profile profile, reader.read(i));
    if (run_number || reader.runs().size() == 1) return profile;
    merger.add(profile);
  }
  if (run_number) {
    return make_error(ErrorKind::kUsage, "'{}' has no run {}; it has {}, from 1 on", path,
                      *run_number, reader.runs().size());
  }
  return merger.result();
}

Status check_writable(const std::string& path) {
  TRY_ASSIGN(const std::string target, final_path(path));
  PartialFile partial(target);
  if (const int error = partial.create()) return cannot_write(path, std::strerror(error));
  return Ok{};
}

}  // namespace tally::profile
