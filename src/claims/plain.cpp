// The plain edge profile of the paper: one edge a line.
//
//     # from    to      count
//     0x401000  0x401020  17
//
// Section 3.1: an edge is a pair of basic blocks, each denoted by the address of its first
// instruction in the program that was profiled, and a counter.  Addresses are hexadecimal with or
// without 0x, link addresses of the main program; counts are decimal.  Blank lines and what follows
// a `#` are skipped.
#include "claims/reader.h"

namespace tally::claims {

Result<Claims> read_plain(const Source& source) {
  Claims claims;
  claims.form = Form::kPlain;
  claims.file = source.path;
  claims.silences = {"the program's libraries are not in the profile",
                     "edges are not told apart by kind"};
  TRY(open_program(source, claims));
  Lines lines(source);
  while (const auto line = lines.next()) {
    std::string_view rest = line->substr(0, line->find('#'));
    rest = trimmed(rest);
    if (rest.empty()) continue;
    const std::string_view from = next_word(rest);
    const std::string_view to = next_word(rest);
    const std::string_view count = next_word(rest);
    if (lines.cut()) return lines.cut_error();
    if (count.empty() || !trimmed(rest).empty()) {
      return lines.error("{} is not an edge; each line is `from to count`", quoted(*line));
    }
    EdgeClaim edge{.record = lines.number(), .origin = EdgeOrigin::kBlockBegin};
    TRY_ASSIGN(const uint64_t from_address, lines.hex(from, "the block's address"));
    TRY_ASSIGN(const uint64_t to_address, lines.hex(to, "the next block's address"));
    TRY_ASSIGN(edge.count, lines.decimal(count, "the edge's count"));
    edge.from = {0, LinkAddr(from_address)};
    edge.to = {0, LinkAddr(to_address)};
    claims.edges.push_back(edge);
  }
  return claims;
}

}  // namespace tally::claims
