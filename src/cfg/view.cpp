// See view.h.
#include "cfg/view.h"

#include <string.h>

#include <utility>

namespace tally::cfg {

CodeView view_of(std::shared_ptr<const elf::Image> image) {
  CodeView view;
  view.code_at = [image](LinkAddr a) { return image->bytes_at(a); };
  view.read_data = [image = std::move(image)](LinkAddr a, void* data, size_t size_bytes) {
    const auto bytes = image->bytes_at(a);
    if (bytes.size() < size_bytes) return false;
    memcpy(data, bytes.data(), size_bytes);
    return true;
  };
  return view;
}

}  // namespace tally::cfg
