// See symbols.h.
#include "report/symbols.h"

#include <sys/auxv.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "report/table.h"

namespace tally::report {
namespace {

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

// The vdso has no file.  The one mapped into ourselves serves when it is the same kernel's.
Result<std::shared_ptr<elf::Image>> own_vdso() {
  const unsigned long address = ::getauxval(AT_SYSINFO_EHDR);
  std::unique_ptr<FILE, int (*)(FILE*)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
  if (address == 0 || maps == nullptr) return make_error("this process has no vdso");
  char line[512];
  while (std::fgets(line, sizeof line, maps.get()) != nullptr) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (std::sscanf(line, "%lx-%lx", &begin, &end) != 2 || begin != address) continue;
    const auto* bytes = reinterpret_cast<const uint8_t*>(begin);
    return elf::Image::from_bytes("[vdso]", std::vector<uint8_t>(bytes, bytes + (end - begin)));
  }
  return make_error("this process has no vdso");
}

std::string or_none(const std::string& build_id) {
  return build_id.empty() ? "none" : build_id;
}

Result<std::shared_ptr<elf::Image>> open_image(const profile::Module& module) {
  if (module.path.starts_with("[generated ")) return elf::Image::without_file(module.path);
  const bool vdso = module.path == "[vdso]";
  TRY_ASSIGN(std::shared_ptr<elf::Image> image, vdso ? own_vdso() : elf::Image::open(module.path));
  if (image->build_id() != module.build_id) {
    return make_error("'{}' has build-id {} now, the profile is of build-id {}", module.path,
                      or_none(image->build_id()), or_none(module.build_id));
  }
  if (!module.build_id.empty() || vdso) return image;
  std::error_code error;
  const uint64_t size_bytes = std::filesystem::file_size(module.path, error);
  if (error || size_bytes != module.size_bytes) {
    return make_error("'{}' has no build-id and is {} bytes now, the profile is of a file of {}",
                      module.path, size_bytes, module.size_bytes);
  }
  return image;
}

}  // namespace

Symbols::Symbols(const profile::Profile& profile)
    : profile_(profile), images_(profile.modules.size()) {
  std::map<std::string, int> uses;
  for (const profile::Module& module : profile.modules) ++uses[base_name(module.path)];
  for (const profile::Module& module : profile.modules) {
    const std::string name = base_name(module.path);
    module_names_.push_back(uses[name] == 1 ? name : module.path);
  }
}

const Result<std::shared_ptr<elf::Image>>& Symbols::image(uint32_t module) {
  std::optional<Result<std::shared_ptr<elf::Image>>>& slot = images_[module];
  if (!slot) slot = open_image(profile_.modules[module]);
  return *slot;
}

std::string Symbols::address_name(uint32_t module, LinkAddr address) const {
  return fmt::format("{}+{:#x}", module_names_[module], address.value());
}

std::string Symbols::raw_name(const profile::Procedure& procedure) {
  if (!procedure.name.empty()) return procedure.name;
  const auto& file = image(procedure.module_id);
  if (!file) return "";
  const elf::Symbol* symbol = (*file)->symbol_at(procedure.entry);
  // A symbol that begins earlier names the procedure around this one, not this one.
  return symbol != nullptr && symbol->range.begin == procedure.entry ? symbol->name : "";
}

std::string Symbols::procedure_name(const profile::Procedure& procedure) {
  const std::string raw = raw_name(procedure);
  if (raw.empty()) return address_name(procedure.module_id, procedure.entry);
  return elf::demangle(raw);
}

std::string Symbols::source_line(uint32_t module, LinkAddr address) {
  const auto& file = image(module);
  if (!file) return "";
  const std::optional<elf::SourceLine> line = (*file)->line_at(address);
  return line ? fmt::format("{}:{}", base_name(line->file), line->line) : "";
}

std::vector<std::string> Symbols::complaints() const {
  std::vector<std::string> lines;
  for (const auto& image : images_) {
    if (image && !*image) lines.push_back(image->error().message);
  }
  return lines;
}

}  // namespace tally::report
