// What the readers of the single forms have in common; private to this room.
//
// `Lines` walks a text and knows where it is, so that every complaint names file and line.  Numbers
// are parsed here and only here: sign, overflow and junk have one wording everywhere.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "claims/claims.h"
#include "claims/read.h"
#include "elf/image.h"

namespace tally::claims {

// The profile's bytes and what is asked of it.
struct Source {
  const std::string& path;
  std::string_view text;
  const ReadOptions& options;
};

Result<Claims> read_tally(const Source& source);
Result<Claims> read_plain(const Source& source);
Result<Claims> read_fdata(const Source& source);
Result<Claims> read_callgrind(const Source& source);
Result<Claims> read_gcov(const Source& source);
Result<Claims> read_llvm_coverage(const Source& source);
Result<Claims> read_llvm_samples(const Source& source);
Result<Claims> read_perf_script(const Source& source);

enum class NumberFault : uint8_t { kNone, kNotANumber, kNegative, kTooLarge };
struct Number {
  uint64_t value = 0;
  NumberFault fault = NumberFault::kNone;
};
Number parse_decimal(std::string_view text);
Number parse_hex(std::string_view text);     // with or without 0x
Number parse_either(std::string_view text);  // hexadecimal only with 0x
// "'-5' is negative; ...", for a number that is at fault.
std::string complaint(std::string_view text, NumberFault fault);

// Bytes of a stranger, fit for one line of a message.
std::string quoted(std::string_view text);

std::string_view trimmed(std::string_view text);
// Takes the first word off `rest` (blanks and tabs separate); empty at the end.
std::string_view next_word(std::string_view& rest);

class Lines {
 public:
  explicit Lines(const Source& source) : source_(source), rest_(source.text) {}

  // The next line without its end; nullopt behind the last.
  std::optional<std::string_view> next();
  // The same line again from the next call of `next`.
  void back() { again_ = true; }
  uint64_t number() const { return number_; }  // of the line that `next` gave, from 1
  // The last line lacks its end.
  bool cut() const { return cut_; }

  template <class... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    return Error{fmt::format("{}:{}: ", source_.path, number_) +
                     fmt::format(format, std::forward<Args>(args)...),
                 ErrorKind::kFailure};
  }
  // A complaint about what may only be at fault because the file ends here.
  Error cut_error() const;
  Result<uint64_t> decimal(std::string_view text, std::string_view what) const;
  Result<uint64_t> hex(std::string_view text, std::string_view what) const;
  Result<uint64_t> number_of(std::string_view text, Number number, std::string_view what) const;

 private:
  const Source& source_;
  std::string_view rest_;
  std::string_view line_;
  uint64_t number_ = 0;
  bool cut_ = false;
  bool again_ = false;
};

// Adds `count` to `sum`; false when that is beyond 64 bits.
inline bool add(uint64_t& sum, uint64_t count) {
  return !__builtin_add_overflow(sum, count, &sum);
}

// The program a profile without modules is of: opened, and entered as module 0.
Result<std::shared_ptr<elf::Image>> open_program(const Source& source, Claims& claims);
// The path as the kernel names the file once it is mapped: absolute, links followed (/bin/sh is
// /usr/bin/dash).  A file that is not there keeps the name it has.
std::string absolute(const std::string& path);

}  // namespace tally::claims
