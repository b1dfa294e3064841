// See blocks_together.h.
#include "cache/blocks_together.h"

#include <algorithm>

#include "base/check.h"

namespace tally::engine {

using cfg::EdgeKind;

namespace {

// Of a block's runs; what leaves a loop: of the times that the loop is entered, which weigh about 1
// where the loop is on most ways through the procedure.
constexpr double kUnlikely = 0.3, kNotLikely = 0.6;

bool is_branch(const cfg::Block& block, const cfg::Edge& edge) {
  return edge.kind == EdgeKind::kTaken ||
         (edge.kind == EdgeKind::kFallthrough && block.edge_count == 2);
}

}  // namespace

std::vector<bool> followed_edges(const cfg::Procedure& procedure, const placement::Graph& graph,
                                 Followed which) {
  const double part = which == Followed::kUnlessUnlikely ? kUnlikely : kNotLikely;
  std::vector<bool> followed(procedure.edges.size(), false);
  for (const cfg::Block& block : procedure.blocks) {
    const uint32_t end = block.first_edge + block.edge_count;
    double runs = 0;
    for (uint32_t e = block.first_edge; e < end; ++e) runs += graph.edges[e].weight;
    for (uint32_t e = block.first_edge; e < end; ++e) {
      const cfg::Edge& edge = procedure.edges[e];
      if (edge.to == cfg::kExitBlock || edge.kind == EdgeKind::kTableJump) continue;
      const placement::Edge& weighed = graph.edges[e];
      const double least = part * (weighed.leaves_loop ? std::min(runs, 1.0) : runs);
      followed[e] = !is_branch(block, edge) || weighed.weight >= least;
    }
  }
  return followed;
}

std::vector<bool> edges_that_must_be_followed(const cfg::Procedure& procedure) {
  std::vector<bool> followed;
  followed.reserve(procedure.edges.size());
  for (const cfg::Edge& edge : procedure.edges) {
    followed.push_back(edge.kind == EdgeKind::kCallReturn);
  }
  return followed;
}

std::vector<uint32_t> blocks_together(const cfg::Procedure& procedure,
                                      const std::vector<bool>& followed, uint32_t block,
                                      const std::function<bool(uint32_t)>& has_code) {
  CHECK(followed.size() == procedure.edges.size()) << followed.size() << " edges";
  std::vector<bool> seen(procedure.blocks.size(), false);
  std::vector<uint32_t> together{block};
  seen[block] = true;
  for (size_t i = 0; i < together.size(); ++i) {
    const cfg::Block& from = procedure.blocks[together[i]];
    for (uint32_t e = from.first_edge; e < from.first_edge + from.edge_count; ++e) {
      const uint32_t to = procedure.edges[e].to;
      if (!followed[e] || seen[to] || has_code(to)) continue;
      seen[to] = true;
      together.push_back(to);
    }
  }
  std::ranges::sort(together);
  return together;
}

}  // namespace tally::engine
