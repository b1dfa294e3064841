// Why a profile and a run differ (section 4.2 of the paper).
//
// Problem.  Not every residue is the profiler's fault: programs depend on time and addresses, on
// the environment, and some profilers count their own work.
//
// Idea.  Run the unmodified program once more in the same surroundings, and one with threads a few
// times more, every other time on a busy machine.  What differs between the runs is the program's
// own doing.  Run it in other surroundings, where the profile's were or may have been others.  What
// differs then depends on them, and the profile is as good a witness as the runs; the rest is
// attributed by what is known of the code in question, with the evidence said.  Where nothing
// explains it, the profile is wrong.
//
//   structure         said by the checker: the profile's blocks are not the program's
//   nondeterministic  runs of the unmodified program differ there; or they agree, but the count may
//                     depend on the time or on random numbers (clocks.h), or on when signals came
//                     (interruptions.h)
//   own I/O           of the procedures by which a profiler inside the program writes its counts,
//                     and the profile has more than the run
//   environment       a run in other surroundings differs there (surroundings.h), or it is startup
//                     code, and the profile's environment is known not to be this one, or its input
//                     is known not to have been this one (descriptors.h); or the build that the
//                     profile was taken of does so itself (--made-by)
//   scheduling        the runs agree, but the procedure looks at other threads (scheduling.h)
//   wrong             all else: the runs agree, or the claim is impossible
//   unexplained       all else, where the program was run once only
#pragma once

#include <functional>
#include <string>

#include "claims/claims.h"
#include "verify/descriptors.h"
#include "verify/judgement.h"
#include "verify/surroundings.h"
#include "verify/verify.h"

namespace tally::verify {

// Runs the program once more, and judges what was counted.
using AnotherRun = std::function<Result<Verdict>(const Variation&)>;

// `again` judges another run; not called when nothing is to be explained, or when the program's
// input cannot be given to it twice.
void explain(const claims::Claims& claims, const VerifyOptions& options,
             const Descriptors& descriptors, const Surroundings& surroundings,
             const AnotherRun& again, Verdict& verdict);

}  // namespace tally::verify
