// Our own profile as claims.
//
// Blocks and edges are taken over as they are.  What the profile calls unknown is not claimed: such
// edges are left out, and the blocks around them are marked as unsure.  Blocks that several
// procedures share stay one claim for each; whoever looks by address adds them up.
#include <algorithm>

#include "claims/reader.h"
#include "profile/checks.h"
#include "profile/file.h"

namespace tally::claims {
namespace {

using profile::CountSource;

class Converter {
 public:
  explicit Converter(const profile::Profile& profile) : profile_(profile) {}

  Claims run(const std::string& file) {
    claims_.form = Form::kTally;
    claims_.file = file;
    claims_.producer = "tally " + profile_.run.tally_version;
    claims_.command_line = profile_.run.command_line;
    for (const profile::Module& module : profile_.modules) {
      claims_.modules.push_back({module.path, module.build_id, module.main_program});
    }
    add_procedures();
    add_blocks();
    add_edges();
    add_abnormal();
    for (const profile::Issue& issue : profile_.issues) {
      claims_.admissions.push_back(
          fmt::format("{}: {} ({})", issue.scope, issue.message, issue.amount));
    }
    claims_.silences = {"returns have no edges: `call_return` says how often calls came back",
                        "corrections of single instructions (partial runs) are not looked at"};
    return std::move(claims_);
  }

 private:
  Place place_of(uint32_t procedure, LinkAddr address) const {
    return {profile_.procedures[procedure].module_id, address};
  }
  Place place_of(uint32_t block) const {
    return place_of(profile_.blocks[block].procedure_id, profile_.blocks[block].address);
  }

  // Procedures with unknown entries keep their index, so that blocks can refer to it, but make no
  // claim: they are named without a record.
  void add_procedures() {
    for (const profile::Procedure& procedure : profile_.procedures) {
      claims_.procedures.push_back({.entry = place_of(procedure.id, procedure.entry),
                                    .name = procedure.name,
                                    .count = procedure.entries,
                                    .record = Record{procedure.id} + 1});
      claims_.procedures.back().unsure = procedure.entries_source == CountSource::kUnknown;
    }
  }

  void add_blocks() {
    for (const profile::Block& block : profile_.blocks) {
      claims_.blocks.push_back({.begin = place_of(block.id),
                                .size_bytes = block.size_bytes(),
                                .count = block.count,
                                .record = Record{block.id} + 1,
                                .procedure = block.procedure_id,
                                .returns = block.returns,
                                .unsure = block.source == CountSource::kUnknown,
                                .arrived = profile_.procedures[block.procedure_id].provenance ==
                                           profile::Provenance::kRunTime});
    }
  }

  void add_edges() {
    for (size_t i = 0; i < profile_.edges.size(); ++i) {
      const profile::Edge& edge = profile_.edges[i];
      if (edge.source == CountSource::kUnknown) {
        claims_.blocks[edge.from_block].unsure = true;
        claims_.blocks[edge.to_block].unsure = true;
        continue;
      }
      claims_.edges.push_back({.from = place_of(edge.from_block),
                               .to = place_of(edge.to_block),
                               .count = edge.count,
                               .record = i + 1,
                               .origin = EdgeOrigin::kBlockBegin,
                               .role = role_of(edge.kind)});
    }
  }

  void add_abnormal() {
    for (const profile::Abnormal& term : profile_.abnormal) {
      uint64_t behind_call = 0;
      // A vfork child shares its parent's frames, and an attached process had made its calls
      // before.
      if (term.kind == profile::AbnormalKind::kThreadStart ||
          term.kind == profile::AbnormalKind::kAttach) {
        behind_call = term.entered;
      } else if (term.kind == profile::AbnormalKind::kNonLocalJump) {
        // ... or an exception's handler begins there.
        behind_call =
            std::min(term.entered, profile::runs_not_executed(profile_.blocks[term.block]));
      }
      claims_.abnormal.push_back({.block = place_of(term.block),
                                  .entered = term.entered,
                                  .left = term.left,
                                  .behind_call = behind_call});
    }
  }

  const profile::Profile& profile_;
  Claims claims_;
};

// The program as the user names it has to be the one that the profile is of.
Status bind_program(const Source& source, Claims& claims) {
  const auto main = std::find_if(claims.modules.begin(), claims.modules.end(),
                                 [](const Module& module) { return module.main_program; });
  if (main == claims.modules.end()) {
    return make_error("{}: names no main program; the profile is damaged", source.path);
  }
  const std::string& given = source.options.program_path;
  const std::string path = given.empty() ? main->path : absolute(given);
  const auto image = elf::Image::open(path);
  if (!image && given.empty()) {
    claims.admissions.push_back(
        fmt::format("{}; say where it is now with --program", image.error().message));
    return Ok{};
  }
  if (!image) return image.error();
  if ((*image)->build_id() != main->build_id) {
    return make_error(
        "{}: is a profile of another build: '{}' has build-id {}, the profile is of {}; profile "
        "again, or name the program that ran with --program",
        source.path, path, (*image)->build_id().empty() ? "none" : (*image)->build_id(),
        main->build_id.empty() ? "none" : main->build_id);
  }
  main->path = path;
  return Ok{};
}

Result<profile::Profile> load(const Source& source, bool& rows_as_in_file) {
  TRY_ASSIGN(profile::Reader reader, profile::Reader::open(source.path));
  rows_as_in_file = reader.runs().size() == 1;
  if (rows_as_in_file && !source.options.run) return reader.read(0);
  return profile::load(source.path, source.options.run);
}

}  // namespace

EdgeRole role_of(profile::EdgeKind kind) {
  switch (kind) {
    case profile::EdgeKind::kFallthrough:
      return EdgeRole::kFallthrough;
    case profile::EdgeKind::kTaken:
    case profile::EdgeKind::kJump:
    case profile::EdgeKind::kIndirectJump:
      return EdgeRole::kBranch;
    case profile::EdgeKind::kCall:
    case profile::EdgeKind::kIndirectCall:
      return EdgeRole::kCall;
    case profile::EdgeKind::kCallReturn:
      return EdgeRole::kCallReturn;
    case profile::EdgeKind::kSystemCall:
      return EdgeRole::kSystemCall;
  }
  return EdgeRole::kUnknown;
}

Claims claims_of(const profile::Profile& profile, const std::string& file) {
  return Converter(profile).run(file);
}

Result<Claims> read_tally(const Source& source) {
  bool rows_as_in_file = false;
  TRY_ASSIGN(const profile::Profile profile, load(source, rows_as_in_file));
  Claims claims = claims_of(profile, source.path);
  if (!rows_as_in_file) {
    for (BlockClaim& block : claims.blocks) block.record = 0;
    for (EdgeClaim& edge : claims.edges) edge.record = 0;
    for (ProcedureClaim& procedure : claims.procedures) procedure.record = 0;
  }
  TRY(bind_program(source, claims));
  return claims;
}

}  // namespace tally::claims
