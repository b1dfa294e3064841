// See memory_cache.h.
#include "verify/memory_cache.h"

#include <sys/uio.h>

#include <cstring>
#include <utility>

namespace tally::verify {

bool MemoryCache::read_now(pid_t pid, uint64_t address, void* data, size_t size_bytes) {
  iovec local{data, size_bytes};
  iovec remote{reinterpret_cast<void*>(address), size_bytes};  // NOLINT: another process' address
  return process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size_bytes);
}

bool MemoryCache::write_now(pid_t pid, uint64_t address, const void* data, size_t size_bytes) {
  iovec local{const_cast<void*>(data), size_bytes};            // NOLINT: it is only read
  iovec remote{reinterpret_cast<void*>(address), size_bytes};  // NOLINT
  return process_vm_writev(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size_bytes);
}

void MemoryCache::begin() {
  if (pages_ == nullptr) pages_ = std::make_unique<std::array<Page, kPages>>();
  active_ = true;
}

// The page that holds the address; nullptr when it cannot be read as a whole.
MemoryCache::Page* MemoryCache::page_of(pid_t pid, uint64_t address) {
  const uint64_t number = address / kPageBytes;
  Page& page = slot(number);
  if (page.number == number) return &page;
  if (page.writable && !flush(pid)) return nullptr;  // it may come back while they wait
  if (page.number == kNoPage) used_.push_back(number % kPages);
  page.number = kNoPage;
  page.writable = false;
  if (!read_now(pid, number * kPageBytes, page.bytes.data(), kPageBytes)) return nullptr;
  page.number = number;
  return &page;
}

bool MemoryCache::read(pid_t pid, uint64_t address, void* data, size_t size_bytes) {
  const uint64_t offset = address % kPageBytes;
  if (offset + size_bytes > kPageBytes) {
    return flush(pid) && read_now(pid, address, data, size_bytes);
  }
  const Page* page = page_of(pid, address);
  if (page == nullptr) return flush(pid) && read_now(pid, address, data, size_bytes);
  std::memcpy(data, page->bytes.data() + offset, size_bytes);
  return true;
}

bool MemoryCache::write(pid_t pid, uint64_t address, const void* data, size_t size_bytes) {
  const uint64_t offset = address % kPageBytes;
  Page& page = slot(address / kPageBytes);
  const bool inside = offset + size_bytes <= kPageBytes;
  if (inside && page.number == address / kPageBytes && page.writable) {
    std::memcpy(page.bytes.data() + offset, data, size_bytes);
    const auto* bytes = static_cast<const uint8_t*>(data);
    stores_.push_back(
        {address, static_cast<uint32_t>(stored_.size()), static_cast<uint32_t>(size_bytes)});
    stored_.insert(stored_.end(), bytes, bytes + size_bytes);
    return stores_.size() < kStores || flush(pid);
  }
  if (!flush(pid) || !write_now(pid, address, data, size_bytes)) return false;
  if (!inside) {
    for (const uint64_t number : {address / kPageBytes, address / kPageBytes + 1}) {
      Page& cached = slot(number);
      if (cached.number != number) continue;
      cached.number = kNoPage;
      cached.writable = false;
    }
    return true;
  }
  Page* now = page_of(pid, address);
  if (now == nullptr) return true;
  now->writable = true;
  std::memcpy(now->bytes.data() + offset, data, size_bytes);
  return true;
}

// In the order in which they were made.
bool MemoryCache::flush(pid_t pid) {
  if (stores_.empty()) return true;
  std::array<iovec, kStores> local;
  std::array<iovec, kStores> remote;
  for (size_t i = 0; i < stores_.size(); ++i) {
    const Store& s = stores_[i];
    local[i] = {stored_.data() + s.offset, s.size_bytes};
    remote[i] = {reinterpret_cast<void*>(s.address), s.size_bytes};  // NOLINT
  }
  const ssize_t written =
      process_vm_writev(pid, local.data(), stores_.size(), remote.data(), stores_.size(), 0);
  const bool all = written == static_cast<ssize_t>(stored_.size());
  stores_.clear();
  stored_.clear();
  failed_ = failed_ || !all;
  return all;
}

bool MemoryCache::end(pid_t pid) {
  flush(pid);
  for (const size_t i : used_) {
    (*pages_)[i].number = kNoPage;
    (*pages_)[i].writable = false;
  }
  used_.clear();
  active_ = false;
  return !std::exchange(failed_, false);
}

}  // namespace tally::verify
