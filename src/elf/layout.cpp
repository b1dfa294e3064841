// Reading ELF headers.
//
// The order is that of the kernel's loader: identity, program headers, then what only tools read
// (section headers).  Three kinds of refusal are told apart, since a person does different things
// about them: not for us (a script, 32-bit, another machine), cut short, and damaged.
#include "elf/layout.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"

namespace tally::elf {
namespace {

// Within [0, limit) without overflow?
bool fits(uint64_t offset, uint64_t size_bytes, uint64_t limit) {
  return offset <= limit && size_bytes <= limit - offset;
}

const char* machine_name(uint16_t machine) {
  switch (machine) {
    case EM_386:
      return "i386";
    case EM_ARM:
      return "ARM";
    case EM_AARCH64:
      return "AArch64";
    case EM_PPC64:
      return "PowerPC64";
    case EM_RISCV:
      return "RISC-V";
    case EM_S390:
      return "s390";
    default:
      return "another";
  }
}

class LayoutReader {
 public:
  LayoutReader(const std::string& name, std::span<const uint8_t> file, Purpose purpose)
      : name_(name), file_(file), purpose_(purpose) {
    layout_.file = file;
  }

  Result<Layout> read() {
    TRY(read_identity());
    TRY(read_file_header());
    if (purpose_ == Purpose::kProgram) TRY(read_program_headers());
    TRY(read_section_headers());
    return std::move(layout_);
  }

 private:
  template <class... Args>
  Error not_for_us(fmt::format_string<Args...> format, Args&&... args) const {
    return Error{name_ + ": " + fmt::format(format, std::forward<Args>(args)...),
                 ErrorKind::kNotExecutable};
  }
  template <class... Args>
  Error damaged(fmt::format_string<Args...> format, Args&&... args) const {
    return Error{name_ + ": " + fmt::format(format, std::forward<Args>(args)...) +
                     "; the file is cut short or damaged, get a fresh copy",
                 ErrorKind::kFailure};
  }

  Status read_identity() const {
    if (file_.empty()) return not_for_us("is empty; give an x86-64 ELF program");
    if (file_.size() >= 2 && file_[0] == '#' && file_[1] == '!') {
      return not_for_us(
          "is a script; give its interpreter as the program and the script as its "
          "first argument");
    }
    if (file_.size() < SELFMAG || std::memcmp(file_.data(), ELFMAG, SELFMAG) != 0) {
      return not_for_us("is not an ELF file; give an x86-64 ELF program");
    }
    if (file_.size() < EI_NIDENT) return damaged("ends inside the ELF header");
    if (file_[EI_CLASS] == ELFCLASS32) {
      return not_for_us("is a 32-bit ELF file; Tally handles x86-64 only: build it with -m64");
    }
    if (file_[EI_CLASS] != ELFCLASS64) return damaged("has ELF class {}", file_[EI_CLASS]);
    if (file_[EI_DATA] == ELFDATA2MSB) {
      return not_for_us("is a big-endian ELF file; Tally handles x86-64 only");
    }
    if (file_[EI_DATA] != ELFDATA2LSB) return damaged("has ELF data encoding {}", file_[EI_DATA]);
    return Ok{};
  }

  Status read_file_header() {
    ByteReader reader(file_);
    header_ = reader.fixed<Elf64_Ehdr>();
    if (!reader.ok()) return damaged("ends inside the ELF header");
    if (header_.e_machine != EM_X86_64) {
      return not_for_us("is for {} processor (ELF machine {}); Tally handles x86-64 only",
                        machine_name(header_.e_machine), header_.e_machine);
    }
    if (header_.e_type == ET_REL) {
      return not_for_us("is a relocatable object; link it into a program first");
    }
    if (header_.e_type == ET_CORE) return not_for_us("is a core dump; give the program itself");
    if (header_.e_type != ET_EXEC && header_.e_type != ET_DYN) {
      return damaged("has ELF type {}", header_.e_type);
    }
    layout_.type = header_.e_type == ET_EXEC ? FileType::kExecutable : FileType::kShared;
    layout_.entry = LinkAddr(header_.e_entry);
    return Ok{};
  }

  // Tables too long for the header's 16 bits keep their length in section 0.
  Result<Elf64_Shdr> section_zero() const {
    ByteReader reader(file_);
    reader.seek(header_.e_shoff);
    const auto section = reader.fixed<Elf64_Shdr>();
    if (header_.e_shoff == 0 || !reader.ok()) return damaged("has no section 0 inside the file");
    return section;
  }

  Status read_program_headers() {
    uint64_t count = header_.e_phnum;
    if (count == PN_XNUM) {
      TRY_ASSIGN(const Elf64_Shdr zero, section_zero());
      count = zero.sh_info;
    }
    if (count != 0 && header_.e_phentsize != sizeof(Elf64_Phdr)) {
      return damaged("has program headers of {} bytes instead of {}", header_.e_phentsize,
                     sizeof(Elf64_Phdr));
    }
    if (!fits(header_.e_phoff, count * sizeof(Elf64_Phdr), file_.size())) {
      return damaged("has {} program headers at offset {:#x}, behind its end at {:#x}", count,
                     header_.e_phoff, file_.size());
    }
    ByteReader reader(file_);
    reader.seek(header_.e_phoff);
    for (uint64_t i = 0; i < count; ++i) TRY(read_program_header(reader.fixed<Elf64_Phdr>()));
    if (layout_.segments.empty()) {
      return not_for_us(
          "has no loadable segment; it is no program or library (a separate debug "
          "file?)");
    }
    return order_segments();
  }

