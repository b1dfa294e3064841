// See table.h.
#include "report/table.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace tally::report {

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string with_commas(unsigned __int128 value) {
  std::string digits = fmt::format("{}", value);
  for (size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, 1, ',');
  }
  return digits;
}

TableWriter::TableWriter(Output& output, Format format, std::vector<Column> columns)
    : output_(output), format_(format), columns_(std::move(columns)) {
  header();
}

void TableWriter::header() {
  if (format_ == Format::kJson) {
    output_.write("[");
    return;
  }
  std::string line;
  for (const Column& column : columns_) {
    if (format_ == Format::kCsv) {
      line += fmt::format("{}{}", line.empty() ? "" : ",", csv_field(column.name));
    } else if (column.width < 0) {
      line += fmt::format("{:<{}}  ", column.name, -column.width);
    } else {
      line += fmt::format("{:>{}}  ", column.name, column.width);
    }
  }
  while (line.ends_with(' ')) line.pop_back();
  if (format_ == Format::kText) {
    output_.heading(line);
  } else {
    output_.write(line);
  }
  output_.write("\n");
}

void TableWriter::row(std::initializer_list<Cell> cells) {
  CHECK(cells.size() == columns_.size()) << "a row of " << cells.size() << " cells";
  std::string line;
  size_t index = 0;
  for (const Cell& cell : cells) {
    const Column& column = columns_[index++];
    const bool last = index == columns_.size();
    if (format_ == Format::kCsv) {
      line += csv_field(cell.text);
      if (!last) line += ',';
    } else if (format_ == Format::kJson) {
      line += json_string(column.name);
      line += ": ";
      line += cell.number ? cell.text : json_string(cell.text);
      if (!last) line += ", ";
    } else if (column.width < 0) {
      line += last ? cell.text : fmt::format("{:<{}}  ", cell.text, -column.width);
    } else {
      line += fmt::format("{:>{}}", cell.text, column.width);
      if (!last) line += "  ";
    }
  }
  if (format_ == Format::kJson) {
    output_.print("{}\n  {{{}}}", first_ ? "" : ",", line);
  } else {
    output_.print("{}\n", line);
  }
  first_ = false;
}

void TableWriter::finish() {
  if (format_ == Format::kJson) output_.write(first_ ? "]\n" : "\n]\n");
}

}  // namespace tally::report
