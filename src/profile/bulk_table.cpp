// See bulk_table.h.  Numbers in the file are big-endian.
#include "profile/bulk_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tally::profile {
namespace {

constexpr uint8_t kInteriorPage = 0x05;
constexpr uint8_t kLeafPage = 0x0d;
constexpr uint32_t kLeafHeaderBytes = 8;
constexpr uint32_t kInteriorHeaderBytes = 12;
constexpr uint32_t kPointerBytes = 2;           // to a cell, behind the page's header
constexpr uint32_t kInteriorCellBytes = 4 + 9;  // child and row id, at most
constexpr size_t kWaitingMaxBytes = 64 * kPageSizeBytes;

// The header of the file, at the beginning of its first page.
constexpr size_t kHeaderBytes = 100;
constexpr size_t kPageSizeOffset = 16;
constexpr size_t kReservedOffset = 20;   // bytes at the end of each page that hold no data
constexpr size_t kPageCountOffset = 28;  // in pages
constexpr size_t kAutoVacuumOffset = 52;

// SQLite locks this byte of a file, so the page around it holds no data.
constexpr uint64_t kLockByte = 0x40000000;
constexpr uint32_t kLockPage = kLockByte / kPageSizeBytes + 1;

// How much of a record stays in its leaf (file format, section 1.6).
constexpr uint32_t kLocalMaxBytes = kPageSizeBytes - 35;
constexpr uint32_t kLocalMinBytes = (kPageSizeBytes - 12) * 32 / 255 - 23;
constexpr uint32_t kOverflowBytes = kPageSizeBytes - 4;

void put_16(uint8_t* at, uint32_t value) {
  at[0] = static_cast<uint8_t>(value >> 8);
  at[1] = static_cast<uint8_t>(value);
}

void put_32(uint8_t* at, uint32_t value) {
  const uint32_t swapped = __builtin_bswap32(value);
  std::memcpy(at, &swapped, sizeof swapped);
}

uint32_t get_16(const uint8_t* at) {
  return static_cast<uint32_t>(at[0] << 8 | at[1]);
}

uint32_t get_32(const uint8_t* at) {
  uint32_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return __builtin_bswap32(value);
}

// SQLite's variable-length integers: 7 bits per byte, the highest first.  Neither row ids nor sizes
// need the ninth byte, which is different.
constexpr size_t kVarintBytesMax = 8;

uint32_t varint_bytes(uint64_t value) {
  CHECK(value >> 56 == 0) << "a size or an id of " << value;
  return value < 0x80 ? 1 : (static_cast<uint32_t>(std::bit_width(value)) + 6) / 7;
}

// Returns what comes behind it.
uint8_t* put_varint(uint8_t* at, uint64_t value) {
  const uint32_t size = varint_bytes(value);
  for (uint32_t i = size; i-- > 0;) {
    *at++ = static_cast<uint8_t>((value >> 7 * i & 0x7f) | (i > 0 ? 0x80 : 0));
  }
  return at;
}

void append_varint(std::vector<uint8_t>& out, uint64_t value) {
  uint8_t bytes[kVarintBytesMax];
  out.insert(out.end(), bytes, put_varint(bytes, value));
}

}  // namespace

// ---- pages -------------------------------------------------------------------------------------

Status PageWriter::open() {
  std::array<uint8_t, kHeaderBytes> header;
  const ssize_t got = ::pread(descriptor_, header.data(), header.size(), 0);
  if (got < 0) return make_error("{}", std::strerror(errno));
  CHECK(static_cast<size_t>(got) == header.size() &&
        get_16(header.data() + kPageSizeOffset) == kPageSizeBytes && header[kReservedOffset] == 0 &&
        get_32(header.data() + kAutoVacuumOffset) == 0)
      << "SQLite made a file that we did not ask for";
  pages_ = get_32(header.data() + kPageCountOffset);
  // Growing by and by, it would be copied into new pages each time.
  waiting_.reserve(kWaitingMaxBytes);
  return Ok{};
}

uint32_t PageWriter::behind(uint32_t page) {
  return page + 1 == kLockPage ? page + 2 : page + 1;
}

Result<uint32_t> PageWriter::append(std::span<const uint8_t> page) {
  CHECK(page.size() == kPageSizeBytes) << page.size();
  const uint32_t number = next_page();
  if (number - pages_ == 2) waiting_.resize(waiting_.size() + kPageSizeBytes);
  pages_ = number;
  waiting_.insert(waiting_.end(), page.begin(), page.end());
  if (waiting_.size() >= kWaitingMaxBytes) TRY(flush());
  return number;
}

