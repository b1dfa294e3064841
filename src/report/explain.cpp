// See explain.h.  The facts are gathered as JSON once; the text is a rendering of them.
#include "report/explain.h"

#include <nlohmann/json.hpp>

#include "profile/checks.h"
#include "profile/counts.h"
#include "profile/flow_index.h"
#include "report/table.h"

namespace tally::report {
namespace {

using Json = nlohmann::ordered_json;
using profile::CountSource;
using profile::Profile;

std::string hex(LinkAddr address) {
  return fmt::format("{:#x}", address.value());
}

class Explainer {
 public:
  Explainer(const Profile& profile, Symbols& symbols)
      : profile_(profile), symbols_(symbols), index_(profile) {}

  Json block_facts(uint32_t id, LinkAddr address) {
    const profile::Block& block = profile_.blocks[id];
    const profile::Procedure& procedure = profile_.procedures[block.procedure_id];
    Json facts = {{"block", id},
                  {"address", hex(block.address)},
                  {"end", hex(block.address + block.size_bytes())},
                  {"instructions", block.instruction_sizes.size()},
                  {"found_by", to_string(block.provenance)},
                  {"count", block.count},
                  {"source", to_string(block.source)},
                  {"equation", block.counter == profile::Block::kNoCounter ? conservation_at(block)
                                                                           : block.equation()},
                  {"returns", block.returns}};
    facts["procedure"] = {{"name", symbols_.procedure_name(procedure)},
                          {"entry", hex(procedure.entry)},
                          {"found_by", to_string(procedure.provenance)},
                          {"entries", procedure.entries},
                          {"source", to_string(procedure.entries_source)}};
    facts["instruction"] = instruction_facts(block, address);
    facts["in"] = Json::array();
    for (uint32_t edge : index_.edges_to(id)) {
      facts["in"].push_back(edge_facts(profile_.edges[edge], profile_.edges[edge].from_block));
    }
    facts["out"] = Json::array();
    for (uint32_t edge : index_.edges_from(id)) {
      facts["out"].push_back(edge_facts(profile_.edges[edge], profile_.edges[edge].to_block));
    }
    facts["abnormal"] = Json::array();
    for (uint32_t index : index_.abnormal_at(id)) {
      const profile::Abnormal& term = profile_.abnormal[index];
      facts["abnormal"].push_back({{"kind", to_string(term.kind)},
                                   {"entered", term.entered},
                                   {"left", term.left},
                                   {"detail", term.detail}});
    }
    return facts;
  }

 private:
  // A block without a counter follows from its neighbours: what flows in flows out.
  std::string conservation_at(const profile::Block& block) const {
    if (block.source != CountSource::kDerived) return "";
    auto sum = [&](const auto& edges, bool calls) {
      std::string text;
      for (uint32_t index : edges) {
        const profile::Edge& edge = profile_.edges[index];
        const bool call =
            edge.kind == profile::EdgeKind::kCall || edge.kind == profile::EdgeKind::kIndirectCall;
        if (call && !calls) continue;
        text += (text.empty() ? "" : " + ") + with_commas(edge.count);
      }
      return text.empty() ? std::string("0") : text;
    };
    uint64_t entered = 0;
    uint64_t left = 0;
    for (uint32_t index : index_.abnormal_at(block.id)) {
      entered += profile_.abnormal[index].entered;
      left += profile_.abnormal[index].left;
    }
    std::string text = "conservation of flow: in " + sum(index_.edges_to(block.id), true);
    if (entered > 0) text += " + entered " + with_commas(entered);
    text += " = " + with_commas(block.count);
    // Calls pass the flow on to the block behind them; a return's way out is not an edge.
    if (!block.returns) {
      text += " = out " + sum(index_.edges_from(block.id), false);
      if (left > 0) text += " + left " + with_commas(left);
    }
    return text;
  }

  // The instruction at (or around) the address, and its own count where it differs.
  static Json instruction_facts(const profile::Block& block, LinkAddr address) {
    const std::vector<__int128> counts = profile::instruction_counts(block);
    LinkAddr at = block.address;
    size_t i = 0;
    while (i + 1 < counts.size() && at + block.instruction_sizes[i] <= address) {
      at += block.instruction_sizes[i++];
    }
    Json facts = {{"address", hex(at)}, {"index", i}, {"starts_here", at == address}};
    facts["count"] = block.source == CountSource::kUnknown ? 0 : static_cast<uint64_t>(counts[i]);
    return facts;
  }

