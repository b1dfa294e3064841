// Decoding with Zydis.
#include "isa/insn.h"

#include <array>
#include <atomic>
#include <cstring>

#include "isa/zydis.h"

namespace tally::isa {
namespace {

uint8_t flags_from_zydis(ZydisAccessedFlagsMask mask) {
  uint8_t result = 0;
  if (mask & ZYDIS_CPUFLAG_CF) result |= flag::kCarry;
  if (mask & ZYDIS_CPUFLAG_PF) result |= flag::kParity;
  if (mask & ZYDIS_CPUFLAG_AF) result |= flag::kAdjust;
  if (mask & ZYDIS_CPUFLAG_ZF) result |= flag::kZero;
  if (mask & ZYDIS_CPUFLAG_SF) result |= flag::kSign;
  if (mask & ZYDIS_CPUFLAG_OF) result |= flag::kOverflow;
  return result;
}

// A shift or rotate by a count of zero leaves the flags alone, a repeated string instruction with
// rcx = 0 as well; neither may count as a definition.
bool writes_flags_only_sometimes(const ZydisDecodedInstruction& z) {
  return z.meta.category == ZYDIS_CATEGORY_SHIFT || z.meta.category == ZYDIS_CATEGORY_ROTATE ||
         (z.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) !=
             0;
}

bool touches_gs(const ZydisDecodedInstruction& z, const uint8_t* bytes) {
  if (z.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS) return true;
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_RDGSBASE:
    case ZYDIS_MNEMONIC_WRGSBASE:
    case ZYDIS_MNEMONIC_SWAPGS:
    case ZYDIS_MNEMONIC_LGS:
      return true;
    case ZYDIS_MNEMONIC_MOV:
      // mov sreg, r/m is 8E /r, mov r/m, sreg 8C /r; gs is register 5.
      return z.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && (z.opcode == 0x8e || z.opcode == 0x8c) &&
             z.raw.modrm.reg == 5;
    case ZYDIS_MNEMONIC_PUSH:
    case ZYDIS_MNEMONIC_POP:
      return z.opcode_map == ZYDIS_OPCODE_MAP_0F && (z.opcode == 0xa8 || z.opcode == 0xa9);
    default:
      (void)bytes;
      return false;
  }
}

Flow flow_of_branch(const ZydisDecodedInstruction& z) {
  const bool far_branch = z.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_JMP:
      if (far_branch) return Flow::kUnsupported;
      return z.raw.imm[0].is_relative ? Flow::kJump : Flow::kIndirectJump;
    case ZYDIS_MNEMONIC_CALL:
      if (far_branch) return Flow::kUnsupported;
      return z.raw.imm[0].is_relative ? Flow::kCall : Flow::kIndirectCall;
    case ZYDIS_MNEMONIC_RET:
      return far_branch ? Flow::kUnsupported : Flow::kReturn;
    case ZYDIS_MNEMONIC_JCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
    case ZYDIS_MNEMONIC_JRCXZ:
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
      return Flow::kCountedJump;
    default:
      break;
  }
  if (z.meta.category == ZYDIS_CATEGORY_COND_BR) {
    return z.raw.imm[0].is_relative && z.mnemonic != ZYDIS_MNEMONIC_XBEGIN ? Flow::kConditional
                                                                           : Flow::kUnsupported;
  }
  return Flow::kNone;
}

Flow flow_of(const ZydisDecodedInstruction& z, const uint8_t* bytes) {
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_SYSCALL:
      return Flow::kSystemCall;
    case ZYDIS_MNEMONIC_UD0:
    case ZYDIS_MNEMONIC_UD1:
    case ZYDIS_MNEMONIC_UD2:
    case ZYDIS_MNEMONIC_HLT:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_INT1:
      return Flow::kTrap;
    case ZYDIS_MNEMONIC_INT:
      return z.raw.imm[0].value.u == 0x80 ? Flow::kUnsupported : Flow::kTrap;
    case ZYDIS_MNEMONIC_SYSENTER:
    case ZYDIS_MNEMONIC_SYSEXIT:
    case ZYDIS_MNEMONIC_SYSRET:
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_XBEGIN:
    case ZYDIS_MNEMONIC_XABORT:
      return Flow::kUnsupported;
    default:
      break;
  }
  if (touches_gs(z, bytes)) return Flow::kUnsupported;
  return flow_of_branch(z);
}

