// Procedures, basic blocks and edges, found by disassembly.
//
// Problem.  A stripped binary does not say where its procedures, blocks and jump tables are, yet
// counters are placed on a procedure's control-flow graph before it runs (Larus and Ball,
// "Rewriting executable files", section 3).
//
// Idea.  Recursive disassembly from an entry, inside a range that .eh_frame, a symbol or a direct
// call gives.  Every branch target and every instruction behind a branch begins a block:
//
//      0x10 cmp           block 0: cmp, jg        edges  0 -> 1 fallthrough
//      0x12 jg 0x18                                      0 -> 2 taken
//      0x14 add           block 1: add, jmp              1 -> 2 jump
//      0x16 jmp 0x18
//      0x18 ret           block 2: ret                   2 -> EXIT
//
// Guesses are allowed here, because they can cost time but never a count: a jump through a register
// has no edges of its own in this graph (each target that is really taken is counted at run time);
// jump tables only tell where blocks begin.  What a guess missed is discovered when control gets
// there, as a procedure of its own that ends where it meets known blocks.
//
// A jump through a register to what the block has popped right before is a return by another name,
// and is made one (isa/return_slot.h).
//
// Calls, `syscall` and everything else that may not come back end a block, so that the ledger of
// abnormal flow only ever speaks of block ends (and of faults).
//
// Not handled: knowing that a call does not return, but for a list of names; the block behind such
// a call then simply has the count zero.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/address.h"
#include "base/flat_map.h"
#include "base/shared_vector.h"
#include "isa/insn.h"

namespace tally::cfg {

// A module's code and data, wherever they are read from.
struct CodeView {
  // Bytes from `address` to the end of its executable segment; empty if it is in none.
  std::function<std::span<const uint8_t>(LinkAddr)> code_at;
  // Reads data (jump tables); false when it is not there.  Tables in relocated memory hold target
  // addresses: `pointer_bias` is what to subtract from a pointer to get a LinkAddr.
  std::function<bool(LinkAddr, void*, size_t size_bytes)> read_data;
  uint64_t pointer_bias = 0;
};

enum class EdgeKind : uint8_t {
  kFallthrough,  // into the next block
  kTaken,        // conditional branch taken
  kJump,         // direct jump
  kCallReturn,   // behind a call
  kSystemCall,   // behind a `syscall`
  kTableJump,    // a possible target of an indirect jump; counted per target at run time
  kReturn,       // to EXIT: ret
  kNoReturn,     // to EXIT: a call that is not expected back, a trap; the block's flow ends here
  kLeave,        // to EXIT: a direct branch to an address outside of this graph (see `target`)
};
const char* to_string(EdgeKind kind);

using BlockIndex = uint32_t;
inline constexpr BlockIndex kExitBlock = UINT32_MAX;

struct Edge {
  BlockIndex from = 0;
  BlockIndex to = kExitBlock;
  EdgeKind kind = EdgeKind::kFallthrough;
  LinkAddr target;  // kLeave: where it goes
};

struct Block {
  uint32_t offset = 0;  // from Procedure::range.begin
  uint32_t size_bytes = 0;
  uint32_t first_insn = 0;  // index in Procedure::insns
  uint32_t insn_count = 0;
  uint32_t first_edge = 0;  // out edges: index in Procedure::edges
  uint32_t edge_count = 0;
  isa::Flow end = isa::Flow::kNone;  // how the last instruction ends the block
  uint8_t flags_live_in = isa::flag::kAll;
  uint8_t flags_live_out = isa::flag::kAll;
  bool from_jump_table = false;
};

struct Procedure {
  LinkAddr entry;
  LinkRange range;             // where blocks may lie
  SharedVector<Block> blocks;  // sorted by offset
  std::vector<isa::Insn> insns;
  SharedVector<Edge> edges;  // grouped by `from`
  BlockIndex entry_block = 0;

