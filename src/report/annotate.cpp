// See annotate.h.  Blocks come in the order of their addresses; each begins with a line of its own
// and ends with the edges that leave it.  Instructions that lie in two blocks (a jump into the
// middle of one) are shown in both, each with its own block's count.
#include "report/annotate.h"

#include <set>

#include "profile/counts.h"
#include "profile/flow_index.h"
#include "report/table.h"

namespace tally::report {
namespace {

using profile::Block;
using profile::CountSource;
using profile::Profile;

std::string count_words(unsigned __int128 count, CountSource source) {
  if (source == CountSource::kUnknown) return "unknown";
  return with_commas(count);
}

// The procedure that begins at the place, or else all that have a block there.
std::set<uint32_t> procedures_at(const Profile& profile, Place place) {
  std::set<uint32_t> found;
  for (const profile::Procedure& procedure : profile.procedures) {
    if (procedure.module_id == place.module && procedure.entry == place.address) {
      found.insert(procedure.id);
    }
  }
  if (!found.empty()) return found;
  for (uint32_t block : blocks_at(profile, place)) {
    found.insert(profile.blocks[block].procedure_id);
  }
  return found;
}

// One instruction with everything that is said about it.
struct Line {
  LinkAddr address;
  unsigned __int128 count = 0;
  std::string text;
  std::string source_line;
};

class Annotator {
 public:
  Annotator(const Profile& profile, Symbols& symbols, const elf::Image& image, Syntax syntax,
            Format format, Output& output)
      : profile_(profile),
        symbols_(symbols),
        image_(image),
        syntax_(syntax),
        format_(format),
        output_(output),
        index_(profile) {}

  void run(const std::set<uint32_t>& procedures) {
    if (format_ != Format::kText) {
      rows(procedures);
      return;
    }
    bool first = true;
    for (uint32_t id : procedures) {
      if (!first) output_.write("\n");
      first = false;
      procedure(profile_.procedures[id]);
    }
  }

 private:
  void rows(const std::set<uint32_t>& procedures) {
    TableWriter table(
        output_, format_,
        {{"procedure"}, {"block"}, {"address"}, {"count"}, {"source"}, {"instruction"}, {"line"}});
    for (uint32_t id : procedures) {
      for (uint32_t block_id : index_.blocks_of(id)) {
        const Block& block = profile_.blocks[block_id];
        for (const Line& line : lines(block)) {
          table.row({profile_.procedures[id].entry, block.address, line.address, line.count,
                     to_string(block.source), line.text, line.source_line});
        }
      }
    }
    table.finish();
  }

  void procedure(const profile::Procedure& procedure) {
    const profile::Module& module = profile_.modules[procedure.module_id];
    output_.heading(symbols_.procedure_name(procedure));
    output_.print("  {}\n", symbols_.address_name(procedure.module_id, procedure.entry));
    output_.print("entries {} ({}), {} blocks; {} build-id {}\n",
                  count_words(procedure.entries, procedure.entries_source),
                  to_string(procedure.entries_source), index_.blocks_of(procedure.id).size(),
                  module.path, module.build_id.empty() ? "none" : module.build_id);
    for (uint32_t id : index_.blocks_of(procedure.id)) {
      if (output_.closed()) return;
      block(profile_.blocks[id]);
    }
  }

  void block(const Block& block) {
    output_.print("\nblock {:#x}  count {} ({})\n", block.address.value(),
                  count_words(block.count, block.source), to_string(block.source));
    std::string last_source_line;
    for (const Line& line : lines(block)) {
      if (line.source_line != last_source_line && !line.source_line.empty()) {
        output_.print("{:>16}    {}\n", "", line.source_line);
      }
      last_source_line = line.source_line;
      output_.print("{:>16}  {:#x}  {}\n", count_words(line.count, block.source),
                    line.address.value(), line.text);
    }
    for (uint32_t edge : index_.edges_from(block.id)) leaving(block, profile_.edges[edge]);
    for (uint32_t term : index_.abnormal_at(block.id)) abnormal(profile_.abnormal[term]);
  }

  void leaving(const Block& from, const profile::Edge& edge) {
    const Block& to = profile_.blocks[edge.to_block];
    const profile::Procedure& target = profile_.procedures[to.procedure_id];
    std::string where = fmt::format("{:#x}", to.address.value());
    if (to.procedure_id != from.procedure_id) {
      where = symbols_.address_name(target.module_id, to.address);
      if (to.address == target.entry) where += " " + symbols_.procedure_name(target);
    }
    output_.print("{:>16}  -> {} {} ({})\n", count_words(edge.count, edge.source),
                  to_string(edge.kind), where, to_string(edge.source));
  }

  void abnormal(const profile::Abnormal& term) {
    output_.print("{:>16}  abnormal: {}, entered {}, left {}{}{}\n", "", to_string(term.kind),
                  with_commas(term.entered), with_commas(term.left),
                  term.detail.empty() ? "" : ": ", term.detail);
  }

  std::vector<Line> lines(const Block& block) {
    const uint32_t module = profile_.procedures[block.procedure_id].module_id;
    const std::vector<__int128> counts = profile::instruction_counts(block);
    std::vector<Line> lines;
    LinkAddr address = block.address;
    for (size_t i = 0; i < counts.size(); ++i) {
      const uint8_t size = block.instruction_sizes[i];
      const std::span<const uint8_t> bytes = image_.bytes_at(address);
      Line line;
      line.address = address;
      line.count =
          block.source == CountSource::kUnknown ? 0 : static_cast<unsigned __int128>(counts[i]);
      line.text = bytes.size() < size ? "(outside the file)"
                                      : disassemble(bytes.first(size), address, syntax_);
      line.source_line = symbols_.source_line(module, address);
      lines.push_back(std::move(line));
      address += size;
    }
    return lines;
  }

  const Profile& profile_;
  Symbols& symbols_;
  const elf::Image& image_;
  Syntax syntax_;
  Format format_;
  Output& output_;
  profile::FlowIndex index_;
};

}  // namespace

Status annotate(const Profile& profile, Symbols& symbols, Place place, Syntax syntax, Format format,
                Output& output) {
  const auto& image = symbols.image(place.module);
  if (!image) return make_error("cannot disassemble: {}", image.error().message);
  const std::set<uint32_t> procedures = procedures_at(profile, place);
  if (procedures.empty()) {
    return make_error(ErrorKind::kUsage, "no block is known at {}; it was not reached in this run",
                      symbols.address_name(place.module, place.address));
  }
  Annotator(profile, symbols, **image, syntax, format, output).run(procedures);
  return Ok{};
}

}  // namespace tally::report
