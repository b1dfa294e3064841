// Discovery on hand-assembled bytes: what the header promises about blocks, edges, jump tables and
// flags, one small procedure a promise; and its invariants on random bytes and on real code.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "cfg/procedure.h"
#include "cfg/view.h"
#include "elf/image.h"

namespace tally::cfg {
namespace {

using isa::Flow;
namespace flag = isa::flag;

constexpr uint64_t kBase = 0x401000;

// A module of one executable segment: code first, data (jump tables) behind it.
class Code {
 public:
  explicit Code(std::vector<uint8_t> code) : bytes_(std::move(code)), code_bytes_(bytes_.size()) {}

  // Appends a jump table's entry and returns its address.
  template <class T>
  uint64_t add(T value) {
    const uint64_t address = kBase + bytes_.size();
    const auto* p = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), p, p + sizeof value);
    return address;
  }
  // Puts `value` into the 32-bit field at `offset`.
  void set32(size_t offset, uint64_t value) {
    const auto narrow = static_cast<uint32_t>(value);
    std::memcpy(bytes_.data() + offset, &narrow, sizeof narrow);
  }
  uint64_t end() const { return kBase + bytes_.size(); }

  CodeView view(uint64_t pointer_bias = 0) const {
    CodeView view;
    view.code_at = [this](LinkAddr at) -> std::span<const uint8_t> {
      const uint64_t offset = at.value() - kBase;
      if (offset >= code_bytes_) return {};
      return std::span(bytes_).first(code_bytes_).subspan(offset);
    };
    view.read_data = [this](LinkAddr at, void* out, size_t size_bytes) {
      const uint64_t offset = at.value() - kBase;
      if (offset > bytes_.size() || bytes_.size() - offset < size_bytes) return false;
      std::memcpy(out, bytes_.data() + offset, size_bytes);
      return true;
    };
    view.pointer_bias = pointer_bias;
    return view;
  }

  // A request for the procedure that begins with the first byte and has `size_bytes` (0: all code).
  DiscoverRequest request(size_t size_bytes = 0) const {
    DiscoverRequest request;
    request.entry = LinkAddr(kBase);
    request.range = {LinkAddr(kBase), LinkAddr(kBase + (size_bytes ? size_bytes : code_bytes_))};
    return request;
  }
  Procedure discover() const { return Discoverer(view()).discover(request()); }

 private:
  std::vector<uint8_t> bytes_;
  size_t code_bytes_;
};

std::vector<uint32_t> offsets(const Procedure& procedure) {
  std::vector<uint32_t> result;
  for (const Block& block : procedure.blocks) result.push_back(block.offset);
  return result;
}

// The edges of the block at `offset`: "taken 5" for one to the block at 5, "leave 402000".
std::vector<std::string> edges(const Procedure& procedure, uint32_t offset) {
  std::vector<std::string> result;
  const BlockIndex index = procedure.block_at(procedure.range.begin + offset);
  if (index == kExitBlock) return {"no block"};
  for (const Edge& edge : procedure.edges_of(procedure.blocks[index])) {
    std::ostringstream text;
    text << to_string(edge.kind);
    if (edge.to != kExitBlock) {
      text << " " << procedure.blocks[edge.to].offset;
    } else if (edge.kind == EdgeKind::kLeave) {
      text << " " << std::hex << edge.target.value();
    }
    result.push_back(text.str());
  }
  return result;
}

const Block& block(const Procedure& procedure, uint32_t offset) {
  const uint32_t index = procedure.block_at(procedure.range.begin + offset);
  CHECK(index < procedure.blocks.size()) << "no block at " << offset;
  return procedure.blocks[index];
}

using Offsets = std::vector<uint32_t>;
using Edges = std::vector<std::string>;

// ---- blocks and edges --------------------------------------------------------------------------

TEST(Discover, Diamond) {
  const Code code({0x39, 0xf7,  // 0 cmp edi, esi
                   0x7f, 0x04,  // 2 jg 8
                   0x01, 0xf7,  // 4 add edi, esi
                   0xeb, 0x00,  // 6 jmp 8
                   0xc3});      // 8 ret
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 4, 8}));
  EXPECT_EQ(edges(p, 0), (Edges{"taken 8", "fallthrough 4"}));
  EXPECT_EQ(edges(p, 4), (Edges{"jump 8"}));
  EXPECT_EQ(edges(p, 8), (Edges{"return"}));
  EXPECT_EQ(p.entry_block, 0u);
  EXPECT_EQ(block(p, 0).insn_count, 2u);
  EXPECT_EQ(block(p, 0).size_bytes, 4u);
}

