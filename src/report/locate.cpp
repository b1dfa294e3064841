// See locate.h.
#include "report/locate.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace tally::report {
namespace {

using profile::Profile;

std::string_view base_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

std::optional<uint64_t> parse_hex(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::vector<uint32_t> modules_named(const Profile& profile, std::string_view name) {
  std::vector<uint32_t> found;
  for (const profile::Module& module : profile.modules) {
    if (module.path == name || base_name(module.path) == name) found.push_back(module.id);
  }
  return found;
}

// Every module when the filter is empty.
Result<std::vector<uint32_t>> filtered_modules(const Profile& profile, const std::string& filter) {
  std::vector<uint32_t> found;
  if (filter.empty()) {
    for (const profile::Module& module : profile.modules) found.push_back(module.id);
    return found;
  }
  found = modules_named(profile, filter);
  if (!found.empty()) return found;
  std::string known;
  for (const profile::Module& module : profile.modules) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", base_name(module.path));
  }
  return make_error(ErrorKind::kUsage, "no module '{}' in the profile; it has {}", filter, known);
}

bool contains(const std::vector<uint32_t>& modules, uint32_t module) {
  return std::find(modules.begin(), modules.end(), module) != modules.end();
}

void add_unique(std::vector<Place>& places, Place place) {
  if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
}

// Where a symbol is: by the profile's names, or else by the symbols of the modules' files (stripped
// programs have names only in separate debug files).
std::vector<Place> places_of_symbol(const Profile& profile, Symbols& symbols,
                                    const std::vector<uint32_t>& modules, std::string_view name) {
  std::vector<Place> places;
  for (const profile::Procedure& procedure : profile.procedures) {
    if (procedure.name.empty() || !contains(modules, procedure.module_id)) continue;
    if (procedure.name == name || elf::demangle(procedure.name) == name) {
      add_unique(places, {procedure.module_id, procedure.entry});
    }
  }
  if (!places.empty()) return places;
  for (uint32_t module : modules) {
    const auto& image = symbols.image(module);
    if (!image) continue;
    const elf::Symbol* symbol = (*image)->symbol_named(name);
    if (symbol != nullptr) add_unique(places, {module, symbol->range.begin});
  }
  return places;
}

Result<Place> only_one(const Symbols& symbols, const std::vector<Place>& places,
                       const std::string& text) {
  if (places.size() == 1) return places[0];
  std::string list;
  for (const Place& place : places) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ",
                        symbols.address_name(place.module, place.address));
  }
  return make_error(ErrorKind::kUsage, "'{}' is ambiguous: {}; say which with --module or address",
                    text, list);
}

// An address without a module: where code is known, the main program first.
Result<Place> place_of_address(const Profile& profile, const Symbols& symbols,
                               const std::vector<uint32_t>& modules, uint64_t address,
                               const std::string& text) {
  std::vector<Place> places;
  for (uint32_t module : modules) {
    const Place place{module, LinkAddr(address)};
    if (blocks_at(profile, place).empty()) continue;
    if (profile.modules[module].main_program) return place;
    places.push_back(place);
  }
  if (places.empty()) {
    return make_error(ErrorKind::kUsage,
                      "no block is known at {:#x}{}; the code there was not discovered", address,
                      modules.size() == 1 ? " of " + symbols.module_name(modules[0]) : "");
  }
  return only_one(symbols, places, text);
}

// `name+0x10`, where name is a module or a symbol.
Result<std::vector<Place>> places_with_offset(const Profile& profile, Symbols& symbols,
                                              const std::vector<uint32_t>& modules,
                                              const std::string& text) {
  std::vector<Place> places;
  const size_t plus = text.rfind('+');
  if (plus == std::string::npos) return places;
  const std::string name = text.substr(0, plus);
  const std::optional<uint64_t> offset = parse_hex(std::string_view(text).substr(plus + 1));
  if (!offset) return places;
  for (uint32_t module : modules_named(profile, name)) {
    if (contains(modules, module)) places.push_back({module, LinkAddr(*offset)});
  }
  if (!places.empty()) return places;
  for (Place place : places_of_symbol(profile, symbols, modules, name)) {
    places.push_back({place.module, place.address + *offset});
  }
  return places;
}

}  // namespace

Result<Place> locate(const Profile& profile, Symbols& symbols, const std::string& text,
                     const std::string& module_filter) {
  TRY_ASSIGN(const std::vector<uint32_t> modules, filtered_modules(profile, module_filter));
  std::vector<Place> places = places_of_symbol(profile, symbols, modules, text);
  if (places.empty()) {
    TRY_ASSIGN(places, places_with_offset(profile, symbols, modules, text));
  }
  if (!places.empty()) return only_one(symbols, places, text);
  if (const std::optional<uint64_t> address = parse_hex(text)) {
    return place_of_address(profile, symbols, modules, *address, text);
  }
  return make_error(ErrorKind::kUsage,
                    "no function '{}' in the profile; name one as 'tally report' prints it, or "
                    "give an address such as 0x4a10",
                    text);
}

std::vector<uint32_t> blocks_at(const Profile& profile, Place place) {
  std::vector<uint32_t> found;
  for (const profile::Block& block : profile.blocks) {
    if (profile.procedures[block.procedure_id].module_id != place.module) continue;
    if (block.address <= place.address &&
        place.address.value() - block.address.value() < block.size_bytes()) {
      found.push_back(block.id);
    }
  }
  return found;
}

}  // namespace tally::report
