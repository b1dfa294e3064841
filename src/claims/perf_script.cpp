// What `perf script` prints of samples.
//
//     gzip 17 35.198444: PERF_RECORD_MMAP2 17/17: [0x7f10(0xf000) @ 0x3000 ...]: r-xp /usr/bin/gzip
//     gzip 17 35.198429: 50000 cpu-clock:  563568e65c5c deflate+0x1c (/usr/bin/gzip)
//          563568e65c5c deflate+0x1c (/usr/bin/gzip)                  the same with -F ip,sym,dso
//
// An ip is an address of the process.  It becomes a link address by the mappings
// (--show-mmap-events), else by symbol and offset (-F +symoff), else, in programs that are not
// position-independent, as it is.  Samples for which none of it holds are counted in `silences`;
// when that is all of them, the error says what to ask perf for.  Of a call chain the innermost
// frame counts.  Samples of the kernel are not the program's.
//
// Not handled: -F fields without ip, branch stacks.
#include <algorithm>
#include <map>

#include "claims/names.h"
#include "claims/reader.h"

namespace tally::claims {
namespace {

struct Mapping {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t file_offset = 0;
};

struct Frame {
  uint64_t ip = 0;
  std::string_view symbol;  // "deflate+0x1c", "deflate", "[unknown]"
  std::string_view object;
};

class Reader {
 public:
  explicit Reader(const Source& source)
      : source_(source),
        lines_(source),
        has_chains_(source.text.find("\n\n") != std::string_view::npos) {}

  Result<Claims> run() {
    claims_.form = Form::kPerfScript;
    claims_.nature = Nature::kShares;
    claims_.file = source_.path;
    claims_.producer = "perf";
    claims_.silences = {"samples are shares: how often anything ran is not claimed"};
    while (const auto line = lines_.next()) {
      if (lines_.cut() && !trimmed(*line).empty()) return lines_.cut_error();
      TRY(read_line(*line));
    }
    if (claims_.instructions.empty() && unplaced_ > 0) {
      return make_error(
          "{}: none of {} samples has a place in a file; use `perf script "
          "--show-mmap-events`, or add symoff to -F",
          source_.path, unplaced_);
    }
    say(kernel_, "samples of the kernel are not read");
    say(unplaced_, "samples have no place in a file (no mapping, no symbol with offset)");
    for (Module& module : claims_.modules) module.main_program = &module == main_program();
    return std::move(claims_);
  }

 private:
  void say(uint64_t count, const char* words) {
    if (count > 0) claims_.silences.push_back(fmt::format("{} {}", count, words));
  }

  // The module that the user names, else the one with the most samples.
  const Module* main_program() const {
    const auto base = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
    const Module* most = nullptr;
    uint64_t most_samples = 0;
    for (size_t i = 0; i < claims_.modules.size(); ++i) {
      const Module& module = claims_.modules[i];
      if (!source_.options.program_path.empty() &&
          base(source_.options.program_path) == base(module.path)) {
        return &module;
      }
      if (most == nullptr || samples_[i] > most_samples) most = &module, most_samples = samples_[i];
    }
    return most;
  }

  Status read_line(std::string_view line) {
    const std::string_view text = trimmed(line);
    if (text.empty() || text[0] == '#') {
      chain_done_ = false;
      return Ok{};
    }
    const size_t record = text.find("PERF_RECORD_");
    if (record != std::string_view::npos) return read_record(text.substr(record));
    const bool indented = line[0] == ' ' || line[0] == '\t';
    Frame frame;
    if (indented && frame_from(text, frame)) {
      if (has_chains_ && chain_done_) return Ok{};
      chain_done_ = true;
      return add_sample(frame);
    }
    if (text.ends_with(':')) {  // the header of a chain
      chain_done_ = false;
      return Ok{};
    }
    // Header and frame in one line: the frame is behind the event's name.
    for (size_t at = text.find(": "); at != std::string_view::npos; at = text.find(": ", at + 1)) {
      if (frame_from(trimmed(text.substr(at + 1)), frame)) return add_sample(frame);
    }
    return lines_.error(
        "{}: neither a sample with ip, symbol and file nor an event; make it with "
        "`perf script --show-mmap-events` or -F ip,sym,symoff,dso",
        quoted(text));
  }

  // "IP SYMBOL (OBJECT)"; the symbol may contain blanks.
  static bool frame_from(std::string_view text, Frame& frame) {
    if (!text.ends_with(')')) return false;
    const size_t open = text.rfind(" (");
    if (open == std::string_view::npos) return false;
    frame.object = text.substr(open + 2, text.size() - open - 3);
    std::string_view rest = text.substr(0, open);
    const Number ip = parse_hex(next_word(rest));
    frame.ip = ip.value;
    frame.symbol = trimmed(rest);
    // A period in front of the event's name looks like an address.
    if (next_word(rest).ends_with(':')) return false;
    return ip.fault == NumberFault::kNone;
  }