TEST(Discover, Loop) {
  const Code code({0xb9, 10, 0, 0, 0,  // 0 mov ecx, 10
                   0xff, 0xc9,         // 5 dec ecx
                   0x75, 0xfc,         // 7 jnz 5
                   0xc3});             // 9 ret
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 5, 9}));
  EXPECT_EQ(edges(p, 0), (Edges{"fallthrough 5"}));
  EXPECT_EQ(edges(p, 5), (Edges{"taken 5", "fallthrough 9"}));
}

TEST(Discover, LoopByCountedJump) {
  const Code code({0x90,        // 0 nop
                   0xe2, 0xfd,  // 1 loop 0
                   0xe3, 0x01,  // 3 jrcxz 6
                   0xc3, 0xc3});
  const Procedure p = code.discover();
  EXPECT_EQ(edges(p, 0), (Edges{"taken 0", "fallthrough 3"}));
  EXPECT_EQ(edges(p, 3), (Edges{"taken 6", "fallthrough 5"}));
}

TEST(Discover, TailCallsLeave) {
  const Code code({0x85, 0xff,                    // 0 test edi, edi
                   0x0f, 0x84, 0xf8, 0x0f, 0, 0,  // 2 jz 402000
                   0xe9, 0xf3, 0x1f, 0, 0});      // 8 jmp 403000
  const Procedure p = code.discover();
  EXPECT_EQ(edges(p, 0), (Edges{"leave 402000", "fallthrough 8"}));
  EXPECT_EQ(edges(p, 8), (Edges{"leave 403000"}));
}

TEST(Discover, EntryInTheMiddleOfTheRange) {
  const Code code({0xc3, 0x90, 0xeb, 0xfc});  // 0 ret; 1 nop; 2 jmp 0
  DiscoverRequest request = code.request();
  request.entry = LinkAddr(kBase + 1);
  const Procedure p = Discoverer(code.view()).discover(request);
  EXPECT_EQ(offsets(p), (Offsets{0, 1}));
  EXPECT_EQ(p.entry_block, 1u);
}

TEST(Discover, FurtherEntriesBeginBlocks) {
  const Code code({0x90, 0x90, 0xc3, 0x90, 0xc3});
  DiscoverRequest request = code.request();
  request.extra_entries = {LinkAddr(kBase + 1), LinkAddr(kBase + 3), LinkAddr(kBase + 99)};
  const Procedure p = Discoverer(code.view()).discover(request);
  EXPECT_EQ(offsets(p), (Offsets{0, 1, 3}));
  EXPECT_EQ(edges(p, 0), (Edges{"fallthrough 1"}));
}

TEST(Discover, StopsWhereAnotherProcedureBegins) {
  const Code code({0x90, 0x90, 0xc3});
  DiscoverRequest request = code.request();
  request.known_elsewhere = [](LinkAddr a) { return a == LinkAddr(kBase + 1); };
  const Procedure p = Discoverer(code.view()).discover(request);
  EXPECT_EQ(offsets(p), (Offsets{0}));
  EXPECT_EQ(edges(p, 0), (Edges{"leave 401001"}));
}

// Up to what is known elsewhere: the flow behind a `syscall` goes there, a call only may.
TEST(Discover, EndsInFrontOfWhatIsKnown) {
  const Code code({0x0f, 0x05,                    // 0 syscall
                   0x90,                          // 2 nop
                   0xe8, 0x10, 0x00, 0x00, 0x00,  // 3 call 24
                   0xc3});                        // 8 ret
  auto request = code.request();
  request.known_elsewhere = [](LinkAddr a) { return a == LinkAddr(kBase + 2); };
  EXPECT_EQ(edges(Discoverer(code.view()).discover(request), 0), (Edges{"leave 401002"}));
  request.entry = LinkAddr(kBase + 3);
  request.known_elsewhere = [](LinkAddr a) { return a == LinkAddr(kBase + 8); };
  EXPECT_EQ(edges(Discoverer(code.view()).discover(request), 3), (Edges{"no_return"}));
}

