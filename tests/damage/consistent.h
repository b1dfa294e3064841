// Makes a correct profile of Tally wrong in ways that leave every equation true, by a seed: what no
// static check can find, and only a run of the program can.
//
//   rounds     a loop went around some times more, with all that its calls execute
//   other-way  where two ways lead from one block to another, some executions took the other one
//              (what an instrumented program does whose hash codes hang on addresses)
//   several    three of these at once, somewhere
//
// A change is a sum of walks: along each edge of a walk the same number is added to the edge and to
// the block it leads to, and where it passes a call, a walk through the callee belongs to it.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "profile/model.h"

namespace tally::damage {

enum class Consistent : uint8_t { kRounds, kOtherWay, kSeveral };
inline constexpr Consistent kConsistentLast = Consistent::kSeveral;

inline const char* to_string(Consistent kind) {
  static constexpr const char* kNames[] = {"rounds", "other-way", "several"};
  return kNames[static_cast<size_t>(kind)];
}

// What was added where; nothing is zero.
struct Change {
  std::map<uint32_t, int64_t> edges, blocks, procedures;  // by index in the profile
};

class ConsistentDamager {
 public:
  explicit ConsistentDamager(const profile::Profile& profile) : original_(profile) {
    out_.resize(profile.blocks.size());
    for (uint32_t i = 0; i < profile.edges.size(); ++i) {
      out_[profile.edges[i].from_block].push_back(i);
    }
  }

  // nullopt: this profile offers nothing for that kind.
  std::optional<Change> apply(Consistent kind, uint64_t seed, profile::Profile& damaged) {
    random_.seed(seed * 4 + static_cast<uint64_t>(kind));
    constexpr int kAttempts = 2000;
    for (int i = 0; i < kAttempts; ++i) {
      change_ = {};
      const bool done = kind == Consistent::kRounds     ? rounds()
                        : kind == Consistent::kOtherWay ? other_way()
                                                        : several();
      if (!done || !settle()) continue;
      damaged = original_;
      for (const auto& [id, n] : change_.edges) damaged.edges[id].count += uint64_t(n);
      for (const auto& [id, n] : change_.blocks) damaged.blocks[id].count += uint64_t(n);
      for (const auto& [id, n] : change_.procedures) damaged.procedures[id].entries += uint64_t(n);
      return change_;
    }
    return std::nullopt;
  }

 private:
  using EdgeKind = profile::EdgeKind;

  uint64_t number(uint64_t below) { return random_() % below; }
  const profile::Edge& edge(uint32_t id) const { return original_.edges[id]; }
  static bool is_call(EdgeKind kind) {
    return kind == EdgeKind::kCall || kind == EdgeKind::kIndirectCall;
  }
  // Edges along which control stays in the procedure, calls it makes left out.
  bool goes_on(uint32_t id) const {
    return !is_call(edge(id).kind) && edge(id).count > 0 &&
           original_.blocks[edge(id).from_block].procedure_id ==
               original_.blocks[edge(id).to_block].procedure_id;
  }

  // The shortest way between two blocks; `to` nullopt: to any block that returns.
  std::optional<std::vector<uint32_t>> way(uint32_t from, std::optional<uint32_t> to) const {
    std::map<uint32_t, uint32_t> by;  // block -> edge that led there first
    std::deque<uint32_t> queue = {from};
    while (!queue.empty()) {
      const uint32_t at = queue.front();
      queue.pop_front();
      const bool there = to ? at == *to : original_.blocks[at].returns;
      if (there) {
        std::vector<uint32_t> edges;
        for (uint32_t b = at; b != from; b = edge(edges.back()).from_block) {
          edges.push_back(by.at(b));
        }
        return edges;
      }
      for (const uint32_t e : out_[at]) {
        if (!goes_on(e) || edge(e).to_block == from) continue;
        if (by.try_emplace(edge(e).to_block, e).second) queue.push_back(edge(e).to_block);
      }
    }
    return std::nullopt;
  }

  bool walk(uint32_t id, int64_t n, int depth) {
    change_.edges[id] += n;
    change_.blocks[edge(id).to_block] += n;
    return edge(id).kind != EdgeKind::kCallReturn || call(edge(id).from_block, n, depth);
  }

  // The callee of a block that calls one procedure and nothing else.
  bool call(uint32_t block, int64_t n, int depth) {
    constexpr int kDepthMax = 8;
    std::optional<uint32_t> made;
    for (const uint32_t e : out_[block]) {
      if (!is_call(edge(e).kind) || edge(e).count == 0) continue;
      if (made) return false;
      made = e;
    }
    if (!made || depth == kDepthMax) return false;
    const uint32_t entry = edge(*made).to_block;
    const uint32_t callee = original_.blocks[entry].procedure_id;
    if (original_.blocks[entry].address != original_.procedures[callee].entry) return false;
    const auto through = way(entry, std::nullopt);
    if (!through) return false;
    change_.edges[*made] += n;
    change_.blocks[entry] += n;
    change_.procedures[callee] += n;
    for (const uint32_t e : *through) {
      if (!walk(e, n, depth + 1)) return false;
    }
    return true;
  }

  bool rounds() {
    const auto first = static_cast<uint32_t>(number(original_.edges.size()));
    if (!goes_on(first)) return false;
    const auto back = way(edge(first).to_block, edge(first).from_block);
    if (!back) return false;
    const int64_t n = 1 + static_cast<int64_t>(number(5));
    const int64_t sign = number(2) == 0 ? 1 : -1;
    if (!walk(first, sign * n, 0)) return false;
    for (const uint32_t e : *back) {
      if (!walk(e, sign * n, 0)) return false;
    }
    return true;
  }

  bool other_way() {
    const auto block = static_cast<uint32_t>(number(original_.blocks.size()));
    std::vector<uint32_t> ways;
    for (const uint32_t e : out_[block]) {
      if (goes_on(e)) ways.push_back(e);
    }
    if (ways.size() < 2) return false;
    const auto meeting = static_cast<uint32_t>(number(original_.blocks.size()));
    const int64_t n = 1 + static_cast<int64_t>(number(3));
    const size_t first = number(2);
    for (const size_t side : {0, 1}) {
      const auto rest = way(edge(ways[side]).to_block, meeting);
      const int64_t part = side == first ? n : -n;
      if (!rest || !walk(ways[side], part, 0)) return false;
      for (const uint32_t e : *rest) {
        if (!walk(e, part, 0)) return false;
      }
    }
    return true;
  }

  bool several() { return rounds() && other_way() && rounds(); }

  // Drops what has come to nothing; false when a count would fall below one.
  bool settle() {
    const auto clean = [](std::map<uint32_t, int64_t>& changes, auto count_of) {
      std::erase_if(changes, [](const auto& entry) { return entry.second == 0; });
      for (const auto& [id, n] : changes) {
        if (n < 0 && count_of(id) <= uint64_t(-n)) return false;
      }
      return true;
    };
    return clean(change_.edges, [&](uint32_t id) { return edge(id).count; }) &&
           clean(change_.blocks, [&](uint32_t id) { return original_.blocks[id].count; }) &&
           clean(change_.procedures,
                 [&](uint32_t id) { return original_.procedures[id].entries; }) &&
           !change_.edges.empty();
  }

  const profile::Profile& original_;
  std::mt19937_64 random_;
  std::vector<std::vector<uint32_t>> out_;
  Change change_;
};

}  // namespace tally::damage
