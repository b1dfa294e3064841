// See recall.h.  The file: magic, version, six counted lists, returns, whether code was alike, and
// a digest of all before it.
#include "cache/recall.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/bytes.h"
#include "cache/record_bytes.h"

namespace tally::engine {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMagic = 0x6c6c61636572'5954;  // "TYrecall"
// Another number whenever discovery or the file changes so that old guesses are worth nothing.
constexpr uint32_t kVersion = 6;
constexpr uint8_t kConfirmed = 0x80;  // beside at most 64 bits
constexpr const char* kSuffix = ".recall";
constexpr const char* kProceduresSuffix = ".found";

uint64_t digest_of(std::span<const uint8_t> bytes) {
  uint64_t digest = 0xcbf29ce484222325;  // FNV-1a
  for (const uint8_t byte : bytes) digest = (digest ^ byte) * 0x100000001b3;
  return digest;
}

// A build-id becomes part of a file's name.
bool is_plain(const std::string& build_id) {
  return !build_id.empty() && build_id.size() <= RecallFolder::kBuildIdBytesMax &&
         build_id.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Counts are believed only as far as bytes go.
template <class T>
void read_list(ByteReader& reader, std::vector<T>& list, T (*read)(ByteReader&)) {
  for (uint32_t n = reader.u32(); n > 0 && reader.ok(); --n) list.push_back(read(reader));
}

Recollection::Asked read_asked(ByteReader& reader) {
  Recollection::Asked asked;
  asked.module = reader.u32();
  asked.how = reader.u8();
  asked.address = reader.u64();
  return asked;
}

Recollection::Entered read_entered(ByteReader& reader) {
  Recollection::Entered entered;
  entered.module = reader.u32();
  entered.block = reader.u64();
  return entered;
}

Recollection::Led read_led(ByteReader& reader) {
  Recollection::Led led;
  led.module = reader.u32();
  led.to_module = reader.u32();
  led.block = reader.u64();
  led.to = reader.u64();
  return led;
}

Recollection::Weighed read_weighed(ByteReader& reader) {
  Recollection::Weighed weighed;
  weighed.module = reader.u32();
  weighed.shape = reader.u32();
  weighed.entry = reader.u64();
  weighed.edges = reader.u32();
  const uint8_t bits = reader.u8();
  weighed.heaviest_bits = bits & ~kConfirmed;
  weighed.confirmed = (bits & kConfirmed) != 0;
  weighed.rank = reader.u32();
  return weighed;
}

// Most edges are never executed: behind a 0 is how many more there are, up to 255.
void put_steps(std::vector<uint8_t>& out, std::span<const uint8_t> steps) {
  put(out, static_cast<uint32_t>(steps.size()));
  for (size_t i = 0; i < steps.size(); ++i) {
    put(out, steps[i]);
    if (steps[i] != 0) continue;
    const size_t first = i;
    while (i + 1 < steps.size() && i - first < UINT8_MAX && steps[i + 1] == 0) ++i;
    put(out, static_cast<uint8_t>(i - first));
  }
}

// Too many are a failure, as a read past the end is.
std::vector<uint8_t> read_steps(ByteReader& reader) {
  std::vector<uint8_t> steps;
  const uint32_t size = reader.u32();
  if (size > Recollection::kStepsMax) reader.skip(UINT64_MAX);
  while (reader.ok() && steps.size() < size) {
    const uint8_t step = reader.u8();
    steps.insert(steps.end(), step == 0 ? reader.u8() + size_t{1} : 1, step);
  }
  return steps;
}

// Every edge that is spoken of has a step, and no step is left.
bool is_weighed_soundly(const Recollection& r) {
  uint64_t edges = 0;
  for (const Recollection::Weighed& one : r.weighed) {
    if (one.module >= r.modules.size()) return false;
    if (one.heaviest_bits == 0 || one.heaviest_bits > 64) return false;
    edges += one.edges;
  }
  return edges == r.steps.size();
}

// Whether all that is named is there.
bool is_sound(const Recollection& r) {
  const auto known = [&](const auto& one) { return one.module < r.modules.size(); };
  return is_weighed_soundly(r) && std::ranges::all_of(r.asked, known) &&
         std::ranges::all_of(r.entered, known) &&
         std::ranges::all_of(r.led, [&](const Recollection::Led& led) {
           return known(led) && led.to_module < r.modules.size();
         });
}

}  // namespace

std::vector<uint8_t> encode_recollection(const Recollection& recollection) {
  std::vector<uint8_t> out;
  put(out, kMagic);
  put(out, kVersion);
  put(out, static_cast<uint32_t>(recollection.modules.size()));
  for (const std::string& id : recollection.modules) put_string(out, id);
  put(out, static_cast<uint32_t>(recollection.asked.size()));
  for (const Recollection::Asked& asked : recollection.asked) {
    put(out, asked.module);
    put(out, asked.how);
    put(out, asked.address);
  }
  put(out, static_cast<uint32_t>(recollection.entered.size()));
  for (const Recollection::Entered& entered : recollection.entered) {
    put(out, entered.module);
    put(out, entered.block);
  }
  put(out, static_cast<uint32_t>(recollection.led.size()));
  for (const Recollection::Led& led : recollection.led) {
    put(out, led.module);
    put(out, led.to_module);
    put(out, led.block);
    put(out, led.to);
  }
  put(out, static_cast<uint32_t>(recollection.weighed.size()));
  for (const Recollection::Weighed& weighed : recollection.weighed) {
    put(out, weighed.module);
    put(out, weighed.shape);
    put(out, weighed.entry);
    put(out, weighed.edges);
    put(out, static_cast<uint8_t>(weighed.heaviest_bits | (weighed.confirmed ? kConfirmed : 0)));
    put(out, weighed.rank);
  }
  put_steps(out, recollection.steps);
  put(out, recollection.returns.calls);
  put(out, recollection.returns.millibits);
  put(out, static_cast<uint8_t>(recollection.alike));
  put(out, digest_of(out));
  return out;
}

Result<Recollection> decode_recollection(std::span<const uint8_t> bytes) {
  constexpr size_t kDigestBytes = sizeof(uint64_t);
  if (bytes.size() < kDigestBytes) return make_error("truncated");
  const auto body = bytes.first(bytes.size() - kDigestBytes);
  ByteReader end(bytes.last(kDigestBytes));
  if (end.u64() != digest_of(body)) return make_error("damaged");
  ByteReader reader(body);
  if (reader.u64() != kMagic || reader.u32() != kVersion) return make_error("of another version");
  Recollection result;
  read_list(reader, result.modules, read_string);
  read_list(reader, result.asked, read_asked);
  read_list(reader, result.entered, read_entered);
  read_list(reader, result.led, read_led);
  read_list(reader, result.weighed, read_weighed);
  result.steps = read_steps(reader);
  result.returns.calls = reader.u64();
  result.returns.millibits = reader.u32();
  result.alike = reader.u8() != 0;
  if (!reader.ok() || !reader.at_end() || !is_sound(result)) return make_error("damaged");
  return result;
}

Recollection RecallFolder::find(const std::string& build_id) const {
  Result<Recollection> found = decode_recollection(read(build_id, kSuffix));
  return found ? std::move(*found) : Recollection{};
}

Status RecallFolder::keep(const std::string& build_id, const Recollection& recollection) const {
  return replace(build_id, kSuffix, encode_recollection(recollection));
}

std::vector<uint8_t> RecallFolder::find_procedures(const std::string& build_id) const {
  return read(build_id, kProceduresSuffix);
}

Status RecallFolder::keep_procedures(const std::string& build_id,
                                     std::span<const uint8_t> bytes) const {
  return replace(build_id, kProceduresSuffix, bytes);
}

// Empty where there is none, or it is too large.
std::vector<uint8_t> RecallFolder::read(const std::string& build_id, const char* suffix) const {
  if (path_.empty() || !is_plain(build_id)) return {};
  const fs::path path = fs::path(path_) / (build_id + suffix);
  std::error_code error;
  const uintmax_t size_bytes = fs::file_size(path, error);
  if (error || size_bytes > kFileBytesMax) return {};
  std::ifstream in(path, std::ios::binary);
  std::vector<uint8_t> bytes(static_cast<size_t>(size_bytes));
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!in) return {};
  return bytes;
}

