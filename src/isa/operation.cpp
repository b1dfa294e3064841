// Decoding an instruction with its operands.  See emulate.h.
#include "isa/emulate.h"
#include "isa/zydis.h"

namespace tally::isa {
namespace {

int8_t number_of(ZydisRegister reg) {
  return static_cast<int8_t>(register_number(reg));
}

bool is_general(ZydisRegister reg) {
  const ZydisRegisterClass c = ZydisRegisterGetClass(reg);
  return c == ZYDIS_REGCLASS_GPR8 || c == ZYDIS_REGCLASS_GPR16 || c == ZYDIS_REGCLASS_GPR32 ||
         c == ZYDIS_REGCLASS_GPR64;
}

bool set_memory(Operand& out, const ZydisDecodedOperand& z, uint64_t next) {
  if (z.mem.type != ZYDIS_MEMOP_TYPE_MEM && z.mem.type != ZYDIS_MEMOP_TYPE_AGEN) return false;
  if (z.mem.base != ZYDIS_REGISTER_NONE && z.mem.base != ZYDIS_REGISTER_RIP &&
      ZydisRegisterGetClass(z.mem.base) != ZYDIS_REGCLASS_GPR64) {
    return false;
  }
  if (z.mem.index != ZYDIS_REGISTER_NONE &&
      ZydisRegisterGetClass(z.mem.index) != ZYDIS_REGCLASS_GPR64) {
    return false;
  }
  if (z.mem.segment == ZYDIS_REGISTER_GS) return false;
  out.kind = Operand::Kind::kMemory;
  out.from_fs = z.mem.segment == ZYDIS_REGISTER_FS;
  out.base = number_of(z.mem.base);
  out.index = number_of(z.mem.index);
  out.scale = z.mem.scale;
  out.value = z.mem.disp.has_displacement ? z.mem.disp.value : 0;
  if (out.base == kRip) out.value += static_cast<int64_t>(next);
  return true;
}

bool set_operand(Operand& out, const ZydisDecodedOperand& z, uint64_t next) {
  out.size_bytes = static_cast<uint8_t>(z.size / 8);
  switch (z.type) {
    case ZYDIS_OPERAND_TYPE_REGISTER:
      if (!is_general(z.reg.value)) return false;
      out.kind = Operand::Kind::kRegister;
      out.number = number_of(z.reg.value);
      out.high_byte = z.reg.value >= ZYDIS_REGISTER_AH && z.reg.value <= ZYDIS_REGISTER_BH;
      // Zydis numbers ah..bh as parts of rax..rbx already.
      return true;
    case ZYDIS_OPERAND_TYPE_MEMORY:
      return set_memory(out, z, next);
    case ZYDIS_OPERAND_TYPE_IMMEDIATE:
      out.kind = Operand::Kind::kImmediate;
      out.value = z.imm.value.s;
      return true;
    default:
      return false;
  }
}

Op op_of(const ZydisDecodedInstruction& z) {
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_NOP:
    case ZYDIS_MNEMONIC_ENDBR64:
      return Op::kNop;
    case ZYDIS_MNEMONIC_MOV:
      return Op::kMove;
    case ZYDIS_MNEMONIC_MOVZX:
      return Op::kMoveZero;
    case ZYDIS_MNEMONIC_MOVSX:
    case ZYDIS_MNEMONIC_MOVSXD:
      return Op::kMoveSigned;
    case ZYDIS_MNEMONIC_LEA:
      return Op::kLea;
    case ZYDIS_MNEMONIC_ADD:
      return Op::kAdd;
    case ZYDIS_MNEMONIC_SUB:
      return Op::kSub;
    case ZYDIS_MNEMONIC_CMP:
      return Op::kCompare;
    case ZYDIS_MNEMONIC_AND:
      return Op::kAnd;
    case ZYDIS_MNEMONIC_OR:
      return Op::kOr;
    case ZYDIS_MNEMONIC_XOR:
      return Op::kXor;
    case ZYDIS_MNEMONIC_TEST:
      return Op::kTest;
    case ZYDIS_MNEMONIC_INC:
      return Op::kInc;
    case ZYDIS_MNEMONIC_DEC:
      return Op::kDec;
    case ZYDIS_MNEMONIC_NEG:
      return Op::kNeg;
    case ZYDIS_MNEMONIC_NOT:
      return Op::kNot;
    case ZYDIS_MNEMONIC_SHL:
      return Op::kShiftLeft;
    case ZYDIS_MNEMONIC_SHR:
      return Op::kShiftRight;
    case ZYDIS_MNEMONIC_SAR:
      return Op::kShiftSigned;
    case ZYDIS_MNEMONIC_PUSH:
      return Op::kPush;
    case ZYDIS_MNEMONIC_POP:
      return Op::kPop;
    case ZYDIS_MNEMONIC_CBW:
    case ZYDIS_MNEMONIC_CWDE:
    case ZYDIS_MNEMONIC_CDQE:
      return Op::kWiden;
    case ZYDIS_MNEMONIC_CWD:
    case ZYDIS_MNEMONIC_CDQ:
    case ZYDIS_MNEMONIC_CQO:
      return Op::kSpread;
    case ZYDIS_MNEMONIC_IMUL:
      return z.operand_count_visible >= 2 ? Op::kMultiply : Op::kUnknown;
    case ZYDIS_MNEMONIC_LEAVE:
      return Op::kLeave;
    default:
      break;
  }
  if (z.meta.category == ZYDIS_CATEGORY_SETCC) return Op::kSet;
  if (z.meta.category == ZYDIS_CATEGORY_CMOV) {
    // The ones for floating point bear the same category.
    return z.opcode_map == ZYDIS_OPCODE_MAP_0F ? Op::kMoveIf : Op::kUnknown;
  }
  return Op::kUnknown;
}

Op op_of_branch(Flow flow) {
  switch (flow) {
    case Flow::kJump:
      return Op::kJump;
    case Flow::kConditional:
      return Op::kConditional;
    case Flow::kCountedJump:
      return Op::kCounted;
    case Flow::kCall:
      return Op::kCall;
    case Flow::kIndirectJump:
      return Op::kIndirectJump;
    case Flow::kIndirectCall:
      return Op::kIndirectCall;
    case Flow::kReturn:
      return Op::kReturn;
    default:
      return Op::kUnknown;
  }
}

void set_counted(Operation& operation, const ZydisDecodedInstruction& z) {
  operation.counter_32 = z.address_width == 32;
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_LOOP:
      operation.counted = CountedForm::kLoop;
      break;
    case ZYDIS_MNEMONIC_LOOPE:
      operation.counted = CountedForm::kLoopEqual;
      break;
    case ZYDIS_MNEMONIC_LOOPNE:
      operation.counted = CountedForm::kLoopNotEqual;
      break;
    default:
      operation.counted = CountedForm::kIfZero;
      break;
  }
}

