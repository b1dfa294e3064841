// Procedures as an earlier run of the same program has found them, with their counters placed.
//
// Problem.  A large program's later runs know from the record (recall.h) which procedures are
// needed, and still find each anew: every instruction is decoded, blocks and edges are built, flags
// followed, a spanning tree is made.  For `cc1 hello.c`, which natively takes 15 ms, that was 0.22
// s of half a second.  (known_procedures.h spares it the processes of one session only.)
//
// Idea.  What discovery and placement came to is written down beside the record, in some bytes for
// each block and edge and one for each instruction, and read back when the procedure is asked for:
//
//     run 1:  rules of thumb                      leaves weights
//     run 2:  finds, places by weights            leaves <build-id>.found
//     run 3:  reads; decodes what gets code, which is what has run before (defer.cpp)
//
// One is believed if everything it was made from is the same: the bytes that discovery looked at
// and the weights (by digests), where control came to and what was asked for (ProcedureKey), and
// the build of Tally.  Each instruction that is decoded must be as long as it was then, and its
// branches lead where the graph says.  Else the procedure is found as in a first run.  What cannot
// be right whatever the program (edges to blocks that are not there) is refused when it is read.
//
// The file is written by runs of which a sixteenth of what they needed was not in it.  It replaces
// the old one whole and may be deleted at any time.
//
// Not handled: what is not shared between processes either (another unit was in the way, a jump
// table in memory that may be written); procedures without weights; runs with kept counters.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "cache/edge_weights.h"
#include "cache/known_procedures.h"
#include "elf/image.h"

namespace tally::engine {

// A procedure's graph, plan and sources as bytes, and back.  What is not encoded: instructions; the
// order of the blocks that are not in the body, which is by address then; the numbers of counters,
// which go by blocks first and then by edges.
std::vector<uint8_t> encode_found(const KnownProcedure& known);
// `key`: what it was found by.  False if it is nothing that discovery and placement could have come
// to; then `into` may be anything.
bool decode_found(std::span<const uint8_t> bytes, const ProcedureKey& key, KnownProcedure& into);

// Decodes the instructions of a block again, each of which must be of the size that it had in
// `sizes` (those of the whole procedure).  False where the code is another by now.
bool decode_block(const cfg::CodeView& view, std::span<const uint8_t> sizes,
                  const cfg::Block& block, cfg::Procedure& procedure);

// Those of all blocks, or of the plan's body only; of the others no more than where their calls
// lead, which is on a unit's lists though they have no code (defer.cpp).
enum class Wanted : uint8_t { kAll, kBody };
bool decode_instructions(const cfg::CodeView& view, Wanted wanted, KnownProcedure& known);

class FoundProcedures {
 public:
  // `maker`: the build of Tally; what others have left is not believed.
  explicit FoundProcedures(std::string maker) : maker_(std::move(maker)) {}

  // Takes what an earlier run has left.  False if it is damaged or another build's: then it is as
  // if there were none.
  bool read(std::vector<uint8_t> file);

  // Fills in all but the instructions.  False if it is not known, or rests on something else.
  bool find(const elf::Image& image, const ProcedureKey& key, const EdgeWeights& weights,
            KnownProcedure& into);
  // To leave for the next run; `known` was found and placed in this one, by weights.  Nothing,
  // where it does not rest on the file alone.
  void add(const elf::Image& image, const ProcedureKey& key, const EdgeWeights& weights,
           const KnownProcedure& known);

  // Whether a file should be written: enough of it is new.
  bool is_news() const;
  // All that is known; only what this run needed, if that would be too much.
  std::vector<uint8_t> file() const;

  static constexpr size_t kFileBytesMax = 16 << 20;

 private:
  struct Entry {
    uint32_t module = 0;  // in `modules_`
    ProcedureKey key;
    uint32_t shape = 0;  // of the graph
    uint32_t weights_digest = 0;
    uint64_t first = 0;  // in `bodies_`
    uint32_t size_bytes = 0;
    bool needed = false;  // by this run
  };
  static uint64_t hash_of(uint32_t module, const ProcedureKey& key);
  uint32_t module_of(const std::string& build_id);
  Entry* entry_of(uint32_t module, const ProcedureKey& key);
  bool read_entries(ByteReader& reader);

  std::string maker_;
  std::vector<std::string> modules_;  // build-ids of files
  std::vector<Entry> entries_;
  std::unordered_multimap<uint64_t, uint32_t> by_key_;  // hash -> in `entries_`
  std::vector<uint8_t> bodies_;
  uint64_t used_bytes_ = 0, fresh_bytes_ = 0;  // of bodies
};

// The build of Tally that runs, by its build-id; empty if it was linked without one.
const std::string& own_build_id();

}  // namespace tally::engine