  Status read_program_header(const Elf64_Phdr& header) {
    if (header.p_type == PT_NULL) return Ok{};
    if (header.p_type == PT_GNU_RELRO && fits(header.p_vaddr, header.p_memsz, kAddressLimit)) {
      layout_.relro = {LinkAddr(header.p_vaddr), LinkAddr(header.p_vaddr + header.p_memsz)};
      return Ok{};
    }
    const bool used = header.p_type == PT_LOAD || header.p_type == PT_INTERP ||
                      header.p_type == PT_NOTE || header.p_type == PT_DYNAMIC ||
                      header.p_type == PT_GNU_EH_FRAME;
    if (!used) return Ok{};
    if (!fits(header.p_offset, header.p_filesz, file_.size())) {
      return damaged(
          "has a segment (type {:#x}) of {:#x} bytes at offset {:#x}, behind its end at "
          "{:#x}",
          header.p_type, header.p_filesz, header.p_offset, file_.size());
    }
    const auto bytes = file_.subspan(header.p_offset, header.p_filesz);
    const MappedPart part{LinkAddr(header.p_vaddr), bytes};
    switch (header.p_type) {
      case PT_LOAD:
        return add_segment(header);
      case PT_INTERP:
        return set_interpreter(bytes);
      case PT_DYNAMIC:
        layout_.dynamic = part;
        break;
      case PT_GNU_EH_FRAME:
        layout_.eh_frame_header = part;
        break;
      case PT_NOTE:
        (header.p_align == 8 ? layout_.notes8 : layout_.notes4).push_back(bytes);
        break;
    }
    return Ok{};
  }

  Status add_segment(const Elf64_Phdr& header) {
    if (header.p_memsz < header.p_filesz) {
      return damaged("has a segment at {:#x} with more bytes in the file than in memory",
                     header.p_vaddr);
    }
    if (header.p_memsz == 0) return Ok{};
    if (!fits(header.p_vaddr, header.p_memsz, kAddressLimit)) {
      return damaged("has a segment at {:#x} that ends outside the address space", header.p_vaddr);
    }
    layout_.segments.push_back(Segment{
        .range = {LinkAddr(header.p_vaddr), LinkAddr(header.p_vaddr + header.p_memsz)},
        .offset = FileOffset(header.p_offset),
        .file_size_bytes = header.p_filesz,
        .readable = (header.p_flags & PF_R) != 0,
        .writable = (header.p_flags & PF_W) != 0,
        .executable = (header.p_flags & PF_X) != 0,
    });
    return Ok{};
  }

  Status set_interpreter(std::span<const uint8_t> bytes) {
    ByteReader reader(bytes);
    const std::string_view path = reader.cstring();
    if (!reader.ok() || path.empty()) return damaged("names no interpreter in PT_INTERP");
    layout_.interpreter = std::string(path);
    return Ok{};
  }

  // The standard demands ascending order; files that break it load all the same.
  Status order_segments() {
    auto& segments = layout_.segments;
    std::ranges::stable_sort(segments, {}, [](const Segment& s) { return s.range.begin; });
    for (size_t i = 1; i < segments.size(); ++i) {
      if (segments[i].range.begin < segments[i - 1].range.end) {
        return damaged("has overlapping segments at {:#x} and {:#x}",
                       segments[i - 1].range.begin.value(), segments[i].range.begin.value());
      }
    }
    return Ok{};
  }

  Status read_section_headers() {
    if (header_.e_shoff == 0) return Ok{};  // stripped of section headers: still a program
    uint64_t count = header_.e_shnum;
    uint64_t names_index = header_.e_shstrndx;
    if (count == 0 || names_index == SHN_XINDEX) {
      TRY_ASSIGN(const Elf64_Shdr zero, section_zero());
      if (count == 0) count = zero.sh_size;
      if (names_index == SHN_XINDEX) names_index = zero.sh_link;
    }
    if (count == 0) return Ok{};
    if (header_.e_shentsize != sizeof(Elf64_Shdr)) {
      return damaged("has section headers of {} bytes instead of {}", header_.e_shentsize,
                     sizeof(Elf64_Shdr));
    }
    if (count > file_.size() / sizeof(Elf64_Shdr) ||
        !fits(header_.e_shoff, count * sizeof(Elf64_Shdr), file_.size())) {
      return damaged("has {} section headers at offset {:#x}, behind its end at {:#x}", count,
                     header_.e_shoff, file_.size());
    }
    return read_section_table(count, names_index);
  }

