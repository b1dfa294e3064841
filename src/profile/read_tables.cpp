// Tables to model.  See tables.h.
//
// Every row must carry the id that follows its predecessor's.  That is what the model wants, and it
// also bounds the work a crafted file can cause: pages that refer to one another in circles repeat
// ids.
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

// Calls `read_row(statement, index)` for each row of the table; the id column has been consumed.
template <class ReadRow>
Status for_each_row(Database& database, const char* table, const ReadRow& read_row) {
  TRY_ASSIGN(Statement rows, database.prepare(fmt::format("SELECT * FROM {} ORDER BY id", table)));
  for (uint64_t index = 0;; ++index) {
    TRY_ASSIGN(const bool more, rows.step());
    if (!more) return Ok{};
    if (rows.next_unsigned() != index || index > kIdLast) {
      return damaged(fmt::format("{} row {}: ids are not consecutive", table, index));
    }
    TRY(read_row(rows, static_cast<uint32_t>(index)));
    if (!rows.row_error().empty()) {
      return damaged(fmt::format("{} row {}: {}", table, index, rows.row_error()));
    }
  }
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

// The facts come in the order of visit_run_facts, then the arguments, then the extra ones.
Result<Run> read_run(Database& database) {
  Run run;
  std::vector<std::string> missing;
  visit_run_facts(run, [&](const char* name, const auto&) { missing.emplace_back(name); });
  TRY(for_each_row(database, "run", [&](Statement& row, uint32_t index) -> Status {
    const std::string name = row.next_text();
    if (index < missing.size()) {
      if (name != missing[index]) return damaged(fmt::format("run has no '{}'", missing[index]));
      visit_run_facts(run, [&](const char* fact_name, auto& fact) {
        if (name == fact_name) read_fact(row, fact);
      });
      if (row.next_flag()) return damaged(fmt::format("run's '{}' is marked as extra", name));
      return Ok{};
    }
    std::string value = row.next_text();
    if (row.next_flag()) {
      run.more.emplace_back(name, std::move(value));
      return Ok{};
    }
    if (name != "argument" || !run.more.empty()) {
      return damaged(fmt::format("run says '{}' where no such fact belongs", name));
    }
    run.command_line.push_back(std::move(value));
    return Ok{};
  }));
  TRY_ASSIGN(Statement count, database.prepare("SELECT count(*) FROM run"));
  TRY(count.step());
  const uint64_t found = count.next_unsigned();
  if (found < missing.size()) return damaged(fmt::format("run has no '{}'", missing[found]));
  return run;
}

Status read_modules(Database& database, std::vector<Module>& modules) {
  return for_each_row(database, "modules", [&](Statement& row, uint32_t id) -> Status {
    Module& module = modules.emplace_back();
    module.id = id;
    module.path = row.next_text();
    module.build_id = row.next_text();
    module.load_bias = row.next_unsigned();
    module.mapped.begin = TargetAddr(row.next_unsigned());
    module.mapped.end = TargetAddr(row.next_unsigned());
    module.size_bytes = row.next_unsigned();
    module.main_program = row.next_flag();
    return Ok{};
  });
}

Status read_procedures(Database& database, std::vector<Procedure>& procedures) {
  return for_each_row(database, "procedures", [&](Statement& row, uint32_t id) -> Status {
    Procedure& procedure = procedures.emplace_back();
    procedure.id = id;
    procedure.module_id = next_id(row);
    procedure.entry = LinkAddr(row.next_unsigned());
    procedure.size_bytes = row.next_unsigned();
    procedure.name = row.next_text();
    procedure.provenance = next_enum<Provenance>(row, kProvenanceLast);
    procedure.entries = row.next_unsigned();
    procedure.entries_source = next_enum<CountSource>(row, kCountSourceLast);
    return Ok{};
  });
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

Status read_blocks(Database& database, std::vector<Block>& blocks) {
  return for_each_row(database, "blocks", [&](Statement& row, uint32_t id) -> Status {
    Block& block = blocks.emplace_back();
    block.id = id;
    block.procedure_id = next_id(row);
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
  });
}

Status read_partial_runs(Database& database, std::vector<Block>& blocks) {
  return for_each_row(database, "partial_runs", [&](Statement& row, uint32_t index) -> Status {
    const uint32_t block = next_id(row);
    PartialRun run;
    run.first_instruction = next_id(row);
    run.last_instruction = next_id(row);
    run.delta = row.next_integer();
    if (block >= blocks.size()) {
      return damaged(fmt::format("partial_runs row {}: no block {}", index, block));
    }
    blocks[block].partial.push_back(run);
    return Ok{};
  });
}

Status read_edges(Database& database, std::vector<Edge>& edges) {
  return for_each_row(database, "edges", [&](Statement& row, uint32_t) -> Status {
    Edge& edge = edges.emplace_back();
    edge.from_block = next_id(row);
    edge.to_block = next_id(row);
    edge.kind = next_enum<EdgeKind>(row, kEdgeKindLast);
    edge.count = row.next_unsigned();
    edge.source = next_enum<CountSource>(row, kCountSourceLast);
    return Ok{};
  });
}

Status read_abnormal(Database& database, std::vector<Abnormal>& terms) {
  return for_each_row(database, "abnormal", [&](Statement& row, uint32_t) -> Status {
    Abnormal& term = terms.emplace_back();
    term.block = next_id(row);
    term.kind = next_enum<AbnormalKind>(row, kAbnormalKindLast);
    term.entered = row.next_unsigned();
    term.left = row.next_unsigned();
    term.detail = row.next_text();
    return Ok{};
  });
}

Status read_issues(Database& database, std::vector<Issue>& issues) {
  return for_each_row(database, "issues", [&](Statement& row, uint32_t) -> Status {
    Issue& issue = issues.emplace_back();
    issue.scope = row.next_text();
    issue.message = row.next_text();
    issue.amount = row.next_unsigned();
    return Ok{};
  });
}

Status check_digest(Database& database, const Profile& profile) {
  TRY_ASSIGN(Statement find,
             database.prepare("SELECT value FROM meta WHERE name = 'content_digest'"));
  TRY_ASSIGN(const bool found, find.step());
  if (!found) return damaged("it has no content digest");
  if (find.next_text() != fmt::format("{:016x}", content_digest(profile))) {
    return damaged("its content does not match its digest");
  }
  return Ok{};
}

}  // namespace

Result<Profile> read_tables(Database& database) {
  TRY(check_schema(database));
  Profile profile;
  TRY_ASSIGN(profile.run, read_run(database));
  TRY(read_modules(database, profile.modules));
  TRY(read_procedures(database, profile.procedures));
  TRY(read_blocks(database, profile.blocks));
  TRY(read_partial_runs(database, profile.blocks));
  TRY(read_edges(database, profile.edges));
  TRY(read_abnormal(database, profile.abnormal));
  TRY(read_issues(database, profile.issues));
  if (Status valid = validate(profile); !valid) return damaged(valid.error().message);
  TRY(check_digest(database, profile));
  return profile;
}

}  // namespace tally::profile
