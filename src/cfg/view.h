// The code of a file as it lies there, before any loader has changed it.
#pragma once

#include <memory>

#include "cfg/procedure.h"
#include "elf/image.h"

namespace tally::cfg {

// Keeps the image.
CodeView view_of(std::shared_ptr<const elf::Image> image);

}  // namespace tally::cfg
