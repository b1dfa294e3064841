// The libraries that a program names, before anything has loaded them.
//
// Where a file's dynamic table can be read, so can the names in it (DT_NEEDED) and the directories
// that the loader looks in first (DT_RUNPATH or the older DT_RPATH).  What the loader goes by
// besides, its cache, LD_LIBRARY_PATH and other configuration, is not looked at, nor are libraries
// of libraries.  So this is for guesses that may be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "elf/image.h"

namespace tally::elf {

struct Layout;

struct Dependencies {
  std::vector<std::string> names;        // at most 1024
  std::vector<std::string> directories;  // $ORIGIN replaced; in the loader's order; at most 64
};

// `path`: of the file itself.  Of a damaged table what comes before the damage.
Dependencies read_dependencies(const Layout& layout, const std::string& path);

// Bytes in executable segments.
uint64_t code_bytes(const Image& image);

// The same in all libraries that `program` names and that are found where it says or in the
// system's usual directories.
uint64_t code_bytes_of_libraries(const Image& program);

}  // namespace tally::elf
