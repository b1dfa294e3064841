// Looking a program up and judging it.  See program.h.
#include "tracee/program.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "elf/image.h"

namespace tally::tracee {
namespace {

constexpr size_t kHeadSizeBytes = 256;  // what the kernel reads of a file to tell what it is
constexpr int kInterpretersMax = 5;     // scripts run by scripts run by ...; the kernel's own limit
constexpr std::string_view kElfMagic = "\177ELF";

Error not_found(const std::string& name, std::string_view advice) {
  return make_error(ErrorKind::kNotFound, "{}: no such program; {}", name, advice);
}

Error unusable(const std::string& path, std::string_view why) {
  return make_error(ErrorKind::kNotExecutable, "{}: {}", path, why);
}

bool is_executable_file(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0;
}

std::vector<std::string> folders_of_path() {
  const char* path = getenv("PATH");
  // Without PATH a shell, execvp() and env all look here.
  const std::string_view text = path == nullptr ? "/bin:/usr/bin" : path;
  std::vector<std::string> folders;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(':', at), text.size());
    const std::string_view folder = text.substr(at, end - at);
    folders.emplace_back(folder.empty() ? "." : folder);
    at = end + 1;
  }
  return folders;
}

// Permissions and kind, as the kernel checks them before it looks into the file.
Status check_file(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return not_found(path, "check the name");
    if (errno == ENOTDIR) return not_found(path, "a part of its path is no folder");
    return unusable(path, strerror(errno));
  }
  if (S_ISDIR(status.st_mode)) return unusable(path, "is a folder; name a program");
  if (!S_ISREG(status.st_mode)) return unusable(path, "is no regular file; name a program");
  if (faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) != 0) {
    return unusable(path, "not executable; check its permissions (chmod +x)");
  }
  return Ok{};
}

// A traced program does not get the rights that its file would give it.
Status check_rights(const std::string& path) {
  constexpr std::string_view kAdvice =
      "and loses the rights of its owner when it is traced, so its run would not be the same; "
      "profile a copy without that bit (cp does not keep it)";
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return unusable(path, strerror(errno));
  if (status.st_mode & S_ISUID) return unusable(path, fmt::format("is set-uid {}", kAdvice));
  // Without the group's x bit, set-gid means mandatory locking and gives no rights.
  if ((status.st_mode & S_ISGID) && (status.st_mode & S_IXGRP)) {
    return unusable(path, fmt::format("is set-gid (like set-uid) {}", kAdvice));
  }
  if (getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) {
    return unusable(path,
                    "has file capabilities (like set-uid) and loses them when it is traced, so its "
                    "run would not be the same; profile a copy");
  }
  return Ok{};
}

Status check_elf(const std::string& path) {
  TRY(check_rights(path));
  auto image = elf::Image::open(path);
  // The messages of elf/ begin with the path.
  if (!image) return make_error(ErrorKind::kNotExecutable, "{}", image.error().message);
  const auto& loader = (*image)->interpreter();
  if (loader && access(loader->c_str(), F_OK) != 0) {
    return not_found(path, fmt::format("its loader {} is not there", *loader));
  }
  return Ok{};
}

Status read_head(const std::string& path, std::string& head) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return unusable(path, fmt::format("cannot be read ({}); Tally must read the code it counts",
                                      strerror(errno)));
  }
  std::array<char, kHeadSizeBytes> bytes{};
  const ssize_t got = pread(fd, bytes.data(), bytes.size(), 0);
  const int code = errno;
  close(fd);
  if (got < 0) return unusable(path, fmt::format("cannot be read: {}", strerror(code)));
  head.assign(bytes.data(), static_cast<size_t>(got));
  return Ok{};
}

// "#! /bin/sh -e" -> "/bin/sh"
std::string interpreter_of(std::string_view head) {
  head.remove_prefix(2);
  head = head.substr(0, head.find('\n'));
  const size_t begin = head.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return "";
  const size_t end = head.find_first_of(std::string_view(" \t\0", 3), begin);
  return std::string(head.substr(begin, end == std::string_view::npos ? end : end - begin));
}

}  // namespace

Result<std::string> find_program(const std::string& name) {
  if (name.empty()) return not_found("''", "the name is empty");
  if (name.find('/') != std::string::npos) return name;
  std::string present;
  for (const std::string& folder : folders_of_path()) {
    std::string candidate = folder + "/" + name;
    if (is_executable_file(candidate)) return candidate;
    if (present.empty() && access(candidate.c_str(), F_OK) == 0) present = std::move(candidate);
  }
  // Checking it again says why it is not executable.
  if (!present.empty()) return present;
  return not_found(name, "check the name and PATH");
}

Result<std::string> check_program(const std::string& path) {
  std::string file = path;
  std::string head;
  for (int depth = 0; depth <= kInterpretersMax; ++depth) {
    if (auto status = check_file(file); !status) {
      if (depth == 0) return status.error();
      return make_error(status.error().kind, "{}: its interpreter cannot run: {}", path,
                        status.error().message);
    }
    TRY(read_head(file, head));
    if (head.starts_with(kElfMagic)) {
      TRY(check_elf(file));
      return file;
    }
    // Whether the kernel knows it all the same (binfmt_misc), exec will tell.
    if (!head.starts_with("#!")) return file;
    file = interpreter_of(head);
    if (file.empty()) return unusable(path, "its first line #! names no interpreter");
  }
  return unusable(path, "is a script run by a script run by a script, deeper than Linux follows");
}

}  // namespace tally::tracee