void set_flags(Insn& insn, const ZydisDecodedInstruction& z) {
  if (insn.flow == Flow::kSystemCall || insn.flow == Flow::kTrap ||
      insn.flow == Flow::kUnsupported) {
    insn.flags_read = flag::kAll;  // the flags are stored in r11 or seen by a handler
    return;
  }
  if (z.cpu_flags == nullptr) return;
  insn.flags_read = flags_from_zydis(z.cpu_flags->tested);
  const uint8_t defined =
      flags_from_zydis(z.cpu_flags->modified | z.cpu_flags->set_0 | z.cpu_flags->set_1);
  // An undefined flag may in fact be left as it was, so it is no definition; only AF, which the
  // logic instructions leave undefined and nothing but lahf and pushf can read, is taken as one.
  const uint8_t undefined = flags_from_zydis(z.cpu_flags->undefined) & flag::kAdjust;
  if (!writes_flags_only_sometimes(z)) insn.flags_written = defined | undefined;
}

// mov rsp, r/m64 with a source other than rbp: the mark of longjmp, eh_return and swapcontext; and
// xchg, which does the same.
bool loads_stack_pointer(const ZydisDecodedInstruction& z) {
  const bool moves = z.mnemonic == ZYDIS_MNEMONIC_MOV || z.mnemonic == ZYDIS_MNEMONIC_XCHG;
  if (!moves || z.opcode_map != ZYDIS_OPCODE_MAP_DEFAULT) return false;
  if (z.operand_width != 64) return false;
  const bool rex_r = z.raw.rex.R != 0;
  const bool rex_b = z.raw.rex.B != 0;
  const uint8_t rsp = 4;
  const uint8_t rbp = 5;
  if (z.opcode == 0x87) {
    const bool first = z.raw.modrm.reg == rsp && !rex_r;
    return first || (z.raw.modrm.mod == 3 && z.raw.modrm.rm == rsp && !rex_b);
  }
  if (z.opcode == 0x8b) {
    if (z.raw.modrm.reg != rsp || rex_r) return false;
    return z.raw.modrm.mod != 3 || z.raw.modrm.rm != rbp || rex_b;
  }
  if (z.opcode == 0x89) {
    if (z.raw.modrm.mod != 3 || z.raw.modrm.rm != rsp || rex_b) return false;
    return z.raw.modrm.reg != rbp || rex_r;
  }
  return false;
}

}  // namespace

