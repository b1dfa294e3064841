// `tally explain`: everything known about one address.
#pragma once

#include "base/result.h"
#include "profile/model.h"
#include "report/locate.h"
#include "report/output.h"
#include "report/symbols.h"

namespace tally::report {

// Each block that contains the address: how it was found, how it was counted, from which equation,
// what flows in and out.  Works without the module's file.  Text or JSON.
Status explain(const profile::Profile& profile, Symbols& symbols, Place place, Format format,
               Output& output);

}  // namespace tally::report
