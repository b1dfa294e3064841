// The command line of a fuzz target (tools/fuzz.py): NAME ITERATIONS [SEED].
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace tally {

// `fuzz` takes both and returns the exit status.
template <class Fuzz>
int fuzz_main(const char* name, int argc, char** argv, Fuzz fuzz) {
  const uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : std::random_device{}();
  std::printf("%s: %llu iterations, seed %llu\n", name, static_cast<unsigned long long>(iterations),
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);  // before a crash
  return fuzz(iterations, seed);
}

}  // namespace tally
