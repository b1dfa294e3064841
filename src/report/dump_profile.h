// `tally dump profile`: the whole content of a profile file, table by table, for people who debug
// Tally.  Text or JSON; not a stable interface (use the SQLite file or the CSV dumps).
#pragma once

#include "profile/model.h"
#include "report/output.h"

namespace tally::report {

void dump_profile(const profile::Profile& profile, Format format, Output& output);

}  // namespace tally::report
