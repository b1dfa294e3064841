// Where do exceptions land?  The call sites of C++ (and Rust, Ada, D) procedures.
//
// A procedure that catches exceptions or cleans up after them has a table (LSDA) that its record
// in .eh_frame points to:
//
//   [base of landing pads] [types] encoding, size, then for each stretch of code:
//     begin, size   relative to the procedure
//     landing pad   relative to the base (of the procedure, if none is given); 0: passed on
//     action        which types are caught
//
// An exception that leaves a call within a stretch arrives at its landing pad, if its type is
// caught or something is to be cleaned up.  That is the only way by which the unwinder enters a
// procedure.
//
// Not handled: tables of other languages' personalities (Go, OCaml have none here); what does not
// read as a table is left out, and `complete` says so.
#pragma once

#include "elf/image.h"
#include "elf/layout.h"

namespace tally::elf {

ExceptionTables read_exception_tables(const Layout& layout);

}  // namespace tally::elf
