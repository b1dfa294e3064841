// Which file a command names, and whether it may be run at all; found out before anything runs.
//
// Problem.  execvp() looks a name up and runs what it finds, and hands what the kernel does not
// know to /bin/sh.  A damaged program would so be profiled as a shell that complains about it.  A
// set-uid program would run without its rights, since a traced program gets none: not the run that
// was asked for.
//
// Idea.  Look up as a shell does, read the file as the kernel will (a script's interpreter is what
// really runs), and refuse by name what cannot be counted.
//
// Limits: a file may be replaced between the check and exec; the session looks at the program again
// once it is loaded.  Formats registered with binfmt_misc are left to the kernel.
#pragma once

#include <string>

#include "base/result.h"

namespace tally::tracee {

// The file that `name` stands for: itself when it has a slash, else the first executable file of
// that name in PATH.  Errors: not found (127), found but not executable (126).
Result<std::string> find_program(const std::string& name);

// Refuses what cannot be profiled: folders, set-uid files, ELF files for other machines, text
// without "#!", scripts whose interpreter is missing or is one of these.  Returns the file whose
// code runs: `path`, or a script's interpreter.
Result<std::string> check_program(const std::string& path);

}  // namespace tally::tracee
