// What a profile says of modules, and how procedures are called there.  See finish.h.
#include <fmt/format.h>

#include <algorithm>

#include "ledger/finish.h"
#include "ledger/perf_map.h"

namespace tally::engine {

profile::Module describe_module(const Module& m) {
  profile::Module module;
  module.id = m.id;
  module.path = m.path;
  if (m.generated) {
    module.path =
        fmt::format("[generated {:#x}-{:#x}]", m.mapped.begin.value(), m.mapped.end.value());
  }
  module.build_id = m.image->build_id();
  module.load_bias = m.bias;
  module.mapped = m.mapped;
  module.main_program = m.main_program;
  for (const elf::Segment& s : m.image->segments()) {
    module.size_bytes = std::max(module.size_bytes, s.offset.value() + s.file_size_bytes);
  }
  return module;
}

std::vector<profile::Module> describe_modules(const ModuleMap& modules) {
  std::vector<profile::Module> result;
  for (const auto& m : modules.all()) result.push_back(describe_module(*m));
  return result;
}

std::string procedure_name(const Unit& unit, const PerfMap& generated) {
  const LinkAddr entry = unit.procedure.entry;
  if (unit.module->generated) return generated.name_at(unit.module->to_target(entry));
  const elf::Symbol* symbol = unit.module->image->symbol_at(entry);
  return symbol == nullptr ? std::string() : symbol->name;
}

}  // namespace tally::engine