Insn decode_uncached(std::span<const uint8_t> bytes, uint64_t address) {
  Insn insn;
  ZydisDecodedInstruction z;
  const size_t length = bytes.size() < 15 ? bytes.size() : 15;
  if (!ZYAN_SUCCESS(
          ZydisDecoderDecodeInstruction(&full_decoder(), nullptr, bytes.data(), length, &z))) {
    return insn;
  }
  insn.size = z.length;
  insn.flow = flow_of(z, bytes.data());
  set_flags(insn, z);
  insn.repeated =
      (z.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
  if (z.raw.imm[0].is_relative) {
    insn.target = address + z.length + static_cast<uint64_t>(z.raw.imm[0].value.s);
  } else if ((z.attributes & ZYDIS_ATTRIB_HAS_MODRM) && z.raw.modrm.mod == 0 &&
             z.raw.modrm.rm == 5) {
    insn.disp_offset = z.raw.disp.offset;
    insn.target = address + z.length + static_cast<uint64_t>(z.raw.disp.value);
    // With a 32-bit address size the sum is cut at 32 bits; nobody writes that, so it is refused
    // rather than mistranslated.
    if (z.address_width != 64) insn.flow = Flow::kUnsupported;
  }
  insn.modrm_offset = z.raw.modrm.offset;
  insn.has_modrm = (z.attributes & ZYDIS_ATTRIB_HAS_MODRM) != 0;
  insn.immediate_bytes = static_cast<uint8_t>((z.raw.imm[0].size + z.raw.imm[1].size) / 8);
  if (insn.flow == Flow::kConditional) insn.condition = z.opcode & 15;
  if (insn.flow == Flow::kReturn) {
    insn.return_pop_bytes = z.opcode == 0xc2 ? static_cast<uint16_t>(z.raw.imm[0].value.u) : 0;
  }
  // A 16-bit near branch truncates rip; refused for the same reason.
  if ((insn.flow == Flow::kJump || insn.flow == Flow::kCall || insn.flow == Flow::kIndirectJump ||
       insn.flow == Flow::kIndirectCall || insn.flow == Flow::kReturn) &&
      z.operand_width != 64) {
    insn.flow = Flow::kUnsupported;
  }
  insn.loads_stack_pointer = insn.flow == Flow::kNone && loads_stack_pointer(z);
  return insn;
}

namespace {

// ---- The fast path -------------------------------------------------------------------------
//
// Zydis takes 150-200 ns an instruction here, a third of what translation may cost in all.  But
// what we keep of an instruction depends on very little of it: its prefixes, its opcode and the
// `reg` field of its ModRM byte.  So the first instruction with such a key is decoded by Zydis and
// its result kept as a template; the next ones only need their length and displacement computed
// from ModRM and SIB.  Opcodes for which the key does not say everything go to Zydis every time.

struct Template {
  std::atomic<uint64_t> bits{0};  // 0: not yet known
};

struct Unpacked {
  Flow flow;
  uint8_t flags_read;
  uint8_t flags_written;
  uint8_t immediate_bytes;
  bool has_modrm;
  bool repeated;
};

constexpr uint64_t kTemplateKnown = 1ull << 63;

uint64_t pack(const Insn& insn) {
  return kTemplateKnown | static_cast<uint64_t>(insn.flow) |
         static_cast<uint64_t>(insn.flags_read) << 8 |
         static_cast<uint64_t>(insn.flags_written) << 16 |
         static_cast<uint64_t>(insn.immediate_bytes) << 24 |
         static_cast<uint64_t>(insn.has_modrm) << 32 | static_cast<uint64_t>(insn.repeated) << 33;
}

Unpacked unpack(uint64_t bits) {
  return Unpacked{static_cast<Flow>(bits & 0xff),   static_cast<uint8_t>(bits >> 8),
                  static_cast<uint8_t>(bits >> 16), static_cast<uint8_t>(bits >> 24),
                  ((bits >> 32) & 1) != 0,          ((bits >> 33) & 1) != 0};
}

// Everything in front of the operands, as far as the fast path understands it.
struct Prefix {
  uint32_t key = 0;
  uint8_t opcode = 0;
  uint8_t rex = 0;
  uint8_t opcode_end = 0;  // offset of the byte behind the opcode
  bool two_byte = false;
};

// One-byte opcodes that the key does not fully describe: prefixes and escapes, far and gs-ish
// forms, x87 and xbegin (the whole ModRM byte selects), moffs and enter (odd immediates), returns
// with an immediate (which is kept), VEX, EVEX and XOP.
bool one_byte_needs_zydis(uint8_t op, uint8_t modrm) {
  if (op == 0xc6 || op == 0xc7) return (modrm & 0x38) != 0;  // mov is the only plain one
  if (op >= 0xd8 && op <= 0xdf) return true;
  if (op >= 0xa0 && op <= 0xa3) return true;
  switch (op) {
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x67:
    case 0x66:
    case 0xf0:
    case 0xf2:
    case 0xf3:
    case 0x62:
    case 0x8f:
    case 0xc2:
    case 0xc4:
    case 0xc5:
    case 0xc8:
    case 0xca:
    case 0xcb:
    case 0xcd:
    case 0xcc:
    case 0xf1:
    case 0x9a:
    case 0xea:
    case 0x90:
      return true;
    default:
      return op >= 0x40 && op <= 0x4f;
  }
}

// Two-byte opcodes likewise: further escapes, groups selected by the whole ModRM byte, 3DNow!.
bool two_byte_needs_zydis(uint8_t op) {
  switch (op) {
    case 0x00:
    case 0x01:
    case 0x0f:
    case 0x1e:
    case 0x38:
    case 0x3a:
    case 0xae:
    case 0xc7:
    case 0x0d:
    case 0x18:
    case 0x1a:
    case 0x1b:
    case 0x1c:
    case 0x78:
    case 0x79:
    case 0xff:
    case 0xa6:
    case 0xa7:
    case 0xb9:
    case 0x0b:
    case 0x05:
    case 0x34:
      return true;
    default:
      return op >= 0x20 && op <= 0x27;
  }
}

bool read_prefix(std::span<const uint8_t> bytes, Prefix& prefix) {
  size_t i = 0;
  uint32_t legacy = 0;
  for (; i < 3; ++i) {
    const uint8_t b = bytes[i];
    const uint32_t bit = b == 0x66 ? 1 : b == 0xf2 ? 2 : b == 0xf3 ? 4 : 0;
    if (bit == 0) break;
    if (legacy & bit) return false;
    legacy |= bit;
  }
  if ((legacy & 6) == 6) return false;
  if ((bytes[i] & 0xf0) == 0x40) prefix.rex = bytes[i++];
  prefix.opcode = bytes[i++];
  if (prefix.opcode == 0x0f) {
    prefix.two_byte = true;
    prefix.opcode = bytes[i++];
    if (two_byte_needs_zydis(prefix.opcode)) return false;
  } else if (one_byte_needs_zydis(prefix.opcode, bytes[i])) {
    return false;
  }
  prefix.opcode_end = static_cast<uint8_t>(i);
  const uint32_t wide = (prefix.rex & 8) ? 1 : 0;
  const uint32_t rex_present = prefix.rex ? 1 : 0;
  const uint8_t modrm = bytes[i];
  const uint32_t mod3 = (modrm >> 6) == 3 ? 1 : 0;
  const uint32_t reg = (modrm >> 3) & 7;
  // What varies most from one use of an opcode to the next comes lowest: the few templates that
  // are used then lie in few lines of the processor's caches.
  prefix.key = reg | mod3 << 3 | wide << 4 | rex_present << 5 | legacy << 6 |
               (prefix.two_byte ? 1u : 0u) << 9 | static_cast<uint32_t>(prefix.opcode) << 10;
  return true;
}

// Length of ModRM, SIB and displacement.
uint8_t modrm_length(const uint8_t* p) {
  const uint8_t mod = *p >> 6;
  const uint8_t rm = *p & 7;
  if (mod == 3) return 1;
  uint8_t length = 1;
  if (rm == 4) {
    ++length;
    if (mod == 0 && (p[1] & 7) == 5) length += 4;
  } else if (mod == 0 && rm == 5) {
    length += 4;
  }
  return static_cast<uint8_t>(length + (mod == 1 ? 1 : mod == 2 ? 4 : 0));
}

bool loads_stack_pointer_fast(const Prefix& prefix, uint8_t modrm) {
  if (prefix.two_byte || (prefix.rex & 8) == 0) return false;
  const uint8_t reg = ((modrm >> 3) & 7) | ((prefix.rex & 4) << 1);
  const uint8_t rm = (modrm & 7) | static_cast<uint8_t>((prefix.rex & 1) << 3);
  const bool direct = (modrm >> 6) == 3;
  if (prefix.opcode == 0x87) return reg == 4 || (direct && rm == 4);
  if (prefix.opcode == 0x8b) return reg == 4 && !(direct && rm == 5);
  return prefix.opcode == 0x89 && direct && rm == 4 && reg != 5;
}

Insn expand(const Prefix& prefix, const Unpacked& known, const uint8_t* p, uint64_t address) {
  Insn insn;
  insn.flow = known.flow;
  insn.flags_read = known.flags_read;
  insn.flags_written = known.flags_written;
  insn.immediate_bytes = known.immediate_bytes;
  insn.has_modrm = known.has_modrm;
  insn.repeated = known.repeated;
  uint8_t end = prefix.opcode_end;
  bool rip_relative = false;
  if (known.has_modrm) {
    const uint8_t modrm = p[end];
    insn.modrm_offset = end;
    rip_relative = (modrm & 0xc7) == 5;
    if (rip_relative) insn.disp_offset = static_cast<uint8_t>(end + 1);
    insn.loads_stack_pointer = loads_stack_pointer_fast(prefix, modrm);
    end = static_cast<uint8_t>(end + modrm_length(p + end));
  }
  insn.size = static_cast<uint8_t>(end + known.immediate_bytes);
  if (rip_relative) {
    int32_t displacement;
    std::memcpy(&displacement, p + insn.disp_offset, 4);
    insn.target = address + insn.size + static_cast<uint64_t>(static_cast<int64_t>(displacement));
  } else if (known.flow == Flow::kJump || known.flow == Flow::kConditional ||
             known.flow == Flow::kCall || known.flow == Flow::kCountedJump) {
    int64_t relative;
    if (known.immediate_bytes == 1) {
      relative = static_cast<int8_t>(p[end]);
    } else {
      int32_t wide;
      std::memcpy(&wide, p + end, 4);
      relative = wide;
    }
    insn.target = address + insn.size + static_cast<uint64_t>(relative);
    if (known.flow == Flow::kConditional) insn.condition = prefix.opcode & 15;
  }
  return insn;
}

}  // namespace

Insn decode(std::span<const uint8_t> bytes, uint64_t address) {
  // 16 bytes in sight mean that nothing below reads past the end.
  Prefix prefix;
  if (bytes.size() < 16 || !read_prefix(bytes, prefix)) return decode_uncached(bytes, address);
  // Zeros that nobody has to write: only what is looked up comes to be in memory.
  static constinit std::array<Template, 1u << 18> templates{};
  Template& cached = templates[prefix.key];
  uint64_t bits = cached.bits.load(std::memory_order_relaxed);
  if (bits == 0) {
    const Insn insn = decode_uncached(bytes, address);
    if (insn.size == 0) return insn;
    bits = pack(insn);
    cached.bits.store(bits, std::memory_order_relaxed);
    return insn;
  }
  return expand(prefix, unpack(bits), bytes.data(), address);
}

namespace {

MemoryOperand memory_operand(const ZydisDecodedInstruction& z, const ZydisDecodedOperand& operand,
                             uint64_t address) {
  MemoryOperand m;
  m.base = operand.mem.base == ZYDIS_REGISTER_NONE ? -1 : register_number(operand.mem.base);
  m.index = operand.mem.index == ZYDIS_REGISTER_NONE ? -1 : register_number(operand.mem.index);
  m.scale = operand.mem.scale;
  m.displacement = operand.mem.disp.has_displacement ? operand.mem.disp.value : 0;
  if (m.base == kRip) m.displacement += static_cast<int64_t>(address + z.length);
  m.size_bytes = static_cast<uint8_t>(operand.size / 8);
  return m;
}

TableStep table_step(ZydisMnemonic mnemonic, bool has_memory) {
  switch (mnemonic) {
    case ZYDIS_MNEMONIC_LEA:
      return TableStep::kLea;
    case ZYDIS_MNEMONIC_MOVSXD:
    case ZYDIS_MNEMONIC_MOVSX:
      return has_memory ? TableStep::kLoadSigned : TableStep::kMove;
    case ZYDIS_MNEMONIC_MOV:
    case ZYDIS_MNEMONIC_MOVZX:
      return has_memory ? TableStep::kLoad : TableStep::kMove;
    case ZYDIS_MNEMONIC_ADD:
      return TableStep::kAdd;
    case ZYDIS_MNEMONIC_CMP:
      return TableStep::kCompare;
    case ZYDIS_MNEMONIC_JMP:
      return TableStep::kJump;
    default:
      return TableStep::kOther;
  }
}

}  // namespace

TableInsn decode_for_table(std::span<const uint8_t> bytes, uint64_t address) {
  TableInsn result;
  ZydisDecodedInstruction z;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  const size_t length = bytes.size() < 15 ? bytes.size() : 15;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), length, &z, operands))) {
    return result;
  }
  for (int i = 0; i < z.operand_count; ++i) {
    const ZydisDecodedOperand& operand = operands[i];
    if (operand.type == ZYDIS_OPERAND_TYPE_MEMORY) {
      result.has_memory = true;
      result.memory = memory_operand(z, operand, address);
    } else if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      const int number = register_number(operand.reg.value);
      if (number < 0) continue;
      if (operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) {
        result.written_mask |= 1u << number;
      }
      if (i == 0 && operand.visibility == ZYDIS_OPERAND_VISIBILITY_EXPLICIT) {
        result.destination = number;
      }
      if (i == 1 || z.mnemonic == ZYDIS_MNEMONIC_JMP) {
        if (result.source < 0) result.source = number;
      }
    } else if (operand.type == ZYDIS_OPERAND_TYPE_IMMEDIATE) {
      result.immediate =
          operand.imm.is_signed ? operand.imm.value.s : static_cast<int64_t>(operand.imm.value.u);
    }
  }
  result.step = table_step(z.mnemonic, result.has_memory);
  return result;
}

