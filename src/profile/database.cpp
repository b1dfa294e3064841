// See database.h.
#include "profile/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>

namespace tally::profile {
namespace {

// No honest value of a profile is longer; crafted cells may claim more.
constexpr int kValueSizeMaxBytes = 64 << 20;

// `error_number` is errno as SQLite left it: a failed COMMIT forgets to keep the system's error.
std::string describe(sqlite3* handle, int code, int error_number) {
  if (code == SQLITE_FULL) return std::strerror(ENOSPC);
  const int kept = sqlite3_system_errno(handle);
  const int system_error = kept != 0 ? kept : error_number;
  const bool from_system = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  if (from_system && system_error != 0) return std::strerror(system_error);
  return sqlite3_errstr(code);
}

// SQLite's URI form, in which alone a file can be declared immutable.
std::string as_immutable_uri(const std::string& path) {
  std::string uri = path.starts_with('/') ? "file://" : "file:";
  for (char c : path) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '/' || c == '.';
    if (plain) {
      uri += c;
    } else {
      uri += fmt::format("%{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return uri + "?immutable=1";
}

// Our files have no journal beside them and no second writer, so locks (which some network file
// systems lack) have nothing to protect.
constexpr const char* kNoLocks = "unix-none";

}  // namespace

void Database::Closer::operator()(sqlite3* handle) const {
  sqlite3_close_v2(handle);
}
void Statement::Finalizer::operator()(sqlite3_stmt* handle) const {
  sqlite3_finalize(handle);
}

Error Database::error(int code) const {
  return make_error("{}", describe(handle_.get(), code, 0));
}

Result<Database> Database::open_for_writing(const std::string& path) {
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  // A leading "./" keeps a file name such as ":memory:" or "file:x" a file name.
  const std::string name = path.starts_with('/') ? path : "./" + path;
  const int code = sqlite3_open_v2(name.c_str(), &handle, flags, kNoLocks);
  Database database(handle);
  if (code != SQLITE_OK) return database.error(code);
  TRY(database.execute(fmt::format("PRAGMA page_size = {}", kPageSizeBytes)));
  TRY(database.execute("PRAGMA auto_vacuum = NONE"));
  TRY(database.execute("PRAGMA journal_mode = OFF"));
  TRY(database.execute("PRAGMA synchronous = OFF"));
  return database;
}

Result<Database> Database::open_for_reading(const std::string& path, uint64_t file_size_bytes) {
  sqlite3* handle = nullptr;
  const int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
  const int code = sqlite3_open_v2(as_immutable_uri(path).c_str(), &handle, flags, kNoLocks);
  Database database(handle);
  if (code != SQLITE_OK) return database.error(code);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kValueSizeMaxBytes);
  TRY(database.execute("PRAGMA cell_size_check = ON"));
  database.text_budget_bytes_ = file_size_bytes;
  return database;
}

// Not sqlite3_exec, which reports less about errors.
Status Database::execute(const std::string& sql) {
  TRY_ASSIGN(Statement statement, prepare(sql));
  for (;;) {
    TRY_ASSIGN(const bool more, statement.step());
    if (!more) return Ok{};
  }
}

Result<Statement> Database::prepare(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(handle_.get(), sql.c_str(), -1, &statement, nullptr);
  Statement result(statement, text_budget_bytes_);
  if (code != SQLITE_OK) return error(code);
  return result;
}

Status Database::close() {
  const int code = sqlite3_close(handle_.get());
  CHECK(code != SQLITE_BUSY) << "a statement outlives its database";
  handle_.release();
  if (code != SQLITE_OK) return make_error("{}", sqlite3_errstr(code));
  return Ok{};
}

Statement& Statement::integer(int64_t value) {
  const int code = sqlite3_bind_int64(handle_.get(), ++parameter_, value);
  if (bind_code_ == SQLITE_OK) bind_code_ = code;
  return *this;
}

Statement& Statement::real(double value) {
  const int code = sqlite3_bind_double(handle_.get(), ++parameter_, value);
  if (bind_code_ == SQLITE_OK) bind_code_ = code;
  return *this;
}

// The caller's strings live until `step`, so SQLite need not copy them.  A null pointer would bind
// NULL, hence the stand-in for empty ones.
Statement& Statement::text(std::string_view value) {
  const int code =
      sqlite3_bind_text64(handle_.get(), ++parameter_, value.empty() ? "" : value.data(),
                          value.size(), SQLITE_STATIC, SQLITE_UTF8);
  if (bind_code_ == SQLITE_OK) bind_code_ = code;
  return *this;
}

Statement& Statement::blob(std::span<const uint8_t> value) {
  const void* bytes = value.empty() ? static_cast<const void*>("") : value.data();
  const int code =
      sqlite3_bind_blob64(handle_.get(), ++parameter_, bytes, value.size(), SQLITE_STATIC);
  if (bind_code_ == SQLITE_OK) bind_code_ = code;
  return *this;
}

Result<bool> Statement::step() {
  sqlite3* handle = sqlite3_db_handle(handle_.get());
  CHECK((bind_code_ & 0xff) != SQLITE_RANGE && (bind_code_ & 0xff) != SQLITE_MISUSE)
      << sqlite3_sql(handle_.get());
  if (bind_code_ != SQLITE_OK) return make_error("{}", describe(handle, bind_code_, 0));
  parameter_ = 0;
  column_ = 0;
  row_error_.clear();
  errno = 0;
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) {
    const int error_number = errno;
    const Error error =
        make_error("{}", describe(handle, sqlite3_extended_errcode(handle), error_number));
    sqlite3_reset(handle_.get());
    return error;
  }
  sqlite3_reset(handle_.get());
  return false;
}

bool Statement::expect(int type, const char* what) {
  if (sqlite3_column_type(handle_.get(), column_) == type) return true;
  if (row_error_.empty()) {
    row_error_ = fmt::format("{} is not {}", sqlite3_column_name(handle_.get(), column_), what);
  }
  return false;
}

bool Statement::spend(uint64_t size_bytes) {
  if (size_bytes <= text_budget_bytes_) {
    text_budget_bytes_ -= size_bytes;
    return true;
  }
  if (row_error_.empty()) row_error_ = "more text than the file can hold";
  return false;
}

int64_t Statement::next_integer() {
  const bool good = expect(SQLITE_INTEGER, "an integer");
  const int64_t value = good ? sqlite3_column_int64(handle_.get(), column_) : 0;
  ++column_;
  return value;
}

uint64_t Statement::next_in_range(uint64_t last) {
  const uint64_t value = next_unsigned();
  if (value <= last) return value;
  if (row_error_.empty()) {
    row_error_ = fmt::format("{} is {}, above {}", sqlite3_column_name(handle_.get(), column_ - 1),
                             value, last);
  }
  return 0;
}

double Statement::next_real() {
  const bool good = expect(SQLITE_FLOAT, "a number");
  const double value = good ? sqlite3_column_double(handle_.get(), column_) : 0;
  ++column_;
  return value;
}

std::string Statement::next_text() {
  std::string value;
  if (expect(SQLITE_TEXT, "text")) {
    const auto* bytes = sqlite3_column_text(handle_.get(), column_);
    const size_t size = static_cast<size_t>(sqlite3_column_bytes(handle_.get(), column_));
    if (bytes != nullptr && spend(size)) value.assign(reinterpret_cast<const char*>(bytes), size);
  }
  ++column_;
  return value;
}

std::vector<uint8_t> Statement::next_blob() {
  std::vector<uint8_t> value;
  if (expect(SQLITE_BLOB, "a blob")) {
    const auto* bytes = static_cast<const uint8_t*>(sqlite3_column_blob(handle_.get(), column_));
    const size_t size = static_cast<size_t>(sqlite3_column_bytes(handle_.get(), column_));
    if (bytes != nullptr && spend(size)) value.assign(bytes, bytes + size);
  }
  ++column_;
  return value;
}

}  // namespace tally::profile