  Json edge_facts(const profile::Edge& edge, uint32_t other) {
    const profile::Block& block = profile_.blocks[other];
    const profile::Procedure& procedure = profile_.procedures[block.procedure_id];
    return {{"block", symbols_.address_name(procedure.module_id, block.address)},
            {"kind", to_string(edge.kind)},
            {"count", edge.count},
            {"source", to_string(edge.source)}};
  }

  const Profile& profile_;
  Symbols& symbols_;
  profile::FlowIndex index_;
};

// "1,234 (measured)", or "unknown".
std::string count_words(const Json& facts, const char* field) {
  if (facts["source"] == "unknown") return "unknown";
  return fmt::format("{} ({})", with_commas(facts[field].get<uint64_t>()),
                     facts["source"].get<std::string>());
}

std::string text_of(const Json& value) {
  return value.get<std::string>();
}

void print_edges(const Json& edges, const char* direction, Output& output) {
  for (const Json& edge : edges) {
    output.print("  {:<14}{} {} {}\n", direction, text_of(edge["kind"]), text_of(edge["block"]),
                 count_words(edge, "count"));
  }
}

void print_block(const Json& facts, Output& output) {
  const Json& procedure = facts["procedure"];
  const Json& instruction = facts["instruction"];
  output.print("\nblock {} [{}, {})\n", facts["block"].get<uint64_t>(), text_of(facts["address"]),
               text_of(facts["end"]));
  output.print("  {:<14}{}, entry {}, found by {}, entries {}\n", "procedure",
               text_of(procedure["name"]), text_of(procedure["entry"]),
               text_of(procedure["found_by"]), count_words(procedure, "entries"));
  output.print("  {:<14}{}\n", "found by", text_of(facts["found_by"]));
  output.print("  {:<14}{}\n", "count", count_words(facts, "count"));
  const std::string equation = text_of(facts["equation"]);
  output.print("  {:<14}{}\n", "equation", equation.empty() ? "not recorded" : equation);
  output.print("  {:<14}number {} of {} at {}{}", "instruction",
               instruction["index"].get<uint64_t>() + 1, facts["instructions"].get<uint64_t>(),
               text_of(instruction["address"]),
               instruction["starts_here"].get<bool>() ? "" : " (the address is in its middle)");
  if (facts["source"] != "unknown" && instruction["count"] != facts["count"]) {
    output.print(", executed {} times", with_commas(instruction["count"].get<uint64_t>()));
  }
  output.write("\n");
  print_edges(facts["in"], "in", output);
  print_edges(facts["out"], "out", output);
  if (facts["returns"].get<bool>()) output.print("  {:<14}returns to its caller\n", "out");
  for (const Json& term : facts["abnormal"]) {
    const std::string detail = text_of(term["detail"]);
    output.print("  {:<14}{}: entered {}, left {}{}{}\n", "abnormal", text_of(term["kind"]),
                 with_commas(term["entered"].get<uint64_t>()),
                 with_commas(term["left"].get<uint64_t>()), detail.empty() ? "" : ": ", detail);
  }
}

}  // namespace

Status explain(const Profile& profile, Symbols& symbols, Place place, Format format,
               Output& output) {
  const std::vector<uint32_t> blocks = blocks_at(profile, place);
  if (blocks.empty()) {
    return make_error(ErrorKind::kUsage, "no block is known at {}; the code was not discovered",
                      symbols.address_name(place.module, place.address));
  }
  const profile::Module& module = profile.modules[place.module];
  Json facts = {{"module", module.path},
                {"build_id", module.build_id},
                {"address", hex(place.address)},
                {"target_address", fmt::format("{:#x}", place.address.value() + module.load_bias)},
                {"line", symbols.source_line(place.module, place.address)}};
  facts["blocks"] = Json::array();
  Explainer explainer(profile, symbols);
  for (uint32_t id : blocks) facts["blocks"].push_back(explainer.block_facts(id, place.address));
  if (format == Format::kJson) {
    output.write(facts.dump(2, ' ', false, Json::error_handler_t::replace));
    output.write("\n");
    return Ok{};
  }
  output.heading(symbols.address_name(place.module, place.address));
  const std::string line = text_of(facts["line"]);
  output.print("  {} (build-id {}), in memory {}{}{}\n", module.path,
               module.build_id.empty() ? "none" : module.build_id, text_of(facts["target_address"]),
               line.empty() ? "" : ", ", line);
  for (const Json& block : facts["blocks"]) print_block(block, output);
  return Ok{};
}

}  // namespace tally::report
