// See names.h.
#include "claims/names.h"

#include <algorithm>

#include "claims/reader.h"

namespace tally::claims {
namespace {

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

SymbolNames::SymbolNames(const elf::Image& image) : image_(image) {
  for (const elf::Symbol& symbol : image.symbols()) by_name_.emplace(symbol.name, &symbol);
}

std::vector<const elf::Symbol*> SymbolNames::all(std::string_view name) const {
  std::vector<const elf::Symbol*> result;
  const auto [begin, end] = by_name_.equal_range(name);
  for (auto it = begin; it != end; ++it) result.push_back(it->second);
  std::sort(result.begin(), result.end(), [](const elf::Symbol* a, const elf::Symbol* b) {
    return a->range.begin < b->range.begin;
  });
  return result;
}

bool SymbolNames::is_from(const elf::Symbol& symbol, std::string_view file) const {
  const auto line = image_.line_at(symbol.range.begin);
  return line && base_name(line->file) == base_name(file);
}

const elf::Symbol* SymbolNames::of_file(std::string_view name, std::string_view file) const {
  std::vector<const elf::Symbol*> symbols = all(name);
  if (symbols.size() > 1) {
    std::erase_if(symbols, [&](const elf::Symbol* symbol) { return !is_from(*symbol, file); });
  }
  return symbols.size() == 1 ? symbols[0] : nullptr;
}

const elf::Symbol* SymbolNames::of_bolt(const std::string& name) const {
  if (by_name_.contains(name)) return image_.symbol_named(name);
  const size_t slash = name.find('/');
  if (slash == std::string::npos || slash == 0) return nullptr;
  std::vector<const elf::Symbol*> locals = all(std::string_view(name).substr(0, slash));
  std::erase_if(locals, [](const elf::Symbol* symbol) { return symbol->global; });
  if (locals.size() == 1) return locals[0];
  const size_t last = name.rfind('/');
  if (last != slash) {
    const std::string_view file = std::string_view(name).substr(slash + 1, last - slash - 1);
    std::erase_if(locals, [&](const elf::Symbol* symbol) { return !is_from(*symbol, file); });
  }
  const Number index = parse_decimal(std::string_view(name).substr(last + 1));
  if (index.fault != NumberFault::kNone || index.value == 0) return nullptr;
  return index.value <= locals.size() ? locals[index.value - 1] : nullptr;
}

}  // namespace tally::claims