TEST(Discover, WhatIsNoCodeYieldsNoBlocks) {
  const Code code({0x06, 0x06});
  const Procedure p = code.discover();
  EXPECT_TRUE(p.blocks.empty());
  EXPECT_EQ(p.entry_block, kExitBlock);
}

TEST(Discover, AnInstructionAcrossTheEndIsNotTaken) {
  const Code code({0x90, 0xb8, 1, 2, 3, 4, 0xc3});  // nop; mov eax, imm32, cut behind 3 bytes
  const Procedure p = Discoverer(code.view()).discover(code.request(4));
  EXPECT_EQ(offsets(p), (Offsets{0}));
  EXPECT_EQ(edges(p, 0), (Edges{"leave 401001"}));
}

// ---- overlapping instructions
// --------------------------------------------------------------------

TEST(Discover, OverlappingInstructionsShareNoBlock) {
  const Code code({0x74, 0x01,                    // 0 jz 3
                   0xb8, 0xc3, 0x90, 0x90, 0x90,  // 2 mov eax, ...; as of 3: ret
                   0xc3});                        // 7 ret
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 2, 3}));
  EXPECT_EQ(block(p, 2).size_bytes, 6u);
  EXPECT_EQ(block(p, 3).size_bytes, 1u);
}

TEST(Discover, OverlappingRunsMeetAtABlock) {
  const Code code({0x74, 0x01,                    // 0 jz 3
                   0xb8, 0x90, 0x90, 0x90, 0x90,  // 2 mov eax, ...; as of 3: four nops
                   0xc3});                        // 7 ret
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 2, 3, 7}));
  EXPECT_EQ(edges(p, 2), (Edges{"fallthrough 7"}));
  EXPECT_EQ(edges(p, 3), (Edges{"fallthrough 7"}));
}

// ---- calls and system calls
// ----------------------------------------------------------------------

// How a procedure of one block ends.
Flow end_of(std::vector<uint8_t> bytes) {
  const Code code(std::move(bytes));
  const Procedure p = code.discover();
  EXPECT_EQ(p.blocks.size(), 1u);
  EXPECT_EQ(p.insns.back().by_jump, p.blocks.back().end == Flow::kReturn);
  return p.blocks.back().end;
}

TEST(Discover, AJumpToWhatIsPoppedIsAReturn) {
  // pop rcx; lfence; jmp rcx, and: pop r11; nop; jmp r11
  EXPECT_EQ(end_of({0x59, 0x0f, 0xae, 0xe8, 0xff, 0xe1}), Flow::kReturn);
  EXPECT_EQ(end_of({0x41, 0x5b, 0x90, 0x41, 0xff, 0xe3}), Flow::kReturn);
  // push rbp; mov rbp, rsp; pop rbp; pop rcx; jmp rcx, and: leave; pop rcx; jmp rcx
  EXPECT_EQ(end_of({0x55, 0x48, 0x89, 0xe5, 0x5d, 0x59, 0xff, 0xe1}), Flow::kReturn);
  EXPECT_EQ(end_of({0xc9, 0x59, 0xff, 0xe1}), Flow::kReturn);
}

TEST(Discover, OtherJumpsThroughRegistersAreNone) {
  // pop rcx; jmp rax, and: jmp rcx, and: pop rcx; inc rcx; jmp rcx
  EXPECT_EQ(end_of({0x59, 0xff, 0xe0}), Flow::kIndirectJump);
  EXPECT_EQ(end_of({0xff, 0xe1}), Flow::kIndirectJump);
  EXPECT_EQ(end_of({0x59, 0x48, 0xff, 0xc1, 0xff, 0xe1}), Flow::kIndirectJump);
  // pop rcx; jmp r9, and: pop r9; jmp rcx, and: pop cx; jmp rcx, and: pop rcx; jmp [rcx]
  EXPECT_EQ(end_of({0x59, 0x41, 0xff, 0xe1}), Flow::kIndirectJump);
  EXPECT_EQ(end_of({0x41, 0x59, 0xff, 0xe1}), Flow::kIndirectJump);
  EXPECT_EQ(end_of({0x66, 0x59, 0xff, 0xe1}), Flow::kIndirectJump);
  EXPECT_EQ(end_of({0x59, 0xff, 0x21}), Flow::kIndirectJump);
  // Pushed by the block itself: push rax; push rbx; pop rbx; pop rcx; jmp rcx
  EXPECT_EQ(end_of({0x50, 0x53, 0x5b, 0x59, 0xff, 0xe1}), Flow::kIndirectJump);
  // From another stack: mov rsp, rdi; pop rcx; jmp rcx, and: pop rsp; jmp rsp
  EXPECT_EQ(end_of({0x48, 0x89, 0xfc, 0x59, 0xff, 0xe1}), Flow::kIndirectJump);
  EXPECT_EQ(end_of({0x5c, 0xff, 0xe4}), Flow::kIndirectJump);
}

