// Bringing what the engines counted into one form.  See truth.h.
#include "verify/truth.h"

#include <fmt/format.h>

#include "claims/read.h"

namespace tally::verify {
namespace {

void open_image(TruthModule& module, const std::string& path) {
  if (module.image || path.empty() || path[0] != '/') return;
  auto image = elf::Image::open(path);
  if (image) module.image = *image;
}

bool is_repeated(const TruthModule& module, uint64_t address) {
  if (!module.image) return false;
  const auto bytes = module.image->bytes_at(LinkAddr(address));
  return !bytes.empty() && isa::decode(bytes, address).repeated;
}

}  // namespace

const TruthModule* Truth::module(const std::string& path) const {
  const auto it = modules.find(path);
  return it == modules.end() ? nullptr : &it->second;
}

void Truth::add_edge(const std::string& name, TruthEdge edge) {
  TruthModule& module = modules[name];
  if (edge.role == EdgeRole::kCall) modules[edge.to_module].arrivals[edge.to.value()] += edge.count;
  module.by_begin[edge.from_begin.value()].push_back(edge);
  module.by_last[edge.from_last.value()].push_back(std::move(edge));
}

void Truth::add(const profile::Profile& profile) {
  const auto path_of = [&](const profile::Block& b) {
    return profile.modules[profile.procedures[b.procedure_id].module_id].path;
  };
  std::vector<LinkAddr> last(profile.blocks.size());
  for (const profile::Block& b : profile.blocks) {
    TruthModule& module = modules[path_of(b)];
    open_image(module, path_of(b));
    uint64_t at = b.address.value();
    module.blocks[at] += b.count;
    for (uint32_t i = 0; i < b.instruction_sizes.size(); ++i) {
      auto count = static_cast<int64_t>(b.count);
      for (const profile::PartialRun& p : b.partial) {
        if (p.first_instruction <= i && i < p.last_instruction) count += p.delta;
      }
      const auto [it, fresh] = module.instructions.try_emplace(at);
      it->second.count += count;
      if (fresh) it->second.repeated = is_repeated(module, at);
      executed += static_cast<uint64_t>(count);
      last[b.id] = LinkAddr(at);
      at += b.instruction_sizes[i];
    }
  }
  add_handlers(profile);
  for (const profile::Edge& e : profile.edges) {
    const profile::Block& from = profile.blocks[e.from_block];
    const profile::Block& to = profile.blocks[e.to_block];
    add_edge(path_of(from), {.from_begin = from.address,
                             .from_last = last[from.id],
                             .to_module = path_of(to),
                             .to = to.address,
                             .role = claims::role_of(e.kind),
                             .count = e.count});
  }
}

// Whether a signal came at a time of its own is not in a profile.
void Truth::add_handlers(const profile::Profile& profile) {
  for (const profile::Abnormal& a : profile.abnormal) {
    if (a.kind != profile::AbnormalKind::kSignalHandler || a.entered == 0) continue;
    const profile::Block& b = profile.blocks[a.block];
    const profile::Procedure& procedure = profile.procedures[b.procedure_id];
    TruthModule& module = modules[profile.modules[procedure.module_id].path];
    const bool begins = a.detail == profile::kHandlerBegins;
    module.signal_places.try_emplace(b.address.value(),
                                     begins ? SignalPlace::kHandler : SignalPlace::kSentThere);
  }
}

void Truth::add(const Code& code, const BlockChecker& blocks, const EdgeChecker& edges,
                const InterruptionChecker& interruptions) {
  knows_interruptions = true;
  for (const auto& [id, what] : interruptions.places()) {
    const CodeBlock& b = code.block(id);
    if (what == SignalPlace::kOwn) continue;
    modules[code.module(b.module).path].signal_places[b.begin.value()] = what;
  }
  for (BlockId id = 0; id < code.block_count(); ++id) {
    const CodeBlock& b = code.block(id);
    if (b.how == BlockEnd::kUnread) continue;
    const CodeModule& source = code.module(b.module);
    TruthModule& module = modules[source.path];
    module.image = source.image;
    module.blocks[b.begin.value()] += blocks.entered(id);
    for (LinkAddr at = b.begin; at < b.end;) {
      const isa::Insn insn = isa::decode(source.code_at(at), at.value());
      if (insn.size == 0) break;
      TruthInstruction& i = module.instructions[at.value()];
      i.repeated = insn.repeated;
      auto count = static_cast<int64_t>(blocks.entered(id));
      const auto first_cut = blocks.cut().lower_bound({id, LinkAddr(0)});
      for (auto cut = first_cut; cut != blocks.cut().end() && cut->first.first == id; ++cut) {
        if (cut->first.second <= at) count -= static_cast<int64_t>(cut->second);
      }
      i.count += count;
      executed += static_cast<uint64_t>(count);
      const uint64_t interrupting = interruptions.entered(id);
      if (interrupting != 0) module.interrupting[at.value()] += interrupting;
      at = at + insn.size;
    }
  }
  for (const auto& [key, count] : edges.taken()) {
    const CodeBlock& from = code.block(key.from);
    const CodeBlock& to = code.block(key.to);
    add_edge(code.module(from.module).path, {.from_begin = from.begin,
                                             .from_last = from.last,
                                             .to_module = code.module(to.module).path,
                                             .to = to.begin,
                                             .role = key.role,
                                             .count = count});
  }
}

std::string symbol_name(const TruthModule* module, LinkAddr address) {
  if (module == nullptr || !module->image) return {};
  const elf::Symbol* symbol = module->image->symbol_at(address);
  if (symbol == nullptr || symbol->range.begin != address) return {};
  return symbol->name.substr(0, symbol->name.find('@'));
}

Procedure procedure_at(const Truth& truth, const std::string& path, LinkAddr address) {
  const TruthModule* module = truth.module(path);
  if (module == nullptr || !module->image) return {path, address.value()};
  const LinkAddr begin = procedure_around(*module->image, address);
  return {path, begin == LinkAddr() ? address.value() : begin.value()};
}

std::string name_of(const Truth& truth, const Procedure& procedure) {
  const std::string name = symbol_name(truth.module(procedure.first), LinkAddr(procedure.second));
  if (!name.empty()) return elf::demangle(name);
  return fmt::format("{}+{:#x}", procedure.first.substr(procedure.first.rfind('/') + 1),
                     procedure.second);
}

}  // namespace tally::verify
