// Lines, words and numbers of the textual forms; see reader.h.
#include <charconv>
#include <filesystem>

#include "claims/reader.h"

namespace tally::claims {
namespace {

constexpr size_t kQuotedMax = 60;  // characters of a stranger's line that a message shows

bool blank(char c) {
  return c == ' ' || c == '\t';
}

Number parse(std::string_view text, int base) {
  if (text.starts_with('-') && text.size() > 1) {
    return {0, parse(text.substr(1), base).fault == NumberFault::kNotANumber
                   ? NumberFault::kNotANumber
                   : NumberFault::kNegative};
  }
  Number number;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, number.value, base);
  if (error == std::errc::invalid_argument || stopped != end) {
    return {0, NumberFault::kNotANumber};
  }
  if (error == std::errc::result_out_of_range) return {0, NumberFault::kTooLarge};
  return number;
}

bool has_hex_prefix(std::string_view text) {
  return text.starts_with("0x") || text.starts_with("0X");
}

}  // namespace

Number parse_decimal(std::string_view text) {
  return parse(text, 10);
}

Number parse_hex(std::string_view text) {
  if (!has_hex_prefix(text)) return parse(text, 16);
  // A sign behind the prefix is junk, not a negative number.
  if (text.substr(2).starts_with('-')) return {0, NumberFault::kNotANumber};
  return parse(text.substr(2), 16);
}

Number parse_either(std::string_view text) {
  return has_hex_prefix(text) ? parse_hex(text) : parse_decimal(text);
}

std::string complaint(std::string_view text, NumberFault fault) {
  switch (fault) {
    case NumberFault::kNegative:
      return fmt::format("{} is negative, which no count can be", quoted(text));
    case NumberFault::kTooLarge:
      return fmt::format("{} is beyond 64 bits", quoted(text));
    case NumberFault::kNotANumber:
    case NumberFault::kNone:
      break;
  }
  return fmt::format("{} is not a number", quoted(text));
}

std::string quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, kQuotedMax)) {
    if (c >= ' ' && c <= '~') {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kQuotedMax) result += "...";
  return result + "'";
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && (blank(text.back()) || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::string_view next_word(std::string_view& rest) {
  while (!rest.empty() && blank(rest.front())) rest.remove_prefix(1);
  size_t length = 0;
  while (length < rest.size() && !blank(rest[length])) ++length;
  const std::string_view word = rest.substr(0, length);
  rest.remove_prefix(length);
  return word;
}

std::optional<std::string_view> Lines::next() {
  if (again_) {
    again_ = false;
    return line_;
  }
  if (rest_.empty()) return std::nullopt;
  ++number_;
  const size_t end = rest_.find('\n');
  cut_ = end == std::string_view::npos;
  line_ = rest_.substr(0, end);
  rest_.remove_prefix(cut_ ? rest_.size() : end + 1);
  return line_;
}

Error Lines::cut_error() const {
  return error("the file ends within this line: it was cut short; make the profile again");
}

Result<uint64_t> Lines::number_of(std::string_view text, Number number,
                                  std::string_view what) const {
  if (number.fault == NumberFault::kNone) return number.value;
  if (cut_) return cut_error();
  return error("{}: {}; the profile is damaged or of another format (--profile-format)", what,
               complaint(text, number.fault));
}

Result<uint64_t> Lines::decimal(std::string_view text, std::string_view what) const {
  return number_of(text, parse_decimal(text), what);
}

Result<uint64_t> Lines::hex(std::string_view text, std::string_view what) const {
  return number_of(text, parse_hex(text), what);
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  if (!error) return real.string();
  const auto result = std::filesystem::absolute(path, error);
  return error ? path : result.lexically_normal().string();
}

Result<std::shared_ptr<elf::Image>> open_program(const Source& source, Claims& claims) {
  if (source.options.program_path.empty()) {
    return make_error(ErrorKind::kUsage,
                      "{}: this form of profile does not name its program; add --program=PATH",
                      source.path);
  }
  TRY_ASSIGN(std::shared_ptr<elf::Image> image, elf::Image::open(source.options.program_path));
  claims.modules.push_back({.path = absolute(source.options.program_path),
                            .build_id = image->build_id(),
                            .main_program = true});
  return image;
}

}  // namespace tally::claims
