// Writes the rows of a large table straight into a SQLite file.
//
// Problem.  The blocks and edges of a large program are a million rows and more.  Each INSERT costs
// SQLite about a microsecond, most of it spent on what a table that is written once, in the order
// of its row ids, by nobody else, does not need.
//
// Idea.  SQLite creates the file and its tables and fills the small ones.  The large ones it leaves
// empty; once it has closed the file, their rows are appended as pages in the documented file
// format (https://www.sqlite.org/fileformat2.html, section 1.6, "B-tree Pages"):
//
//     root page (where SQLite put the empty table)    interior: page of child, its last row id
//       -> interior pages, only if the root is not enough
//         -> leaf pages: row id and record, in the order of the row ids
//              -> overflow pages, for a record of nearly a page and more
//
// The result is what SQLite itself would have written, and its `PRAGMA integrity_check` says so.
//
// Limits.  Tables with an integer key, whose rows come with ids 0, 1, 2 and so on; no indexes.
// Between `BulkTable`s on one file nobody else may write to it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "profile/database.h"

namespace tally::profile {

// Appends pages to a SQLite file that is closed, and in the end tells its header of them.
class PageWriter {
 public:
  explicit PageWriter(int descriptor) : descriptor_(descriptor) {}
  // Asked once when a write fails with an errno: the descriptor of a copy of the file in a place
  // where there is room, or -1.
  void on_failure(std::function<int(int error)> move) { move_ = std::move(move); }

  Status open();  // checks that the file is as we had SQLite make it
  // Adds a page behind all others; its number.
  Result<uint32_t> append(std::span<const uint8_t> page);
  // The numbers that the next appended pages will get.
  uint32_t next_page() const { return behind(pages_); }
  uint32_t page_after_next() const { return behind(behind(pages_)); }
  Status overwrite(uint32_t page_number, std::span<const uint8_t> page);
  Status finish();

 private:
  static uint32_t behind(uint32_t page);
  Status flush();
  Status write_at(uint64_t offset, std::span<const uint8_t> bytes);

  int descriptor_;
  uint32_t pages_ = 0;  // in the file and in waiting_
  std::vector<uint8_t> waiting_;
  std::function<int(int error)> move_;
};

// One row: the columns behind the id, in their order.
class Record {
 public:
  void clear();
  Record& integer(int64_t value);
  Record& address(uint64_t value) { return integer(static_cast<int64_t>(value)); }
  Record& blob(std::span<const uint8_t> value);
  Record& text(std::string_view value);
  // The row as SQLite stores it: the size of its header, the types, then the values.
  size_t size_bytes() const { return 1 + types_end_ + values_end_; }
  void write_to(uint8_t* at) const;

 private:
  void bytes(const void* value, size_t size_bytes, uint64_t type);
  uint8_t* room_for(size_t bytes);  // behind the values

  // A header of 126 bytes says its own size in one.
  std::array<uint8_t, 126> types_;
  size_t types_end_ = 0;
  std::vector<uint8_t> values_;  // as long as it ever had to be
  size_t values_end_ = 0;
};

class BulkTable {
 public:
  // `root` is the page at which SQLite put the table, which is empty.
  BulkTable(PageWriter& pages, uint32_t root);

  // A record to be filled with the next row, for `insert`.
  Record& row();
  Status insert();
  Status finish();

 private:
  struct Child {
    uint32_t page = 0;
    uint64_t last_id = 0;
  };
  Result<uint8_t*> room_for_cell(size_t size_bytes);
  // The part of the record that stays in the leaf, followed by the page with the rest.
  Status make_long_cell();
  Result<uint32_t> write_overflow(std::span<const uint8_t> rest);
  Status write_leaf();
  Status write_interior_levels();
  void start_leaf();
  static std::vector<uint8_t> interior_page(std::span<const Child> children);

  PageWriter& pages_;
  uint32_t root_;
  uint64_t next_id_ = 0;
  Record record_;
  std::vector<uint8_t> cell_;
  std::vector<uint8_t> leaf_;
  uint32_t cells_ = 0;
  uint32_t content_begin_ = 0;  // cells grow from the end of the page towards its front
  std::vector<Child> leaves_;
};

}  // namespace tally::profile
