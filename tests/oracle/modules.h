// Where an address of the stepped program lies in its file: /proc/PID/maps and ELF program headers.
#pragma once

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace oracle {

struct Mapping {
  uint64_t start = 0, end = 0, file_offset = 0;
  bool writable = false, executable = false;
  std::string path;
};

struct LoadSegment {
  uint64_t file_offset = 0, file_size = 0, link_address = 0;
};

inline std::vector<LoadSegment> load_segments(const std::string& path) {
  std::vector<LoadSegment> out;
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return out;
  Elf64_Ehdr eh;
  if (pread(fd, &eh, sizeof eh, 0) == ssize_t(sizeof eh) && !memcmp(eh.e_ident, ELFMAG, SELFMAG)) {
    for (unsigned i = 0; i < eh.e_phnum; i++) {
      Elf64_Phdr ph;
      if (pread(fd, &ph, sizeof ph, off_t(eh.e_phoff + i * sizeof ph)) != ssize_t(sizeof ph)) break;
      if (ph.p_type == PT_LOAD) out.push_back({ph.p_offset, ph.p_filesz, ph.p_vaddr});
    }
  }
  close(fd);
  return out;
}

class Modules {
 public:
  void reread(pid_t pid) {
    mappings_.clear();
    std::string name = "/proc/" + std::to_string(pid) + "/maps";
    FILE* f = fopen(name.c_str(), "r");
    if (!f) return;  // the process is gone
    char line[8192];
    while (fgets(line, sizeof line, f)) {
      unsigned long start, end, offset;
      char perms[8];
      int at = 0;
      if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %n", &start, &end, perms, &offset, &at) < 4)
        continue;
      std::string path = line + at;
      while (!path.empty() && path.back() == '\n') path.pop_back();
      mappings_.push_back({start, end, offset, perms[1] == 'w', perms[2] == 'x', path});
    }
    fclose(f);
  }

  // -1 when nothing is mapped there.
  int find(uint64_t address, uint64_t* link, bool* writable) {
    for (const Mapping& m : mappings_) {
      if (address < m.start || address >= m.end) continue;
      *writable = m.writable;
      *link = address;
      if (m.path.empty()) return id_of("[anonymous]");
      if (m.path == "[vdso]") *link = address - m.start;
      if (m.path[0] == '/') *link = link_address(m, address);
      return id_of(m.path);
    }
    return -1;
  }

  // Memory that a jump would fault in.
  bool is_data(uint64_t address) const {
    for (const Mapping& m : mappings_) {
      if (address >= m.start && address < m.end) return !m.executable;
    }
    return true;
  }

  const std::string& name(int id) const { return names_[size_t(id)]; }

 private:
  int id_of(const std::string& path) {
    auto [it, fresh] = ids_.try_emplace(path, int(names_.size()));
    if (fresh) names_.push_back(path);
    return it->second;
  }

  uint64_t link_address(const Mapping& m, uint64_t address) {
    auto it = segments_.find(m.path);
    if (it == segments_.end()) it = segments_.emplace(m.path, load_segments(m.path)).first;
    uint64_t offset = address - m.start + m.file_offset;
    for (const LoadSegment& s : it->second)
      if (offset >= s.file_offset && offset < s.file_offset + s.file_size)
        return offset - s.file_offset + s.link_address;
    return address;
  }

  std::vector<Mapping> mappings_;
  std::vector<std::string> names_;
  std::map<std::string, int> ids_;
  std::map<std::string, std::vector<LoadSegment>> segments_;
};

}  // namespace oracle
