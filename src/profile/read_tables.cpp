// Tables to model.  See tables.h.
//
// A file holds the rows of one run after those of another; `runs` says how many each has.  Every
// row must carry the id that follows its predecessor's.  That is what the model wants, and it also
// bounds the work a crafted file can cause: pages that refer to one another in circles repeat ids.
#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>

#include "profile/digest.h"
#include "profile/run_facts.h"
#include "profile/tables.h"
#include "profile/validate.h"

namespace tally::profile {
namespace {

// Where the rows of one run are.
struct Place {
  size_t run = 0;
  const RowCounts& before;
  const RowCounts& rows;
};

constexpr uint64_t kIdLast = std::numeric_limits<uint32_t>::max();

Error damaged(std::string_view what) {
  return make_error("damaged profile: {}", what);
}

Status check_schema(Database& database) {
  TRY_ASSIGN(Statement find,
             database.prepare("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?"));
  for (const Table& table : kTables) {
    TRY_ASSIGN(const bool found, find.text(table.name).step());
    if (!found) return damaged(fmt::format("no table '{}'", table.name));
    if (find.next_text() != table.sql) {
      return damaged(fmt::format("table '{}' has other columns than version {} of the format has",
                                 table.name, kFormatVersion));
    }
    TRY_ASSIGN(const bool again, find.step());
    if (again) return damaged(fmt::format("table '{}' exists twice", table.name));
  }
  return Ok{};
}

// Calls `read_row(statement, index)` for the rows of one run: `count` of them behind the first
// `before`.  The id column has been consumed.
template <class ReadRow>
Status for_each_row(Database& database, const char* table, uint64_t before, uint64_t count,
                    const ReadRow& read_row) {
  TRY_ASSIGN(Statement rows,
             database.prepare(fmt::format("SELECT * FROM {} WHERE id >= ? ORDER BY id", table)));
  rows.address(before);
  for (uint64_t index = 0; index < count; ++index) {
    TRY_ASSIGN(const bool more, rows.step());
    if (!more) return damaged(fmt::format("{} has fewer rows than its runs say", table));
    if (rows.next_unsigned() != before + index || index > kIdLast) {
      return damaged(fmt::format("{} row {}: ids are not consecutive", table, before + index));
    }
    TRY(read_row(rows, static_cast<uint32_t>(index)));
    if (!rows.row_error().empty()) {
      return damaged(fmt::format("{} row {}: {}", table, before + index, rows.row_error()));
    }
  }
  return Ok{};
}

// An id in another table, as an index among the rows of this run.
uint32_t next_local(Statement& row, uint64_t before) {
  const uint64_t id = row.next_unsigned();
  // What lies in front of the run becomes a number that validation refuses.
  return id < before || id - before > kIdLast ? static_cast<uint32_t>(kIdLast)
                                              : static_cast<uint32_t>(id - before);
}

// The `run` column.
Status expect_run(Statement& row, const char* table, size_t run) {
  if (row.next_unsigned() == run) return Ok{};
  return damaged(fmt::format("{}: a row of run {} says otherwise", table, run));
}

uint32_t next_id(Statement& row) {
  return static_cast<uint32_t>(row.next_in_range(kIdLast));
}

template <class Enum>
Enum next_enum(Statement& row, uint8_t last) {
  return static_cast<Enum>(row.next_in_range(last));
}

void read_fact(Statement& row, std::string& fact) {
  fact = row.next_text();
}
void read_fact(Statement& row, double& fact) {
  fact = row.next_real();
}
void read_fact(Statement& row, uint64_t& fact) {
  fact = row.next_unsigned();
}
void read_fact(Statement& row, uint32_t& fact) {
  fact = next_id(row);
}
void read_fact(Statement& row, bool& fact) {
  fact = row.next_flag();
}
void read_fact(Statement& row, int& fact) {
  // Exit statuses and signals, neither of which exceeds a byte.
  fact = static_cast<int>(row.next_in_range(255));
}

}  // namespace

// The facts come in the order of visit_run_facts, then the arguments, then the extra ones.
Result<Run> read_facts(Database& database, const StoredRuns& index, size_t which) {
  Run run;
  std::vector<std::string> names;
  visit_run_facts(run, [&](const char* name, const auto&) { names.emplace_back(name); });
  const uint64_t rows = index.rows[which].facts;
  if (rows < names.size()) return damaged(fmt::format("run {} lacks facts", which));
  const auto read = [&](Statement& row, uint32_t i) -> Status {
    TRY(expect_run(row, "facts", which));
    const std::string name = row.next_text();
    if (i < names.size()) {
      if (name != names[i]) return damaged(fmt::format("a run has no '{}'", names[i]));
      visit_run_facts(run, [&](const char* fact_name, auto& fact) {
        if (name == fact_name) read_fact(row, fact);
      });
      if (row.next_flag()) return damaged(fmt::format("a run's '{}' is marked as extra", name));
      return Ok{};
    }
    std::string value = row.next_text();
    if (row.next_flag()) {
      run.more.emplace_back(name, std::move(value));
      return Ok{};
    }
    if (name != "argument" || !run.more.empty()) {
      return damaged(fmt::format("a run says '{}' where no such fact belongs", name));
    }
    run.command_line.push_back(std::move(value));
    return Ok{};
  };
  TRY(for_each_row(database, "facts", index.before[which].facts, rows, read));
  return run;
}

namespace {

Status read_modules(Database& database, const Place& at, std::vector<Module>& modules) {
  const auto read = [&](Statement& row, uint32_t id) -> Status {
    Module& module = modules.emplace_back();
    module.id = id;
    TRY(expect_run(row, "modules", at.run));
    module.path = row.next_text();
    module.build_id = row.next_text();
    module.load_bias = row.next_unsigned();
    module.mapped.begin = TargetAddr(row.next_unsigned());
    module.mapped.end = TargetAddr(row.next_unsigned());
    module.size_bytes = row.next_unsigned();
    module.main_program = row.next_flag();
    return Ok{};
  };
  return for_each_row(database, "modules", at.before.modules, at.rows.modules, read);
}

Status read_procedures(Database& database, const Place& at, std::vector<Procedure>& procedures) {
  const auto read = [&](Statement& row, uint32_t id) -> Status {
    Procedure& procedure = procedures.emplace_back();
    procedure.id = id;
    procedure.module_id = next_local(row, at.before.modules);
    procedure.entry = LinkAddr(row.next_unsigned());
    procedure.size_bytes = row.next_unsigned();
    procedure.name = row.next_text();
    procedure.provenance = next_enum<Provenance>(row, kProvenanceLast);
    procedure.entries = row.next_unsigned();
    procedure.entries_source = next_enum<CountSource>(row, kCountSourceLast);
    return Ok{};
  };
  return for_each_row(database, "procedures", at.before.procedures, at.rows.procedures, read);
}

// The number in "counter N"; what else the text may be does not come out of it again.
uint32_t counter_of(const std::string& equation) {
  constexpr std::string_view kWord = "counter ";
  uint32_t number = Block::kNoCounter;
  if (equation.starts_with(kWord)) {
    std::from_chars(equation.data() + kWord.size(), equation.data() + equation.size(), number);
  }
  return number;
}

Status read_blocks(Database& database, const Place& at, std::vector<Block>& blocks) {
  const auto read = [&](Statement& row, uint32_t id) -> Status {
    Block& block = blocks.emplace_back();
    block.id = id;
    block.procedure_id = next_local(row, at.before.procedures);
    block.address = LinkAddr(row.next_unsigned());
    const uint64_t size_bytes = row.next_unsigned();
    block.instruction_sizes = row.next_blob();
    block.count = row.next_unsigned();
    block.source = next_enum<CountSource>(row, kCountSourceLast);
    block.provenance = next_enum<Provenance>(row, kProvenanceLast);
    block.returns = row.next_flag();
    const std::string equation = row.next_text();
    if (!equation.empty()) block.counter = counter_of(equation);
    if (row.row_error().empty() && block.equation() != equation) {
      return damaged(fmt::format("blocks row {}: its equation is not 'counter N'", id));
    }
    if (row.row_error().empty() && size_bytes != block.size_bytes()) {
      return damaged(fmt::format("blocks row {}: its size is not that of its instructions", id));
    }
    return Ok{};
  };
  return for_each_row(database, "blocks", at.before.blocks, at.rows.blocks, read);
}

Status read_partial_runs(Database& database, const Place& at, std::vector<Block>& blocks) {
  const auto read = [&](Statement& row, uint32_t index) -> Status {
    const uint32_t block = next_local(row, at.before.blocks);
    PartialRun run;
    run.first_instruction = next_id(row);
    run.last_instruction = next_id(row);
    run.delta = row.next_integer();
    if (block >= blocks.size()) {
      return damaged(fmt::format("partial_runs row {}: no block {}", index, block));
    }
    blocks[block].partial.push_back(run);
    return Ok{};
  };
  return for_each_row(database, "partial_runs", at.before.partial_runs, at.rows.partial_runs, read);
}

Status read_edges(Database& database, const Place& at, std::vector<Edge>& edges) {
  const auto read = [&](Statement& row, uint32_t) -> Status {
    Edge& edge = edges.emplace_back();
    edge.from_block = next_local(row, at.before.blocks);
    edge.to_block = next_local(row, at.before.blocks);
    edge.kind = next_enum<EdgeKind>(row, kEdgeKindLast);
    edge.count = row.next_unsigned();
    edge.source = next_enum<CountSource>(row, kCountSourceLast);
    return Ok{};
  };
  return for_each_row(database, "edges", at.before.edges, at.rows.edges, read);
}

Status read_abnormal(Database& database, const Place& at, std::vector<Abnormal>& terms) {
  const auto read = [&](Statement& row, uint32_t) -> Status {
    Abnormal& term = terms.emplace_back();
    term.block = next_local(row, at.before.blocks);
    term.kind = next_enum<AbnormalKind>(row, kAbnormalKindLast);
    term.entered = row.next_unsigned();
    term.left = row.next_unsigned();
    term.detail = row.next_text();
    return Ok{};
  };
  return for_each_row(database, "abnormal", at.before.abnormal, at.rows.abnormal, read);
}

Status read_issues(Database& database, const Place& at, std::vector<Issue>& issues) {
  const auto read = [&](Statement& row, uint32_t) -> Status {
    Issue& issue = issues.emplace_back();
    TRY(expect_run(row, "issues", at.run));
    issue.scope = row.next_text();
    issue.message = row.next_text();
    issue.amount = row.next_unsigned();
    return Ok{};
  };
  return for_each_row(database, "issues", at.before.issues, at.rows.issues, read);
}

Status read_threads(Database& database, const Place& at, uint32_t number,
                    std::vector<Thread>& threads) {
  const auto read = [&](Statement& row, uint32_t) -> Status {
    Thread& thread = threads.emplace_back();
    TRY(expect_run(row, "threads", at.run));
    thread.run = number;
    thread.tid = next_id(row);
    thread.name = row.next_text();
    thread.begun = row.next_text();
    thread.ended = row.next_text();
    thread.instructions = row.next_unsigned();
    return Ok{};
  };
  return for_each_row(database, "threads", at.before.threads, at.rows.threads, read);
}

// Every table must end where the runs say.
Status check_sizes(Database& database, const RowCounts& all) {
  const std::pair<const char*, uint64_t> sizes[] = {
      {"facts", all.facts},
      {"modules", all.modules},
      {"procedures", all.procedures},
      {"blocks", all.blocks},
      {"partial_runs", all.partial_runs},
      {"edges", all.edges},
      {"abnormal", all.abnormal},
      {"issues", all.issues},
      {"threads", all.threads},
  };
  for (const auto& [table, rows] : sizes) {
    TRY_ASSIGN(Statement last,
               database.prepare(fmt::format("SELECT coalesce(max(id) + 1, 0) FROM {}", table)));
    TRY(last.step());
    const uint64_t found = last.next_unsigned();
    if (!last.row_error().empty() || found != rows) {
      return damaged(fmt::format("{} has {} rows where its runs say {}", table, found, rows));
    }
  }
  return Ok{};
}

}  // namespace

Result<StoredRuns> read_index(Database& database) {
  TRY(check_schema(database));
  StoredRuns index;
  RowCounts all;
  TRY_ASSIGN(Statement rows, database.prepare("SELECT * FROM runs ORDER BY id"));
  while (true) {
    TRY_ASSIGN(const bool more, rows.step());
    if (!more) break;
    if (rows.next_unsigned() != index.rows.size()) {
      return damaged("runs: ids are not consecutive");
    }
    RowCounts counts;
    for (uint64_t* count :
         {&counts.facts, &counts.modules, &counts.procedures, &counts.blocks, &counts.partial_runs,
          &counts.edges, &counts.abnormal, &counts.issues, &counts.threads}) {
      *count = rows.next_in_range(kIdLast);
    }
    index.digests.push_back(rows.next_text());
    if (!rows.row_error().empty()) {
      return damaged(fmt::format("runs row {}: {}", index.rows.size(), rows.row_error()));
    }
    index.rows.push_back(counts);
    index.before.push_back(all);
    all += counts;
  }
  TRY_ASSIGN(Statement find, database.prepare("SELECT value FROM meta WHERE name = 'runs'"));
  TRY_ASSIGN(const bool found, find.step());
  if (!found || find.next_text() != fmt::format("{}", index.rows.size())) {
    return damaged("its number of runs is not what it says");
  }
  if (index.rows.empty()) return damaged("it holds no run");
  TRY(check_sizes(database, all));
  return index;
}

Result<Profile> read_run(Database& database, const StoredRuns& index, size_t run) {
  const Place at{run, index.before[run], index.rows[run]};
  Profile profile;
  TRY_ASSIGN(profile.run, read_facts(database, index, run));
  TRY(read_modules(database, at, profile.modules));
  TRY(read_procedures(database, at, profile.procedures));
  TRY(read_blocks(database, at, profile.blocks));
  TRY(read_partial_runs(database, at, profile.blocks));
  TRY(read_edges(database, at, profile.edges));
  TRY(read_abnormal(database, at, profile.abnormal));
  TRY(read_issues(database, at, profile.issues));
  TRY(read_threads(database, at, profile.run.number, profile.threads));
  if (Status valid = validate(profile); !valid) return damaged(valid.error().message);
  if (index.digests[run] != fmt::format("{:016x}", content_digest(profile))) {
    return damaged("its content does not match its digest");
  }
  return profile;
}

}  // namespace tally::profile
