// The profile: what one run did, count by count.
//
// A profile holds runs' facts only; it neither executes nor decodes anything.  Every count says
// whether it was measured by a counter, derived from conservation of flow, or could not be
// determined.  What is not exact is listed by name in `issues`; an empty list is the claim that all
// counts are exact.
//
// Addresses are the module's own ELF addresses (LinkAddr), so that profiles of different runs and
// machines compare.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/address.h"
#include "profile/compact.h"

namespace tally::profile {

enum class CountSource : uint8_t { kMeasured = 0, kDerived = 1, kUnknown = 2 };
const char* to_string(CountSource source);

// Where a fact of the control-flow graph came from, for `tally explain`.
enum class Provenance : uint8_t {
  kEntryPoint = 0,  // ELF entry
  kSymbol = 1,
  kUnwindRange = 2,  // .eh_frame
  kDirectCall = 3,   // target of a call found by disassembly
  kFlow = 4,         // reached by disassembly from the procedure's entry
  kJumpTable = 5,
  kRunTime = 6,  // control arrived there while the program ran
};
const char* to_string(Provenance provenance);

enum class EdgeKind : uint8_t {
  kFallthrough = 0,  // next block without a branch, or a conditional branch not taken
  kTaken = 1,        // conditional branch taken
  kJump = 2,         // direct unconditional jump
  kIndirectJump = 3,
  kCall = 4,  // from the calling block to the callee's entry
  kIndirectCall = 5,
  kCallReturn = 6,  // from the calling block to the block after the call: calls that came back
  kSystemCall = 7,  // from a block that ends in `syscall` to the next one
};
const char* to_string(EdgeKind kind);

struct Module {
  uint32_t id = 0;
  std::string path;  // as the kernel names it; "[vdso]" for the vdso
  std::string build_id;
  uint64_t load_bias = 0;   // target address = link address + load_bias
  TargetRange mapped;       // from the lowest to the highest mapped address
  uint64_t size_bytes = 0;  // of the file
  bool main_program = false;
};

struct Procedure {
  uint32_t id = 0;
  uint32_t module_id = 0;
  LinkAddr entry;
  uint64_t size_bytes = 0;  // from the first to the end of the last block
  std::string name;         // raw symbol, empty when there is none
  Provenance provenance = Provenance::kFlow;
  uint64_t entries = 0;  // times entered at `entry`
  CountSource entries_source = CountSource::kDerived;
};

// Adjusts the counts of single instructions of a block that was not run from end to end: a fault in
// its middle (delta -1 from the faulting instruction on), a thread that began in its middle (-1 up
// to there).
struct PartialRun {
  uint32_t first_instruction = 0;  // index in the block, inclusive
  uint32_t last_instruction = 0;   // exclusive
  int64_t delta = 0;
};

// Kept small: large programs have half a million.
struct Block {
  uint32_t id = 0;
  uint32_t procedure_id = 0;
  LinkAddr address;
  SmallBytes instruction_sizes;  // one per instruction, 1..15 each
  uint64_t count = 0;            // times entered (abnormal entries included)
  RareVector<PartialRun> partial;
  uint32_t counter = kNoCounter;  // that measured the count, if one did
  static constexpr uint32_t kNoCounter = UINT32_MAX;
  CountSource source = CountSource::kUnknown;
  Provenance provenance = Provenance::kFlow;
  uint64_t size_bytes() const {
    uint64_t sum = 0;
    for (uint8_t s : instruction_sizes) sum += s;
    return sum;
  }
  // The last instruction returns to a caller.  No edge stands for a return, so what leaves such a
  // block by other ways than `abnormal` is not compared with its count.
  bool returns = false;
  // How the count was obtained: "counter 17", or empty when conservation of flow says it all.
  std::string equation() const;
};

// The constructor takes the fields in the order in which one thinks of them; they are stored in the
// order that needs the least room.
struct Edge {
  Edge() = default;
  Edge(uint32_t from, uint32_t to, EdgeKind edge_kind, uint64_t edge_count,
       CountSource count_source)
      : from_block(from), to_block(to), count(edge_count), kind(edge_kind), source(count_source) {}

