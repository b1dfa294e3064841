// Errors as values.
//
// Bad input and unsupported targets travel as `Result<T>` up to the command, which prints one line
// and chooses the exit status; nothing below cli/ exits.  (std::expected exists in GCC 12, but
// clang 14's tools cannot parse it.)  Our own bugs do not come this way: they hit CHECK.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace tally {

// What the command exits with when the error reaches it (see docs/design.md, command line).
enum class ErrorKind {
  kFailure,        // 125: Tally could not do it
  kUsage,          // 2: the command line makes no sense
  kNotExecutable,  // 126: the target exists but cannot be run
  kNotFound,       // 127: no such target
  kMismatch,       // 1: a verification failed
};

// One line for a person: what was seen, where, what to do about it.
struct Error {
  std::string message;
  ErrorKind kind = ErrorKind::kFailure;
};

template <class... Args>
Error make_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...), ErrorKind::kFailure};
}
template <class... Args>
Error make_error(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...), kind};
}

struct Ok {};

template <class T = Ok>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit by intent, as in expected
  Result(Error error) : state_(std::move(error)) {}  // NOLINT

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  T& value() & {
    CHECK(ok()) << "value() of an error: " << error().message;
    return *std::get_if<T>(&state_);
  }
  const T& value() const& {
    CHECK(ok()) << "value() of an error: " << error().message;
    return *std::get_if<T>(&state_);
  }
  T&& value() && {
    CHECK(ok()) << "value() of an error: " << error().message;
    return std::move(*std::get_if<T>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const {
    CHECK(!ok()) << "error() of a success";
    return *std::get_if<Error>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<Ok>;

// `TRY(expr)` hands an error up; use `TRY_ASSIGN(var, expr)` for the value.
#define TALLY_CONCAT_INNER(a, b) a##b
#define TALLY_CONCAT(a, b) TALLY_CONCAT_INNER(a, b)
#define TRY(expr)                                                         \
  do {                                                                    \
    if (auto try_result = (expr); !try_result) return try_result.error(); \
  } while (0)
#define TRY_ASSIGN(var, expr)                                                                   \
  auto TALLY_CONCAT(try_result_, __LINE__) = (expr);                                            \
  if (!TALLY_CONCAT(try_result_, __LINE__)) return TALLY_CONCAT(try_result_, __LINE__).error(); \
  var = std::move(TALLY_CONCAT(try_result_, __LINE__)).value()

}  // namespace tally
