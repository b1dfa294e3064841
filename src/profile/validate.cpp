// One function per table; each stops at the first row that is wrong.  See validate.h.
#include "profile/validate.h"

#include <limits>
#include <string_view>

#include "profile/counts.h"

namespace tally::profile {
namespace {

Status bad_row(std::string_view table, size_t row, std::string_view what) {
  return make_error("{} row {}: {}", table, row, what);
}

// True when [address, address + size) does not wrap around.
bool fits(LinkAddr address, uint64_t size_bytes) {
  return size_bytes <= std::numeric_limits<uint64_t>::max() - address.value();
}

Status validate_modules(const Profile& profile) {
  for (size_t i = 0; i < profile.modules.size(); ++i) {
    const Module& module = profile.modules[i];
    if (module.id != i) return bad_row("modules", i, "its id is not its index");
    if (module.mapped.end < module.mapped.begin) {
      return bad_row("modules", i, "its mapping ends before it begins");
    }
  }
  return Ok{};
}

Status validate_procedures(const Profile& profile) {
  for (size_t i = 0; i < profile.procedures.size(); ++i) {
    const Procedure& procedure = profile.procedures[i];
    if (procedure.id != i) return bad_row("procedures", i, "its id is not its index");
    if (procedure.module_id >= profile.modules.size()) {
      return bad_row("procedures", i, fmt::format("no module {}", procedure.module_id));
    }
    if (static_cast<uint8_t>(procedure.provenance) > kProvenanceLast) {
      return bad_row("procedures", i, "unknown provenance");
    }
    if (static_cast<uint8_t>(procedure.entries_source) > kCountSourceLast) {
      return bad_row("procedures", i, "unknown source of its count");
    }
  }
  return Ok{};
}

// Partial runs may overlap; what matters is that no instruction ends up below zero.
Status validate_partial_runs(const Block& block) {
  if (block.partial.empty()) return Ok{};
  for (const PartialRun& run : block.partial) {
    if (run.first_instruction > run.last_instruction ||
        run.last_instruction > block.instruction_sizes.size()) {
      return bad_row("blocks", block.id, "a partial run lies outside the block");
    }
  }
  if (block.source == CountSource::kUnknown) return Ok{};
  for (__int128 count : instruction_counts(block)) {
    if (count < 0 || count > std::numeric_limits<uint64_t>::max()) {
      return bad_row("blocks", block.id, "partial runs make an instruction's count impossible");
    }
  }
  return Ok{};
}

Status validate_blocks(const Profile& profile) {
  for (size_t i = 0; i < profile.blocks.size(); ++i) {
    const Block& block = profile.blocks[i];
    if (block.id != i) return bad_row("blocks", i, "its id is not its index");
    if (block.procedure_id >= profile.procedures.size()) {
      return bad_row("blocks", i, fmt::format("no procedure {}", block.procedure_id));
    }
    if (static_cast<uint8_t>(block.provenance) > kProvenanceLast) {
      return bad_row("blocks", i, "unknown provenance");
    }
    if (static_cast<uint8_t>(block.source) > kCountSourceLast) {
      return bad_row("blocks", i, "unknown source of its count");
    }
    if (block.instruction_sizes.empty()) return bad_row("blocks", i, "no instructions");
    for (uint8_t size : block.instruction_sizes) {
      if (size == 0 || size > kInstructionSizeMax) {
        return bad_row("blocks", i, fmt::format("an instruction of {} bytes", size));
      }
    }
    if (!fits(block.address, block.size_bytes())) {
      return bad_row("blocks", i, "it wraps around the address space");
    }
    TRY(validate_partial_runs(block));
  }
  return Ok{};
}

Status validate_edges(const Profile& profile) {
  for (size_t i = 0; i < profile.edges.size(); ++i) {
    const Edge& edge = profile.edges[i];
    for (uint32_t block : {edge.from_block, edge.to_block}) {
      if (block >= profile.blocks.size()) {
        return bad_row("edges", i, fmt::format("no block {}", block));
      }
    }
    if (static_cast<uint8_t>(edge.kind) > kEdgeKindLast) {
      return bad_row("edges", i, "unknown kind");
    }
    if (static_cast<uint8_t>(edge.source) > kCountSourceLast) {
      return bad_row("edges", i, "unknown source of its count");
    }
  }
  return Ok{};
}

Status validate_abnormal(const Profile& profile) {
  for (size_t i = 0; i < profile.abnormal.size(); ++i) {
    const Abnormal& term = profile.abnormal[i];
    if (term.block >= profile.blocks.size()) {
      return bad_row("abnormal", i, fmt::format("no block {}", term.block));
    }
    if (static_cast<uint8_t>(term.kind) > kAbnormalKindLast) {
      return bad_row("abnormal", i, "unknown kind");
    }
  }
  return Ok{};
}

}  // namespace

Status validate(const Profile& profile) {
  TRY(validate_modules(profile));
  TRY(validate_procedures(profile));
  TRY(validate_blocks(profile));
  TRY(validate_edges(profile));
  TRY(validate_abnormal(profile));
  return Ok{};
}

}  // namespace tally::profile
