// Reading profiles of all forms into Claims.
//
// Problem.  Eight formats, made by tools that trust their own output, arrive here from strangers:
// cut short, of another build, edited by hand.  A reader that shrugs at what it does not understand
// would make "verified" mean less than it says.
//
// Idea.  One reader a file (tally.cpp, plain.cpp, ...), all with the same contract:
//   * Every line or record is understood, or is of a kind that is skipped by name (and said in
//     `silences`), or ends the reading with one line: file, place, what was seen, what to do.
//   * Counts are 64 bits; a negative or larger one ends the reading.
//   * Text that does not end with the end of a line was cut short.
//   * Names and offsets become link addresses with the help of the program's own symbol table; a
//     name that is not there means that the profile is of another build.
//
// The form is recognised by content, never by the file's name.
//
// Not handled: profiles on a pipe; formats of other versions than documented in docs/formats.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "claims/claims.h"
#include "profile/model.h"

namespace tally::claims {

struct ReadOptions {
  std::optional<Form> form = {};  // nullopt: recognised by content
  // The program that the profile is of; empty: as the profile names it.  Formats that name symbols
  // or bare addresses need it.
  std::string program_path = {};
  // Tally's own file: only the run of this number instead of the sum of all.
  std::optional<uint32_t> run = {};
};

Result<Claims> read_claims(const std::string& path, const ReadOptions& options);

// What the file's first bytes look like; nullopt: none of the forms.
std::optional<Form> recognise(std::string_view bytes);

// The names that `to_string` gives: "tally", "plain", "fdata", ...
std::optional<Form> form_named(std::string_view name);
std::vector<std::string> form_names();

// Claims of a profile of ours that is in memory.  `file` is what messages call it.
Claims claims_of(const profile::Profile& profile, const std::string& file);

// What an edge of ours is among claims.
EdgeRole role_of(profile::EdgeKind kind);

// "line 17", "row 4 of edges"; empty when the claim has no place in the profile.
enum class RecordKind : uint8_t { kBlock, kEdge, kInstruction, kProcedure, kLine };
std::string describe_record(Form form, RecordKind kind, Record record);

}  // namespace tally::claims