Status PageWriter::overwrite(uint32_t page_number, std::span<const uint8_t> page) {
  return write_at(uint64_t{page_number - 1} * kPageSizeBytes, page);
}

Status PageWriter::finish() {
  TRY(flush());
  std::array<uint8_t, 4> count;
  put_32(count.data(), pages_);
  return write_at(kPageCountOffset, count);
}

Status PageWriter::flush() {
  TRY(write_at(uint64_t{pages_} * kPageSizeBytes - waiting_.size(), waiting_));
  waiting_.clear();
  return Ok{};
}

Status PageWriter::write_at(uint64_t offset, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t put =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      const int elsewhere = move_ ? std::exchange(move_, {})(error) : -1;
      if (elsewhere < 0) return make_error("{}", std::strerror(error));
      descriptor_ = elsewhere;
      continue;
    }
    if (put == 0) return make_error("{}", std::strerror(ENOSPC));
    offset += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return Ok{};
}

// ---- records -----------------------------------------------------------------------------------

void Record::clear() {
  // The id is stored as the key of the row; its column says NULL.
  types_[0] = 0;
  types_end_ = 1;
  values_end_ = 0;
}

uint8_t* Record::room_for(size_t bytes) {
  if (values_.size() < values_end_ + bytes) values_.resize(2 * (values_end_ + bytes));
  return values_.data() + values_end_;
}

Record& Record::integer(int64_t value) {
  CHECK(types_end_ < types_.size()) << "too many columns";
  uint8_t* at = room_for(sizeof value);
  if (value == 0 || value == 1) {
    types_[types_end_++] = value == 0 ? 8 : 9;
    return *this;
  }
  // Magnitude bits plus one for the sign, in the sizes that SQLite knows.
  const auto magnitude = static_cast<uint64_t>(value < 0 ? ~value : value);
  const uint32_t needed = static_cast<uint32_t>(std::bit_width(magnitude)) / 8 + 1;
  const uint32_t size = needed <= 4 ? needed : needed <= 6 ? 6 : 8;
  types_[types_end_++] = static_cast<uint8_t>(size <= 4 ? size : size == 6 ? 5 : 6);
  const uint64_t swapped = __builtin_bswap64(static_cast<uint64_t>(value) << 8 * (8 - size));
  std::memcpy(at, &swapped, sizeof swapped);
  values_end_ += size;
  return *this;
}

void Record::bytes(const void* value, size_t size_bytes, uint64_t type) {
  CHECK(types_end_ + kVarintBytesMax <= types_.size()) << "too many columns";
  const uint8_t* end = put_varint(types_.data() + types_end_, type + 2 * size_bytes);
  types_end_ = static_cast<size_t>(end - types_.data());
  uint8_t* at = room_for(size_bytes);
  if (size_bytes > 0) std::memcpy(at, value, size_bytes);
  values_end_ += size_bytes;
}

Record& Record::blob(std::span<const uint8_t> value) {
  bytes(value.data(), value.size(), 12);
  return *this;
}

Record& Record::text(std::string_view value) {
  bytes(value.data(), value.size(), 13);
  return *this;
}

void Record::write_to(uint8_t* at) const {
  // The size of the header counts itself; our tables have few columns.
  *at++ = static_cast<uint8_t>(types_end_ + 1);
  std::memcpy(at, types_.data(), types_end_);
  if (values_end_ > 0) std::memcpy(at + types_end_, values_.data(), values_end_);
}

// ---- tables ------------------------------------------------------------------------------------

BulkTable::BulkTable(PageWriter& pages, uint32_t root) : pages_(pages), root_(root) {
  start_leaf();
}

void BulkTable::start_leaf() {
  leaf_.assign(kPageSizeBytes, 0);
  cells_ = 0;
  content_begin_ = kPageSizeBytes;
}

Record& BulkTable::row() {
  record_.clear();
  return record_;
}

Status BulkTable::insert() {
  const size_t size = record_.size_bytes();
  if (size > kLocalMaxBytes) {
    TRY(make_long_cell());
    TRY_ASSIGN(uint8_t* const at, room_for_cell(cell_.size()));
    std::memcpy(at, cell_.data(), cell_.size());
  } else {
    TRY_ASSIGN(uint8_t* const at,
               room_for_cell(varint_bytes(size) + varint_bytes(next_id_) + size));
    record_.write_to(put_varint(put_varint(at, size), next_id_));
  }
  ++next_id_;
  return Ok{};
}