  // "PERF_RECORD_MMAP2 17/17: [0x7f10(0xf000) @ 0x3000 ...]: r-xp /usr/bin/gzip"
  Status read_record(std::string_view text) {
    if (!text.starts_with("PERF_RECORD_MMAP")) return Ok{};
    const size_t open = text.find('[');
    const size_t close = text.find("]: ");
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
      return lines_.error(
          "{}: a mapping has the form [0xADDRESS(0xSIZE) @ 0xOFFSET ...]: r-xp FILE", quoted(text));
    }
    std::string_view body = text.substr(open + 1, close - open - 1);
    const size_t bracket = std::min(body.find('('), body.size());
    const size_t end = std::min(body.find(')'), body.size());
    if (end <= bracket) return lines_.error("{}: a mapping without a size", quoted(text));
    Mapping mapping;
    TRY_ASSIGN(mapping.begin, lines_.hex(body.substr(0, bracket), "a mapping's address"));
    TRY_ASSIGN(const uint64_t size_bytes,
               lines_.hex(body.substr(bracket + 1, end - bracket - 1), "a mapping's size"));
    mapping.end = mapping.begin + size_bytes;
    std::string_view rest = body.substr(end + 1);
    next_word(rest);  // "@"
    TRY_ASSIGN(mapping.file_offset, lines_.hex(next_word(rest), "a mapping's offset"));
    std::string_view file = text.substr(close + 3);
    next_word(file);  // "r-xp"
    mappings_[std::string(trimmed(file))].push_back(mapping);
    return Ok{};
  }

  Status add_sample(const Frame& frame) {
    if (frame.object.starts_with('[')) {
      ++(frame.object == "[vdso]" || frame.object == "[unknown]" ? unplaced_ : kernel_);
      return Ok{};
    }
    const uint32_t module = module_of(std::string(frame.object));
    const std::optional<LinkAddr> address = link_address(module, frame);
    if (!address) {
      ++unplaced_;
      return Ok{};
    }
    ++samples_[module];
    const Place at{module, *address};
    const auto [slot, is_new] = claimed_.try_emplace(at, claims_.instructions.size());
    if (is_new) claims_.instructions.push_back({.at = at, .record = lines_.number()});
    ++claims_.instructions[slot->second].count;
    return Ok{};
  }

  uint32_t module_of(const std::string& path) {
    const auto [slot, is_new] =
        module_ids_.try_emplace(path, static_cast<uint32_t>(claims_.modules.size()));
    if (is_new) {
      auto image = elf::Image::open(path);
      images_.push_back(image ? std::move(*image) : nullptr);
      const elf::Image* opened = images_.back().get();
      names_.push_back(opened ? std::make_unique<SymbolNames>(*opened) : nullptr);
      claims_.modules.push_back(
          {.path = path, .build_id = images_.back() ? images_.back()->build_id() : std::string()});
      samples_.push_back(0);
    }
    return slot->second;
  }

  std::optional<LinkAddr> link_address(uint32_t module, const Frame& frame) const {
    const elf::Image* image = images_[module].get();
    if (image == nullptr) return std::nullopt;
    const auto mapped = mappings_.find(claims_.modules[module].path);
    if (mapped != mappings_.end()) {
      for (const Mapping& mapping : mapped->second) {
        if (frame.ip < mapping.begin || frame.ip >= mapping.end) continue;
        const uint64_t offset = frame.ip - mapping.begin + mapping.file_offset;
        for (const elf::Segment& segment : image->segments()) {
          const uint64_t from = segment.offset.value();
          if (offset < from || offset - from >= segment.file_size_bytes) continue;
          if (segment.executable) return segment.range.begin + (offset - from);
        }
      }
    }
    const size_t plus = frame.symbol.rfind("+0x");
    if (plus != std::string_view::npos) {
      const elf::Symbol* symbol = names_[module]->only(frame.symbol.substr(0, plus));
      const Number offset = parse_hex(frame.symbol.substr(plus + 1));
      if (symbol != nullptr && offset.fault == NumberFault::kNone) {
        return symbol->range.begin + offset.value;
      }
    }
    if (image->type() == elf::FileType::kExecutable) return LinkAddr(frame.ip);
    return std::nullopt;
  }

  const Source& source_;
  Lines lines_;
  Claims claims_;
  std::map<std::string, std::vector<Mapping>> mappings_;
  std::map<std::string, uint32_t> module_ids_;
  std::vector<std::shared_ptr<elf::Image>> images_;
  std::vector<std::unique_ptr<SymbolNames>> names_;
  std::vector<uint64_t> samples_;
  std::map<Place, size_t> claimed_;
  uint64_t kernel_ = 0;
  uint64_t unplaced_ = 0;
  bool has_chains_ = false;
  bool chain_done_ = false;
};

}  // namespace

Result<Claims> read_perf_script(const Source& source) {
  return Reader(source).run();
}

}  // namespace tally::claims
