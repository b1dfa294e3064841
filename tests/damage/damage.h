// Damages a correct profile of Tally in the ways that Moseley, Debray and Andrews met ("Verifying
// Program Profiles", sections 2 and 5), one wrong thing at a time, by a seed.
//
//   overflow     one counter (of a block, an edge or a procedure's entries) has only 32 bits; all
//                counts are first multiplied by the same number, which keeps every equation
//   data         a stretch of data, padding or nothing is taken for a block that ran
//   missed-edge  an edge that was taken is not in the profile
//   missed-call  a call that was made is not
//   missed-block a block that ran is not, nor its edges
//   exit         a single execution at the end of the run is booked wrongly
//   own-write    the profiler's own calls of `write` are counted as the program's
//
// All of these contradict the rest of the profile, so a static check can find them; `expected` says
// as what.  What no static check can find is not made here: a chord's counter that wraps before
// the other counts are derived from it, or a whole run counted twice, leave every equation true.
//
// Blocks that several procedures share are left alone: the profile does not say whose their entries
// are, so that their equations are open (`tally check` counts them).
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "claims/check.h"
#include "elf/image.h"
#include "profile/model.h"

namespace tally::damage {

enum class Kind : uint8_t {
  kOverflowBlock,
  kOverflowEdge,
  kOverflowEntries,
  kData,
  kMissedEdge,
  kMissedCall,
  kMissedBlock,
  kExitNotBooked,
  kExitNotCounted,
  kOwnWrite,
};
inline constexpr Kind kKindLast = Kind::kOwnWrite;

inline const char* to_string(Kind kind) {
  static constexpr const char* kNames[] = {"overflow-block", "overflow-edge",   "overflow-entries",
                                           "data",           "missed-edge",     "missed-call",
                                           "missed-block",   "exit-not-booked", "exit-not-counted",
                                           "own-write"};
  return kNames[static_cast<size_t>(kind)];
}

struct Done {
  claims::FaultKind expected = claims::FaultKind::kFlow;
  claims::Place place;  // where a finding of that kind has to be
  std::string words;
};

class Damager {
 public:
  // `profile` is correct, valid and of files that are there.
  explicit Damager(const profile::Profile& profile) : original_(profile) {
    std::map<claims::Place, int> at;
    for (const profile::Block& block : profile.blocks) ++at[place(block)];
    for (const profile::Block& block : profile.blocks) {
      shared_.push_back(at[place(block)] > 1 || generated(block));
    }
    out_.resize(profile.blocks.size());
    in_.resize(profile.blocks.size());
    for (uint32_t i = 0; i < profile.edges.size(); ++i) {
      out_[profile.edges[i].from_block].push_back(i);
      in_[profile.edges[i].to_block].push_back(i);
    }
    for (const profile::Abnormal& term : profile.abnormal) abnormal_.insert(term.block);
  }

  // nullopt: this profile offers nothing for that kind.
  std::optional<Done> apply(Kind kind, uint64_t seed, profile::Profile& damaged) {
    random_.seed(seed * 16 + static_cast<uint64_t>(kind));
    damaged = original_;
    switch (kind) {
      case Kind::kOverflowBlock:
        return overflow_block(damaged);
      case Kind::kOverflowEdge:
        return overflow_edge(damaged);
      case Kind::kOverflowEntries:
        return overflow_entries(damaged);
      case Kind::kData:
        return data(damaged);
      case Kind::kMissedEdge:
      case Kind::kMissedCall:
        return missed_edge(damaged, kind == Kind::kMissedCall);
      case Kind::kMissedBlock:
        return missed_block(damaged);
      case Kind::kExitNotBooked:
      case Kind::kExitNotCounted:
        return exit(damaged, kind == Kind::kExitNotBooked);
      case Kind::kOwnWrite:
        return own_write(damaged);
    }
    return std::nullopt;
  }

 private:
  using Profile = profile::Profile;
  using EdgeKind = profile::EdgeKind;

