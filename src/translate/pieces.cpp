// The pieces of generated code that units and lookup chains share.
#include "translate/layout.h"
#include "translate/unit.h"

namespace tally::translate {

using isa::Assembler;

namespace {

bool spares_flags(uint8_t flags_live) {
  return (flags_live & isa::flag::kChangedByInc) == 0;
}

}  // namespace

uint32_t emit_counter_through_rcx(Assembler& as, uint32_t counter) {
  as.mov_rcx_gs(counter_offset(counter));
  as.lea_rcx_rcx_1();
  as.mov_gs_rcx(counter_offset(counter));
  return as.offset();
}

uint32_t emit_counter(Assembler& as, uint32_t counter, uint8_t flags_live) {
  if (counter == kCountNothing) return as.offset();
  if (spares_flags(flags_live)) {
    as.inc_gs(counter_offset(counter));
    return as.offset();
  }
  as.mov_gs_rcx(tcb::kSpillProbe);
  const uint32_t counted = emit_counter_through_rcx(as, counter);
  as.mov_rcx_gs(tcb::kSpillProbe);
  return counted;
}

uint32_t emit_counter_and_rcx(Assembler& as, uint32_t counter, uint8_t flags_live) {
  const bool counts_first = counter != kCountNothing && !spares_flags(flags_live);
  if (counts_first) emit_counter_through_rcx(as, counter);
  const uint32_t counted = as.offset();
  as.mov_rcx_gs(tcb::kSpillRcx);
  return counts_first ? counted : emit_counter(as, counter, flags_live);
}

// counter - reg is ~(~counter + reg): neither `not` nor `lea` changes a flag.
uint32_t emit_crossing(Assembler& as, Crossing crossing, uint32_t counter, uint8_t reg,
                       uint8_t flags_live) {
  const bool enters = crossing == Crossing::kEnters;
  const uint32_t at = counter_offset(counter);
  if (flags_live == 0) {
    enters ? as.sub_gs_reg(at, reg) : as.add_gs_reg(at, reg);
    return as.offset();
  }
  as.mov_gs_rcx(tcb::kSpillProbe);
  as.mov_rcx_gs(at);
  if (enters) as.not_rcx();
  as.lea_rcx_rcx_reg(reg);
  if (enters) as.not_rcx();
  as.mov_gs_rcx(at);
  const uint32_t crossed = as.offset();
  as.mov_rcx_gs(tcb::kSpillProbe);
  return crossed;
}

Verify emit_verify(Assembler& as, uint64_t original, Compare compare) {
  constexpr unsigned kJrcxzBytes = 2;
  Verify verify;
  const auto low = static_cast<uint32_t>(original);
  const auto high = static_cast<uint32_t>(original >> 32);
  for (unsigned half = 0; half < (compare == Compare::kAll64 ? 2u : 1u); ++half) {
    as.mov_ecx_gs(tcb::kTarget + half * 4);
    as.lea_ecx_rcx(static_cast<int32_t>(0u - (half ? high : low)));
    const unsigned padding = as.padding_for_patch(kJrcxzBytes + 1);
    as.jrcxz(static_cast<uint8_t>(padding + isa::kJumpBytes));
    as.nops(padding);
    as.jmp(as.here().value());
    verify.mismatch_fields[half] = as.offset() - 4;
  }
  return verify;
}

void point_mismatch(Assembler& as, const Verify& verify, uint64_t target) {
  for (const uint32_t field : verify.mismatch_fields) {
    if (field != 0) as.patch_rel32(field, target);
  }
}

namespace {

constexpr uint8_t kNotEqual = 5;  // the condition's number

// The second half of a stub; from where on the counter has been incremented.  Whether rcx is still
// to get what it had in front of the branch.
enum class Rcx : uint8_t { kAsItWas, kSpilled };
CacheAddr count_at(Assembler& as, uint32_t counter, uint8_t flags_live, Whereabouts at,
                   Rcx rcx = Rcx::kAsItWas) {
  if (at.where != 0 && !at.behind_counter) as.mov_gs32_imm(tcb::kWhere, at.where);
  const uint32_t counted = rcx == Rcx::kSpilled ? emit_counter_and_rcx(as, counter, flags_live)
                                                : emit_counter(as, counter, flags_live);
  const CacheAddr begin(as.here().value() - as.offset());
  if (at.where != 0 && at.behind_counter) as.mov_gs32_imm(tcb::kWhere, at.where);
  return begin + counted;
}

void go(Assembler& as, CacheAddr target, Ends ends) {
  if (ends == Ends::kJumps) as.jmp_anywhere(target.value());
}

// A jump to the next stub of a chain.  Returns its field, which may be patched at any time.
CacheAddr emit_way_on(Assembler& as, CacheAddr next) {
  as.align_patch(1);
  as.jmp(next.value());
  return CacheAddr(as.here().value() - 4);
}

}  // namespace

Stub emit_stub(Assembler& as, uint64_t original, uint32_t counter, uint8_t flags_live,
               CacheAddr target, CacheAddr miss, Compare compare, Whereabouts at, Ends ends) {
  Stub stub;
  stub.entry = as.here();
  const Verify verify = emit_verify(as, original, compare);
  stub.accept = as.here();
  stub.counted = count_at(as, counter, flags_live, at, Rcx::kSpilled);
  go(as, target, ends);
  stub.mismatch = as.here();
  const CacheAddr begin(as.here().value() - as.offset());
  if (compare == Compare::kLow32) {
    stub.mismatch_field = begin + verify.mismatch_fields[0];
    point_mismatch(as, verify, miss.value());
  } else {
    stub.mismatch_field = emit_way_on(as, miss);
    point_mismatch(as, verify, stub.mismatch.value());
  }
  stub.end = as.here();
  return stub;
}

Stub emit_sealed_stub(Assembler& as, uint32_t counter, uint8_t flags_live, CacheAddr target,
                      CacheAddr miss, Whereabouts at, Ends ends) {
  Stub stub;
  // Nobody goes on to another stub: there is no other pointer to look for.
  if (ends == Ends::kFalls) stub.mismatch_field = emit_way_on(as, miss);
  stub.accept = as.here();
  as.mov_rcx_gs(tcb::kSpillRcx);
  stub.entry = as.here();
  stub.counted = count_at(as, counter, flags_live, at);
  go(as, target, ends);
  stub.mismatch = as.here();
  if (ends == Ends::kJumps) stub.mismatch_field = emit_way_on(as, miss);
  stub.end = as.here();
  return stub;
}

void emit_load_slot(Assembler& as, TargetAddr slot) {
  as.mov_gs_rcx(tcb::kSpillRcx);
  as.mov_rcx_imm64(slot.value());
  as.mov_rcx_at_rcx();
  as.mov_gs_rcx(tcb::kTarget);
}

void emit_again(Assembler& as, const Unspilled& jump, FlagsMatter flags) {
  as.mov_reg_gs(jump.reg, tcb::kTarget);
  const auto code = jump.flags.code();
  if (flags == FlagsMatter::kYes) as.bytes(code.data(), code.size());
}

Stub emit_unspilled_stub(Assembler& as, uint64_t original, uint32_t counter, uint8_t flags_live,
                         CacheAddr target, CacheAddr miss, const Unspilled& jump, Whereabouts at,
                         Ends ends) {
  Stub stub;
  stub.entry = as.here();
  as.cmp_gs32_imm(tcb::kTarget, static_cast<uint32_t>(original));
  as.align_patch_jcc();
  as.jcc(kNotEqual, miss.value());
  stub.accept = as.here();
  stub.mismatch_field = stub.accept - 4;
  // Where the flags matter, they are made again behind the counter.
  stub.counted = count_at(as, counter, 0, at);
  emit_again(as, jump, flags_live != 0 ? FlagsMatter::kYes : FlagsMatter::kNo);
  go(as, target, ends);
  stub.mismatch = stub.end = as.here();
  return stub;
}

namespace {

// The way to the target, up to where that is: in the stub, the distance of the jump that its
// comparison takes.
uint32_t emit_index_way(Assembler& as, std::span<const uint8_t> tail, uint64_t original,
                        uint32_t counter, uint8_t flags_live, const Unspilled& jump,
                        IndexedStub& stub) {
  stub.entry = as.here();
  as.bytes(tail.data(), tail.size());
  stub.compares = as.here();
  as.cmp_reg32_imm(jump.reg, static_cast<uint32_t>(original));
  as.jcc(kNotEqual, as.here().value());
  const uint32_t mismatch_field = as.offset() - 4;
  const auto flags = jump.flags.code();
  stub.counted = count_at(as, counter, 0, {});
  if (flags_live != 0) as.bytes(flags.data(), flags.size());
  return mismatch_field;
}

}  // namespace

IndexedStub emit_indexed_stub(Assembler& as, std::span<const uint8_t> tail, uint64_t original,
                              uint32_t counter, uint8_t flags_live, CacheAddr target,
                              CacheAddr site_jump, const Unspilled& jump) {
  IndexedStub stub;
  const uint32_t field = emit_index_way(as, tail, original, counter, flags_live, jump, stub);
  as.jmp_anywhere(target.value());
  stub.end = as.here();
  as.patch_rel32(field, stub.end.value());
  const CacheRange mismatch = emit_index_mismatch(as, site_jump, jump);
  stub.mismatch = mismatch.begin;
  stub.mismatch_end = mismatch.end;
  return stub;
}

IndexedStub emit_indexed_front(Assembler& as, std::span<const uint8_t> tail, uint64_t original,
                               uint32_t counter, uint8_t flags_live, CacheRange mismatch,
                               const Unspilled& jump) {
  IndexedStub stub;
  const uint32_t field = emit_index_way(as, tail, original, counter, flags_live, jump, stub);
  as.patch_rel32(field, mismatch.begin.value());
  stub.end = as.here();
  stub.mismatch = mismatch.begin;
  stub.mismatch_end = mismatch.end;
  return stub;
}

CacheRange emit_index_mismatch(Assembler& as, CacheAddr site_jump, const Unspilled& jump) {
  const CacheAddr begin = as.here();
  const auto flags = jump.flags.code();
  as.bytes(flags.data(), flags.size());
  as.jmp_anywhere(site_jump.value());
  return {begin, as.here()};
}

IndexedStub emit_index_fallback(Assembler& as, std::span<const uint8_t> first,
                                CacheAddr behind_it) {
  IndexedStub stub;
  stub.entry = as.here();
  as.bytes(first.data(), first.size());
  stub.compares = as.here();
  as.jmp_anywhere(behind_it.value());
  stub.counted = stub.end = stub.mismatch = stub.mismatch_end = as.here();
  return stub;
}

void emit_index_dispatch(Assembler& as, const isa::IndexedJump& jump, uint32_t table_address) {
  if (jump.masked) as.movzx_low_byte(jump.index, jump.from);
  as.jmp_table_of_index(jump.index, table_address);
}

LinkStub emit_link_stub(Assembler& as, uint32_t counter, uint8_t flags_live, CacheAddr target,
                        Whereabouts at) {
  LinkStub stub;
  stub.entry = as.here();
  if (at.where != 0) as.mov_gs32_imm(tcb::kWhere, at.where);
  const uint32_t counted = emit_counter(as, counter, flags_live);
  stub.counted = CacheAddr(as.here().value() - as.offset() + counted);
  as.jmp_anywhere(target.value());
  stub.end = as.here();
  return stub;
}

uint8_t hash_of(HashKind kind, uint64_t original) {
  switch (kind) {
    case HashKind::kBits8to15:
      return static_cast<uint8_t>(original >> 8);
    case HashKind::kBits5to12:
      return static_cast<uint8_t>(original >> 5);
    case HashKind::kBits4to11:
      return static_cast<uint8_t>(original >> 4);
    case HashKind::kBits0to7:
      return static_cast<uint8_t>(original);
  }
  return 0;
}

CacheAddr emit_hash_dispatch(Assembler& as, HashKind kind, uint32_t table_address, unsigned reg) {
  // Bits of the target are moved into the register's second byte by lea, which changes no flags.
  const CacheAddr entry = as.here();
  switch (kind) {
    case HashKind::kBits8to15:
      break;
    case HashKind::kBits5to12:
      as.lea_times8(reg);
      break;
    case HashKind::kBits4to11:
      as.lea_times8(reg);
      as.lea_times2(reg);
      break;
    case HashKind::kBits0to7:
      as.lea_times8(reg);
      as.lea_times8(reg);
      as.lea_times2(reg);
      as.lea_times2(reg);
      break;
  }
  as.movzx_second_byte(reg);
  as.jmp_table_times8(reg, table_address);
  return entry;
}

namespace {

// Raw bytes of the gateway that the assembler has no names for.
template <class... B>
void raw(Assembler& as, B... b) {
  const uint8_t data[] = {static_cast<uint8_t>(b)...};
  as.bytes(data, sizeof data);
}

constexpr unsigned kRax = 0, kRcx = 1, kRdx = 2, kRdi = 7;
constexpr uint32_t kSpinsMax = 1000;  // some 25 us of `pause`

// Points the 8-bit distance in front of `behind` to here.
void patch_short(Assembler& as, uint32_t behind) {
  const uint32_t distance = as.offset() - behind;
  CHECK(distance < 128) << "a short jump over " << distance << " bytes";
  as.patch_u8(behind - 1, static_cast<uint8_t>(distance));
}

// And rax, in which they are kept.
void emit_save_flags(Assembler& as) {
  as.mov_gs_reg(tcb::kRegisters + 8 * kRax, kRax);
  raw(as, 0x9f);              // lahf
  raw(as, 0x0f, 0x90, 0xc0);  // seto al
  as.mov_gs_reg(tcb::kFlags, kRax);
}

// Changes rax.
void emit_restore_flags(Assembler& as) {
  as.mov_reg_gs(kRax, tcb::kFlags);
  raw(as, 0x04, 0x7f);  // add al, 127: overflows iff al was 1
  raw(as, 0x9e);        // sahf; leaves the overflow flag alone
}

void emit_save_all(Assembler& as) {
  emit_save_flags(as);
  as.mov_reg_gs(kRax, tcb::kSpillRcx);
  as.mov_gs_reg(tcb::kRegisters + 8 * kRcx, kRax);
  for (unsigned reg = 2; reg < 16; ++reg) as.mov_gs_reg(tcb::kRegisters + 8 * reg, reg);
}

void emit_restore_all(Assembler& as) {
  emit_restore_flags(as);
  for (unsigned reg = 0; reg < 16; ++reg) {
    if (reg != 4) as.mov_reg_gs(reg, tcb::kRegisters + 8 * reg);
  }
}

void emit_restore_visit(Assembler& as) {
  emit_restore_flags(as);
  as.mov_reg_gs(kRax, tcb::kRegisters + 8 * kRax);
  as.mov_reg_gs(kRdx, tcb::kRegisters + 8 * kRdx);
}

CacheAddr emit_entry(Assembler& as, Request request, bool rcx_intact, uint64_t common) {
  const CacheAddr entry = as.here();
  if (rcx_intact) as.mov_gs_rcx(tcb::kSpillRcx);
  as.mov_gs32_imm(tcb::kRequest, static_cast<uint32_t>(request));
  as.jmp(common);
  return entry;
}

// From a return address in rdx to its entry among the hashed landings: its place goes to rax, and
// control to what follows, with the zero flag set.  If there is none: with the flag cleared.
void emit_find_hashed(Assembler& as, uint32_t tables_base) {
  raw(as, 0x69, 0xc2), as.u32(kKnownHashFactor);                            // imul eax, edx, factor
  raw(as, 0x89, 0xc1);                                                      // mov ecx, eax
  raw(as, 0xc1, 0xe9, 0x03);                                                // shr ecx, 3
  raw(as, 0x29, 0xc8);                                                      // sub eax, ecx
  raw(as, 0x8b, 0x0c, 0x25), as.u32(tables_base + tables::kHashedEntries);  // mov ecx, entries
  raw(as, 0x48, 0x0f, 0xaf, 0xc1);                                          // imul rax, rcx
  raw(as, 0x48, 0xc1, 0xe8, 32);                                            // shr rax, 32
  raw(as, 0x8d, 0x04, 0x88);  // lea eax, [rax + rcx * 4]
  raw(as, 0xc1, 0xe0, 0x04);  // shl eax, 4
  const uint32_t look = as.offset();
  raw(as, 0x48, 0x8b, 0x88), as.u32(tables_base + tables::kHashedLandings);  // mov rcx, [rax + ...]
  raw(as, 0x48, 0x39, 0xd1);                                                 // cmp rcx, rdx
  raw(as, 0x74, 0);                                                          // je found
  const uint32_t je_found = as.offset();
  raw(as, 0x83, 0xc0, tables::kHashedBytes);  // add eax, 16
  raw(as, 0x48, 0x85, 0xc9);                  // test rcx, rcx
  raw(as, 0x75, look - (as.offset() + 2));    // jne look
  raw(as, 0x83, 0xc9, 0x01);                  // or ecx, 1: not zero
  patch_short(as, je_found);
}

// What a return does that has no number to find its landing by.  It comes with rcx put down and its
// target in the thread's block.
void emit_lookup(Assembler& as, GatewayCode& code, uint32_t tables_base) {
  constexpr uint8_t kEqual = 4;
  code.entries.lookup = as.here();
  as.mov_gs32_imm(tcb::kLeavesByReturn, 0);
  raw(as, 0xeb, 0);  // jmp look_up
  const uint32_t jmp_look_up = as.offset();
  // Whatever is not found, or has been found often, is asked for.
  const uint64_t ask = as.here().value();
  emit_restore_visit(as);
  as.jmp(code.entries.ret.value());
  code.entries.ret_popped = as.here();
  raw(as, 0xff, 0x24, 0x25), as.u32(tables_base + tables::kFindPopped);  // jmp [...]
  code.entries.ret_pop = as.here();
  raw(as, 0xff, 0x24, 0x25), as.u32(tables_base + tables::kFindOnStack);
  // The address a return has just popped still lies below the stack pointer; signals do not reach
  // it there (the kernel leaves 128 bytes alone).
  code.plainly.popped = as.here();
  as.mov_rcx_popped();
  as.mov_gs_rcx(tcb::kTarget);
  as.jmp(code.entries.lookup.value());
  code.plainly.on_stack = as.here();
  as.pop_rcx();
  as.mov_gs_rcx(tcb::kTarget);
  as.mov_gs32_imm(tcb::kLeavesByReturn, 1);
  patch_short(as, jmp_look_up);
  emit_save_flags(as);
  as.mov_gs_reg(tcb::kRegisters + 8 * kRdx, kRdx);
  as.mov_reg_gs(kRdx, tcb::kTarget);
  emit_find_hashed(as, tables_base);
  as.jcc(kNotEqual, ask);
  raw(as, 0x65, 0xff, 0x0c, 0x25), as.u32(tcb::kLookupsLeft);  // dec dword gs:[left]
  as.jcc(kEqual, ask);
  raw(as, 0x48, 0x8b, 0x80), as.u32(tables_base + tables::kHashedLandings + 8);  // mov rax, [...]
  raw(as, 0x48, 0x85, 0xc0);                                                     // test rax, rax
  as.jcc(kEqual, ask);
  as.mov_gs_reg(tcb::kResume, kRax);
  as.cmp_gs32_imm(tcb::kLeavesByReturn, 0);
  raw(as, 0x75, 0);  // jne by_return
  const uint32_t jne_by_return = as.offset();
  emit_restore_visit(as);
  as.jmp_gs(tcb::kResume);
  // Where calls and returns pair up, the processor expects a `ret`.
  patch_short(as, jne_by_return);
  emit_restore_visit(as);
  raw(as, 0x65, 0xff, 0x34, 0x25), as.u32(tcb::kResume);  // push gs:[resume]
  code.found_return = as.here();
  raw(as, 0xc3);  // ret
}

// Where a return's address is while its landing is looked for.
enum class AddressIs : uint8_t { kPopped, kOnStack };

// The instruction whose opcode, with its ModRM byte for [rsp + disp8], is given, on the address.
template <class... B>
void on_address(Assembler& as, AddressIs it, B... opcode) {
  raw(as, opcode..., 0x24);
  if (it == AddressIs::kPopped) as.u8(0xf8);
}
constexpr uint8_t at_address(AddressIs it, unsigned reg) {
  return static_cast<uint8_t>((it == AddressIs::kPopped ? 0x44 : 0x04) | reg << 3);
}

// To edx: the place of an address in a table, in half entries; of that of 12 bits in bytes.
void emit_direct_place(Assembler& as, AddressIs it, uint32_t bits) {
  if (bits == 8) {
    on_address(as, it, 0x0f, 0xb6, at_address(it, kRdx));  // movzx edx, byte [rsp...]
    raw(as, 0x8d, 0x14, 0x12);                             // lea edx, [rdx + rdx]
    return;
  }
  on_address(as, it, 0x8b, at_address(it, kRdx));        // mov edx, [rsp...]
  if (bits == 12) raw(as, 0x8d, 0x14, 0xd5), as.u32(0);  // lea edx, [rdx * 8]
  raw(as, 0x8d, 0x14, 0x12);                             // lea edx, [rdx + rdx]
  raw(as, 0x0f, 0xb7, 0xd2);                             // movzx edx, dx
}

// Looks at the place that the low bits of a return's address say, and at the next ones.  Like all
// that indirect branches do, it touches no flag: keys are what makes an address 0 when added.
// What is not found is looked for plainly.
CacheAddr emit_find_directly(Assembler& as, AddressIs it, uint32_t bits, uint32_t table,
                             CacheAddr plainly, CacheAddr ask) {
  const bool by_bytes = bits == 12;
  const auto load_key = [&](uint32_t probe) {  // mov eax, [rdx + table] or [rdx * 8 + table]
    by_bytes ? raw(as, 0x8b, 0x82) : raw(as, 0x8b, 0x04, 0xd5);
    as.u32(table + probe * tables::kDirectBytes);
  };
  const auto restore = [&] {
    as.mov_reg_gs(kRdx, tcb::kSpillRdx);
    as.mov_reg_gs(kRax, tcb::kSpillRax);
  };
  const auto compare = [&](uint32_t probe) {
    load_key(probe);
    on_address(as, it, 0x8b, at_address(it, kRcx));  // mov ecx, [rsp...]
    raw(as, 0x8d, 0x0c, 0x01);                       // lea ecx, [rcx + rax]
    as.jrcxz(0);
    return as.offset();
  };
  const CacheAddr entry = as.here();
  as.mov_gs_reg(tcb::kSpillRax, kRax);
  as.mov_gs_reg(tcb::kSpillRdx, kRdx);
  emit_direct_place(as, it, bits);
  std::array<uint32_t, tables::kDirectProbes> found{};
  for (uint32_t probe = 0; probe < found.size(); ++probe) found[probe] = compare(probe);
  const uint32_t missing = as.offset();
  restore();
  as.jmp(plainly.value());
  for (size_t probe = found.size(); probe-- > 0;) {
    patch_short(as, found[probe]);
    // lea edx, to the next entry
    if (probe > 0) raw(as, 0x8d, 0x52, by_bytes ? tables::kDirectBytes : tables::kDirectBytes / 8);
  }
  as.mov_ecx_gs(tcb::kDirectLeft);
  as.lea_ecx_rcx(-1);
  raw(as, 0x65, 0x89, 0x0c, 0x25), as.u32(tcb::kDirectLeft);  // mov gs:[left], ecx
  as.jrcxz(0);
  const uint32_t asks = as.offset();
  by_bytes ? raw(as, 0x48, 0x8b, 0x8a) : raw(as, 0x48, 0x8b, 0x0c, 0xd5);  // mov rcx, [... + 8]
  as.u32(table + 8);
  raw(as, 0xe3, missing - (as.offset() + 2));  // jrcxz
  restore();
  if (it == AddressIs::kPopped) {
    raw(as, 0xff, 0xe1);  // jmp rcx
  } else {
    as.mov_top_rcx();
    as.ret(0);
  }
  // What is asked for all the same, since so many have been found.
  patch_short(as, asks);
  restore();
  as.jmp(ask.value());
  return entry;
}

void emit_find_directly(Assembler& as, GatewayCode& code, uint32_t tables_base) {
  const auto emit_ask = [&] {
    as.mov_gs_rcx(tcb::kTarget);
    as.jmp(code.entries.ret.value());
  };
  const auto emit_each = [&](AddressIs it, CacheAddr ask) {
    for (size_t i = 0; i < std::size(tables::kDirectSizes); ++i) {
      const tables::DirectSize& size = tables::kDirectSizes[i];
      const bool popped = it == AddressIs::kPopped;
      const CacheAddr plainly = popped ? code.plainly.popped : code.plainly.on_stack;
      CacheAddr& entry = popped ? code.directly[i].popped : code.directly[i].on_stack;
      entry = emit_find_directly(as, it, size.bits, tables_base + size.offset, plainly, ask);
    }
  };
  code.popped_begin = as.here();
  as.mov_rcx_popped();
  emit_ask();
  emit_each(AddressIs::kPopped, code.popped_begin);
  code.on_stack_asks = as.here();
  as.pop_rcx();
  emit_ask();
  code.on_stack_begin = as.here();
  emit_each(AddressIs::kOnStack, code.on_stack_asks);
  code.direct_end = as.here();
}

// A way to a target that is known, or else a request.  Only rax, rcx and rdx are used, and the
// flags, so that whoever looks meanwhile finds all registers that call frames rest on.
void emit_visit(Assembler& as, GatewayCode& code, uint32_t tables_base) {
  constexpr uint8_t kEqual = 4, kNotBelow = 3;
  const uint32_t known = tables_base + tables::kKnown;
  const uint64_t ask = as.here().value();
  emit_restore_visit(as);
  as.jmp(code.entries.indirect.value());

  code.entries.visit_by_call = as.here();
  as.mov_gs32_imm(tcb::kVisitByCall, 1);
  raw(as, 0xeb, 0);  // jmp
  const uint32_t jmp_visit = as.offset();
  code.entries.visit = as.here();
  as.mov_gs32_imm(tcb::kVisitByCall, 0);
  patch_short(as, jmp_visit);
  emit_save_flags(as);
  as.mov_gs_reg(tcb::kRegisters + 8 * kRdx, kRdx);
  as.mov_reg_gs(kRdx, tcb::kTarget);
  raw(as, 0x69, 0xc2), as.u32(kKnownHashFactor);                         // imul eax, edx, factor
  raw(as, 0x8b, 0x0c, 0x25), as.u32(tables_base + tables::kKnownShift);  // mov ecx, shift
  raw(as, 0xd3, 0xe8);                                                   // shr eax, cl
  raw(as, 0xc1, 0xe0, 0x04);                                             // shl eax, 4
  raw(as, 0x48, 0x39, 0x90), as.u32(known);                              // cmp [rax + known], rdx
  raw(as, 0x74, 0);                                                      // je found
  const uint32_t je_found = as.offset();
  raw(as, 0x83, 0xf0, 0x10);                 // xor eax, 16: the other place
  raw(as, 0x48, 0x39, 0x90), as.u32(known);  // cmp [rax + known], rdx
  as.jcc(kNotEqual, ask);
  patch_short(as, je_found);
  raw(as, 0x48, 0x8b, 0x80), as.u32(known + 8);  // mov rax, [rax + known + 8]
  raw(as, 0x48, 0x85, 0xc0);                     // test rax, rax
  as.jcc(kEqual, ask);
  as.mov_gs_reg(tcb::kResume, kRax);
  // Where a call has no landing yet, its return would ask.  No byte of a number is zero.
  as.cmp_gs32_imm(tcb::kVisitByCall, 0);
  raw(as, 0x74, 0);  // je
  const uint32_t je_jump = as.offset();
  as.mov_ecx_top();
  as.movzx_ecx_byte_rcx(tables_base + tables::kLandingNumbers);
  raw(as, 0x85, 0xc9);  // test ecx, ecx
  raw(as, 0x75, 0);     // jne
  const uint32_t jne_numbered = as.offset();
  raw(as, 0x48, 0x8b, 0x14, 0x24);  // mov rdx, [rsp]
  emit_find_hashed(as, tables_base);
  as.jcc(kNotEqual, ask);
  patch_short(as, jne_numbered);
  patch_short(as, je_jump);
  as.mov_ecx_gs(tcb::kNoteCount);
  raw(as, 0x83, 0xf9, tcb::kNotesMax);  // cmp ecx, max
  as.jcc(kNotBelow, ask);
  raw(as, 0xc1, 0xe1, 0x04);  // shl ecx, 4
  as.mov_reg_gs(kRax, tcb::kResume);
  raw(as, 0x65, 0x48, 0x89, 0x81), as.u32(tcb::kNotes);  // mov gs:[rcx + notes], rax
  as.mov_reg_gs(kRdx, tcb::kArgument);
  raw(as, 0x65, 0x48, 0x89, 0x91), as.u32(tcb::kNotes + 8);  // mov gs:[rcx + notes + 8], rdx
  raw(as, 0x65, 0xff, 0x04, 0x25), as.u32(tcb::kNoteCount);  // inc dword gs:[count]
  code.noted = as.here();
  emit_restore_visit(as);
  as.mov_rcx_gs(tcb::kSpillRcx);
  as.jmp_gs(tcb::kResume);
}

// Posts the request and waits for the answer: a spin first, then futex.  Uses all registers.
void emit_post_and_wait(Assembler& as, GatewayCode& code, uint32_t tables_base) {
  raw(as, 0xb8), as.u32(1);                              // mov eax, kPosted
  raw(as, 0x65, 0x87, 0x04, 0x25), as.u32(tcb::kState);  // xchg gs:[state], eax: a barrier
  code.posted = as.here();
  raw(as, 0x83, 0x3c, 0x25), as.u32(tables_base + tables::kMonitorAsleep), as.u8(0);  // cmp, 0
  raw(as, 0x74, 0);                                                                   // je spin
  const uint32_t je_spin = as.offset();
  raw(as, 0xf0, 0xff, 0x04, 0x25), as.u32(tables_base + tables::kDoorbell);  // lock inc
  raw(as, 0xbf), as.u32(tables_base + tables::kDoorbell);                    // mov edi, &doorbell
  raw(as, 0xbe), as.u32(1);                                                  // mov esi, FUTEX_WAKE
  raw(as, 0xba), as.u32(1);                                                  // mov edx, 1
  raw(as, 0xb8), as.u32(202);                                                // mov eax, SYS_futex
  code.wake_syscall = as.here();
  as.syscall_insn();
  patch_short(as, je_spin);
  raw(as, 0xb9), as.u32(kSpinsMax);  // mov ecx, spins
  const uint32_t spin = as.offset();
  raw(as, 0x65, 0x83, 0x3c, 0x25), as.u32(tcb::kState), as.u8(2);  // cmp gs:[state], kAnswered
  raw(as, 0x74, 0);                                                // je answered
  const uint32_t je_answered = as.offset();
  raw(as, 0xf3, 0x90);  // pause
  raw(as, 0xff, 0xc9);  // dec ecx
  raw(as, 0x75, spin - (as.offset() + 2));
  raw(as, 0xb8), as.u32(1);                                          // mov eax, kPosted
  raw(as, 0xb9), as.u32(3);                                          // mov ecx, kAsleep
  raw(as, 0xf0, 0x65, 0x0f, 0xb1, 0x0c, 0x25), as.u32(tcb::kState);  // lock cmpxchg
  const uint32_t wait = as.offset();
  raw(as, 0x65, 0x83, 0x3c, 0x25), as.u32(tcb::kState), as.u8(3);  // cmp gs:[state], kAsleep
  raw(as, 0x75, 0);                                                // jne answered
  const uint32_t jne_answered = as.offset();
  as.mov_reg_gs(kRdi, tcb::kSelf);
  raw(as, 0x48, 0x83, 0xc7, tcb::kState);  // add rdi, state
  raw(as, 0x31, 0xf6);                     // xor esi, esi: FUTEX_WAIT
  raw(as, 0xba), as.u32(3);                // mov edx, kAsleep
  raw(as, 0x45, 0x31, 0xd2);               // xor r10d, r10d: no timeout
  raw(as, 0xb8), as.u32(202);
  code.wait_syscall = as.here();
  as.syscall_insn();
  raw(as, 0xeb, wait - (as.offset() + 2));
  patch_short(as, je_answered);
  patch_short(as, jne_answered);
  code.answered = as.here();
}

// A system call that the monitor wants made in this thread's name; the request is then posted
// again.
void emit_monitor_call(Assembler& as, GatewayCode& code, uint64_t post) {
  constexpr unsigned kOrder[] = {0, 7, 6, 2, 10, 8, 9};  // rax, then rdi, rsi, rdx, r10, r8, r9
  for (uint32_t i = 0; i < 7; ++i) as.mov_reg_gs(kOrder[i], tcb::kCall + 8 * i);
  code.monitor_syscall = as.here();
  as.syscall_insn();
  as.mov_gs_reg(tcb::kCallResult, kRax);
  as.jmp(post);
}

void emit_action(Assembler& as, GatewayCode& code, uint64_t common, uint64_t post) {
  raw(as, 0x65, 0x8b, 0x04, 0x25), as.u32(tcb::kAction);  // mov eax, gs:[action]
  raw(as, 0x83, 0xf8, 1);                                 // cmp eax, kProgramSyscall
  as.jcc(4, as.here().value());                           // je
  const uint32_t je_program = as.offset() - 4;
  as.jcc(7, as.here().value());  // ja: kMonitorSyscall
  const uint32_t ja_monitor = as.offset() - 4;
  emit_restore_all(as);
  as.jmp_gs(tcb::kResume);

  as.patch_rel32(je_program, as.here().value());
  emit_restore_all(as);
  code.syscall_insn = as.here();
  as.syscall_insn();
  as.mov_gs_rcx(tcb::kSpillRcx);
  as.mov_gs32_imm(tcb::kRequest, static_cast<uint32_t>(Request::kSyscallDone));
  as.jmp(common);

  as.patch_rel32(ja_monitor, as.here().value());
  emit_monitor_call(as, code, post);
}

}  // namespace

void emit_asks(Assembler& as, uint32_t tables_base) {
  const uint32_t begin = as.offset();
  const uint64_t tail = as.here().value() + asks::kTail;
  for (uint32_t i = 0; i < asks::kPerPage; ++i) {
    const uint64_t here = as.here().value();
    as.mov_gs_rcx(tcb::kSpillRcx);
    as.lea_rcx_address(here);
    as.jmp(tail);
    while (as.offset() - begin < (i + 1) * asks::kBytes) as.u8(0xcc);
  }
  as.mov_gs_rcx(tcb::kAsked);
  raw(as, 0xff, 0x24, 0x25), as.u32(tables_base + tables::kAskEntry);  // jmp [entry]
  while (as.offset() - begin < asks::kPageBytes) as.u8(0xcc);
}

GatewayCode emit_gateway(Assembler& as, uint32_t tables_base, const GatewayCode* first) {
  GatewayCode code;
  const uint64_t common = as.here().value();
  if (first != nullptr) {
    code = *first;
    as.jmp_slot(first->begin.value());
  } else {
    emit_save_all(as);
    code.saved = as.here();
    const uint64_t post = code.saved.value();
    emit_post_and_wait(as, code, tables_base);
    emit_action(as, code, common, post);
  }
  code.begin = CacheAddr(common);
  code.entries.link = emit_entry(as, Request::kLink, true, common);
  code.entries.indirect = emit_entry(as, Request::kIndirect, false, common);
  if (first == nullptr) {
    emit_visit(as, code, tables_base);
  } else {
    code.entries.visit_by_call = as.here();
    as.jmp_slot(first->entries.visit_by_call.value());
    code.entries.visit = as.here();
    as.jmp_slot(first->entries.visit.value());
  }
  code.entries.ret = emit_entry(as, Request::kReturn, false, common);
  code.entries.syscall = emit_entry(as, Request::kSyscall, false, common);
  code.entries.event = emit_entry(as, Request::kEvent, true, common);
  code.entries.ask = as.here();
  if (first == nullptr) {
    emit_entry(as, Request::kAsk, false, common);
    emit_lookup(as, code, tables_base);
    emit_find_directly(as, code, tables_base);
    code.entries.no_landing = code.entries.ret_popped;
  } else {
    code.entries.lookup = as.here();
    as.jmp_slot(first->entries.lookup.value());
    code.entries.ret_popped = as.here();
    as.jmp_slot(first->entries.ret_popped.value());
    code.entries.ret_pop = as.here();
    as.jmp_slot(first->entries.ret_pop.value());
  }
  code.end = as.here();
  return code;
}

}  // namespace tally::translate