  LinkAddr address_of(const Block& block) const { return range.begin + block.offset; }
  LinkAddr end_of(const Block& block) const { return address_of(block) + block.size_bytes; }
  std::span<const isa::Insn> insns_of(const Block& block) const {
    return {insns.data() + block.first_insn, block.insn_count};
  }
  std::span<const Edge> edges_of(const Block& block) const {
    return {edges.data() + block.first_edge, block.edge_count};
  }
  // The block that starts at `address`; kExitBlock if none does.
  BlockIndex block_at(LinkAddr address) const;
  // Index of the block's first edge of a kind; nullopt if it has none.
  std::optional<uint32_t> edge_of_kind(const Block& block, EdgeKind kind) const;
  // Behind the edge.  All, where it leads out of the procedure and nothing is known.
  uint8_t flags_live_into(const Edge& edge) const {
    if (edge.to != kExitBlock) return blocks[edge.to].flags_live_in;
    const bool known = edge.kind == EdgeKind::kLeave;  // and its block's other way, if it has one
    return known ? blocks[edge.from].flags_live_out : isa::flag::kAll;
  }
  // The first of the block's instructions in front of which none of `flags` is live; nullopt if
  // there is none.
  std::optional<uint32_t> insn_with_dead(uint8_t flags, const Block& block) const;
};

// Makes the indirect jump at a block's end a return, if it is one (isa/return_slot.h).  `base` is
// where instructions' offsets begin.
void find_return_by_jump(std::span<isa::Insn> insns, LinkAddr base, const CodeView& view);

struct DiscoverRequest {
  LinkAddr entry;
  LinkRange range;
  std::vector<LinkAddr> extra_entries;  // further addresses control is known to reach
  // True for an address at which another procedure's block starts: disassembly stops in front of
  // it and leaves by an edge.  May be empty.
  std::function<bool(LinkAddr)> known_elsewhere;
  // True for calls that never return.  May be empty.
  std::function<bool(LinkAddr target)> never_returns;
  // The program may replace the code: callees are not looked into.
  bool replaceable = false;
  // Calls get a second way out: the code they return to may be another by then, or nobody can tell
  // which of them are open when the stack is left.
  bool open_calls = false;
  // It may do so at any moment: no flag is taken to be dead beyond a store or a block's end.
  bool unstable = false;
};

// Keeps its working memory between calls; one per thread.
class Discoverer {
 public:
  explicit Discoverer(const CodeView& view);
  Discoverer(const Discoverer&) = delete;  // its view leads back to it
  Discoverer& operator=(const Discoverer&) = delete;
  // Disassembles one procedure.  An entry that is not code yields a procedure without blocks.
  Procedure discover(const DiscoverRequest& request);
  // The same into `procedure`, whose memory is used again.
  void discover(const DiscoverRequest& request, Procedure& procedure);
  // The bytes that the last discovery rests on: where they, and the answers to the request's
  // questions, are the same again, so is the procedure.  Ascending.
  std::vector<LinkRange> sources(const Procedure& procedure) const;

 private:
  struct Found {
    isa::Insn insn;
    BlockIndex block = kExitBlock;  // that begins here
    bool table_target = false;
  };
  static constexpr uint32_t kLeaderBits = 64;
  void scan(const DiscoverRequest& request, LinkAddr start);
  bool is_blank(LinkAddr at) const;
  void add_leader(const DiscoverRequest& request, LinkAddr target);
  void read_jump_table(const DiscoverRequest& request, LinkAddr at);
  void build_blocks(Procedure& procedure);
  void build_edges(const DiscoverRequest& request, Procedure& procedure);
  void add_call_edge(const DiscoverRequest& request, const Procedure& procedure, BlockIndex from);
  void compute_flags(const DiscoverRequest& request, Procedure& procedure);
  struct EntryFlags {
    uint8_t live = isa::flag::kAll;
    uint32_t first_range = 0, ranges = 0;  // looked at: in `entry_ranges_`
  };
  EntryFlags flags_at_entry(LinkAddr target);
  uint8_t flags_behind(const DiscoverRequest& request, LinkAddr target);
  void note_entry_looked_at(LinkAddr at, size_t size_bytes, EntryFlags& flags);
  void note_data(LinkAddr begin, size_t size_bytes);
  const Found* found_at(LinkAddr address) const;
  BlockIndex block_at(LinkAddr address) const;
  void mark_leader(uint32_t offset) {
    leaders_[offset / kLeaderBits] |= uint64_t{1} << offset % kLeaderBits;
  }
  bool is_leader(uint32_t offset) const {
    return (leaders_[offset / kLeaderBits] >> offset % kLeaderBits & 1) != 0;
  }
  template <class Visit>
  void for_each_leader(Visit visit) const;

  CodeView view_;
  LinkAddr base_;
  std::span<const uint8_t> bytes_;  // from base_ on
  std::vector<uint32_t> index_;     // by offset in the range: index in found_ + 1
  std::vector<Found> found_;
  std::vector<uint64_t> leaders_;  // a bit for each offset at which a block may begin
  std::vector<Edge> edges_;        // of the procedure, until their number is known
  std::vector<LinkAddr> worklist_;
  std::unordered_map<uint32_t, std::vector<LinkAddr>> tables_;  // by offset of the indirect jump
  FlatMap<EntryFlags> entry_flags_;                             // by link address
  std::vector<LinkRange> entry_ranges_;
  struct Transfer {  // of a block: what it makes of the flags that are live behind it
    uint8_t read = 0;
    uint8_t written = 0;
    uint8_t out_fixed = 0;
  };
  std::vector<Transfer> transfer_;
  std::vector<LinkRange> looked_at_;  // besides the instructions
};

// Finds the table behind an indirect jump from the instructions in front of it (see
// jump_table.cpp). `window` holds them in order, the jump last.  Returns the targets, empty when
// not understood.
struct WindowInsn {
  LinkAddr address;
  std::span<const uint8_t> bytes;
};
std::vector<LinkAddr> jump_table_targets(std::span<const WindowInsn> window, const CodeView& view,
                                         LinkRange range);

// Text and Graphviz dumps.
std::string dump_text(const Procedure& procedure, const CodeView& view, const std::string& name);
std::string dump_dot(const Procedure& procedure, const CodeView& view, const std::string& name);

}  // namespace tally::cfg
