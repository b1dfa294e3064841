// Loops whose counter is a register of the program's.
//
// Problem.  What is left to count, where counters lie best, is loops: a block that leads to itself
// has a chord however the spanning tree lies, and an increment with each of its runs.
//
// Idea.  Many such blocks move a register by a constant: an index, a pointer.  How often they ran
// is how far it got.  What it has when control enters the loop is taken from a counter, and what it
// has when control leaves is added:
//
//           sub gs:[c], rbx                    c - 100
//     loop: movzx eax, [rbx]; inc rbx
//           cmp al, dl; jne loop               nothing is counted
//           add gs:[c], rbx                    c - 100 + 117: the block ran 17 times
//
// So the counter holds step * (runs of the block), over all visits, modulo 2^64, and counts as the
// block's: all else follows as from any other counter (placement/propagate.h).
//
// Such a counter says nothing while a thread is inside.  Where a thread ends there, or goes on
// elsewhere, what the register has is added then (Ledger::leave_at); whoever comes to the middle by
// a way that only showed at run time passes a door, which does what edges into the loop do.
//
// That needs weights: those of an earlier run, or, where a procedure is translated again, of this
// one (engine/renewal.h).
//
// Only where all ways in and out are branches inside the procedure, and nothing but that one
// instruction writes the register, in whatever part, is a loop counted so.  What the plan says is
// looked at anew whenever a procedure is read back: a record may be wrong.
//
// Not handled: loops of more than one block; registers of 32 bits, which lose what is carried out;
// rcx, which counters go through, and rsp; code that may be replaced or changed; kept counters,
// which must be right at any time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "cache/translated.h"
#include "cfg/procedure.h"
#include "translate/unit.h"

namespace tally::engine {

// The register that counts a block's runs, if there is one.  `insn_sizes`: by instruction of the
// procedure.
std::optional<translate::Plan::Induction> induction_of(const cfg::Procedure& procedure,
                                                       std::span<const uint8_t> insn_sizes,
                                                       const cfg::CodeView& view, uint32_t block);

// Whether there is one, for a plan that is yet to be made (plan.h); what is given must outlive it.
std::function<bool(uint32_t block)> inductive_blocks(const cfg::Procedure& procedure,
                                                     std::span<const uint8_t> insn_sizes,
                                                     const cfg::CodeView& view);

// Of the plan's counted blocks, those that lead to themselves by an edge without a counter and that
// a register can count become inductions.  For all others a counter in the block does as well.
void find_inductions(const cfg::Procedure& procedure, std::span<const uint8_t> insn_sizes,
                     const cfg::CodeView& view, translate::Plan& plan);

// The edge by which a block that ends in a conditional branch leads to itself; nothing: it does
// not.
std::optional<uint32_t> edge_to_itself(const cfg::Procedure& procedure, uint32_t block);

// How often a loop ran by what its counter holds: nothing, if that cannot be.
std::optional<uint64_t> runs_of_loop(uint64_t held, int64_t step);

// What a counter has counted that holds `held`, whether it is a loop's or any other.
std::optional<uint64_t> runs_counted(const Translated& translated, size_t counter, uint64_t held);

}  // namespace tally::engine
