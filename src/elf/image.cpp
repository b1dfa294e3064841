// Image: one file's facts, each read on first use.
//
// Opening reads headers only.  What comes later (unwind ranges, symbols, the separate debug file,
// lines, call frame information) is guarded by one std::once_flag each, so threads may share an
// Image; nothing that was handed out ever changes or moves.
#include "elf/image.h"

#include <elf.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "elf/debug_file.h"
#include "elf/dependencies.h"
#include "elf/dwarf_handles.h"
#include "elf/eh_frame.h"
#include "elf/exception_table.h"
#include "elf/file_bytes.h"
#include "elf/layout.h"
#include "elf/symbols.h"

namespace tally::elf {
namespace {

std::vector<Section> allocated_sections(const Layout& layout) {
  std::vector<Section> result;
  for (const SectionHeader& section : layout.sections) {
    if ((section.flags & SHF_ALLOC) == 0) continue;
    result.push_back({.name = std::string(section.name),
                      .range = {section.address, section.address + section.size_bytes},
                      .executable = (section.flags & SHF_EXECINSTR) != 0});
  }
  return result;
}

}  // namespace

struct Image::Impl {
  Impl(std::string path_arg, FileBytes bytes_arg)
      : path(std::move(path_arg)), bytes(std::move(bytes_arg)) {}

  Status read_headers() {
    TRY_ASSIGN(layout, read_layout(path, bytes.span(), Purpose::kProgram));
    sections = allocated_sections(layout);
    build_id = read_build_id(layout);
    return Ok{};
  }

  const DebugFile* separate_debug_file() {
    std::call_once(debug_file_once,
                   [this] { debug_file = find_debug_file(path, layout, build_id); });
    return debug_file ? &*debug_file : nullptr;
  }

  const SymbolTable& symbol_table() {
    std::call_once(symbols_once, [this] {
      const DebugFile* debug = separate_debug_file();
      symbols.emplace(layout, debug == nullptr ? nullptr : &debug->layout);
    });
    return *symbols;
  }

  // The program's own lines come first; the debug file is for programs that have none.
  LineTable& line_table() {
    std::call_once(lines_once, [this] {
      const bool own = layout.section_named(".debug_line") != nullptr ||
                       layout.section_named(".zdebug_line") != nullptr;
      const DebugFile* debug = own ? nullptr : separate_debug_file();
      lines.emplace(debug == nullptr ? bytes : debug->bytes);
    });
    return *lines;
  }

  Dwarf_CFI* cfi_handle() {
    std::call_once(cfi_once, [this] { cfi.emplace(bytes); });
    return cfi->handle();
  }

  const std::string path;
  const FileBytes bytes;

  // Frozen after read_headers().
  Layout layout;
  std::vector<Section> sections;
  std::string build_id;

  std::once_flag unwind_once;
  std::vector<LinkRange> unwind_ranges;
  std::once_flag exceptions_once;
  ExceptionTables exceptions;
  std::once_flag debug_file_once;
  std::optional<DebugFile> debug_file;
  std::once_flag symbols_once;
  std::optional<SymbolTable> symbols;
  std::once_flag lines_once;
  std::optional<LineTable> lines;
  std::once_flag cfi_once;
  std::optional<Cfi> cfi;
};

Image::Image() = default;
Image::~Image() = default;

Result<std::shared_ptr<Image>> Image::open(const std::string& path) {
  TRY_ASSIGN(FileBytes bytes, FileBytes::map(path));
  std::shared_ptr<Image> image(new Image);
  image->impl_ = std::make_unique<Impl>(path, std::move(bytes));
  TRY(image->impl_->read_headers());
  return image;
}

Result<std::shared_ptr<Image>> Image::from_bytes(const std::string& name,
                                                 std::vector<uint8_t> bytes) {
  std::shared_ptr<Image> image(new Image);
  image->impl_ = std::make_unique<Impl>(name, FileBytes(std::move(bytes)));
  TRY(image->impl_->read_headers());
  return image;
}

std::shared_ptr<Image> Image::without_file(const std::string& name) {
  std::shared_ptr<Image> image(new Image);
  image->impl_ = std::make_unique<Impl>(name, FileBytes(std::vector<uint8_t>()));
  return image;
}

const std::string& Image::path() const {
  return impl_->path;
}
const std::string& Image::build_id() const {
  return impl_->build_id;
}
FileType Image::type() const {
  return impl_->layout.type;
}
LinkAddr Image::entry() const {
  return impl_->layout.entry;
}
const std::optional<std::string>& Image::interpreter() const {
  return impl_->layout.interpreter;
}
Dependencies Image::dependencies() const {
  return read_dependencies(impl_->layout, impl_->path);
}
LinkRange Image::relro() const {
  return impl_->layout.relro;
}
const std::vector<Segment>& Image::segments() const {
  return impl_->layout.segments;
}
const std::vector<Section>& Image::sections() const {
  return impl_->sections;
}

const Section* Image::linkage_table_at(LinkAddr address) const {
  const auto found = std::ranges::find_if(impl_->sections, [&](const Section& section) {
    return section.range.contains(address) && section.name.starts_with(".plt");
  });
  return found == impl_->sections.end() ? nullptr : &*found;
}

std::span<const uint8_t> Image::bytes_at(LinkAddr address) const {
  return impl_->layout.bytes_at(address);
}

std::span<const uint8_t> Image::constant_at(LinkAddr address) const {
  const Segment* segment = impl_->layout.segment_at(address);
  if (segment == nullptr || segment->writable) return {};
  return impl_->layout.bytes_at(address);
}

void Image::drop_pages() const {
  impl_->bytes.drop_pages();
}

const std::vector<LinkRange>& Image::unwind_ranges() const {
  std::call_once(impl_->unwind_once,
                 [this] { impl_->unwind_ranges = read_unwind_ranges(impl_->layout); });
  return impl_->unwind_ranges;
}

std::optional<LinkRange> Image::unwind_range_at(LinkAddr address) const {
  const std::vector<LinkRange>& ranges = unwind_ranges();
  const auto next = std::ranges::upper_bound(ranges, address, {}, &LinkRange::begin);
  if (next == ranges.begin() || !std::prev(next)->contains(address)) return std::nullopt;
  return *std::prev(next);
}

const ExceptionTables& Image::exception_tables() const {
  std::call_once(impl_->exceptions_once,
                 [this] { impl_->exceptions = read_exception_tables(impl_->layout); });
  return impl_->exceptions;
}

const std::vector<Symbol>& Image::symbols() const {
  return impl_->symbol_table().symbols();
}
const Symbol* Image::symbol_at(LinkAddr address) const {
  return impl_->symbol_table().at(address);
}
const Symbol* Image::symbol_named(std::string_view name) const {
  return impl_->symbol_table().named(name);
}

std::optional<SourceLine> Image::line_at(LinkAddr address) const {
  return impl_->line_table().at(address);
}

std::optional<std::string> Image::debug_file() const {
  const DebugFile* file = impl_->separate_debug_file();
  if (file == nullptr) return std::nullopt;
  return file->path;
}

void* Image::cfi() const {
  return impl_->cfi_handle();
}

}  // namespace tally::elf