bool writes_memory(std::span<const uint8_t> bytes) {
  ZydisDecodedInstruction z;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  const size_t length = bytes.size() < 15 ? bytes.size() : 15;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), length, &z, operands))) {
    return true;
  }
  for (int i = 0; i < z.operand_count; ++i) {
    const ZydisDecodedOperand& operand = operands[i];
    if (operand.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
    if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) continue;
    if (operand.mem.base != ZYDIS_REGISTER_RSP) return true;
  }
  return false;
}

bool restores_stack_from_frame(std::span<const uint8_t> bytes) {
  if (bytes.size() == 1) return bytes[0] == 0xc9;
  if (bytes.size() < 4 || bytes[0] != 0x48) return false;
  const uint8_t mod = bytes[2] >> 6;
  const bool rbp_to_rsp = (bytes[2] & 0x3f) == (4 << 3 | 5);
  return bytes[1] == 0x8d && (mod == 1 || mod == 2) && rbp_to_rsp;
}

bool reads_chance(std::span<const uint8_t> bytes) {
  ZydisDecodedInstruction z;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  const size_t length = bytes.size() < kInsnBytesMax ? bytes.size() : kInsnBytesMax;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), length, &z, operands))) {
    return false;
  }
  return z.mnemonic == ZYDIS_MNEMONIC_RDTSC || z.mnemonic == ZYDIS_MNEMONIC_RDTSCP ||
         z.mnemonic == ZYDIS_MNEMONIC_RDRAND || z.mnemonic == ZYDIS_MNEMONIC_RDSEED;
}

