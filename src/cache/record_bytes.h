// How what runs leave for later ones is written (recall.cpp, found_procedures.cpp): numbers as they
// lie in memory, strings behind a byte for their length.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"

namespace tally::engine {

template <class T>
void put(std::vector<uint8_t>& out, T value) {
  static_assert(std::is_integral_v<T>);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

// At most 255 bytes.
inline void put_string(std::vector<uint8_t>& out, const std::string& text) {
  CHECK(text.size() <= UINT8_MAX) << "a string of " << text.size() << " bytes";
  put(out, static_cast<uint8_t>(text.size()));
  out.insert(out.end(), text.begin(), text.end());
}

inline std::string read_string(ByteReader& reader) {
  std::string text;
  for (uint8_t left = reader.u8(); left > 0 && reader.ok(); --left) {
    text.push_back(static_cast<char>(reader.u8()));
  }
  return text;
}

}  // namespace tally::engine
