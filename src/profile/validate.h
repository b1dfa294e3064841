// What every well-formed profile satisfies, whoever made it.
//
// The same check guards both sides of the file: a profile that would be refused when read is never
// written, and a file from a stranger is never believed.  After `validate` has passed, code that
// uses a profile may index by the ids in it without looking.
//
// Balance of flow is not a matter of form: see checks.h.
#pragma once

#include "base/result.h"
#include "profile/model.h"

namespace tally::profile {

inline constexpr uint8_t kCountSourceLast = static_cast<uint8_t>(CountSource::kUnknown);
inline constexpr uint8_t kProvenanceLast = static_cast<uint8_t>(Provenance::kRunTime);
inline constexpr uint8_t kEdgeKindLast = static_cast<uint8_t>(EdgeKind::kSystemCall);
inline constexpr uint8_t kAbnormalKindLast = static_cast<uint8_t>(AbnormalKind::kDetach);
inline constexpr uint8_t kInstructionSizeMax = 15;  // bytes, as the architecture limits it

// Ids equal to their index and in range, enumerations in range, instruction sizes 1..15, no block
// that wraps around the address space, partial runs inside their block and never below zero.  The
// error names the table, the row and what is wrong with it.
Status validate(const Profile& profile);

}  // namespace tally::profile
