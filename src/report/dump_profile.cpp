// See dump_profile.h.
#include "report/dump_profile.h"

#include <nlohmann/json.hpp>

#include "profile/run_facts.h"
#include "report/table.h"

namespace tally::report {
namespace {

using profile::Profile;

class Dumper {
 public:
  Dumper(const Profile& profile, Format format, Output& output)
      : profile_(profile), format_(format), output_(output) {}

  void run() {
    if (json()) output_.write("{");
    facts();
    modules();
    procedures();
    blocks();
    partial_runs();
    edges();
    abnormal();
    issues();
    threads();
    if (json()) output_.write("}\n");
  }

 private:
  bool json() const { return format_ == Format::kJson; }

  TableWriter table(std::string_view name, std::vector<Column> columns) {
    if (json()) {
      output_.print("{}\"{}\": ", first_ ? "" : ",", name);
    } else {
      output_.print("{}{}\n", first_ ? "" : "\n", name);
    }
    first_ = false;
    return TableWriter(output_, format_, std::move(columns));
  }

  void facts() {
    TableWriter rows = table("run", {{"name", -24}, {"value", -1}});
    visit_run_facts(profile_.run, [&](const char* name, const auto& fact) {
      rows.row({name, fmt::format("{}", fact)});
    });
    for (const std::string& argument : profile_.run.command_line) rows.row({"argument", argument});
    for (const auto& [name, value] : profile_.run.more) rows.row({name, value});
    rows.finish();
  }

  void modules() {
    TableWriter rows = table("modules", {{"id", 6},
                                         {"load_bias", 16},
                                         {"mapped_begin", 16},
                                         {"mapped_end", 16},
                                         {"size_bytes", 10},
                                         {"main", 4},
                                         {"build_id", -40},
                                         {"path", -1}});
    for (const profile::Module& module : profile_.modules) {
      rows.row({module.id, LinkAddr(module.load_bias), LinkAddr(module.mapped.begin.value()),
                LinkAddr(module.mapped.end.value()), module.size_bytes,
                module.main_program ? "yes" : "no", module.build_id, module.path});
    }
    rows.finish();
  }

  void procedures() {
    TableWriter rows = table("procedures", {{"id", 6},
                                            {"module", 6},
                                            {"entry", 12},
                                            {"size_bytes", 10},
                                            {"entries", 16},
                                            {"source", -8},
                                            {"provenance", -12},
                                            {"name", -1}});
    for (const profile::Procedure& procedure : profile_.procedures) {
      rows.row({procedure.id, procedure.module_id, procedure.entry, procedure.size_bytes,
                procedure.entries, to_string(procedure.entries_source),
                to_string(procedure.provenance), procedure.name});
    }
    rows.finish();
  }

  void blocks() {
    TableWriter rows = table("blocks", {{"id", 6},
                                        {"procedure", 9},
                                        {"address", 12},
                                        {"size_bytes", 10},
                                        {"instructions", 12},
                                        {"count", 16},
                                        {"source", -8},
                                        {"provenance", -12},
                                        {"returns", -7},
                                        {"equation", -1}});
    for (const profile::Block& block : profile_.blocks) {
      if (output_.closed()) break;
      rows.row({block.id, block.procedure_id, block.address, block.size_bytes(),
                uint64_t{block.instruction_sizes.size()}, block.count, to_string(block.source),
                to_string(block.provenance), block.returns ? "yes" : "no", block.equation()});
    }
    rows.finish();
  }

  void partial_runs() {
    TableWriter rows =
        table("partial_runs",
              {{"block", 6}, {"first_instruction", 17}, {"last_instruction", 16}, {"delta", 16}});
    for (const profile::Block& block : profile_.blocks) {
      for (const profile::PartialRun& run : block.partial) {
        rows.row(
            {block.id, run.first_instruction, run.last_instruction, fmt::format("{}", run.delta)});
      }
    }
    rows.finish();
  }

  void edges() {
    TableWriter rows =
        table("edges",
              {{"from_block", 10}, {"to_block", 10}, {"kind", -13}, {"count", 16}, {"source", -8}});
    for (const profile::Edge& edge : profile_.edges) {
      if (output_.closed()) break;
      rows.row({edge.from_block, edge.to_block, to_string(edge.kind), edge.count,
                to_string(edge.source)});
    }
    rows.finish();
  }

  void abnormal() {
    TableWriter rows = table(
        "abnormal", {{"block", 6}, {"kind", -14}, {"entered", 16}, {"left", 16}, {"detail", -1}});
    for (const profile::Abnormal& term : profile_.abnormal) {
      rows.row({term.block, to_string(term.kind), term.entered, term.left, term.detail});
    }
    rows.finish();
  }

  void issues() {
    TableWriter rows = table("issues", {{"amount", 10}, {"scope", -30}, {"message", -1}});
    for (const profile::Issue& issue : profile_.issues) {
      rows.row({issue.amount, issue.scope, issue.message});
    }
    rows.finish();
  }

  void threads() {
    TableWriter rows = table("threads", {{"run", 5},
                                         {"tid", 8},
                                         {"instructions", 20},
                                         {"begun", -6},
                                         {"ended", -11},
                                         {"name", -1}});
    for (const profile::Thread& thread : profile_.threads) {
      rows.row(
          {thread.run, thread.tid, thread.instructions, thread.begun, thread.ended, thread.name});
    }
    rows.finish();
  }

  const Profile& profile_;
  Format format_;
  Output& output_;
  bool first_ = true;
};

}  // namespace

void dump_profile(const Profile& profile, Format format, Output& output) {
  Dumper(profile, format, output).run();
}

}  // namespace tally::report
