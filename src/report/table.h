// Rows and columns in the three formats: aligned text, CSV (RFC 4180), JSON (an array of objects).
//
// A cell is a number or a string.  CSV quotes what needs quoting and nothing else; JSON replaces
// bytes that are not UTF-8 (file names may contain any).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "report/output.h"

namespace tally::report {

struct Cell {
  Cell(std::string value) : text(std::move(value)) {}  // NOLINT: implicit, rows read as lists
  Cell(std::string_view value) : text(value) {}        // NOLINT
  Cell(const char* value) : text(value) {}             // NOLINT
  Cell(LinkAddr address) : text(fmt::format("{:#x}", address.value())) {}          // NOLINT
  Cell(unsigned __int128 value) : text(fmt::format("{}", value)), number(true) {}  // NOLINT
  Cell(uint64_t value) : text(fmt::format("{}", value)), number(true) {}           // NOLINT
  Cell(uint32_t value) : text(fmt::format("{}", value)), number(true) {}           // NOLINT
  std::string text;
  bool number = false;
};

struct Column {
  std::string_view name;
  int width = 0;  // least width in text; negative: aligned to the left
};

class TableWriter {
 public:
  TableWriter(Output& output, Format format, std::vector<Column> columns);
  void row(std::initializer_list<Cell> cells);
  void finish();

 private:
  void header();

  Output& output_;
  Format format_;
  std::vector<Column> columns_;
  bool first_ = true;
};

// The field as it stands in a CSV line.
std::string csv_field(std::string_view text);
// A JSON string with its quotes.
std::string json_string(std::string_view text);
// 1234567 as 1,234,567.
std::string with_commas(unsigned __int128 value);

}  // namespace tally::report