// Shifts only by constants: one by cl leaves the flags alone when cl is zero.
bool is_shift_by_register(const Operation& operation) {
  const bool shift = operation.op == Op::kShiftLeft || operation.op == Op::kShiftRight ||
                     operation.op == Op::kShiftSigned;
  return shift && operation.operands[1].kind != Operand::Kind::kImmediate;
}

bool set_operands(Operation& operation, const ZydisDecodedInstruction& z,
                  const ZydisDecodedOperand* operands, uint64_t next) {
  if (z.operand_count_visible > operation.operands.size()) return false;
  for (size_t i = 0; i < z.operand_count_visible; ++i) {
    if (!set_operand(operation.operands[i], operands[i], next)) return false;
  }
  return true;
}

}  // namespace

Operation decode_operation(std::span<const uint8_t> bytes, uint64_t address) {
  Operation operation;
  const Insn insn = decode_uncached(bytes, address);
  operation.size = insn.size;
  if (insn.size == 0 || insn.flow == Flow::kUnsupported) return operation;
  ZydisDecodedInstruction z;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (!ZYAN_SUCCESS(
          ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), insn.size, &z, operands))) {
    return operation;
  }
  const uint64_t next = address + insn.size;
  const bool branch = insn.flow != Flow::kNone;
  const Op op = branch ? op_of_branch(insn.flow) : op_of(z);
  if (op == Op::kUnknown) return operation;
  if (z.attributes & (ZYDIS_ATTRIB_HAS_LOCK | ZYDIS_ATTRIB_HAS_SEGMENT_GS)) return operation;
  operation.width_bytes = static_cast<uint8_t>(z.operand_width / 8);
  operation.condition = z.opcode & 15;
  operation.target = insn.target;
  operation.pop_bytes = insn.return_pop_bytes;
  const bool direct = op == Op::kJump || op == Op::kConditional || op == Op::kCounted ||
                      op == Op::kCall || op == Op::kReturn || op == Op::kNop;
  if (op == Op::kCounted) set_counted(operation, z);
  if (!direct && !set_operands(operation, z, operands, next)) return operation;
  if (op == Op::kLeave && z.operand_width != 64) return operation;
  operation.op = op;
  if (is_shift_by_register(operation)) operation.op = Op::kUnknown;
  return operation;
}

}  // namespace tally::isa
