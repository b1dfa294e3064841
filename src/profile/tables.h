// The tables of a profile file: what they are called, how they are filled and read.
//
// Version 3 is described column by column in docs/formats.md.  A file whose tables were created by
// other statements than these is refused, so reading never depends on what a stranger's view or
// virtual table chooses to answer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "profile/bulk_table.h"
#include "profile/database.h"
#include "profile/model.h"

namespace tally::profile {

inline constexpr uint32_t kApplicationId = 0x54414C59;  // "TALY"
inline constexpr uint32_t kFormatVersion = 3;

struct Table {
  const char* name;
  const char* sql;  // exactly as SQLite keeps it in its schema
};

inline constexpr std::array<Table, 11> kTables = {{
    {"meta", "CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID"},
    {"runs",
     "CREATE TABLE runs(id INTEGER PRIMARY KEY, facts INTEGER NOT NULL, modules INTEGER NOT NULL, "
     "procedures INTEGER NOT NULL, blocks INTEGER NOT NULL, partial_runs INTEGER NOT NULL, "
     "edges INTEGER NOT NULL, abnormal INTEGER NOT NULL, issues INTEGER NOT NULL, "
     "threads INTEGER NOT NULL, digest TEXT NOT NULL) STRICT"},
    {"facts",
     "CREATE TABLE facts(id INTEGER PRIMARY KEY, run INTEGER NOT NULL, name TEXT NOT NULL, "
     "value ANY NOT NULL, extra INTEGER NOT NULL) STRICT"},
    {"modules",
     "CREATE TABLE modules(id INTEGER PRIMARY KEY, run INTEGER NOT NULL, path TEXT NOT NULL, "
     "build_id TEXT NOT NULL, load_bias INTEGER NOT NULL, mapped_begin INTEGER NOT NULL, "
     "mapped_end INTEGER NOT NULL, "
     "size_bytes INTEGER NOT NULL, main_program INTEGER NOT NULL) STRICT"},
    {"procedures",
     "CREATE TABLE procedures(id INTEGER PRIMARY KEY, module INTEGER NOT NULL, "
     "entry INTEGER NOT NULL, size_bytes INTEGER NOT NULL, name TEXT NOT NULL, "
     "provenance INTEGER NOT NULL, entries INTEGER NOT NULL, entries_source INTEGER NOT NULL) "
     "STRICT"},
    {"blocks",
     "CREATE TABLE blocks(id INTEGER PRIMARY KEY, procedure INTEGER NOT NULL, "
     "address INTEGER NOT NULL, size_bytes INTEGER NOT NULL, instruction_sizes BLOB NOT NULL, "
     "count INTEGER NOT NULL, source INTEGER NOT NULL, provenance INTEGER NOT NULL, "
     "returns INTEGER NOT NULL, equation TEXT NOT NULL) STRICT"},
    {"partial_runs",
     "CREATE TABLE partial_runs(id INTEGER PRIMARY KEY, block INTEGER NOT NULL, "
     "first_instruction INTEGER NOT NULL, last_instruction INTEGER NOT NULL, "
     "delta INTEGER NOT NULL) STRICT"},
    {"edges",
     "CREATE TABLE edges(id INTEGER PRIMARY KEY, from_block INTEGER NOT NULL, "
     "to_block INTEGER NOT NULL, kind INTEGER NOT NULL, count INTEGER NOT NULL, "
     "source INTEGER NOT NULL) STRICT"},
    {"abnormal",
     "CREATE TABLE abnormal(id INTEGER PRIMARY KEY, block INTEGER NOT NULL, "
     "kind INTEGER NOT NULL, entered INTEGER NOT NULL, \"left\" INTEGER NOT NULL, "
     "detail TEXT NOT NULL) STRICT"},
    {"issues",
     "CREATE TABLE issues(id INTEGER PRIMARY KEY, run INTEGER NOT NULL, scope TEXT NOT NULL, "
     "message TEXT NOT NULL, amount INTEGER NOT NULL) STRICT"},
    {"threads",
     "CREATE TABLE threads(id INTEGER PRIMARY KEY, run INTEGER NOT NULL, tid INTEGER NOT NULL, "
     "name TEXT NOT NULL, begun TEXT NOT NULL, ended TEXT NOT NULL, "
     "instructions INTEGER NOT NULL) STRICT"},
}};

// For people with a SQL prompt only; never read by Tally.
inline constexpr std::array<const char*, 2> kViews = {
    "CREATE VIEW block_list AS SELECT blocks.id AS block, modules.run, modules.path AS module, "
    "procedures.name AS procedure, printf('0x%x', blocks.address) AS address, blocks.size_bytes, "
    "length(instruction_sizes) AS instructions, count, "
    "CASE source WHEN 0 THEN 'measured' WHEN 1 THEN 'derived' ELSE 'unknown' END AS source "
    "FROM blocks JOIN procedures ON procedures.id = blocks.procedure "
    "JOIN modules ON modules.id = procedures.module",
    "CREATE VIEW edge_list AS SELECT edges.id AS edge, from_block, to_block, "
    "CASE kind WHEN 0 THEN 'fallthrough' WHEN 1 THEN 'taken' WHEN 2 THEN 'jump' "
    "WHEN 3 THEN 'indirect_jump' WHEN 4 THEN 'call' WHEN 5 THEN 'indirect_call' "
    "WHEN 6 THEN 'call_return' ELSE 'system_call' END AS kind, count, "
    "CASE source WHEN 0 THEN 'measured' WHEN 1 THEN 'derived' ELSE 'unknown' END AS source "
    "FROM edges",
};

// The root pages of the tables that SQLite does not fill; see bulk_table.h.
struct BulkRoots {
  uint32_t blocks = 0;
  uint32_t edges = 0;
};

// Rows of each table: of one run, or in front of it.
struct RowCounts {
  uint64_t facts = 0, modules = 0, procedures = 0, blocks = 0, partial_runs = 0, edges = 0,
           abnormal = 0, issues = 0, threads = 0;
  RowCounts& operator+=(const RowCounts& other);
  bool operator==(const RowCounts&) const = default;
};

// What is kept of a run until the file is finished: all but its blocks and edges.
struct StoredRun {
  Profile rest;
  std::vector<std::pair<uint32_t, PartialRun>> partial_runs;  // by block
  RowCounts rows;
  uint64_t digest = 0;
};

// Creates the tables in an empty database.
Result<BulkRoots> create_tables(Database& database);

// Appends blocks and edges, run by run, once the database has been closed.
class BulkWriter {
 public:
  BulkWriter(int descriptor, const BulkRoots& roots)
      : pages_(descriptor), blocks_(pages_, roots.blocks), edges_(pages_, roots.edges) {}
  Status open() { return pages_.open(); }
  void on_failure(std::function<int(int error)> move) { pages_.on_failure(std::move(move)); }
  Status add(const Profile& profile, const RowCounts& before);
  Status finish();

 private:
  PageWriter pages_;
  BulkTable blocks_;
  BulkTable edges_;
};

// Fills the other tables, in one transaction.
Status write_small_tables(Database& database, const std::vector<StoredRun>& runs);

// Checks schema and version and reads how many rows each run has.
struct StoredRuns {
  std::vector<RowCounts> rows;
  std::vector<RowCounts> before;  // in front of each run
  std::vector<std::string> digests;
};
Result<StoredRuns> read_index(Database& database);
// The facts of one run.
Result<Run> read_facts(Database& database, const StoredRuns& index, size_t which);
// All of one run, validated and compared with its digest.
Result<Profile> read_run(Database& database, const StoredRuns& index, size_t run);

}  // namespace tally::profile
