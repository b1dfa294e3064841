// What generated code and monitor agree on: the shared region and its addresses.
//
// One memfd, mapped by both sides.  The target maps three kinds of pieces:
//
//   tables    below 2 GB, so that generated code can address them with 32 bits: mailbox globals,
//             the classes of system calls, what returns find their landings by, hash tables of
//             indirect branches.  The numbers of landings among them are not shared: they are the
//             target's own memory, in which reading makes no page, and the monitor writes there
//             as a debugger does
//   threads   one block per thread, reached through gs: mailbox, saved registers, counters
//   areas     the code cache; one area within 2 GB of every module it serves
//
// Offsets are in bytes.  Changing one changes generated code, nothing on disk.
#pragma once

#include <cstdint>

namespace tally::translate {

// ---- thread block (gs:offset) ------------------------------------------------------------------
namespace tcb {
inline constexpr uint32_t kSelf = 0x00;       // address of this block in the target
inline constexpr uint32_t kArgument = 0x18;   // u32: what the request is about (link, site, event);
                                              // the four bytes behind it stay 0
inline constexpr uint32_t kState = 0x20;      // u32 MailboxState
inline constexpr uint32_t kRequest = 0x24;    // u32 Request
inline constexpr uint32_t kAction = 0x28;     // u32 Action, the monitor's answer
inline constexpr uint32_t kResume = 0x30;     // where to go on
inline constexpr uint32_t kFlags = 0x40;      // lahf/seto form: ah = flags, al = overflow
inline constexpr uint32_t kRegisters = 0x48;  // 16 x 8 bytes, in encoding order (rax, rcx, rdx...)
// Visits of indirect branches that the thread has made by itself (cache/known_targets.h): how many,
// then for each the code that it went on at and the site, 8 bytes each.
inline constexpr uint32_t kNoteCount = 0xd0;    // u32
inline constexpr uint32_t kVisitByCall = 0xd4;  // u32: the branch that looks whether it must ask
// Of returns that look their landing up (cache/hashed_landings.h).
inline constexpr uint32_t kLookupsLeft = 0xd8;     // u32: found so many times more, one asks
inline constexpr uint32_t kLeavesByReturn = 0xdc;  // u32: the lookup ends in a `ret`, not a jump
inline constexpr uint32_t kAsked = 0xe0;  // where a thread stood that has asked (Request::kAsk)
inline constexpr uint32_t kNotes = 0x100;
inline constexpr uint32_t kNoteBytes = 16;
inline constexpr uint32_t kNotesMax = 48;
inline constexpr uint32_t kCall = 0x400;  // kMonitorSyscall: number, six arguments, 8 bytes each
inline constexpr uint32_t kCallResult = 0x438;  // ... and what came of it
inline constexpr uint32_t kScratch = 0x440;     // 128 bytes for system calls at a thread's stop
// With --keep-counters, what is read when the monitor was killed (ledger/kept_run.h).
inline constexpr uint32_t kWhere = 0x4c0;          // u32 number of the unit it is in + 1
inline constexpr uint32_t kOpen = 0x4c4;           // u32: a thread is alive in this block
inline constexpr uint32_t kInterruptions = 0x4c8;  // u32: blocks its handlers have interrupted
struct Interrupted {
  uint32_t unit = 0;  // + 1; 0: between two procedures
  uint32_t block = 0, done = 0, counted = 0;
};
inline constexpr uint32_t kInterruptedMax = 160;
inline constexpr uint32_t interrupted_offset(uint32_t index) {
  return 0x4d0 + index * static_cast<uint32_t>(sizeof(Interrupted));
}
// What is stored and loaded again all the time.  Counters should not be alike with it in the low 12
// bits of their addresses (cache/counter_numbers.h), so this is the end of a page.
inline constexpr uint32_t kHotSlots = 0xfc0;
// The half of a page in which little is busy; the busy counters and these slots are in the other.
inline constexpr uint32_t kCalmMiddle = 0x400, kCalmEnd = 0x800;
inline constexpr uint32_t kSpillRcx = kHotSlots;  // rcx while an indirect branch is under way
inline constexpr uint32_t kTarget = 0xfc8;  // original address an indirect branch or return goes to
inline constexpr uint32_t kSpillProbe = 0xfd0;  // rcx inside a counter that must not touch flags
// Of returns that find their landing directly (cache/direct_landings.h): rax and rdx meanwhile, and
// u32: found so many times more, one asks.
inline constexpr uint32_t kSpillRax = 0xfd8, kSpillRdx = 0xfe0;
inline constexpr uint32_t kDirectLeft = 0xfe8;
inline constexpr uint32_t kCounters = 0x1000;  // 8 bytes each
static_assert(kRegisters + 16 * 8 <= kNoteCount && kAsked + 8 <= kNotes);
static_assert(kNotes + kNotesMax * kNoteBytes <= kCall);
static_assert(interrupted_offset(kInterruptedMax) <= kHotSlots && kCounters % 0x1000 == 0);
inline constexpr uint64_t kBlockSizeBytes = 64ull << 20;
// Behind the counters: the seccomp filter that the thread is about to install.
inline constexpr uint64_t kFilterBytes = 64ull << 10;
inline constexpr uint64_t kShiftMax = 4096;  // of a block, from a multiple of its size
inline constexpr uint64_t kFilter = kBlockSizeBytes - kShiftMax - kFilterBytes;
inline constexpr uint32_t kCountersMax = static_cast<uint32_t>((kFilter - kCounters) / 8);
}  // namespace tcb

inline constexpr uint32_t counter_offset(uint32_t counter) {
  return tcb::kCounters + counter * 8;
}

enum class MailboxState : uint32_t {
  kIdle = 0,
  kPosted = 1,    // the target wants something and spins
  kAnswered = 2,  // the monitor is done
  kAsleep = 3,    // the target wants something and sleeps in futex
};

enum class Request : uint32_t {
  kLink = 1,      // a direct branch to code not yet translated; argument: link
  kIndirect = 2,  // an indirect branch to a target its site has not seen; argument: site
  kReturn = 3,    // a return to an address without a landing
  kSyscall = 4,   // a system call that concerns the monitor; argument: syscall site
  kEvent = 5,     // a probe; argument: event
  kSyscallDone = 6,
  kAsk = 7,  // a link or an event; which, kAsked says (asks::)
};

enum class Action : uint32_t {
  kResume = 0,          // restore the registers and jump to kResume
  kProgramSyscall = 1,  // restore the registers, execute `syscall`, report
  kMonitorSyscall = 2,  // execute the system call at kCall for the monitor, post the request again
};

// ---- tables ------------------------------------------------------------------------------------
namespace tables {
inline constexpr uint32_t kMonitorAsleep = 0x00;  // u32: the monitor needs a futex wake
inline constexpr uint32_t kDoorbell = 0x04;       // u32 futex word
inline constexpr uint32_t kKnownShift = 0x08;     // u32: 32 - the bits of known_hash that count
inline constexpr uint32_t kHashedEntries = 0x0c;  // u32: of the table of hashed landings in use
inline constexpr uint32_t kAskEntry = 0x10;       // u64: the gateway's entry for asks
// u64: where returns without a number go on, their address popped or still on the stack.
inline constexpr uint32_t kFindPopped = 0x18, kFindOnStack = 0x20;
inline constexpr uint32_t kName = 0x40;           // the name of the region's memfd, as text
inline constexpr uint32_t kSyscallClass = 0x400;  // 65536 bytes, 0 = plain
// Targets of indirect branches that threads find by themselves: target and code, 8 bytes each.  One
// stands where the hash says, or at the other of these two places.
inline constexpr uint32_t kKnown = 0xa0000;
inline constexpr uint32_t kKnownBitsMax = 13;
inline constexpr uint32_t kNoLandings = 0xff000;  // a page of pointers that lead to be asked
inline constexpr uint32_t kLandings = 0x100000;   // 65536 pointers, by numbers of two bytes
// Rows of that, of 256 pointers, from this one on can be mapped to the page in front of it
// (Region::lend_landings).
inline constexpr uint32_t kLentRow = 32;
// The same for returns that are paired late: 0 where there is no landing.
inline constexpr uint32_t kLateLandings = kLandings + 65536 * 8;
inline constexpr uint32_t kHashTables = kLateLandings + 65536 * 8;  // 256 pointers each
inline constexpr uint32_t kHashTableBytes = 256 * 8;
inline constexpr uint32_t kHashTablesEnd = 39 << 20;
// Landings that are found by the low bits of their address (cache/direct_landings.h): what makes
// the low half of the address 0 when it is added, and code, 8 bytes each.  Of each size there is
// one table.  The bits are the number of an entry; it may also be one of the next ones.
inline constexpr uint32_t kDirectBytes = 16;
inline constexpr uint32_t kDirectProbes = 4;
struct DirectSize {
  uint32_t bits;    // of the address
  uint32_t offset;  // of the table
  constexpr uint32_t entries() const { return (1u << bits) + kDirectProbes - 1; }
  constexpr uint32_t size_bytes() const { return kDirectBytes * entries(); }
  constexpr uint32_t entry(uint64_t original) const {
    return static_cast<uint32_t>(original) & ((1u << bits) - 1);
  }
};
inline constexpr DirectSize kDirectSizes[] = {
    {8, kHashTablesEnd}, {12, kHashTablesEnd + 0x2000}, {15, kHashTablesEnd + 0x13000}};
// Landings by a hash of their address: address and code, 16 bytes each.  Of each size there is one
// table, which begins at four times as many entries (hashed_place).
inline constexpr uint32_t kHashedLandings = 40 << 20;
inline constexpr uint32_t kHashedBytes = 16;
static_assert(kDirectSizes[0].offset + kDirectSizes[0].size_bytes() <= kDirectSizes[1].offset &&
              kDirectSizes[1].offset + kDirectSizes[1].size_bytes() <= kDirectSizes[2].offset &&
              kDirectSizes[2].offset + kDirectSizes[2].size_bytes() <= kHashedLandings);
inline constexpr uint32_t kHashedEntriesMin = 256, kHashedEntriesMax = 1u << 20;
inline constexpr uint32_t kHashedLandingsEnd =
    kHashedLandings + 5 * kHashedBytes * kHashedEntriesMax;
inline constexpr uint32_t kWideLandings = kHashedLandingsEnd;  // see below
// Numbers of landings, at the low 32 bits of the return address; the last one may end behind the
// 4 GB.  Hardly any of it is ever touched.
inline constexpr uint32_t kLandingNumbers = kWideLandings + (128u << 20);
inline constexpr uint64_t kLandingNumbersEnd = kLandingNumbers + (1ull << 32) + 4096;
// Pointers by numbers of four bytes (Returns::kPaired).  Both tables must begin below 2 GB, so this
// one has the other in its middle: where bytes of a number are looked up, the uppermost is 0, which
// leads in front of the other table, or at least kWideByteMin, which leads behind it.
inline constexpr uint32_t kWideByteMin = 34, kWideByteMax = 127;
inline constexpr uint64_t kWideUpper = 8ull << 24;  // bytes for one value of the uppermost byte
static_assert(kWideLandings + kWideUpper <= kLandingNumbers);
static_assert(kWideLandings + kWideByteMin * kWideUpper >= kLandingNumbersEnd);
inline constexpr uint64_t kSizeBytes = kWideLandings + (kWideByteMax + 1) * kWideUpper;
static_assert(kSyscallClass + 65536 <= kKnown && kKnown + (16u << kKnownBitsMax) <= kNoLandings);
}  // namespace tables

// The uppermost bits say where a known target stands.
inline constexpr uint32_t kKnownHashFactor = 0x9e3779b1;
inline constexpr uint32_t known_hash(uint64_t target) {
  return static_cast<uint32_t>(target) * kKnownHashFactor;
}

// The next size of that table, in entries: a quarter larger at least, so that no two overlap, and
// such that each begins with a page.
inline constexpr uint32_t next_hashed_entries(uint32_t entries) {
  constexpr uint32_t kStep = 64;
  return (entries + entries / 4 + kStep - 1) / kStep * kStep;
}

// The entry at which a landing is looked for first, in the table of so many: none of the last
// eighth, so that what is not found there may lie in the next entries.
inline constexpr uint32_t hashed_place(uint64_t original, uint32_t entries) {
  const uint32_t hash = static_cast<uint32_t>(original) * kKnownHashFactor;
  return 4 * entries + static_cast<uint32_t>(uint64_t{hash - (hash >> 3)} * entries >> 32);
}

// Of the numbers of landings: the page on which that of a landing begins.
inline constexpr uint32_t kNumbersPageBytes = 4096;
inline constexpr uint32_t numbers_page(uint64_t original) {
  return static_cast<uint32_t>(original) / kNumbersPageBytes;
}

inline constexpr uint64_t kAreaSizeBytes = 256ull << 20;
inline constexpr uint64_t kAreaHalfBytes = kAreaSizeBytes / 2;
// What leads from one place to another lies apart from bodies, in the last part of the first half.
inline constexpr uint64_t kAreaPieces = 104ull << 20;
// What is never moved (cache/compact.cpp) lies at the end of the bodies, and of what runs seldom.
inline constexpr uint64_t kAreaStayingBytes = 1ull << 20;
inline constexpr uint64_t kAreaBodiesEnd = kAreaPieces - kAreaStayingBytes;
enum class Lies : uint8_t { kAmongOthers, kAmongStaying };  // a unit's body, and what is seldom run

// Places at which threads ask that stand at them, each known by its address.  They are all alike,
// so they take one page of memory, or a few, mapped again and again; behind them in each page is
// what they go on to (translate/pieces.cpp, emit_asks).
namespace asks {
inline constexpr uint32_t kPageBytes = 4096;
inline constexpr uint32_t kBytes = 24;  // of each
inline constexpr uint32_t kPerPage = 169;
inline constexpr uint32_t kTail = kPerPage * kBytes;                // offset in the page
inline constexpr uint64_t kBegin = kAreaSizeBytes - (32ull << 20);  // offset in an area
inline constexpr uint32_t kPagesMax = static_cast<uint32_t>((kAreaSizeBytes - kBegin) / kPageBytes);
// Of one by its number, in an area.
inline constexpr uint64_t offset_of(uint32_t number) {
  return kBegin + uint64_t{number / kPerPage} * kPageBytes + number % kPerPage * kBytes;
}
// Of the one at or behind whose beginning an offset in an area is that is not in a tail.
inline constexpr uint32_t number_at(uint64_t offset) {
  const auto distance = static_cast<uint32_t>(offset - kBegin);
  return distance / kPageBytes * kPerPage + distance % kPageBytes / kBytes;
}
inline constexpr bool is_in_tail(uint64_t offset) {
  return (offset - kBegin) % kPageBytes >= kTail;
}
static_assert(number_at(offset_of(kPerPage + 3) + kBytes - 1) == kPerPage + 3);
}  // namespace asks
inline constexpr uint64_t kAreaCodeEnd = asks::kBegin;
inline constexpr uint64_t kAreaColdEnd = kAreaCodeEnd - kAreaStayingBytes;
inline constexpr uint32_t kThreadsMax = 1024;
inline constexpr uint32_t kAreasMax = 16;

// File offsets in the memfd.
inline constexpr uint64_t kTablesFileOffset = 0;
inline constexpr uint64_t kAreasFileOffset = tables::kSizeBytes;
inline constexpr uint64_t kThreadsFileOffset = kAreasFileOffset + kAreasMax * kAreaSizeBytes;
inline constexpr uint64_t kRegionSizeBytes =
    kThreadsFileOffset + kThreadsMax * tcb::kBlockSizeBytes;

}  // namespace tally::translate
