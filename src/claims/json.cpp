// See json.h.
#include "claims/json.h"

#include <algorithm>
#include <spanstream>

namespace tally::claims {

namespace {

// `read` parses; `begin` is where its document begins, from which the parser counts bytes.
template <class Read>
auto complaining(const Source& source, const size_t& begin, Read read) -> Result<decltype(read())> {
  try {
    return read();
  } catch (const Json::parse_error& error) {
    const size_t at = std::min<size_t>(begin + error.byte, source.text.size());
    const auto line = 1 + std::count(source.text.begin(), source.text.begin() + at, '\n');
    if (at >= source.text.size()) {
      return make_error(
          "{}:{}: the JSON ends in its middle: the file was cut short; make the "
          "profile again",
          source.path, line);
    }
    return make_error("{}:{}: not JSON from byte {} on; the profile is damaged", source.path, line,
                      at);
  } catch (const Json::out_of_range&) {
    return make_error("{}: holds a number beyond what a number can be; the profile is damaged",
                      source.path);
  }
}

}  // namespace

Result<Json> parse_json(const Source& source) {
  const size_t begin = 0;
  return complaining(source, begin,
                     [&] { return Json::parse(source.text.begin(), source.text.end()); });
}

Result<std::vector<Json>> parse_json_documents(const Source& source) {
  size_t begin = 0;
  return complaining(source, begin, [&] {
    std::vector<Json> documents;
    std::ispanstream in(source.text);
    do {
      begin = static_cast<size_t>(in.tellg());
      in >> documents.emplace_back();
      in >> std::ws;
    } while (!in.eof());
    return documents;
  });
}

Result<uint64_t> json_count(const Source& source, const Json& value, const std::string& where) {
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_number_integer()) {
    const int64_t number = value.get<int64_t>();
    if (number >= 0) return static_cast<uint64_t>(number);
    return make_error("{}: {}: {} is negative, which no count can be", source.path, where, number);
  }
  if (value.is_number_float()) {
    return make_error("{}: {}: {} is no whole number within 64 bits", source.path, where,
                      value.dump());
  }
  return make_error("{}: {}: has to be a number; the profile is damaged", source.path, where);
}

const Json& json_member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

Result<const Json*> json_list(const Source& source, const Json& object, const char* name,
                              const std::string& where) {
  const Json& list = json_member(object, name);
  if (list.is_array()) return &list;
  return make_error("{}: {}: no list `{}`; the profile is of another version or damaged",
                    source.path, where, name);
}

std::string json_text(const Json& object, const char* name) {
  const Json& value = json_member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

}  // namespace tally::claims
