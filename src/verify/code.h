// The program's code as the verifier knows it: modules, and blocks found by walking over them.
//
// Problem.  A profile says where blocks begin; where they end, and how, has to be read from the
// code itself, and quickly, since the program waits meanwhile.  And the profile may be wrong:
// control may arrive where no block begins, or in the middle of an instruction.
//
// Idea (Moseley, Debray and Andrews, sections 3.1 and 3.2).  A block begins where the profile says
// or where control arrives.  It ends at the first branch, or in front of the next beginning.  The
// end and its kind are found once and kept.  A beginning that only shows later splits a block:
//
//     profile: block 0x10, ends in the branch at 0x1c           0x10 ..... 0x1c jne
//     control arrives at 0x16: the lower part is the new block  0x10 ...   (falls into 0x16)
//                                                                    0x16 ... 0x1c jne
//
// What belongs to an address space (where a module is mapped, its breakpoints) is in space.h; this
// is shared by all processes of a run.
//
// Code that has no file is read from memory each time control arrives in it, and all of it is one
// module, "[generated]", whose addresses are those of the process.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/address.h"
#include "elf/image.h"
#include "isa/emulate.h"

namespace tally::verify {

using BlockId = uint32_t;
inline constexpr BlockId kNoBlock = UINT32_MAX;
inline constexpr const char* kGenerated = "[generated]";

enum class BlockEnd : uint8_t {
  kUnread,       // the block was never reached, so nobody looked
  kFallthrough,  // the next block begins behind it
  kJump,         // direct: where control goes on is known in advance
  kCall,
  kBranch,      // conditional, indirect, return: known when control is there
  kSystemCall,  // the kernel stops it
  kTrap,        // a signal stops it
  kOpaque,      // something only the processor can do, one step
  kBroken,      // no instruction, or none that can be read
};

struct CodeBlock {
  uint32_t module = 0;
  LinkAddr begin;
  LinkAddr end;   // behind the last instruction
  LinkAddr last;  // the last instruction
  BlockEnd how = BlockEnd::kUnread;
  bool overlaps = false;  // shares bytes with other instructions: no breakpoint may stand in it
  bool simple = false;    // every instruction can be emulated
  bool returns_by_jump = false;
  isa::Operation branch;
  std::vector<isa::Operation> body;  // all but the branch, where the block is simple
  bool contains(LinkAddr a) const { return begin <= a && a < end; }
};

class CodeModule {
 public:
  CodeModule(uint32_t number, std::string name) : id(number), path(std::move(name)) {}
  // Bytes of code from `address` on; empty where there is none.
  std::span<const uint8_t> code_at(LinkAddr address) const;

  uint32_t id;
  std::string path;
  std::string build_id;
  std::shared_ptr<elf::Image> image;  // nullptr: not mapped yet, or no file
  // What is in memory, where that is not what is in the file.
  std::map<uint64_t, std::vector<uint8_t>> from_memory;
  bool differs = false;
  std::map<uint64_t, BlockId> blocks;                 // by where they begin
  std::unordered_map<uint64_t, BlockId> behind_call;  // calls by where they come back to
};

class Code {
 public:
  // The module of a path; it is made when there is none.
  CodeModule& module(const std::string& path);
  CodeModule& module(uint32_t id) { return *modules_[id]; }
  const CodeModule& module(uint32_t id) const { return *modules_[id]; }
  size_t module_count() const { return modules_.size(); }

  // A block begins there; nothing is read.
  BlockId expect(CodeModule& module, LinkAddr begin);
  // The block that begins there, read if need be; splits the block it is in the middle of.
  BlockId arrive(CodeModule& module, LinkAddr begin);
  // Reads the block again from `bytes`, which its memory holds now.
  void reread(BlockId id, std::span<const uint8_t> bytes);
  // The block that begins there, if it is known.
  BlockId find(const CodeModule& module, LinkAddr begin) const;
  // The block that has been read and holds the address, which need not begin an instruction.
  BlockId holding(const CodeModule& module, LinkAddr address) const;

  CodeBlock& block(BlockId id) { return blocks_[id]; }
  const CodeBlock& block(BlockId id) const { return blocks_[id]; }
  size_t block_count() const { return blocks_.size(); }
  std::string describe(BlockId id) const;  // "gzip+0x4a10"
  std::string describe(const CodeModule& module, LinkAddr address) const;

  // Told when a block is cut in two: the upper one keeps its beginning, the lower one is new.
  std::function<void(BlockId upper, BlockId lower)> on_split;

 private:
  void read(BlockId id, std::span<const uint8_t> bytes);
  void set_end(CodeBlock& block, const isa::Insn& insn, std::span<const uint8_t> bytes);
  void find_overlap(CodeModule& module, BlockId id);
  void split(CodeModule& module, BlockId upper, LinkAddr at);

  std::vector<std::unique_ptr<CodeModule>> modules_;
  std::unordered_map<std::string, uint32_t> by_path_;
  std::deque<CodeBlock> blocks_;
};

}  // namespace tally::verify