TEST(Discover, CallsEndBlocks) {
  const Code code({0xe8, 0xfb, 0x0f, 0, 0,  // 0 call 402000
                   0xff, 0xd0,              // 5 call rax
                   0x0f, 0x05,              // 7 syscall
                   0xc3});                  // 9 ret
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 5, 7, 9}));
  EXPECT_EQ(edges(p, 0), (Edges{"call_return 5"}));
  EXPECT_EQ(edges(p, 5), (Edges{"call_return 7"}));
  EXPECT_EQ(edges(p, 7), (Edges{"system_call 9"}));
}

TEST(Discover, BehindACallThatNeverReturnsIsNothing) {
  const Code code({0xe8, 0xfb, 0x0f, 0, 0,  // 0 call 402000
                   0xc3});
  DiscoverRequest request = code.request();
  request.never_returns = [](LinkAddr a) { return a == LinkAddr(0x402000); };
  const Procedure p = Discoverer(code.view()).discover(request);
  EXPECT_EQ(offsets(p), (Offsets{0}));
  EXPECT_EQ(edges(p, 0), (Edges{"no_return"}));
}

TEST(Discover, CallAtTheEndOfTheRange) {
  const Code code({0xe8, 0xfb, 0x0f, 0, 0});
  EXPECT_EQ(edges(code.discover(), 0), (Edges{"no_return"}));
}

TEST(Discover, TrapsEndTheFlow) {
  const Code code({0x74, 0x02,  // 0 jz 4
                   0x0f, 0x0b,  // 2 ud2
                   0xcc,        // 4 int3
                   0xc3});
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 2, 4}));
  EXPECT_EQ(edges(p, 2), (Edges{"no_return"}));
  EXPECT_EQ(edges(p, 4), (Edges{"no_return"}));
}

TEST(Discover, CallOfTheNextInstructionDoesNotReturn) {
  const Code code({0xe8, 0, 0, 0, 0,  // 0 call 5
                   0x58,              // 5 pop rax
                   0xc3});
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 5}));
  EXPECT_EQ(edges(p, 0), (Edges{"jump 5"}));
}

// ---- jump tables
// ---------------------------------------------------------------------------------

// cmp edi, 2; ja 21; lea rdx, [rip+table]; movsxd rax, [rdx+rdi*4]; add rax, rdx; jmp rax; cases
// at 21, 22, 23 and 24.
std::vector<uint8_t> switch_with_distances() {
  return {0x83, 0xff, 0x02,                 // 0 cmp edi, 2
          0x77, 0x10,                       // 3 ja 21
          0x48, 0x8d, 0x15, 0,    0, 0, 0,  // 5 lea rdx, [rip+table]
          0x48, 0x63, 0x04, 0xba,           // 12 movsxd rax, dword [rdx+rdi*4]
          0x48, 0x01, 0xd0,                 // 16 add rax, rdx
          0xff, 0xe0,                       // 19 jmp rax
          0xc3, 0xc3, 0xc3, 0xc3};          // 21 ret...
}

Code with_distance_table(std::vector<uint8_t> bytes, const std::vector<int64_t>& targets) {
  Code code(std::move(bytes));
  const uint64_t table = code.end();
  for (int64_t target : targets) {
    code.add(
        static_cast<int32_t>(static_cast<int64_t>(kBase) + target - static_cast<int64_t>(table)));
  }
  code.set32(8, table - (kBase + 12));
  return code;
}

TEST(JumpTable, DistancesUpToTheCompare) {
  // The fourth entry lies behind what the compare lets through.
  const Code code = with_distance_table(switch_with_distances(), {22, 23, 22, 24});
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 5, 21, 22, 23}));
  EXPECT_EQ(edges(p, 5), (Edges{"table_jump 22", "table_jump 23"}));
}