  claims::Place place(const profile::Block& block) const {
    return {original_.procedures[block.procedure_id].module_id, block.address};
  }
  bool generated(const profile::Block& block) const {
    return original_.modules[place(block).module].path.starts_with('[');
  }
  static bool is_call(EdgeKind kind) {
    return kind == EdgeKind::kCall || kind == EdgeKind::kIndirectCall;
  }
  uint64_t number(uint64_t below) { return random_() % below; }

  // One of the indexes below `size` for which `fits` holds.
  template <class Fits>
  std::optional<uint32_t> pick(size_t size, Fits fits) {
    std::vector<uint32_t> fitting;
    for (uint32_t i = 0; i < size; ++i) {
      if (fits(i)) fitting.push_back(i);
    }
    if (fitting.empty()) return std::nullopt;
    return fitting[number(fitting.size())];
  }

  // Multiplies every count so that `count` needs more than 32 bits.
  void scale_beyond(Profile& profile, uint64_t count) {
    const uint64_t factor = (uint64_t{1} << 32) / count + 1 + number(3);
    for (auto& block : profile.blocks) block.count *= factor;
    for (auto& edge : profile.edges) edge.count *= factor;
    for (auto& procedure : profile.procedures) procedure.entries *= factor;
    for (auto& term : profile.abnormal) {
      term.entered *= factor;
      term.left *= factor;
    }
  }
  // Large enough that scaling it leaves the largest count within 64 bits.
  bool scalable(uint64_t count) const {
    uint64_t most = 1;
    for (const auto& block : original_.blocks) most = std::max(most, block.count);
    return count > most >> 28;
  }
  static uint64_t wrap(uint64_t& count) {
    count &= UINT32_MAX;
    return count;
  }

  std::optional<Done> overflow_block(Profile& profile) {
    const auto id = pick(profile.blocks.size(), [&](uint32_t i) {
      return !shared_[i] && profile.blocks[i].count > 0 && scalable(profile.blocks[i].count);
    });
    if (!id) return std::nullopt;
    scale_beyond(profile, profile.blocks[*id].count);
    wrap(profile.blocks[*id].count);
    return Done{claims::FaultKind::kOverflow32, place(profile.blocks[*id]), "a block's counter"};
  }

  std::optional<Done> overflow_edge(Profile& profile) {
    const auto id = pick(profile.edges.size(), [&](uint32_t i) {
      const profile::Edge& edge = profile.edges[i];
      return edge.count > 0 && scalable(edge.count) && !shared_[edge.from_block] &&
             !shared_[edge.to_block];
    });
    if (!id) return std::nullopt;
    scale_beyond(profile, profile.edges[*id].count);
    wrap(profile.edges[*id].count);
    return Done{claims::FaultKind::kOverflow32,
                place(profile.blocks[profile.edges[*id].from_block]), "an edge's counter"};
  }

  std::optional<Done> overflow_entries(Profile& profile) {
    const auto id = pick(profile.procedures.size(), [&](uint32_t i) {
      const profile::Procedure& procedure = profile.procedures[i];
      return procedure.entries > 0 && scalable(procedure.entries) && entry_block(procedure);
    });
    if (!id) return std::nullopt;
    profile::Procedure& procedure = profile.procedures[*id];
    scale_beyond(profile, procedure.entries);
    wrap(procedure.entries);
    return Done{claims::FaultKind::kOverflow32,
                {procedure.module_id, procedure.entry},
                "a procedure's counter"};
  }

  // The block at the entry, if it is the procedure's alone.
  std::optional<uint32_t> entry_block(const profile::Procedure& procedure) const {
    for (const profile::Block& block : original_.blocks) {
      if (block.procedure_id == procedure.id && block.address == procedure.entry) {
        return shared_[block.id] ? std::nullopt : std::optional(block.id);
      }
    }
    return std::nullopt;
  }

