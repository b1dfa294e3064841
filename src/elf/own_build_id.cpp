// See own_build_id.h.
#include "elf/own_build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "base/bytes.h"

namespace tally::elf {

namespace {

std::string build_id_in(std::span<const uint8_t> notes) {
  constexpr size_t kAlignment = 4;
  ByteReader reader(notes);
  while (reader.remaining() >= sizeof(ElfW(Nhdr))) {
    const auto note = reader.fixed<ElfW(Nhdr)>();
    const size_t name = reader.position();
    reader.skip(note.n_namesz);
    reader.align(kAlignment);
    const size_t description = reader.position();
    reader.skip(note.n_descsz);
    reader.align(kAlignment);
    if (!reader.ok()) break;
    const bool is_gnu = note.n_namesz == sizeof ELF_NOTE_GNU &&
                        std::memcmp(notes.data() + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0;
    if (!is_gnu || note.n_type != NT_GNU_BUILD_ID) continue;
    std::string id;
    for (const uint8_t byte : notes.subspan(description, note.n_descsz)) {
      id += fmt::format("{:02x}", byte);
    }
    return id;
  }
  return {};
}

// The first one visited is the program itself.
int visit(dl_phdr_info* info, size_t, void* result) {
  auto& id = *static_cast<std::string*>(result);
  for (int i = 0; i < info->dlpi_phnum && id.empty(); ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* begin = reinterpret_cast<const uint8_t*>(info->dlpi_addr + header.p_vaddr);
    id = build_id_in({begin, header.p_memsz});
  }
  return 1;
}

}  // namespace

std::string own_build_id() {
  std::string id;
  dl_iterate_phdr(visit, &id);
  return id;
}

}  // namespace tally::elf