TEST(JumpTable, MarksTheBlocksItFound) {
  const Procedure p = with_distance_table(switch_with_distances(), {22, 23, 22, 24}).discover();
  EXPECT_TRUE(block(p, 22).from_jump_table);
  EXPECT_TRUE(block(p, 23).from_jump_table);
  EXPECT_FALSE(block(p, 21).from_jump_table);
}

TEST(JumpTable, AnEntryToTheColdPartIsSkipped) {
  const Code code = with_distance_table(switch_with_distances(), {22, -0x500, 24});
  EXPECT_EQ(edges(code.discover(), 5), (Edges{"table_jump 22", "table_jump 24"}));
}

TEST(JumpTable, WithoutReadableDataThereAreNoTargets) {
  const Code code(switch_with_distances());  // the table would be the lea's next instruction
  CodeView view = code.view();
  view.read_data = [](LinkAddr, void*, size_t) { return false; };
  const Procedure p = Discoverer(view).discover(code.request());
  EXPECT_EQ(offsets(p), (Offsets{0, 5, 21}));
  EXPECT_EQ(edges(p, 5), Edges{});
}

TEST(JumpTable, PointersAtAFixedAddress) {
  Code code({0x83, 0xff, 0x01,              // 0 cmp edi, 1
             0x77, 0x07,                    // 3 ja 12
             0xff, 0x24, 0xfd, 0, 0, 0, 0,  // 5 jmp [rdi*8+table]
             0xc3, 0xc3, 0xc3});            // 12 ret...
  const uint64_t bias = 0x555500000000;
  const uint64_t table = code.add<uint64_t>(kBase + 13 + bias);
  code.add<uint64_t>(kBase + 14 + bias);
  code.set32(8, table);
  const Procedure p = Discoverer(code.view(bias)).discover(code.request());
  EXPECT_EQ(offsets(p), (Offsets{0, 5, 12, 13, 14}));
  EXPECT_EQ(edges(p, 5), (Edges{"table_jump 13", "table_jump 14"}));
}

TEST(JumpTable, ComputedGotoReadsUntilManyEntriesLeave) {
  Code code({0x48, 0x8d, 0x15, 0, 0, 0, 0,                // 0 lea rdx, [rip+table]
             0xff, 0x24, 0xc2,                            // 7 jmp [rdx+rax*8]
             0x90, 0xeb, 0xfa,                            // 10 nop; jmp 7
             0xc3});                                      // 13 ret
  const uint64_t table = code.add<uint64_t>(0x88888888);  // the cold part
  code.add<uint64_t>(kBase + 10);
  code.add<uint64_t>(kBase + 13);
  for (int i = 0; i < 17; ++i) code.add<uint64_t>(0x99999999);
  code.add<uint64_t>(kBase + 12);  // behind the end: not an entry
  code.set32(3, table - (kBase + 7));
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0, 7, 10, 13}));
  EXPECT_EQ(edges(p, 7), (Edges{"table_jump 10", "table_jump 13"}));
}

TEST(JumpTable, AJumpThroughARegisterHasNoEdges) {
  const Code code({0xff, 0xe0, 0xc3});
  const Procedure p = code.discover();
  EXPECT_EQ(offsets(p), (Offsets{0}));
  EXPECT_EQ(edges(p, 0), Edges{});
}

// ---- flags
// ---------------------------------------------------------------------------------------

TEST(Flags, LiveAcrossAConditionalJumpDeadInFrontOfACompare) {
  const Code code({0x39, 0xf7,  // 0 cmp edi, esi
                   0x74, 0x02,  // 2 je 6
                   0x7c, 0x02,  // 4 jl 8, by the same compare
                   0x39, 0xf7,  // 6 cmp edi, esi
                   0xc3});      // 8 ret
  const Procedure p = code.discover();
  EXPECT_EQ(block(p, 0).flags_live_in, 0);
  // What a `ret` hands on is live: the ABI's word is not taken.
  EXPECT_EQ(block(p, 8).flags_live_in, flag::kAll);
  EXPECT_EQ(block(p, 6).flags_live_in, 0);
  EXPECT_EQ(block(p, 4).flags_live_in, flag::kAll);
  EXPECT_EQ(block(p, 0).flags_live_out, flag::kAll);
}