Status RecallFolder::replace(const std::string& build_id, const char* suffix,
                             std::span<const uint8_t> bytes) const {
  if (path_.empty() || !is_plain(build_id)) return Ok{};
  if (bytes.size() > kFileBytesMax) {
    return make_error("{} bytes are more than the {} MB that are kept of a program", bytes.size(),
                      kFileBytesMax >> 20);
  }
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) return make_error("{}: {}", path_, error.message());
  const fs::path path = fs::path(path_) / (build_id + suffix);
  // Of several runs that end at once, each replaces the whole file.
  const fs::path partial = fs::path(path_) / fmt::format("{}.{}{}", build_id, getpid(), suffix);
  std::ofstream out(partial, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (out) fs::rename(partial, path, error);
  if (!out || error) {
    fs::remove(partial, error);
    return make_error("{}: cannot be written", path.string());
  }
  make_room();
  return Ok{};
}

// Files of other names are not ours to delete.
void RecallFolder::make_room() const {
  struct File {
    fs::file_time_type changed;
    uint64_t size_bytes;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t total_bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    const fs::path kind = it->path().extension();
    if (kind != kSuffix && kind != kProceduresSuffix) continue;
    std::error_code gone;  // by another run
    const uint64_t size_bytes = it->file_size(gone);
    const fs::file_time_type changed = it->last_write_time(gone);
    if (gone) continue;
    files.push_back({changed, size_bytes, it->path()});
    total_bytes += size_bytes;
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.changed < b.changed; });
  for (const File& file : files) {
    if (total_bytes <= bytes_max_) return;
    fs::remove(file.path, error);
    total_bytes -= file.size_bytes;
  }
}

}  // namespace tally::engine