std::optional<uint64_t> pointer_of_stub(std::span<const uint8_t> bytes, uint64_t address) {
  constexpr size_t kStubBytesMax = 16;
  for (size_t at = 0; at < std::min(bytes.size(), kStubBytesMax);) {
    const Insn insn = decode(bytes.subspan(at), address + at);
    if (insn.size == 0) return std::nullopt;
    if (insn.flow == Flow::kIndirectJump && insn.disp_offset != 0) return insn.target;
    if (insn.flow != Flow::kNone) return std::nullopt;
    at += insn.size;
  }
  return std::nullopt;
}

bool synchronises(std::span<const uint8_t> bytes) {
  ZydisDecodedInstruction z;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  const size_t length = bytes.size() < kInsnBytesMax ? bytes.size() : kInsnBytesMax;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), length, &z, operands))) {
    return false;
  }
  if ((z.attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0) return true;
  if (z.mnemonic == ZYDIS_MNEMONIC_PAUSE || z.mnemonic == ZYDIS_MNEMONIC_MFENCE) return true;
  // With memory it is atomic without a prefix.
  return z.mnemonic == ZYDIS_MNEMONIC_XCHG && (operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY ||
                                               operands[1].type == ZYDIS_OPERAND_TYPE_MEMORY);
}