TEST(Flags, OnlyThoseThatAreReadAreLive) {
  const Code code({0x39, 0xf7,  // 0 cmp edi, esi
                   0x75, 0x02,  // 2 jne 6
                   0x72, 0x00,  // 4 jb 6, by the same compare's carry
                   0x39, 0xf7,  // 6 cmp edi, esi
                   0xc3});      // 8 ret
  const Procedure p = code.discover();
  EXPECT_EQ(block(p, 0).flags_live_out, flag::kCarry);
  EXPECT_EQ(block(p, 4).flags_live_in, flag::kCarry);
  EXPECT_EQ(block(p, 4).flags_live_out, 0);
}

TEST(Flags, TheCarryLivesAroundALoopOfAdc) {
  const Code code({0x31, 0xc0,  // 0 xor eax, eax
                   0x11, 0xc8,  // 2 adc eax, ecx
                   0xff, 0xca,  // 4 dec edx: keeps the carry
                   0x75, 0xfa,  // 6 jnz 2
                   0x39, 0xf7,  // 8 cmp edi, esi
                   0xc3});
  const Procedure p = code.discover();
  EXPECT_EQ(block(p, 2).flags_live_in, flag::kCarry);
  EXPECT_EQ(block(p, 2).flags_live_out, flag::kCarry);
  EXPECT_EQ(block(p, 0).flags_live_in, 0);
}

TEST(Flags, AShiftByAVariableCountDefinesNothing) {
  const Code code({0xeb, 0x00,  // 0 jmp 2
                   0xd3, 0xe0,  // 2 shl eax, cl: leaves the flags alone when cl is 0
                   0xc3});
  EXPECT_EQ(block(code.discover(), 2).flags_live_in, flag::kAll);
}

TEST(Flags, AcrossACallTheCalleesFirstInstructionsDecide) {
  const Code code({0xe8, 0x07, 0, 0, 0,  // 0 call 12
                   0xe8, 0x05, 0, 0, 0,  // 5 call 15
                   0xc3, 0x90,           // 10 ret
                   0x39, 0xf7, 0xc3,     // 12 cmp edi, esi; ret
                   0x11, 0xc8, 0xc3});   // 15 adc eax, ecx; ret
  const Procedure p = Discoverer(code.view()).discover(code.request(12));
  EXPECT_EQ(block(p, 0).flags_live_out, 0);
  EXPECT_EQ(block(p, 5).flags_live_out, flag::kCarry);
}

TEST(Flags, WhatACalleeKeepsFirstHidesNothing) {
  const Code code({0xe8, 0x01, 0,    0,    0,              // 0 call 6
                   0xc3,                                   // 5 ret
                   0x41, 0x57, 0x41, 0x56, 0x41, 0x55,     // 6 push r15, r14, r13
                   0x41, 0x54, 0x55, 0x53,                 // push r12, rbp, rbx
                   0x48, 0x89, 0xfb, 0x48, 0x83, 0xec, 8,  // mov rbx, rdi; sub rsp, 8
                   0xc3});
  EXPECT_EQ(block(Discoverer(code.view()).discover(code.request(6)), 0).flags_live_out, 0);
}

TEST(Flags, ACallAmongTheCalleesFirstInstructionsIsFollowed) {
  const Code code({0xe8, 0x01, 0, 0, 0,        // 0 call 6
                   0xc3,                       // 5 ret
                   0x53, 0xe8, 0x01, 0, 0, 0,  // 6 push rbx; call 13
                   0xc3,                       // 12 ret
                   0x0f, 0x92, 0xc0,           // 13 setc al
                   0x39, 0xf7, 0xc3});         // cmp edi, esi; ret
  const Procedure p = Discoverer(code.view()).discover(code.request(6));
  EXPECT_EQ(block(p, 0).flags_live_out, flag::kCarry);
  // One that never ends is given up.
  const Code around({0xe8, 0x01, 0, 0, 0, 0xc3, 0xe8, 0xfb, 0xff, 0xff, 0xff});
  EXPECT_EQ(block(Discoverer(around.view()).discover(around.request(6)), 0).flags_live_out,
            flag::kAll);
}

