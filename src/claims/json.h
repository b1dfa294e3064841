// JSON of a stranger, read with complaints in one line.
//
// The library's parser throws and knows only bytes; here an error is a value that names the line.
// Values are taken through `count` and its kin, so that a sign, a fraction or a number beyond 64
// bits is noticed wherever it stands.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "claims/reader.h"

namespace tally::claims {

using Json = nlohmann::json;

Result<Json> parse_json(const Source& source);
// One document behind the other, with nothing but blanks between them (`gcov --stdout` writes one
// for each object file); at least one.
Result<std::vector<Json>> parse_json_documents(const Source& source);

// `where` is for the message: "files[0].lines[17].count".
Result<uint64_t> json_count(const Source& source, const Json& value, const std::string& where);
// A member of an object; null when it is missing or `object` is none.
const Json& json_member(const Json& object, const char* name);
// The member as a list; the error says which is missing.
Result<const Json*> json_list(const Source& source, const Json& object, const char* name,
                              const std::string& where);
// The member as text; empty when it is missing or something else.
std::string json_text(const Json& object, const char* name);

}  // namespace tally::claims
