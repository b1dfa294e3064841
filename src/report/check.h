// What the static checks found, in the three formats.
#pragma once

#include "claims/check.h"
#include "report/output.h"

namespace tally::report {

// `top` limits the findings in text; JSON and CSV have all that were kept.
void render_check(const claims::Claims& claims, const claims::CheckReport& report, size_t top,
                  Format format, Output& output);

}  // namespace tally::report
