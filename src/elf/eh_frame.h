// Which address ranges does .eh_frame describe?
//
// The x86-64 ABI wants unwind information for (nearly) every procedure, and it is loaded with the
// program, so `strip` leaves it alone: the best source of procedure bounds in stripped programs.
//
//   .eh_frame:  CIE  FDE FDE FDE  CIE  FDE ...  0
//                ^----+---+        a FDE points back to its CIE, whose augmentation string "zR.."
//                                  says how the FDE's addresses are encoded
//
// The section is found by name, or in files without section headers through PT_GNU_EH_FRAME, whose
// header points to it.  A range is not always a procedure: the whole .plt has one entry, the cold
// part of a procedure has its own, and glibc's __restore_rt begins one byte early so that
// "return address minus one" finds it.
//
// Not handled: pointers that eh_pointer.h does not read; such entries are left out.  The call frame
// instructions are libdw's business.
#pragma once

#include <vector>

#include "base/address.h"
#include "elf/layout.h"

namespace tally::elf {

struct FrameDescription {
  LinkRange range = {};           // not empty, within one executable segment
  LinkAddr exception_table = {};  // 0: none (exception_table.h)
};
// As the section has them.
std::vector<FrameDescription> read_frames(const Layout& layout);

// Sorted and disjoint: a range that begins inside an earlier one, lies outside the executable
// segments or is empty is dropped.
std::vector<LinkRange> read_unwind_ranges(const Layout& layout);

}  // namespace tally::elf
