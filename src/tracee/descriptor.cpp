// See descriptor.h.
#include "tracee/descriptor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string_view>

#include "tracee/process.h"

namespace tally::tracee {
namespace {

constexpr std::array kKinds = {
    DescriptorKind::kClosed,   DescriptorKind::kFile,  DescriptorKind::kNull,
    DescriptorKind::kTerminal, DescriptorKind::kPipe,  DescriptorKind::kSocket,
    DescriptorKind::kDevice,   DescriptorKind::kOther,
};

DescriptorKind kind_of(int fd, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return DescriptorKind::kFile;
  if (S_ISFIFO(status.st_mode)) return DescriptorKind::kPipe;
  if (S_ISSOCK(status.st_mode)) return DescriptorKind::kSocket;
  if (S_ISCHR(status.st_mode)) {
    if (status.st_rdev == makedev(1, 3)) return DescriptorKind::kNull;
    return isatty(fd) != 0 ? DescriptorKind::kTerminal : DescriptorKind::kDevice;
  }
  return S_ISBLK(status.st_mode) ? DescriptorKind::kDevice : DescriptorKind::kOther;
}

// "1203 bytes" with the unit "bytes", "at 7" with "at": the number.
bool read_number(std::string_view part, std::string_view unit, uint64_t& number) {
  const size_t space = part.find(' ');
  if (space == std::string_view::npos) return false;
  const std::string_view first = part.substr(0, space);
  const std::string_view second = part.substr(space + 1);
  if (first != unit && second != unit) return false;
  const std::string_view digits = first == unit ? second : first;
  const char* end = digits.data() + digits.size();
  return std::from_chars(digits.data(), end, number).ptr == end;
}

}  // namespace

const char* to_string(DescriptorKind kind) {
  switch (kind) {
    case DescriptorKind::kClosed:
      return "closed";
    case DescriptorKind::kFile:
      return "regular file";
    case DescriptorKind::kNull:
      return "/dev/null";
    case DescriptorKind::kTerminal:
      return "terminal";
    case DescriptorKind::kPipe:
      return "pipe";
    case DescriptorKind::kSocket:
      return "socket";
    case DescriptorKind::kDevice:
      return "device";
    case DescriptorKind::kOther:
      return "other";
    case DescriptorKind::kUnknown:
      break;
  }
  return "unknown";
}

std::string Descriptor::words() const {
  std::string text = to_string(kind);
  if (kind == DescriptorKind::kFile) {
    text += fmt::format(", {} bytes, at {}", size_bytes, offset);
    if (appends) text += ", appended to";
  }
  if (kind == DescriptorKind::kTerminal)
    text += fmt::format(", {} rows, {} columns", rows, columns);
  return text;
}

Descriptor Descriptor::parse(const std::string& words) {
  Descriptor descriptor;
  std::string_view rest = words;
  for (bool first = true; !rest.empty(); first = false) {
    const size_t end = std::min(rest.find(", "), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest = rest.substr(std::min(end + 2, rest.size()));
    uint64_t number = 0;
    if (first) {
      for (const DescriptorKind kind : kKinds) {
        if (part == to_string(kind)) descriptor.kind = kind;
      }
    } else if (part == "appended to") {
      descriptor.appends = true;
    } else if (read_number(part, "bytes", number)) {
      descriptor.size_bytes = number;
    } else if (read_number(part, "at", number)) {
      descriptor.offset = number;
    } else if (read_number(part, "rows", number)) {
      descriptor.rows = static_cast<unsigned>(number);
    } else if (read_number(part, "columns", number)) {
      descriptor.columns = static_cast<unsigned>(number);
    }
  }
  return descriptor;
}

Descriptor descriptor_of(int fd) {
  Descriptor descriptor;
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    descriptor.kind = DescriptorKind::kClosed;
    return descriptor;
  }
  descriptor.kind = kind_of(fd, status);
  if (descriptor.kind == DescriptorKind::kFile) {
    const off_t offset = lseek(fd, 0, SEEK_CUR);
    const int flags = fcntl(fd, F_GETFL);
    descriptor.size_bytes = static_cast<uint64_t>(status.st_size);
    descriptor.offset = offset < 0 ? 0 : static_cast<uint64_t>(offset);
    descriptor.appends = flags >= 0 && (flags & O_APPEND) != 0;
  }
  winsize size{};
  if (descriptor.kind == DescriptorKind::kTerminal && ioctl(fd, TIOCGWINSZ, &size) == 0) {
    descriptor.rows = size.ws_row;
    descriptor.columns = size.ws_col;
  }
  return descriptor;
}

Descriptor descriptor_of(const Process& process, int fd) {
  struct stat status {};
  const std::string path = fmt::format("/proc/{}/fd/{}", process.pid(), fd);
  Descriptor descriptor;
  if (lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) descriptor.kind = DescriptorKind::kClosed;
    return descriptor;
  }
  const Result<int> ours = process.take_descriptor(fd);
  if (!ours) return descriptor;
  descriptor = descriptor_of(*ours);
  close(*ours);
  return descriptor;
}

}  // namespace tally::tracee
