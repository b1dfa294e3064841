// See exception_table.h.  As everywhere in this room, each table is read inside its own bounds.
#include "elf/exception_table.h"

#include <algorithm>

#include "elf/eh_frame.h"
#include "elf/eh_pointer.h"

namespace tally::elf {
namespace {

class TableReader {
 public:
  TableReader(const Layout& layout, const FrameDescription& frame)
      : layout_(layout), frame_(frame), reader_(layout.bytes_at(frame.exception_table)) {}

  // False: this is no table, or it is cut short, or larger than `budget_bytes`, from which it takes
  // its size.
  bool read(std::vector<CallSite>& call_sites, uint64_t& budget_bytes) {
    const uint8_t base_encoding = reader_.u8();
    LinkAddr base = frame_.range.begin;
    if (base_encoding != kPointerOmitted) {
      const PointerBases bases{.reader_begin = frame_.exception_table.value()};
      const auto given = read_pointer(reader_, base_encoding, bases);
      if (!given) return false;
      base = LinkAddr(*given);
    }
    if (reader_.u8() != kPointerOmitted) reader_.uleb();  // where the types end
    const uint8_t encoding = reader_.u8();
    const uint64_t size_bytes = reader_.uleb();
    if (!reader_.ok() || size_bytes > reader_.remaining() || size_bytes > budget_bytes)
      return false;
    budget_bytes -= size_bytes;
    const size_t end = reader_.position() + static_cast<size_t>(size_bytes);
    while (reader_.position() < end) {
      if (!read_call_site(encoding, base, call_sites)) return false;
    }
    return reader_.position() == end;
  }

 private:
  bool read_call_site(uint8_t encoding, LinkAddr base, std::vector<CallSite>& call_sites) {
    const auto begin = read_pointer_value(reader_, encoding);
    const auto size_bytes = read_pointer_value(reader_, encoding);
    const auto landing_pad = read_pointer_value(reader_, encoding);
    reader_.uleb();  // action
    if (!begin || !size_bytes || !landing_pad || !reader_.ok()) return false;
    if (*landing_pad == 0) return true;
    const uint64_t whole = frame_.range.size_bytes();
    if (*begin > whole || *size_bytes > whole - *begin) return false;
    const LinkAddr from = frame_.range.begin + *begin;
    const LinkAddr pad = base + *landing_pad;
    const Segment* segment = layout_.segment_at(pad);
    if (segment == nullptr || !segment->executable) return false;
    call_sites.push_back({{from, from + *size_bytes}, pad, frame_.range});
    return true;
  }

  const Layout& layout_;
  const FrameDescription& frame_;
  ByteReader reader_;
};

}  // namespace

ExceptionTables read_exception_tables(const Layout& layout) {
  ExceptionTables result;
  // Tables do not overlap; in a hostile file all records may share one as large as the file.
  uint64_t budget_bytes = layout.file.size();
  for (const FrameDescription& frame : read_frames(layout)) {
    if (frame.exception_table == LinkAddr()) continue;
    std::vector<CallSite> call_sites;
    if (TableReader(layout, frame).read(call_sites, budget_bytes)) {
      result.call_sites.insert(result.call_sites.end(), call_sites.begin(), call_sites.end());
    } else {
      result.complete = false;
    }
  }
  std::ranges::stable_sort(result.call_sites, {},
                           [](const CallSite& site) { return site.covered.begin; });
  return result;
}

}  // namespace tally::elf
