// Pages written by us are pages to SQLite: its integrity check and every value of every row say so.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <limits>

#include "profile/bulk_table.h"
#include "profile_sample.h"

namespace tally::profile {
namespace {

// A file with one empty table besides a filled one, whose rows are then written in bulk.
class BulkTableFile : public testing::Test {
 protected:
  void SetUp() override {
    write_whole(path_, "");
    auto database = Database::open_for_writing(path_);
    ASSERT_TRUE(database);
    ASSERT_TRUE(database->execute("CREATE TABLE other(x TEXT)"));
    ASSERT_TRUE(
        database->execute("CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, b BLOB, s TEXT)"));
    ASSERT_TRUE(database->execute("INSERT INTO other VALUES('kept')"));
    ASSERT_TRUE(database->close());
  }

  // Row i has numbers[i], a blob and a text of sizes[i] bytes.
  void write(const std::vector<int64_t>& numbers, const std::vector<size_t>& sizes) {
    const int descriptor = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(descriptor, 0);
    PageWriter pages(descriptor);
    ASSERT_TRUE(pages.open());
    BulkTable table(pages, kRoot);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const std::string text(sizes[i], static_cast<char>('a' + i % 26));
      const std::vector<uint8_t> blob(sizes[i], static_cast<uint8_t>(i));
      table.row().integer(numbers[i]).blob(blob).text(text);
      ASSERT_TRUE(table.insert());
    }
    ASSERT_TRUE(table.finish());
    ASSERT_TRUE(pages.finish());
    ::close(descriptor);
  }

  void expect(const std::vector<int64_t>& numbers, const std::vector<size_t>& sizes) {
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    EXPECT_EQ(one_text(database, "PRAGMA integrity_check"), "ok");
    EXPECT_EQ(one_text(database, "SELECT x FROM other"), "kept");
    sqlite3_stmt* rows = nullptr;
    ASSERT_EQ(sqlite3_prepare_v2(database, "SELECT * FROM t", -1, &rows, nullptr), SQLITE_OK);
    size_t i = 0;
    for (; sqlite3_step(rows) == SQLITE_ROW && i < numbers.size(); ++i) {
      EXPECT_EQ(sqlite3_column_int64(rows, 0), static_cast<int64_t>(i));
      EXPECT_EQ(sqlite3_column_int64(rows, 1), numbers[i]);
      const auto* blob = static_cast<const char*>(sqlite3_column_blob(rows, 2));
      const std::string_view bytes(blob, static_cast<size_t>(sqlite3_column_bytes(rows, 2)));
      EXPECT_EQ(bytes, std::string(sizes[i], static_cast<char>(i)));
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(rows, 3));
      EXPECT_EQ(std::string_view(text), std::string(sizes[i], static_cast<char>('a' + i % 26)));
    }
    EXPECT_EQ(i, numbers.size());
    sqlite3_finalize(rows);
    // A row of SQLite's own behind ours.
    EXPECT_EQ(sqlite3_exec(database, "INSERT INTO t VALUES(NULL, 7, x'00', '')", nullptr, nullptr,
                           nullptr),
              SQLITE_OK);
    EXPECT_EQ(one_text(database, "PRAGMA integrity_check"), "ok");
    sqlite3_close(database);
  }

  static std::string one_text(sqlite3* database, const char* sql) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v2(database, sql, -1, &statement, nullptr) != SQLITE_OK) return "error";
    std::string text = "nothing";
    if (sqlite3_step(statement) == SQLITE_ROW) {
      text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    }
    sqlite3_finalize(statement);
    return text;
  }

  static constexpr uint32_t kRoot = 3;  // behind the schema and `other`
  TemporaryFolder folder_;
  std::string path_ = folder_.file("x.sqlite");
};

TEST_F(BulkTableFile, Empty) {
  write({}, {});
  expect({}, {});
}

TEST_F(BulkTableFile, IntegersOfAllSizes) {
  std::vector<int64_t> numbers = {0, 1, -1, 2};
  for (int bit = 1; bit < 63; ++bit) {
    for (int64_t delta : {-1, 0, 1}) {
      numbers.push_back((int64_t{1} << bit) + delta);
      numbers.push_back(-(int64_t{1} << bit) + delta);
    }
  }
  numbers.push_back(std::numeric_limits<int64_t>::max());
  numbers.push_back(std::numeric_limits<int64_t>::min());
  const std::vector<size_t> sizes(numbers.size(), 3);
  write(numbers, sizes);
  expect(numbers, sizes);
}

// Records around the size of a page and of several: in the leaf, or spilled over.
TEST_F(BulkTableFile, LongRecords) {
  std::vector<size_t> sizes;
  for (size_t pages = 1; pages < 8; ++pages) {
    for (size_t less = 0; less < 40; ++less) sizes.push_back((pages * kPageSizeBytes - less) / 2);
  }
  for (const size_t around : {50, 60, 120, 8000, 100000}) {
    for (size_t more = 0; more < 20; ++more) sizes.push_back(around + more);
  }
  const std::vector<int64_t> numbers(sizes.size(), 300);
  write(numbers, sizes);
  expect(numbers, sizes);
}

// More leaves than a root has room for, hence a level between them.
TEST_F(BulkTableFile, ManyRows) {
  std::vector<int64_t> numbers(40000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * i);
  const std::vector<size_t> sizes(numbers.size(), 500);
  write(numbers, sizes);
  expect(numbers, sizes);
}

}  // namespace
}  // namespace tally::profile