  std::optional<Done> data(Profile& profile) {
    const auto main = std::find_if(profile.modules.begin(), profile.modules.end(),
                                   [](const profile::Module& m) { return m.main_program; });
    const auto image = elf::Image::open(main->path);
    const auto procedure = std::find_if(
        profile.procedures.begin(), profile.procedures.end(), [&](const profile::Procedure& p) {
          return p.module_id == main->id && p.provenance != profile::Provenance::kRunTime;
        });
    if (!image || procedure == profile.procedures.end()) return std::nullopt;
    std::vector<elf::Segment> segments;
    LinkAddr behind;
    for (const elf::Segment& segment : (*image)->segments()) {
      if (!segment.executable) segments.push_back(segment);
      behind = std::max(behind, segment.range.end);
    }
    if (segments.empty()) return std::nullopt;
    profile::Block block;
    block.id = static_cast<uint32_t>(profile.blocks.size());
    block.procedure_id = procedure->id;
    const elf::Segment& segment = segments[number(segments.size())];
    block.address = number(4) == 0 ? behind + 4096 + number(1 << 20)
                                   : segment.range.begin + number(segment.range.size_bytes() - 15);
    block.instruction_sizes = std::vector<uint8_t>{1, static_cast<uint8_t>(1 + number(14))};
    block.count = 1 + number(1000);
    block.source = profile::CountSource::kMeasured;
    profile.blocks.push_back(block);
    return Done{claims::FaultKind::kNotCode, {main->id, block.address}, "data taken for code"};
  }

  bool has_twin(uint32_t edge) const {
    const profile::Edge& one = original_.edges[edge];
    return std::count_if(out_[one.from_block].begin(), out_[one.from_block].end(), [&](uint32_t i) {
             return original_.edges[i].to_block == one.to_block;
           }) > 1;
  }

  // Executed more than once: a single execution behind a call may as well be one at the run's end.
  static constexpr uint64_t kTold = 2;

  std::optional<Done> missed_edge(Profile& profile, bool call) {
    const auto id = pick(profile.edges.size(), [&](uint32_t i) {
      const profile::Edge& edge = profile.edges[i];
      const bool direct =
          edge.kind != EdgeKind::kIndirectJump && edge.kind != EdgeKind::kIndirectCall;
      const bool here = place(profile.blocks[edge.from_block]).module ==
                        place(profile.blocks[edge.to_block]).module;
      return edge.count >= kTold && is_call(edge.kind) == call && direct && here && !has_twin(i) &&
             !shared_[edge.from_block] && !shared_[edge.to_block];
    });
    if (!id) return std::nullopt;
    const profile::Edge edge = profile.edges[*id];
    profile.edges.erase(profile.edges.begin() + *id);
    return Done{claims::FaultKind::kMissingEdge, place(profile.blocks[edge.from_block]),
                call ? "a missed call" : "a missed edge"};
  }

  // Control reaches it from a block that says so itself.
  bool led_to(uint32_t block) const {
    return std::any_of(in_[block].begin(), in_[block].end(), [&](uint32_t i) {
      const profile::Edge& edge = original_.edges[i];
      return edge.from_block != block && edge.count >= kTold && !shared_[edge.from_block] &&
             edge.kind != EdgeKind::kIndirectJump && edge.kind != EdgeKind::kIndirectCall &&
             place(original_.blocks[edge.from_block]).module ==
                 place(original_.blocks[block]).module;
    });
  }

  std::optional<Done> missed_block(Profile& profile) {
    const auto id = pick(profile.blocks.size(), [&](uint32_t i) {
      return profile.blocks[i].count >= kTold && !shared_[i] && !abnormal_.contains(i) && led_to(i);
    });
    if (!id) return std::nullopt;
    const claims::Place where = place(profile.blocks[*id]);
    remove_block(profile, *id);
    return Done{claims::FaultKind::kMissingBlock, where, "a missed block"};
  }

