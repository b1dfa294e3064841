// The separate debug file of a stripped program.
//
// Two links lead there, tried in this order:
//   build-id         /usr/lib/debug/.build-id/xx/yyyy.debug
//   .gnu_debuglink   a file name and a CRC of the whole file, looked for beside the program, in
//                    .debug/ beside it, and under /usr/lib/debug
// A file found is used only if it proves that it belongs: equal build-ids, and for the second way
// the right CRC.  A wrong one would give wrong names and lines without a sign of it.
//
// Not handled: debuginfod (no network), other debug directories, compressed .gnu_debugdata.
#pragma once

#include <optional>
#include <string>

#include "elf/file_bytes.h"
#include "elf/layout.h"

namespace tally::elf {

struct DebugFile {
  std::string path;
  FileBytes bytes;
  Layout layout;  // points into bytes
};

std::optional<DebugFile> find_debug_file(const std::string& program_path,
                                         const Layout& program_layout, const std::string& build_id);

}  // namespace tally::elf