  uint32_t from_block = 0;  // Block::id
  uint32_t to_block = 0;
  uint64_t count = 0;
  EdgeKind kind = EdgeKind::kFallthrough;
  CountSource source = CountSource::kUnknown;
};

enum class AbnormalKind : uint8_t {
  kProgramStart = 0,
  kThreadStart = 1,
  kProgramExit = 2,  // exit_group, or the process died, with this block's call still open
  kThreadExit = 3,
  kNonLocalJump = 4,  // longjmp, exception: the frame was abandoned
  kFault = 5,         // the program died of a signal here
  kOther = 6,
  kSignalHandler = 7,  // a signal: its handler begins, returns, or goes on elsewhere
  kAttach = 8,         // was active when Tally took hold of the running process
  kDetach = 9,         // was active when Tally let the process go
};
const char* to_string(AbnormalKind kind);

// `Abnormal::detail` of a handler's first block; the other kSignalHandler are where one returned or
// made its thread go on.
inline constexpr const char* kHandlerBegins = "a signal handler begins";

// One term of a block's balance that no edge explains.
struct Abnormal {
  uint32_t block = 0;
  AbnormalKind kind = AbnormalKind::kOther;
  uint64_t entered = 0;  // added to what flows in
  uint64_t left = 0;     // added to what flows out
  std::string detail;
};

// Something that is not exact or not covered, in words for a person. `scope` says which counts.
struct Issue {
  std::string scope;  // "process 123 (child)", "gzip+0x4a10", ...
  std::string message;
  uint64_t amount = 1;  // how many events, counts or blocks
};

// What one thread of a run executed, from its start to its end.
struct Thread {
  uint32_t run = 1;  // Run::number; in a profile of one run that run's
  uint32_t tid = 0;  // as the kernel numbered it; 0: not a single thread (see `name`)
  std::string name;  // what it was called at its end
  // "start", "fork", "exec": began with the run; "thread": made by another; "vfork": a process that
  // shared the run's memory until it went on as another program.
  std::string begun;
  // "exit": by itself; "exit_group": it ended the process; "process end": with the process;
  // "signal": of this signal the process died; "exec": became another program; "vanished": its end
  // was not seen; "monitor lost": Tally was killed.
  std::string ended;
  uint64_t instructions = 0;  // executed
};

// Facts about the run; free-form pairs keep the file readable by older readers.
struct Run {
  uint32_t number = 1;  // runs are numbered in the order in which they began, from 1
  uint32_t parent =
      0;  // number of the run that forked this process or became this program; 0: none
  uint32_t pid = 0;
  std::string begun;  // "start", "fork", "exec", "attach"
  // "exit", "signal", "detach"; "monitor lost": Tally was killed, and the program with it; "exec":
  // went on as another program, which is another run
  std::string ended;
  std::string program;  // path of the executable
  std::vector<std::string> command_line;
  std::string working_directory;
  std::string environment_digest;  // SHA-256-like digest in hex, order preserved
  std::string host;                // uname nodename
  std::string kernel;              // uname release
  std::string cpu;
  std::string tally_version;
  std::string placement;  // "blocks", "edges", "feedback"
  uint64_t start_unix_ms = 0;
  bool exited = false;  // true: exit_status holds; false: killed by `signal`
  int exit_status = 0;
  int signal = 0;
  uint32_t threads = 0;
  double wall_seconds = 0;
  double target_cpu_seconds = 0;
  double monitor_cpu_seconds = 0;
  uint64_t counters = 0;            // counters placed
  uint64_t counter_increments = 0;  // sum of all counters but those of loops_by_register
  uint64_t code_cache_bytes = 0;
  uint64_t instructions_translated = 0;
  uint64_t misses = 0;
  std::vector<std::pair<std::string, std::string>> more;
};

struct Profile {
  Run run;
  std::vector<Module> modules;        // sorted by id; id is the index
  std::vector<Procedure> procedures;  // likewise
  std::vector<Block> blocks;          // likewise
  std::vector<Edge> edges;
  std::vector<Abnormal> abnormal;
  std::vector<Issue> issues;
  std::vector<Thread> threads;  // in the order in which they began
};

}  // namespace tally::profile
