// `tally annotate`: the instructions of a procedure with their counts.
#pragma once

#include "base/result.h"
#include "profile/model.h"
#include "report/disassemble.h"
#include "report/locate.h"
#include "report/output.h"
#include "report/symbols.h"

namespace tally::report {

// Every procedure that has code at `place`.  Needs the module's file as it was when it ran.
Status annotate(const profile::Profile& profile, Symbols& symbols, Place place, Syntax syntax,
                Format format, Output& output);

}  // namespace tally::report
