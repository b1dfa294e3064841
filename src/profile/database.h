// The little of SQLite that profiles need, with our errors.
//
// `Database` owns a connection, `Statement` a prepared statement that must not outlive it.  Binding
// and reading never fail one by one: the first problem is remembered and comes out of `step`, so
// that the code for a row stays a list of its columns.
//
// Files that are read are hostile.  They are opened immutable (no journal beside them is believed),
// with SQLite's defences on, and `Row` checks the type of each value and that all text and blobs
// together are not larger than the file that holds them, which crafted pages could pretend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tally::profile {

inline constexpr uint32_t kPageSizeBytes = 16384;  // of the files that we write

class Statement;

class Database {
 public:
  // Opens an existing, empty file for one big write that nobody else sees: no journal, no syncing.
  static Result<Database> open_for_writing(const std::string& path);
  // Opens a file that is only read.
  static Result<Database> open_for_reading(const std::string& path, uint64_t file_size_bytes);

  Status execute(const std::string& sql);  // one statement; its rows are dropped
  Result<Statement> prepare(const std::string& sql);
  Status close();  // reports what closing finds; the destructor does not

 private:
  struct Closer {
    void operator()(sqlite3* handle) const;
  };
  explicit Database(sqlite3* handle) : handle_(handle) {}
  Error error(int code) const;

  std::unique_ptr<sqlite3, Closer> handle_;
  uint64_t text_budget_bytes_ = 0;
};

class Statement {
 public:
  // Parameters from 1 on, in the order of the calls since the last `step`.
  Statement& integer(int64_t value);
  Statement& address(uint64_t value) { return integer(static_cast<int64_t>(value)); }
  Statement& real(double value);
  Statement& text(std::string_view value);
  Statement& blob(std::span<const uint8_t> value);

  // True when there is a row.  After the last one (or for a statement that returns none) the
  // statement is ready to be bound and run again.
  Result<bool> step();

  // Columns of the current row, in the order of the calls.  A value of another type or out of range
  // reads as zero or empty, and `row_error` says so.
  int64_t next_integer();
  uint64_t next_unsigned() { return static_cast<uint64_t>(next_integer()); }
  uint64_t next_in_range(uint64_t last);
  bool next_flag() { return next_in_range(1) != 0; }
  double next_real();
  std::string next_text();
  std::vector<uint8_t> next_blob();
  // "column 3 is not an integer" and so on; empty when all was well.
  const std::string& row_error() const { return row_error_; }

 private:
  friend class Database;
  struct Finalizer {
    void operator()(sqlite3_stmt* handle) const;
  };
  Statement(sqlite3_stmt* handle, uint64_t text_budget_bytes)
      : handle_(handle), text_budget_bytes_(text_budget_bytes) {}
  bool expect(int type, const char* what);
  bool spend(uint64_t size_bytes);

  std::unique_ptr<sqlite3_stmt, Finalizer> handle_;
  uint64_t text_budget_bytes_ = 0;
  int parameter_ = 0;
  int column_ = 0;
  int bind_code_ = 0;
  std::string row_error_;
};

}  // namespace tally::profile