bool raises_as_ocaml(std::span<const uint8_t> bytes) {
  if (bytes.size() < 3) return false;
  const bool load = bytes[0] == 0x49 && bytes[1] == 0x8b && (bytes[2] & 0x3f) == (4 << 3 | 6);
  const bool move = bytes[0] == 0x4c && bytes[1] == 0x89 && bytes[2] == 0xf4;
  return load || move;
}

std::string format(std::span<const uint8_t> bytes, uint64_t address) {
  static const ZydisFormatter formatter = [] {
    ZydisFormatter f;
    ZydisFormatterInit(&f, ZYDIS_FORMATTER_STYLE_INTEL);
    return f;
  }();
  ZydisDecodedInstruction z;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  const size_t length = bytes.size() < 15 ? bytes.size() : 15;
  if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), length, &z, operands))) {
    return "(bad)";
  }
  char text[256];
  ZydisFormatterFormatInstruction(&formatter, &z, operands, z.operand_count_visible, text,
                                  sizeof text, address, nullptr);
  return text;
}

std::string describe(std::span<const uint8_t> bytes, uint64_t address) {
  const std::string text = format(bytes, address);
  if (text.find("gs") != std::string::npos) {
    return "`" + text + "`: the program uses the gs register, which Tally needs for its counters";
  }
  return "`" + text + "`: this kind of control transfer is not supported";
}

}  // namespace tally::isa
