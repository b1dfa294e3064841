// Names for people: C++ through the C++ runtime's own demangler, Rust's legacy scheme on top.
//
// Legacy Rust names are C++ names with a hash as last part and escapes inside:
//   _ZN4core3ptr13drop_in_place17h0123456789abcdefE     core::ptr::drop_in_place
//   ..._$LT$T$u20$as$u20$Trait$GT$..                    <T as Trait>::
//
// Not handled: Rust's v0 scheme (_R...), D, Swift; such names are returned as they are.
#include <cxxabi.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>

#include "elf/image.h"

namespace tally::elf {
namespace {

// The demangler works on the stack, in proportion to the length of the name.
constexpr size_t kMangledSizeMax = 16 * 1024;
constexpr size_t kRustHashSize = 16;

bool is_lower_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "::h" and 16 hexadecimal digits at the end of the demangled name.
bool ends_with_rust_hash(std::string_view name) {
  constexpr size_t kSuffixSize = 3 + kRustHashSize;
  if (name.size() <= kSuffixSize) return false;
  const std::string_view suffix = name.substr(name.size() - kSuffixSize);
  return suffix.starts_with("::h") && is_lower_hex(suffix.substr(3));
}

struct Escape {
  std::string_view code;
  char character;
};
constexpr std::array<Escape, 8> kRustEscapes = {{{"SP", '@'},
                                                 {"BP", '*'},
                                                 {"RF", '&'},
                                                 {"LT", '<'},
                                                 {"GT", '>'},
                                                 {"LP", '('},
                                                 {"RP", ')'},
                                                 {"C", ','}}};

std::optional<char> decode_rust_escape(std::string_view code) {
  for (const Escape& escape : kRustEscapes) {
    if (escape.code == code) return escape.character;
  }
  // $u7e$: a character by its hexadecimal number; only printable ASCII occurs.
  if (code.size() == 3 && code[0] == 'u' && is_lower_hex(code.substr(1))) {
    const int value = std::stoi(std::string(code.substr(1)), nullptr, 16);
    if (value >= 0x20 && value < 0x7f) return static_cast<char>(value);
  }
  return std::nullopt;
}

std::string decode_rust_escapes(std::string_view name) {
  std::string result;
  for (size_t i = 0; i < name.size();) {
    const std::string_view rest = name.substr(i);
    const bool part_begins = result.empty() || result.ends_with("::");
    if (part_begins && rest.starts_with("_$")) {
      ++i;  // a name must not begin with '$', so the compiler put a '_' before it
    } else if (rest.starts_with("..")) {
      result += "::";
      i += 2;
    } else if (rest.front() == '$') {
      const size_t end = rest.find('$', 1);
      const auto character = end == std::string_view::npos
                                 ? std::nullopt
                                 : decode_rust_escape(rest.substr(1, end - 1));
      result += character.value_or('$');
      i += character ? end + 1 : 1;
    } else {
      result += rest.front();
      ++i;
    }
  }
  return result;
}

}  // namespace

std::string demangle(const std::string& name) {
  if (!name.starts_with("_Z") || name.size() > kMangledSizeMax) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  if (status != 0 || demangled == nullptr) return name;
  const std::string_view text = demangled.get();
  if (!ends_with_rust_hash(text)) return std::string(text);
  return decode_rust_escapes(text.substr(0, text.size() - (3 + kRustHashSize)));
}

}  // namespace tally::elf
