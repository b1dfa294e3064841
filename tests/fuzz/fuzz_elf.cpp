// Fuzzes src/elf: real ELF files, damaged at random, through everything Image and unwind() offer.
// It must never crash, hang or break an invariant of tests/unit/elf_exercise.h.
//
// Build by hand, with sanitizers (libdw itself has none, so a wild read there shows as a crash
// only):
//   g++ -std=c++23 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -Isrc \
//     tests/fuzz/fuzz_elf.cpp src/elf/*.cpp src/base/*.cpp -lfmt -ldw -lelf -o /tmp/fuzz_elf
// Run:
//   /tmp/fuzz_elf ITERATIONS [SEED] [FILE...]
// Iteration i of seed s depends on (s, i, file) only.  After a crash the last line on stderr names
// seed, iteration and file; `/tmp/fuzz_elf 1 SEED:ITERATION FILE` repeats just that one.
#include <fmt/format.h>
#include <sys/auxv.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../unit/elf_exercise.h"

namespace {

using Bytes = std::vector<uint8_t>;

Bytes read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

// Where damage hurts most: headers at the front, tables at the end, .eh_frame in between.
size_t pick_offset(const Bytes& bytes, std::mt19937_64& random) {
  const size_t size = bytes.size();
  switch (random() % 4) {
    case 0:
      return random() % std::min<size_t>(size, 1024);
    case 1:
      return size - 1 - random() % std::min<size_t>(size, 4096);
    default:
      return random() % size;
  }
}

uint64_t pick_value(std::mt19937_64& random) {
  constexpr uint64_t kNasty[] = {0,          1,          0x7f,       0x80,
                                 0xff,       0x7fffffff, 0x80000000, 0xffffffff,
                                 0xfffffff0, 1ull << 56, 1ull << 63, ~0ull};
  return random() % 3 == 0 ? random() : kNasty[random() % std::size(kNasty)];
}

void damage_once(Bytes& bytes, std::mt19937_64& random) {
  const size_t at = pick_offset(bytes, random);
  switch (random() % 8) {
    case 0:
      bytes[at] ^= static_cast<uint8_t>(1u << random() % 8);
      break;
    case 1:
      bytes[at] = static_cast<uint8_t>(random());
      break;
    case 2:
      bytes.resize(at + 1);
      break;
    case 3: {  // a stretch of one section over another
      const size_t length = std::min<size_t>(random() % 256, bytes.size() - at);
      const size_t from = random() % (bytes.size() - length + 1);
      std::memmove(bytes.data() + at, bytes.data() + from, length);
      break;
    }
    default: {
      const uint64_t value = pick_value(random);
      const size_t width = size_t{1} << random() % 4;
      const size_t aligned = at / width * width;
      std::memcpy(bytes.data() + aligned, &value, std::min(width, bytes.size() - aligned));
    }
  }
}

struct Input {
  std::string path;
  Bytes bytes;
};

// Whether the damaged file was still taken for a program.
bool run_one(const Input& input, uint64_t seed, uint64_t iteration) {
  fmt::print(stderr, "\rseed {}:{} {} ", seed, iteration, input.path);
  std::seed_seq sequence{seed, iteration, uint64_t{input.bytes.size()}};
  std::mt19937_64 random(sequence);
  Bytes bytes = input.bytes;
  // Iteration 0 is the file as it is: an invariant it breaks is our bug.
  for (uint64_t i = iteration == 0 ? 0 : 1 + random() % 8; i > 0; --i) damage_once(bytes, random);
  auto image = tally::elf::Image::from_bytes(input.path, std::move(bytes));
  if (!image) return false;
  const std::string complaint = tally::elf::exercise(*image, random());
  if (!complaint.empty()) {
    fmt::print(stderr, "\nFAILED: {}\n", complaint);
    std::abort();
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000;
  uint64_t seed =
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  uint64_t first = 0;
  if (argc > 2) {
    char* rest = nullptr;
    seed = std::strtoull(argv[2], &rest, 10);
    if (*rest == ':') first = std::strtoull(rest + 1, nullptr, 10);
  }
  std::vector<std::string> paths(argv + std::min(argc, 3), argv + argc);
  if (paths.empty()) paths = {"/bin/true", "/lib64/ld-linux-x86-64.so.2", "/proc/self/exe"};
  std::vector<Input> inputs;
  for (const std::string& path : paths) inputs.push_back({path, read_whole(path)});
  for (const Input& input : inputs) {
    if (!input.bytes.empty()) continue;
    fmt::print(stderr, "{}: cannot be read\n", input.path);
    return 2;
  }
  uint64_t accepted = 0;
  for (uint64_t i = first; i < first + iterations; ++i) {
    for (const Input& input : inputs) accepted += run_one(input, seed, i) ? 1 : 0;
  }
  fmt::print(stderr, "\nseed {}: {} damaged files, {} of them taken for programs, no crash\n", seed,
             iterations * inputs.size(), accepted);
  return 0;
}
