// Model to tables, one function per table.  See tables.h.
#include "profile/run_facts.h"
#include "profile/tables.h"

namespace tally::profile {
namespace {

// Rows are numbered from 0 as they come: the ids of the model are its indexes.
class Inserter {
 public:
  explicit Inserter(Statement statement) : statement_(std::move(statement)) {}
  Statement& row() { return statement_.integer(next_id_++); }
  Status insert() {
    TRY(statement_.step());
    return Ok{};
  }

 private:
  Statement statement_;
  int64_t next_id_ = 0;
};

Result<Inserter> prepare_insert(Database& database, const char* table, int columns) {
  std::string sql = fmt::format("INSERT INTO {} VALUES(?", table);
  for (int i = 1; i < columns; ++i) sql += ",?";
  TRY_ASSIGN(Statement statement, database.prepare(sql + ")"));
  return Inserter(std::move(statement));
}

template <class Enum>
int64_t number(Enum value) {
  return static_cast<int64_t>(value);
}

void bind_fact(Statement& statement, const std::string& value) {
  statement.text(value);
}
void bind_fact(Statement& statement, double value) {
  statement.real(value);
}
void bind_fact(Statement& statement, uint64_t value) {
  statement.address(value);
}
void bind_fact(Statement& statement, uint32_t value) {
  statement.integer(value);
}
void bind_fact(Statement& statement, int value) {
  statement.integer(value);
}
void bind_fact(Statement& statement, bool value) {
  statement.integer(value ? 1 : 0);
}

Status write_meta(Database& database, const std::vector<StoredRun>& runs) {
  TRY_ASSIGN(Statement insert, database.prepare("INSERT INTO meta VALUES(?,?)"));
  const std::pair<const char*, std::string> rows[] = {
      {"format", "Tally profile"},
      {"format_version", fmt::format("{}", kFormatVersion)},
      {"runs", fmt::format("{}", runs.size())},
  };
  for (const auto& [name, value] : rows) TRY(insert.text(name).text(value).step());
  return Ok{};
}

Status write_runs(Database& database, const std::vector<StoredRun>& runs) {
  TRY_ASSIGN(Inserter insert, prepare_insert(database, "runs", 11));
  for (const StoredRun& run : runs) {
    const std::string digest = fmt::format("{:016x}", run.digest);
    insert.row()
        .address(run.rows.facts)
        .address(run.rows.modules)
        .address(run.rows.procedures)
        .address(run.rows.blocks)
        .address(run.rows.partial_runs)
        .address(run.rows.edges)
        .address(run.rows.abnormal)
        .address(run.rows.issues)
        .address(run.rows.threads)
        .text(digest);
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_facts(Inserter& insert, int64_t index, const Run& run) {
  Status status = Ok{};
  visit_run_facts(run, [&](const char* name, const auto& fact) {
    if (!status) return;
    Statement& row = insert.row().integer(index).text(name);
    bind_fact(row, fact);
    row.integer(0);
    status = insert.insert();
  });
  TRY(status);
  for (const std::string& argument : run.command_line) {
    insert.row().integer(index).text("argument").text(argument).integer(0);
    TRY(insert.insert());
  }
  for (const auto& [name, value] : run.more) {
    insert.row().integer(index).text(name).text(value).integer(1);
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_modules(Inserter& insert, int64_t index, const std::vector<Module>& modules) {
  for (const Module& module : modules) {
    insert.row()
        .integer(index)
        .text(module.path)
        .text(module.build_id)
        .address(module.load_bias)
        .address(module.mapped.begin.value())
        .address(module.mapped.end.value())
        .address(module.size_bytes)
        .integer(module.main_program ? 1 : 0);
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_procedures(Inserter& insert, const RowCounts& before,
                        const std::vector<Procedure>& procedures) {
  for (const Procedure& procedure : procedures) {
    insert.row()
        .address(before.modules + procedure.module_id)
        .address(procedure.entry.value())
        .address(procedure.size_bytes)
        .text(procedure.name)
        .integer(number(procedure.provenance))
        .address(procedure.entries)
        .integer(number(procedure.entries_source));
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_partial_runs(Inserter& insert, const RowCounts& before, const StoredRun& run) {
  for (const auto& [block, partial] : run.partial_runs) {
    insert.row()
        .address(before.blocks + block)
        .integer(partial.first_instruction)
        .integer(partial.last_instruction)
        .integer(partial.delta);
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_abnormal(Inserter& insert, const RowCounts& before,
                      const std::vector<Abnormal>& terms) {
  for (const Abnormal& term : terms) {
    insert.row()
        .address(before.blocks + term.block)
        .integer(number(term.kind))
        .address(term.entered)
        .address(term.left)
        .text(term.detail);
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_issues(Inserter& insert, int64_t index, const std::vector<Issue>& issues) {
  for (const Issue& issue : issues) {
    insert.row().integer(index).text(issue.scope).text(issue.message).address(issue.amount);
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_threads(Inserter& insert, int64_t index, const std::vector<Thread>& threads) {
  for (const Thread& thread : threads) {
    insert.row()
        .integer(index)
        .integer(thread.tid)
        .text(thread.name)
        .text(thread.begun)
        .text(thread.ended)
        .address(thread.instructions);
    TRY(insert.insert());
  }
  return Ok{};
}

Result<uint32_t> root_page_of(Database& database, const char* table) {
  TRY_ASSIGN(
      Statement find,
      database.prepare("SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name = ?"));
  TRY_ASSIGN(const bool found, find.text(table).step());
  CHECK(found) << "no table " << table;
  return static_cast<uint32_t>(find.next_unsigned());
}

Status create_schema(Database& database) {
  TRY(database.execute(fmt::format("PRAGMA application_id = {}", kApplicationId)));
  TRY(database.execute(fmt::format("PRAGMA user_version = {}", kFormatVersion)));
  for (const Table& table : kTables) TRY(database.execute(table.sql));
  for (const char* view : kViews) TRY(database.execute(view));
  return Ok{};
}

}  // namespace

RowCounts& RowCounts::operator+=(const RowCounts& other) {
  facts += other.facts;
  modules += other.modules;
  procedures += other.procedures;
  blocks += other.blocks;
  partial_runs += other.partial_runs;
  edges += other.edges;
  abnormal += other.abnormal;
  issues += other.issues;
  threads += other.threads;
  return *this;
}

Result<BulkRoots> create_tables(Database& database) {
  TRY(database.execute("BEGIN"));
  TRY(create_schema(database));
  TRY(database.execute("COMMIT"));
  BulkRoots roots;
  TRY_ASSIGN(roots.blocks, root_page_of(database, "blocks"));
  TRY_ASSIGN(roots.edges, root_page_of(database, "edges"));
  return roots;
}

Status BulkWriter::add(const Profile& profile, const RowCounts& before) {
  for (const Block& block : profile.blocks) {
    blocks_.row()
        .address(before.procedures + block.procedure_id)
        .address(block.address.value())
        .address(block.size_bytes())
        .blob(block.instruction_sizes)
        .address(block.count)
        .integer(number(block.source))
        .integer(number(block.provenance))
        .integer(block.returns ? 1 : 0)
        .text(block.equation());
    TRY(blocks_.insert());
  }
  for (const Edge& edge : profile.edges) {
    edges_.row()
        .address(before.blocks + edge.from_block)
        .address(before.blocks + edge.to_block)
        .integer(number(edge.kind))
        .address(edge.count)
        .integer(number(edge.source));
    TRY(edges_.insert());
  }
  return Ok{};
}

Status BulkWriter::finish() {
  TRY(blocks_.finish());
  TRY(edges_.finish());
  return pages_.finish();
}

Status write_small_tables(Database& database, const std::vector<StoredRun>& runs) {
  TRY(database.execute("BEGIN"));
  TRY(write_meta(database, runs));
  TRY(write_runs(database, runs));
  {
    TRY_ASSIGN(Inserter facts, prepare_insert(database, "facts", 5));
    TRY_ASSIGN(Inserter modules, prepare_insert(database, "modules", 9));
    TRY_ASSIGN(Inserter procedures, prepare_insert(database, "procedures", 8));
    TRY_ASSIGN(Inserter partial_runs, prepare_insert(database, "partial_runs", 5));
    TRY_ASSIGN(Inserter abnormal, prepare_insert(database, "abnormal", 6));
    TRY_ASSIGN(Inserter issues, prepare_insert(database, "issues", 5));
    TRY_ASSIGN(Inserter threads, prepare_insert(database, "threads", 7));
    RowCounts before;
    for (size_t i = 0; i < runs.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      TRY(write_facts(facts, index, runs[i].rest.run));
      TRY(write_modules(modules, index, runs[i].rest.modules));
      TRY(write_procedures(procedures, before, runs[i].rest.procedures));
      TRY(write_partial_runs(partial_runs, before, runs[i]));
      TRY(write_abnormal(abnormal, before, runs[i].rest.abnormal));
      TRY(write_issues(issues, index, runs[i].rest.issues));
      TRY(write_threads(threads, index, runs[i].rest.threads));
      before += runs[i].rows;
    }
  }
  return database.execute("COMMIT");
}

}  // namespace tally::profile
