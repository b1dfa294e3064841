// Reading, ordering and finding function symbols.
#include "elf/symbols.h"

#include <elf.h>

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/bytes.h"

namespace tally::elf {
namespace {

bool is_function(const Elf64_Sym& entry) {
  const unsigned type = ELF64_ST_TYPE(entry.st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && entry.st_shndx != SHN_UNDEF &&
         entry.st_value != 0;
}

class TableReader {
 public:
  TableReader(const Layout& program, std::vector<Symbol>& result)
      : program_(program), result_(result) {}

  void read(const Layout& layout, uint32_t section_type, SymbolSource source) {
    for (const SectionHeader& section : layout.sections) {
      if (section.type != section_type || section.link >= layout.sections.size()) continue;
      // Most symbols are functions.  (Only once: a file may name thousands of tables.)
      if (result_.empty()) result_.reserve(section.contents.size() / sizeof(Elf64_Sym));
      read_table(section.contents, layout.sections[section.link].contents, source);
    }
  }

 private:
  void read_table(std::span<const uint8_t> table, std::span<const uint8_t> names,
                  SymbolSource source) {
    ByteReader reader(table);
    while (reader.remaining() >= sizeof(Elf64_Sym)) {
      const auto entry = reader.fixed<Elf64_Sym>();
      if (!is_function(entry)) continue;
      const Segment* segment = program_.segment_at(LinkAddr(entry.st_value));
      if (segment == nullptr || !segment->executable) continue;
      ByteReader name_reader(names);
      name_reader.seek(entry.st_name);
      const std::string_view name = name_reader.cstring();
      if (name.empty() || name.size() > kNameSizeMax) continue;
      const bool sized = entry.st_size <= segment->range.end.value() - entry.st_value;
      const uint64_t end = entry.st_value + (sized ? entry.st_size : 0);
      result_.push_back({.range = {LinkAddr(entry.st_value), LinkAddr(end)},
                         .name = std::string(name),
                         .source = source,
                         .global = ELF64_ST_BIND(entry.st_info) != STB_LOCAL});
    }
  }

  // Names may overlap in the string table: without a limit a small file holds terabytes of them.
  static constexpr size_t kNameSizeMax = 64 * 1024;

  const Layout& program_;
  std::vector<Symbol>& result_;
};

// By address, then by preference.
auto order(const Symbol& symbol) {
  return std::tuple(symbol.range.begin, symbol.range.empty(), !symbol.global, symbol.name.size(),
                    std::string_view(symbol.name), symbol.source);
}

}  // namespace

SymbolTable::SymbolTable(const Layout& program, const Layout* debug) {
  std::vector<Symbol> candidates;
  TableReader reader(program, candidates);
  reader.read(program, SHT_SYMTAB, SymbolSource::kSymtab);
  reader.read(program, SHT_DYNSYM, SymbolSource::kDynsym);
  if (debug != nullptr) reader.read(*debug, SHT_SYMTAB, SymbolSource::kDebugFile);
  // Symbols are large to move and slow to compare; most have an address of their own.
  std::vector<std::pair<LinkAddr, uint32_t>> by_address;
  by_address.reserve(candidates.size());
  for (uint32_t i = 0; i < candidates.size(); ++i) {
    by_address.emplace_back(candidates[i].range.begin, i);
  }
  std::ranges::sort(by_address, [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    const auto which = order(candidates[a.second]) <=> order(candidates[b.second]);
    return which != 0 ? which < 0 : a.second < b.second;
  });
  symbols_.reserve(candidates.size());
  for (const auto& [address, index] : by_address) {
    Symbol& candidate = candidates[index];
    const bool repeated = !symbols_.empty() &&
                          symbols_.back().range.begin == candidate.range.begin &&
                          symbols_.back().name == candidate.name;
    if (repeated) continue;
    symbols_.push_back(std::move(candidate));
  }
  symbols_.shrink_to_fit();
  build_stretches();
}

// The sweep: `open` holds the symbols that have begun, the owner on top.
void SymbolTable::build_stretches() {
  const auto loses = [this](size_t a, size_t b) {
    const LinkAddr begin_a = symbols_[a].range.begin;
    const LinkAddr begin_b = symbols_[b].range.begin;
    return begin_a != begin_b ? begin_a < begin_b : a > b;
  };
  std::priority_queue<size_t, std::vector<size_t>, decltype(loses)> open(loses);
  LinkAddr here;
  // Gives everything from `here` up to `limit` to its owners.
  const auto sweep_to = [&](LinkAddr limit) {
    while (!open.empty() && here < limit) {
      const LinkAddr end = symbols_[open.top()].range.end;
      if (here < end) {
        const LinkAddr stop = std::min(end, limit);
        add_stretch(here, stop, open.top());
        here = stop;
      }
      if (end <= here) open.pop();
    }
    here = limit;
  };
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].range.empty()) continue;
    sweep_to(symbols_[i].range.begin);
    open.push(i);
  }
  sweep_to(LinkAddr(UINT64_MAX));
}

void SymbolTable::add_stretch(LinkAddr begin, LinkAddr end, size_t symbol) {
  if (!stretches_.empty() && stretches_.back().symbol == symbol &&
      stretches_.back().range.end == begin) {
    stretches_.back().range.end = end;
    return;
  }
  stretches_.push_back({{begin, end}, symbol});
}

const Symbol* SymbolTable::at(LinkAddr address) const {
  const auto next = std::ranges::upper_bound(stretches_, address, {},
                                             [](const Stretch& s) { return s.range.begin; });
  if (next != stretches_.begin() && std::prev(next)->range.contains(address)) {
    return &symbols_[std::prev(next)->symbol];
  }
  const auto exact = std::ranges::lower_bound(symbols_, address, {},
                                              [](const Symbol& s) { return s.range.begin; });
  return exact != symbols_.end() && exact->range.begin == address ? &*exact : nullptr;
}

void SymbolTable::index_names() const {
  by_name_.reserve(symbols_.size());
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const auto [entry, inserted] = by_name_.try_emplace(symbols_[i].name, i);
    if (!inserted && symbols_[i].global && !symbols_[entry->second].global) entry->second = i;
  }
}

const Symbol* SymbolTable::named(std::string_view name) const {
  std::call_once(names_once_, [this] { index_names(); });
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &symbols_[found->second];
}

}  // namespace tally::elf
