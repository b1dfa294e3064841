// Where a code cache can lie: near the code it is for, and out of the way of what grows.
//
// Problem.  Code caches must be within 2 GB of the modules whose code they hold.  Of what the
// program will map later, the kernel chooses most of the addresses by what is free; but the heap
// (`brk`) grows upwards from one place.  Whatever lies there ends it: malloc goes on with mmap,
// which is another execution, and a program with an allocator of its own is out of memory.
//
// Idea.  Ask the kernel where the heap begins.  (It is chosen by lot, up to 32 MB behind the
// program on older kernels and up to a gigabyte on newer ones.)  What ends below that place is
// never in its way; of places above it the one with most room in front is taken.
//
//     fixed-address program    heap begins        heap could grow to         tables
//     | 0x400000 ... |  area?  |  >>>  ...                     |    area?    | 0x70000000
//
// Programs that the kernel places by lot, and libraries, have room below them, as a rule.
//
// Not handled: a heap that grows so far that it meets what is above it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/address.h"
#include "tracee/process.h"

namespace tally::engine {

// Whether nothing is mapped there, and something can be.
bool is_free(const std::vector<tracee::Mapping>& mappings, uint64_t begin, uint64_t end);

// Whether an area at `area` reaches all of `range`, and is reached from there.
bool reaches(uint64_t area, TargetRange range);

// A free place (an address, page-aligned) for one more area that reaches `range`; none where there
// is no such place.  `heap_begin`: where the process's heap begins, if it has one.
std::optional<uint64_t> area_place(const std::vector<tracee::Mapping>& mappings, TargetRange range,
                                   std::optional<uint64_t> heap_begin);

}  // namespace tally::engine