  Status read_section_table(uint64_t count, uint64_t names_index) {
    ByteReader reader(file_);
    reader.seek(header_.e_shoff);
    std::vector<uint32_t> name_offsets;
    for (uint64_t i = 0; i < count; ++i) {
      const auto header = reader.fixed<Elf64_Shdr>();
      name_offsets.push_back(header.sh_name);
      TRY(add_section(i, header));
    }
    if (names_index == SHN_UNDEF) return Ok{};
    if (names_index >= count) {
      return damaged("says its section names are in section {} of {}", names_index, count);
    }
    for (uint64_t i = 0; i < count; ++i) {
      ByteReader names(layout_.sections[names_index].contents);
      names.seek(name_offsets[i]);
      // Section 0 and sections with a nonsensical name stay nameless.
      layout_.sections[i].name = names.cstring();
    }
    return Ok{};
  }

  Status add_section(uint64_t index, const Elf64_Shdr& header) {
    SectionHeader section{
        .name = {},
        .type = header.sh_type,
        .flags = header.sh_flags,
        .address = LinkAddr(header.sh_addr),
        .size_bytes = header.sh_size,
        .contents = {},
        .link = header.sh_link,
    };
    const bool has_contents =
        index != 0 && header.sh_type != SHT_NULL && header.sh_type != SHT_NOBITS;
    if (has_contents) {
      if (!fits(header.sh_offset, header.sh_size, file_.size())) {
        return damaged("has section {} of {:#x} bytes at offset {:#x}, behind its end at {:#x}",
                       index, header.sh_size, header.sh_offset, file_.size());
      }
      section.contents = file_.subspan(header.sh_offset, header.sh_size);
    }
    if ((header.sh_flags & SHF_ALLOC) != 0 && index != 0 &&
        !fits(header.sh_addr, header.sh_size, kAddressLimit)) {
      return damaged("has section {} at {:#x} that ends outside the address space", index,
                     header.sh_addr);
    }
    layout_.sections.push_back(section);
    return Ok{};
  }

  // Lower half of the canonical addresses, with 57-bit paging too.  Below it sums of two addresses
  // and sizes cannot overflow.
  static constexpr uint64_t kAddressLimit = uint64_t{1} << 56;

  const std::string& name_;
  std::span<const uint8_t> file_;
  Purpose purpose_;
  Elf64_Ehdr header_ = {};
  Layout layout_;
};

std::string hex(std::span<const uint8_t> bytes) {
  std::string result;
  for (const uint8_t byte : bytes) result += fmt::format("{:02x}", byte);
  return result;
}

std::string build_id_in(std::span<const uint8_t> notes, uint64_t alignment) {
  ByteReader reader(notes);
  while (!reader.at_end()) {
    const uint32_t name_size = reader.u32();
    const uint32_t description_size = reader.u32();
    const uint32_t type = reader.u32();
    const auto name = reader.bytes(name_size);
    reader.align(alignment);
    const auto description = reader.bytes(description_size);
    if (!reader.ok()) return {};
    const bool gnu = name.size() == 4 && std::memcmp(name.data(), "GNU", 4) == 0;
    constexpr size_t kBuildIdSizeMax = 64;
    if (gnu && type == NT_GNU_BUILD_ID && description.size() <= kBuildIdSizeMax) {
      return hex(description);
    }
    // The last note may lack its padding.
    if (reader.remaining() < alignment) return {};
    reader.align(alignment);
  }
  return {};
}

}  // namespace

const Segment* Layout::segment_at(LinkAddr address) const {
  auto next = std::ranges::upper_bound(segments, address, {},
                                       [](const Segment& s) { return s.range.begin; });
  if (next == segments.begin()) return nullptr;
  const Segment& segment = *std::prev(next);
  return segment.range.contains(address) ? &segment : nullptr;
}

std::span<const uint8_t> Layout::bytes_at(LinkAddr address) const {
  const Segment* segment = segment_at(address);
  if (segment == nullptr) return {};
  const uint64_t into = address.value() - segment->range.begin.value();
  if (into >= segment->file_size_bytes) return {};
  return file.subspan(segment->offset.value() + into, segment->file_size_bytes - into);
}

const SectionHeader* Layout::section_named(std::string_view name) const {
  const auto found = std::ranges::find(sections, name, &SectionHeader::name);
  return found == sections.end() ? nullptr : &*found;
}

Result<Layout> read_layout(const std::string& name, std::span<const uint8_t> file,
                           Purpose purpose) {
  return LayoutReader(name, file, purpose).read();
}

std::string read_build_id(const Layout& layout) {
  for (const auto& notes : layout.notes4) {
    if (std::string id = build_id_in(notes, 4); !id.empty()) return id;
  }
  for (const auto& notes : layout.notes8) {
    if (std::string id = build_id_in(notes, 8); !id.empty()) return id;
  }
  for (const SectionHeader& section : layout.sections) {
    if (section.type != SHT_NOTE) continue;
    if (std::string id = build_id_in(section.contents, 4); !id.empty()) return id;
  }
  return {};
}

}  // namespace tally::elf
