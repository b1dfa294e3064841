// Multiply-and-fold over 64-bit words, every string preceded by its length so that no two different
// profiles feed the same words.
#include "profile/digest.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <string_view>

#include "profile/run_facts.h"

namespace tally::profile {
namespace {

class Digest {
 public:
  void add(uint64_t word) {
    const unsigned __int128 product =
        static_cast<unsigned __int128>(state_ ^ word) * 0x9E3779B97F4A7C15ull;
    // Adding the word again keeps a state that happens to be zero from swallowing what follows.
    state_ = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^
             std::rotl(state_ + word, 29);
  }
  void add(int64_t number) { add(static_cast<uint64_t>(number)); }
  void add(int number) { add(static_cast<int64_t>(number)); }
  void add(uint32_t number) { add(static_cast<uint64_t>(number)); }
  void add(bool flag) { add(static_cast<uint64_t>(flag)); }
  void add(double number) { add(std::bit_cast<uint64_t>(number)); }
  void add(LinkAddr address) { add(address.value()); }
  void add_bytes(const void* bytes, size_t size_bytes) {
    add(static_cast<uint64_t>(size_bytes));
    const char* cursor = static_cast<const char*>(bytes);
    while (size_bytes > 0) {
      uint64_t word = 0;
      const size_t step = size_bytes < sizeof word ? size_bytes : sizeof word;
      std::memcpy(&word, cursor, step);
      add(word);
      cursor += step;
      size_bytes -= step;
    }
  }
  void add(const std::string& text) { add_bytes(text.data(), text.size()); }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void add(Enum value) { add(static_cast<uint64_t>(value)); }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0x54616C6C79ull;
};

void add_run(Digest& digest, const Run& run) {
  visit_run_facts(run, [&](const char*, const auto& fact) { digest.add(fact); });
  digest.add(static_cast<uint64_t>(run.command_line.size()));
  for (const std::string& argument : run.command_line) digest.add(argument);
  digest.add(static_cast<uint64_t>(run.more.size()));
  for (const auto& [name, value] : run.more) {
    digest.add(name);
    digest.add(value);
  }
}

void add_module(Digest& digest, const Module& module) {
  digest.add(module.path);
  digest.add(module.build_id);
  digest.add(module.load_bias);
  digest.add(module.mapped.begin.value());
  digest.add(module.mapped.end.value());
  digest.add(module.size_bytes);
  digest.add(module.main_program);
}

void add_procedure(Digest& digest, const Procedure& procedure) {
  digest.add(procedure.module_id);
  digest.add(procedure.entry);
  digest.add(procedure.size_bytes);
  digest.add(procedure.name);
  digest.add(procedure.provenance);
  digest.add(procedure.entries);
  digest.add(procedure.entries_source);
}

void add_block(Digest& digest, const Block& block) {
  digest.add(block.procedure_id);
  digest.add(block.address);
  digest.add_bytes(block.instruction_sizes.data(), block.instruction_sizes.size());
  digest.add(block.count);
  digest.add(block.source);
  digest.add(block.provenance);
  digest.add(block.equation());
  digest.add(block.returns);
  digest.add(static_cast<uint64_t>(block.partial.size()));
  for (const PartialRun& run : block.partial) {
    digest.add(run.first_instruction);
    digest.add(run.last_instruction);
    digest.add(run.delta);
  }
}

void add_edge(Digest& digest, const Edge& edge) {
  digest.add(edge.from_block);
  digest.add(edge.to_block);
  digest.add(edge.kind);
  digest.add(edge.count);
  digest.add(edge.source);
}

void add_abnormal(Digest& digest, const Abnormal& term) {
  digest.add(term.block);
  digest.add(term.kind);
  digest.add(term.entered);
  digest.add(term.left);
  digest.add(term.detail);
}

void add_issue(Digest& digest, const Issue& issue) {
  digest.add(issue.scope);
  digest.add(issue.message);
  digest.add(issue.amount);
}

void add_thread(Digest& digest, const Thread& thread) {
  digest.add(thread.tid);
  digest.add(thread.name);
  digest.add(thread.begun);
  digest.add(thread.ended);
  digest.add(thread.instructions);
}

template <class Row, class Add>
void add_rows(Digest& digest, const std::vector<Row>& rows, Add add) {
  digest.add(static_cast<uint64_t>(rows.size()));
  for (const Row& row : rows) add(digest, row);
}

}  // namespace

uint64_t content_digest(const Profile& profile) {
  Digest digest;
  add_run(digest, profile.run);
  add_rows(digest, profile.modules, add_module);
  add_rows(digest, profile.procedures, add_procedure);
  add_rows(digest, profile.blocks, add_block);
  add_rows(digest, profile.edges, add_edge);
  add_rows(digest, profile.abnormal, add_abnormal);
  add_rows(digest, profile.issues, add_issue);
  add_rows(digest, profile.threads, add_thread);
  return digest.value();
}

// FNV-1a.
std::string environment_digest(std::string_view variables) {
  uint64_t digest = 0xcbf29ce484222325ull;
  for (const char c : variables) digest = (digest ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return fmt::format("{:016x}", digest);
}

}  // namespace tally::profile