TEST(Flags, WhereABranchLeavesToDecidesBehindIt) {
  const Code code({0x72, 0x02,        // 0 jc 4
                   0xeb, 0x04,        // 2 jmp 8
                   0x0f, 0x94, 0xc0,  // 4 sete al
                   0x90,              // 7 nop: leaves
                   0x39, 0xf7, 0xc3,  // 8 cmp edi, esi; ret
                   0x0f, 0x92, 0xc0});
  const Procedure p = Discoverer(code.view()).discover(code.request(8));
  EXPECT_EQ(block(p, 2).flags_live_in, 0);
  EXPECT_EQ(block(p, 4).flags_live_in, flag::kZero);
  EXPECT_EQ(block(p, 4).flags_live_out, 0);
  EXPECT_EQ(block(p, 0).flags_live_out, flag::kZero);
}

TEST(Flags, WhereCodeMayBeReplacedWhatLeavesKeepsThemAll) {
  const Code code({0xe8, 0x02, 0, 0, 0,  // 0 call 7
                   0xeb, 0x00,           // 5 jmp 7: leaves
                   0x39, 0xf7, 0xc3});   // 7 cmp edi, esi; ret
  DiscoverRequest request = code.request(7);
  for (const bool replaceable : {false, true}) {
    request.replaceable = replaceable;
    const Procedure p = Discoverer(code.view()).discover(request);
    EXPECT_EQ(block(p, 0).flags_live_out, replaceable ? flag::kAll : 0);
    EXPECT_EQ(block(p, 5).flags_live_out, replaceable ? flag::kAll : 0);
  }
}

TEST(Flags, AnUnreadableCalleeMayReadThemAll) {
  const Code code({0xe8, 0x00, 0x10, 0, 0, 0xc3});
  EXPECT_EQ(block(code.discover(), 0).flags_live_out, flag::kAll);
}

// ---- invariants
// ----------------------------------------------------------------------------------

void expect_sound_block(const Procedure& p, const Block& b) {
  ASSERT_GT(b.insn_count, 0u);
  ASSERT_LE(b.first_insn + b.insn_count, p.insns.size());
  ASSERT_LE(b.first_edge + b.edge_count, p.edges.size());
  ASSERT_LE(b.offset + uint64_t{b.size_bytes}, p.range.size_bytes());
  uint32_t at = b.offset;
  for (const isa::Insn& insn : p.insns_of(b)) {
    ASSERT_EQ(insn.offset, at);
    at += insn.size;
    const bool last = &insn == &p.insns_of(b).back();
    ASSERT_TRUE(last || insn.flow == Flow::kNone);
  }
  ASSERT_EQ(at, b.offset + b.size_bytes);
}

void expect_sound(const Procedure& p) {
  uint32_t next_insn = 0;
  uint32_t next_edge = 0;
  for (BlockIndex i = 0; i < p.blocks.size(); ++i) {
    const Block& b = p.blocks[i];
    expect_sound_block(p, b);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_TRUE(i == 0 || p.blocks[i - 1].offset < b.offset);
    ASSERT_EQ(b.first_insn, next_insn);
    ASSERT_EQ(b.first_edge, next_edge);
    next_insn += b.insn_count;
    next_edge += b.edge_count;
    ASSERT_EQ(p.block_at(p.address_of(b)), i);
    for (const Edge& edge : p.edges_of(b)) {
      ASSERT_EQ(edge.from, i);
      ASSERT_TRUE(edge.to == kExitBlock || edge.to < p.blocks.size());
      ASSERT_TRUE(edge.kind != EdgeKind::kLeave || p.block_at(edge.target) == kExitBlock);
    }
    // Only an indirect jump may have no edges: everything else says where its flow goes.
    ASSERT_TRUE(b.edge_count > 0 || b.end == Flow::kIndirectJump);
  }
  ASSERT_EQ(next_insn, p.insns.size());
  ASSERT_EQ(next_edge, p.edges.size());
}

TEST(Discover, RandomBytesYieldSoundProcedures) {
  const unsigned seed = 4711;
  std::mt19937 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> bytes(1 + random() % 300);
    for (uint8_t& b : bytes) {
      // Short jumps to near targets are frequent enough for instructions to overlap.
      const auto r = static_cast<uint8_t>(random());
      b = random() % 4 == 0 ? static_cast<uint8_t>(0x70 + r % 16) : r;
    }
    const Code code(bytes);
    expect_sound(code.discover());
    if (HasFatalFailure()) FAIL() << "seed " << seed << " round " << round;
  }
}

