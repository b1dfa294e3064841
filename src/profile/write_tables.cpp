// Model to tables, one function per table.  See tables.h.
#include "profile/bulk_table.h"
#include "profile/digest.h"
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

Status write_meta(Database& database, const Profile& profile) {
  TRY_ASSIGN(Statement insert, database.prepare("INSERT INTO meta VALUES(?,?)"));
  const std::pair<const char*, std::string> rows[] = {
      {"format", "Tally profile"},
      {"format_version", fmt::format("{}", kFormatVersion)},
      {"content_digest", fmt::format("{:016x}", content_digest(profile))},
  };
  for (const auto& [name, value] : rows) TRY(insert.text(name).text(value).step());
  return Ok{};
}

Status write_run(Database& database, const Run& run) {
  TRY_ASSIGN(Inserter insert, prepare_insert(database, "run", 4));
  Status status = Ok{};
  visit_run_facts(run, [&](const char* name, const auto& fact) {
    if (!status) return;
    Statement& row = insert.row().text(name);
    bind_fact(row, fact);
    row.integer(0);
    status = insert.insert();
  });
  TRY(status);
  for (const std::string& argument : run.command_line) {
    insert.row().text("argument").text(argument).integer(0);
    TRY(insert.insert());
  }
  for (const auto& [name, value] : run.more) {
    insert.row().text(name).text(value).integer(1);
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_modules(Database& database, const std::vector<Module>& modules) {
  TRY_ASSIGN(Inserter insert, prepare_insert(database, "modules", 8));
  for (const Module& module : modules) {
    insert.row()
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

Status write_procedures(Database& database, const std::vector<Procedure>& procedures) {
  TRY_ASSIGN(Inserter insert, prepare_insert(database, "procedures", 8));
  for (const Procedure& procedure : procedures) {
    insert.row()
        .integer(procedure.module_id)
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

Status write_partial_runs(Database& database, const std::vector<Block>& blocks) {
  TRY_ASSIGN(Inserter insert, prepare_insert(database, "partial_runs", 5));
  for (const Block& block : blocks) {
    for (const PartialRun& run : block.partial) {
      insert.row()
          .integer(block.id)
          .integer(run.first_instruction)
          .integer(run.last_instruction)
          .integer(run.delta);
      TRY(insert.insert());
    }
  }
  return Ok{};
}

Status write_abnormal(Database& database, const std::vector<Abnormal>& terms) {
  TRY_ASSIGN(Inserter insert, prepare_insert(database, "abnormal", 6));
  for (const Abnormal& term : terms) {
    insert.row()
        .integer(term.block)
        .integer(number(term.kind))
        .address(term.entered)
        .address(term.left)
        .text(term.detail);
    TRY(insert.insert());
  }
  return Ok{};
}

Status write_issues(Database& database, const std::vector<Issue>& issues) {
  TRY_ASSIGN(Inserter insert, prepare_insert(database, "issues", 4));
  for (const Issue& issue : issues) {
    insert.row().text(issue.scope).text(issue.message).address(issue.amount);
    TRY(insert.insert());
  }
  return Ok{};
}

Status append_blocks(PageWriter& pages, uint32_t root, const std::vector<Block>& blocks) {
  BulkTable table(pages, root);
  for (const Block& block : blocks) {
    table.row()
        .integer(block.procedure_id)
        .address(block.address.value())
        .address(block.size_bytes())
        .blob(block.instruction_sizes)
        .address(block.count)
        .integer(number(block.source))
        .integer(number(block.provenance))
        .integer(block.returns ? 1 : 0)
        .text(block.equation());
    TRY(table.insert());
  }
  return table.finish();
}

Status append_edges(PageWriter& pages, uint32_t root, const std::vector<Edge>& edges) {
  BulkTable table(pages, root);
  for (const Edge& edge : edges) {
    table.row()
        .integer(edge.from_block)
        .integer(edge.to_block)
        .integer(number(edge.kind))
        .address(edge.count)
        .integer(number(edge.source));
    TRY(table.insert());
  }
  return table.finish();
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

Result<BulkRoots> write_tables(Database& database, const Profile& profile) {
  TRY(database.execute("BEGIN"));
  TRY(create_schema(database));
  TRY(write_run(database, profile.run));
  TRY(write_modules(database, profile.modules));
  TRY(write_procedures(database, profile.procedures));
  TRY(write_partial_runs(database, profile.blocks));
  TRY(write_abnormal(database, profile.abnormal));
  TRY(write_issues(database, profile.issues));
  TRY(write_meta(database, profile));
  TRY(database.execute("COMMIT"));
  BulkRoots roots;
  TRY_ASSIGN(roots.blocks, root_page_of(database, "blocks"));
  TRY_ASSIGN(roots.edges, root_page_of(database, "edges"));
  return roots;
}

Status append_bulk_tables(int descriptor, const BulkRoots& roots, const Profile& profile) {
  PageWriter pages(descriptor);
  TRY(pages.open());
  TRY(append_blocks(pages, roots.blocks, profile.blocks));
  TRY(append_edges(pages, roots.edges, profile.edges));
  return pages.finish();
}

}  // namespace tally::profile