  static void remove_block(Profile& profile, uint32_t id) {
    profile.blocks.erase(profile.blocks.begin() + id);
    for (uint32_t i = id; i < profile.blocks.size(); ++i) profile.blocks[i].id = i;
    std::erase_if(profile.edges, [id](const profile::Edge& edge) {
      return edge.from_block == id || edge.to_block == id;
    });
    for (profile::Edge& edge : profile.edges) {
      edge.from_block -= edge.from_block > id;
      edge.to_block -= edge.to_block > id;
    }
    for (profile::Abnormal& term : profile.abnormal) term.block -= term.block > id;
  }

  std::optional<Done> exit(Profile& profile, bool term_lost) {
    const auto id = pick(profile.abnormal.size(), [&](uint32_t i) {
      const profile::Abnormal& term = profile.abnormal[i];
      return term.left > 0 && term.kind == profile::AbnormalKind::kProgramExit &&
             !shared_[term.block] && ends_in_call(term.block);
    });
    if (!id) return std::nullopt;
    profile::Abnormal& term = profile.abnormal[*id];
    if (term_lost) {
      --term.left;
    } else {
      --profile.blocks[term.block].count;
    }
    return Done{claims::FaultKind::kOffByOne, place(profile.blocks[term.block]),
                "off by one at the exit"};
  }

  bool ends_in_call(uint32_t block) const {
    return std::any_of(out_[block].begin(), out_[block].end(), [&](uint32_t i) {
      const EdgeKind kind = original_.edges[i].kind;
      return is_call(kind) || kind == EdgeKind::kCallReturn || kind == EdgeKind::kSystemCall;
    });
  }

  // Some more runs through a procedure, along one way from its entry to a return.
  std::optional<Done> own_write(Profile& profile) {
    const auto id = pick(profile.procedures.size(), [&](uint32_t i) {
      const std::string& name = profile.procedures[i].name;
      return name.find("write") != std::string::npos && profile.procedures[i].entries > 0 &&
             !way_through(profile.procedures[i]).empty();
    });
    if (!id) return std::nullopt;
    profile::Procedure& procedure = profile.procedures[*id];
    const uint64_t more = 1 + number(9);
    procedure.entries += more;
    profile.blocks[*entry_block(procedure)].count += more;
    for (const uint32_t edge : way_through(procedure)) {
      if (edge == kNoEdge) break;
      profile.edges[edge].count += more;
      profile.blocks[profile.edges[edge].to_block].count += more;
    }
    return Done{claims::FaultKind::kEntries,
                {procedure.module_id, procedure.entry},
                "the profiler's own " + procedure.name};
  }

  static constexpr uint32_t kNoEdge = UINT32_MAX;

  // Edges from the entry to a return, the most taken ones and without calls; empty: there is no
  // such way.  A single kNoEdge: the entry block returns.
  std::vector<uint32_t> way_through(const profile::Procedure& procedure) const {
    const auto entry = entry_block(procedure);
    if (!entry) return {};
    std::vector<uint32_t> way;
    std::set<uint32_t> seen;
    for (uint32_t block = *entry; seen.insert(block).second && !shared_[block];) {
      if (original_.blocks[block].returns) {
        if (way.empty()) way.push_back(kNoEdge);
        return way;
      }
      uint32_t best = kNoEdge;
      for (const uint32_t edge : out_[block]) {
        if (is_call(original_.edges[edge].kind)) return {};
        if (best == kNoEdge || original_.edges[edge].count > original_.edges[best].count)
          best = edge;
      }
      if (best == kNoEdge) return {};
      way.push_back(best);
      block = original_.edges[best].to_block;
      if (original_.blocks[block].procedure_id != procedure.id) return {};
    }
    return {};
  }

  const Profile& original_;
  std::mt19937_64 random_;
  std::vector<bool> shared_;
  std::vector<std::vector<uint32_t>> out_;
  std::vector<std::vector<uint32_t>> in_;
  std::set<uint32_t> abnormal_;
};

}  // namespace tally::damage
