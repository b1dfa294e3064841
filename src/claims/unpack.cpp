// See unpack.h.  Only the size of what comes out needs watching: a few kilobytes can unpack to
// gigabytes.
#include "claims/unpack.h"

#include <zlib.h>

#include <algorithm>

namespace tally::claims {
namespace {

constexpr size_t kUnpackedBytesMax = size_t{1} << 30;
constexpr size_t kStepBytes = size_t{1} << 18;
constexpr int kGzipOnly = 16 + MAX_WBITS;

struct Inflater {
  z_stream stream = {};
  ~Inflater() { inflateEnd(&stream); }
};

}  // namespace

bool is_gzip(std::string_view bytes) {
  return bytes.starts_with("\x1f\x8b");
}

Result<std::string> gunzip(const std::string& path, std::string_view bytes) {
  Inflater inflater;
  z_stream& stream = inflater.stream;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return make_error("{}: no memory to unpack", path);
  std::string result;
  size_t taken = 0;
  int code = Z_OK;
  // Files joined by `cat` are one stream behind the other.
  while (code != Z_STREAM_END || stream.avail_in != 0 || taken < bytes.size()) {
    if (code == Z_STREAM_END && inflateReset(&stream) != Z_OK) {
      return make_error("{}: no memory to unpack", path);
    }
    if (stream.avail_in == 0) {
      const size_t piece = std::min(bytes.size() - taken, kStepBytes);
      if (piece == 0) {
        return make_error(
            "{}: ends in the middle of its gzip stream: it was cut short; make the "
            "profile again",
            path);
      }
      // zlib does not write to its input; the type is older than const.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + taken));
      stream.avail_in = static_cast<uInt>(piece);
      taken += piece;
    }
    const size_t before = result.size();
    if (before >= kUnpackedBytesMax) {
      return make_error("{}: unpacks to more than {} bytes; no profile does", path,
                        kUnpackedBytesMax);
    }
    result.resize(before + kStepBytes);
    stream.next_out = reinterpret_cast<Bytef*>(result.data() + before);
    stream.avail_out = static_cast<uInt>(kStepBytes);
    code = inflate(&stream, Z_NO_FLUSH);
    result.resize(before + kStepBytes - stream.avail_out);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      return make_error(
          "{}: its gzip stream is damaged after {} bytes ({}); make the profile again", path,
          result.size(), stream.msg == nullptr ? "bad data" : stream.msg);
    }
  }
  return result;
}

}  // namespace tally::claims
