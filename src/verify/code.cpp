// Reading blocks from code.  See code.h.
#include "verify/code.h"

#include <fmt/format.h>

#include <algorithm>

#include "isa/return_slot.h"

namespace tally::verify {

std::span<const uint8_t> CodeModule::code_at(LinkAddr address) const {
  auto it = from_memory.upper_bound(address.value());
  if (it != from_memory.begin()) {
    --it;
    const uint64_t offset = address.value() - it->first;
    if (offset < it->second.size()) return std::span(it->second).subspan(offset);
  }
  return image ? image->bytes_at(address) : std::span<const uint8_t>();
}

CodeModule& Code::module(const std::string& path) {
  // Whatever the names of memory without a file, it is one module.
  const bool generated = path.starts_with("[generated");
  const std::string name = generated ? kGenerated : path;
  const auto [it, fresh] = by_path_.try_emplace(name, static_cast<uint32_t>(modules_.size()));
  if (fresh) modules_.push_back(std::make_unique<CodeModule>(it->second, name));
  return *modules_[it->second];
}

BlockId Code::expect(CodeModule& module, LinkAddr begin) {
  const auto [it, fresh] =
      module.blocks.try_emplace(begin.value(), static_cast<BlockId>(blocks_.size()));
  if (fresh) {
    CodeBlock block;
    block.module = module.id;
    block.begin = block.end = block.last = begin;
    blocks_.push_back(std::move(block));
  }
  return it->second;
}

BlockId Code::find(const CodeModule& module, LinkAddr begin) const {
  const auto it = module.blocks.find(begin.value());
  return it == module.blocks.end() ? kNoBlock : it->second;
}

BlockId Code::holding(const CodeModule& module, LinkAddr address) const {
  auto it = module.blocks.upper_bound(address.value());
  // Blocks that overlap are rare and short: a few neighbours are enough.
  for (int i = 0; i < 4 && it != module.blocks.begin(); ++i) {
    --it;
    const CodeBlock& candidate = blocks_[it->second];
    if (candidate.how != BlockEnd::kUnread && candidate.contains(address)) return it->second;
  }
  return kNoBlock;
}

BlockId Code::arrive(CodeModule& module, LinkAddr begin) {
  BlockId id = find(module, begin);
  if (id != kNoBlock && blocks_[id].how != BlockEnd::kUnread) return id;
  const BlockId around = holding(module, begin);
  if (around != kNoBlock) {
    split(module, around, begin);
    id = find(module, begin);
    if (id != kNoBlock && blocks_[id].how != BlockEnd::kUnread) return id;
  }
  id = expect(module, begin);
  read(id, module.code_at(begin));
  find_overlap(module, id);
  return id;
}

void Code::reread(BlockId id, std::span<const uint8_t> bytes) {
  read(id, bytes);
}

// Where instructions of the upper block end exactly at `at`, it is cut; else the two overlap.
void Code::split(CodeModule& module, BlockId upper, LinkAddr at) {
  LinkAddr cursor = blocks_[upper].begin;
  LinkAddr previous = cursor;
  while (cursor < at) {
    const isa::Insn insn = isa::decode(module.code_at(cursor), cursor.value());
    if (insn.size == 0) return;
    previous = cursor;
    cursor = cursor + insn.size;
  }
  if (cursor != at) return;
  const BlockId lower = expect(module, at);
  CodeBlock& u = blocks_[upper];
  CodeBlock& l = blocks_[lower];
  l.end = u.end;
  l.last = u.last;
  l.how = u.how;
  l.branch = u.branch;
  l.returns_by_jump = u.returns_by_jump;
  l.simple = l.overlaps = false;
  l.overlaps = u.overlaps;
  u.end = at;
  u.last = previous;
  u.how = BlockEnd::kFallthrough;
  u.branch = {};
  u.returns_by_jump = false;
  u.simple = false;
  u.body.clear();
  const auto call = module.behind_call.find(l.end.value());
  if (call != module.behind_call.end() && call->second == upper) call->second = lower;
  if (on_split) on_split(upper, lower);
}

void Code::set_end(CodeBlock& block, const isa::Insn& insn, std::span<const uint8_t> bytes) {
  switch (insn.flow) {
    case isa::Flow::kSystemCall:
      block.how = BlockEnd::kSystemCall;
      return;
    case isa::Flow::kTrap:
      block.how = BlockEnd::kTrap;
      return;
    case isa::Flow::kUnsupported:
      block.how = BlockEnd::kOpaque;
      return;
    default:
      break;
  }
  block.branch = isa::decode_operation(bytes, block.last.value());
  switch (block.branch.op) {
    case isa::Op::kUnknown:
      block.how = BlockEnd::kOpaque;
      break;
    case isa::Op::kJump:
      block.how = BlockEnd::kJump;
      break;
    case isa::Op::kCall:
      block.how = BlockEnd::kCall;
      break;
    default:
      block.how = BlockEnd::kBranch;
      break;
  }
}

void Code::read(BlockId id, std::span<const uint8_t> bytes) {
  CodeBlock& block = blocks_[id];
  CodeModule& module = *modules_[block.module];
  block.how = BlockEnd::kBroken;
  block.branch = {};
  block.returns_by_jump = false;
  block.body.clear();
  block.simple = true;
  LinkAddr cursor = block.begin;
  auto next = module.blocks.upper_bound(cursor.value());
  size_t done = 0;
  std::vector<std::span<const uint8_t>> insns;
  while (true) {
    const isa::Insn insn = isa::decode(bytes.subspan(done), cursor.value());
    insns.push_back(bytes.subspan(done, insn.size));
    block.last = cursor;
    block.end = cursor + std::max<uint64_t>(insn.size, 1);
    if (insn.size == 0) {
      block.simple = false;
      return;
    }
    if (insn.flow != isa::Flow::kNone) {
      set_end(block, insn, bytes.subspan(done));
      const bool jumps = block.branch.op == isa::Op::kIndirectJump;
      block.returns_by_jump = jumps && isa::returns_by_jump(insns);
      break;
    }
    block.body.push_back(isa::decode_operation(bytes.subspan(done), cursor.value()));
    if (block.body.back().op == isa::Op::kUnknown) block.simple = false;
    done += insn.size;
    cursor = block.end;
    while (next != module.blocks.end() && next->first < cursor.value()) ++next;
    if (next != module.blocks.end() && next->first == cursor.value()) {
      block.how = BlockEnd::kFallthrough;
      break;
    }
  }
  const bool call = block.how == BlockEnd::kCall || block.branch.op == isa::Op::kIndirectCall;
  if (call) module.behind_call[block.end.value()] = id;
  if (!block.simple) block.body = {};
}

// Other blocks with bytes in common: a breakpoint in one would damage the other.
void Code::find_overlap(CodeModule& module, BlockId id) {
  CodeBlock& block = blocks_[id];
  auto it = module.blocks.lower_bound(block.end.value());
  for (int i = 0; i < 6 && it != module.blocks.begin(); ++i) {
    --it;
    if (it->second == id) continue;
    CodeBlock& other = blocks_[it->second];
    if (other.how == BlockEnd::kUnread || other.end <= block.begin) continue;
    if (other.begin < block.end && block.begin < other.end) block.overlaps = other.overlaps = true;
  }
}

std::string Code::describe(const CodeModule& module, LinkAddr address) const {
  return fmt::format("{}+{:#x}", module.path.substr(module.path.rfind('/') + 1), address.value());
}

std::string Code::describe(BlockId id) const {
  return describe(*modules_[blocks_[id].module], blocks_[id].begin);
}

}  // namespace tally::verify