TEST(Discover, RealCodeIsFoundTheSameTwice) {
  auto opened = elf::Image::open("/lib/x86_64-linux-gnu/libc.so.6");
  ASSERT_TRUE(opened) << opened.error().message;
  const std::shared_ptr<elf::Image> image = *opened;
  const CodeView view = view_of(image);
  Discoverer first(view);
  const auto& ranges = image->unwind_ranges();
  ASSERT_GT(ranges.size(), 1000u);
  size_t blocks = 0;
  size_t tables = 0;
  for (size_t i = 0; i < ranges.size(); i += 3) {
    DiscoverRequest request;
    request.entry = ranges[i].begin;
    request.range = ranges[i];
    const Procedure p = first.discover(request);
    expect_sound(p);
    const Procedure again = Discoverer(view).discover(request);
    if (HasFatalFailure()) FAIL() << "range at " << std::hex << request.entry.value();
    ASSERT_EQ(p.insns, again.insns);
    ASSERT_EQ(offsets(p), offsets(again));
    blocks += p.blocks.size();
    for (const Edge& edge : p.edges) tables += edge.kind == EdgeKind::kTableJump;
  }
  EXPECT_GT(blocks, 10000u);
  EXPECT_GT(tables, 100u) << "libc's switches have jump tables";
}

// Everything that a discovery does not name as its source may be anything.
TEST(Discover, RestsOnItsSourcesAlone) {
  auto opened = elf::Image::open("/lib/x86_64-linux-gnu/libc.so.6");
  ASSERT_TRUE(opened) << opened.error().message;
  const std::shared_ptr<elf::Image> image = *opened;
  std::vector<uint8_t> whole(image->segments().back().range.end.value());
  for (const elf::Segment& s : image->segments()) {
    const auto bytes = image->bytes_at(s.range.begin);
    std::ranges::copy(bytes, whole.begin() + static_cast<ptrdiff_t>(s.range.begin.value()));
  }
  std::vector<uint8_t> shown = whole;
  for (uint8_t& byte : shown) byte = static_cast<uint8_t>(~byte);
  const auto view_of = [&](const std::vector<uint8_t>& bytes) {
    CodeView view;
    view.code_at = [&](LinkAddr a) -> std::span<const uint8_t> {
      const size_t size = image->bytes_at(a).size();
      return size == 0 ? std::span<const uint8_t>() : std::span(bytes).subspan(a.value(), size);
    };
    view.read_data = [&](LinkAddr a, void* out, size_t size_bytes) {
      if (a.value() > bytes.size() || bytes.size() - a.value() < size_bytes) return false;
      std::memcpy(out, bytes.data() + a.value(), size_bytes);
      return true;
    };
    return view;
  };
  const auto& ranges = image->unwind_ranges();
  size_t tables = 0;
  for (size_t i = 0; i < ranges.size(); i += 3) {
    DiscoverRequest request;
    request.entry = ranges[i].begin;
    request.range = ranges[i];
    Discoverer discoverer(view_of(whole));
    const Procedure p = discoverer.discover(request);
    const std::vector<LinkRange> sources = discoverer.sources(p);
    const auto show = [&](bool true_bytes) {
      for (const LinkRange& range : sources) {
        for (uint64_t at = range.begin.value(); at < range.end.value(); ++at) {
          shown[at] = true_bytes ? whole[at] : static_cast<uint8_t>(~whole[at]);
        }
      }
    };
    show(true);
    const Procedure again = Discoverer(view_of(shown)).discover(request);
    show(false);
    ASSERT_EQ(p.insns, again.insns) << std::hex << request.entry.value();
    ASSERT_EQ(offsets(p), offsets(again));
    ASSERT_EQ(p.edges.size(), again.edges.size());
    for (size_t b = 0; b < p.blocks.size(); ++b) {
      ASSERT_EQ(p.blocks[b].flags_live_in, again.blocks[b].flags_live_in);
      ASSERT_EQ(p.blocks[b].flags_live_out, again.blocks[b].flags_live_out);
      ASSERT_EQ(edges(p, p.blocks[b].offset), edges(again, p.blocks[b].offset));
    }
    for (const Edge& edge : p.edges) tables += edge.kind == EdgeKind::kTableJump;
  }
  EXPECT_GT(tables, 100u) << "libc's switches have jump tables";
}

}  // namespace
}  // namespace tally::cfg