// Where the next cell of the leaf goes, or of a new one if it does not fit.
Result<uint8_t*> BulkTable::room_for_cell(size_t size_bytes) {
  const uint32_t pointers_end = kLeafHeaderBytes + (cells_ + 1) * kPointerBytes;
  if (pointers_end + size_bytes > content_begin_) TRY(write_leaf());
  content_begin_ -= static_cast<uint32_t>(size_bytes);
  put_16(leaf_.data() + kLeafHeaderBytes + cells_ * kPointerBytes, content_begin_);
  ++cells_;
  return leaf_.data() + content_begin_;
}

// Of a record that has no room in a leaf.
Status BulkTable::make_long_cell() {
  std::vector<uint8_t> record(record_.size_bytes());
  record_.write_to(record.data());
  cell_.clear();
  append_varint(cell_, record.size());
  append_varint(cell_, next_id_);
  size_t local = kLocalMinBytes + (record.size() - kLocalMinBytes) % kOverflowBytes;
  if (local > kLocalMaxBytes) local = kLocalMinBytes;
  cell_.insert(cell_.end(), record.begin(), record.begin() + static_cast<ptrdiff_t>(local));
  TRY_ASSIGN(const uint32_t first, write_overflow(std::span(record).subspan(local)));
  cell_.resize(cell_.size() + 4);
  put_32(cell_.data() + cell_.size() - 4, first);
  return Ok{};
}

// Pages of a chain: the number of the next one (0 in the last), then the bytes.
Result<uint32_t> BulkTable::write_overflow(std::span<const uint8_t> rest) {
  const uint32_t first = pages_.next_page();
  std::vector<uint8_t> page;
  while (!rest.empty()) {
    const size_t here = std::min<size_t>(rest.size(), kOverflowBytes);
    page.assign(kPageSizeBytes, 0);
    std::memcpy(page.data() + 4, rest.data(), here);
    rest = rest.subspan(here);
    if (!rest.empty()) put_32(page.data(), pages_.page_after_next());
    TRY(pages_.append(page));
  }
  return first;
}

Status BulkTable::write_leaf() {
  leaf_[0] = kLeafPage;
  put_16(leaf_.data() + 3, cells_);
  put_16(leaf_.data() + 5, content_begin_);
  TRY_ASSIGN(const uint32_t page, pages_.append(leaf_));
  leaves_.push_back({page, next_id_ - 1});
  start_leaf();
  return Ok{};
}

Status BulkTable::finish() {
  if (leaves_.empty()) {
    leaf_[0] = kLeafPage;
    put_16(leaf_.data() + 3, cells_);
    put_16(leaf_.data() + 5, content_begin_);
    return pages_.overwrite(root_, leaf_);
  }
  if (cells_ > 0) TRY(write_leaf());
  return write_interior_levels();
}

// Level by level until the pages of one fit into the root.
Status BulkTable::write_interior_levels() {
  // The last child of a page has no cell but a place in the header.
  constexpr size_t kChildrenMax =
      (kPageSizeBytes - kInteriorHeaderBytes) / (kInteriorCellBytes + kPointerBytes) + 1;
  std::vector<Child> level = std::move(leaves_);
  while (level.size() > kChildrenMax) {
    std::vector<Child> above;
    // Evenly, so that no page is left with one child.
    const size_t pages = (level.size() + kChildrenMax - 1) / kChildrenMax;
    for (size_t i = 0; i < pages; ++i) {
      const size_t begin = level.size() * i / pages;
      const size_t end = level.size() * (i + 1) / pages;
      const std::span<const Child> children = std::span(level).subspan(begin, end - begin);
      TRY_ASSIGN(const uint32_t page, pages_.append(interior_page(children)));
      above.push_back({page, children.back().last_id});
    }
    level = std::move(above);
  }
  return pages_.overwrite(root_, interior_page(level));
}

std::vector<uint8_t> BulkTable::interior_page(std::span<const Child> children) {
  std::vector<uint8_t> page(kPageSizeBytes, 0);
  const auto cells = static_cast<uint32_t>(children.size() - 1);
  uint32_t content_begin = kPageSizeBytes;
  std::vector<uint8_t> cell;
  for (uint32_t i = 0; i < cells; ++i) {
    cell.assign(4, 0);
    put_32(cell.data(), children[i].page);
    append_varint(cell, children[i].last_id);
    content_begin -= static_cast<uint32_t>(cell.size());
    std::memcpy(page.data() + content_begin, cell.data(), cell.size());
    put_16(page.data() + kInteriorHeaderBytes + i * kPointerBytes, content_begin);
  }
  page[0] = kInteriorPage;
  put_16(page.data() + 3, cells);
  put_16(page.data() + 5, content_begin);
  put_32(page.data() + 8, children.back().page);
  return page;
}

}  // namespace tally::profile
