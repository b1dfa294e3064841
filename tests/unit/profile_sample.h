// A small, balanced profile made by hand, and folders that clean up after themselves.
//
//   main:  B0 -> B1 (calls leaf) -> B2 -> B1 nine times, then B4, which exits
//   leaf:  B3, returns
//
// 64 instructions: B0 3x1, B1 2x10, B2 2x10, B3 2x10, B4 1x1.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "profile/model.h"

namespace tally::profile {

inline Block make_block(Profile& profile, uint32_t procedure, uint64_t address,
                        std::vector<uint8_t> sizes, uint64_t count,
                        CountSource source = CountSource::kMeasured) {
  Block block;
  block.id = static_cast<uint32_t>(profile.blocks.size());
  block.procedure_id = procedure;
  block.address = LinkAddr(address);
  block.instruction_sizes = std::move(sizes);
  block.count = count;
  block.source = source;
  profile.blocks.push_back(block);
  return block;
}

inline Procedure make_procedure(Profile& profile, uint32_t module, uint64_t entry,
                                const std::string& name, uint64_t entries) {
  Procedure procedure;
  procedure.id = static_cast<uint32_t>(profile.procedures.size());
  procedure.module_id = module;
  procedure.entry = LinkAddr(entry);
  procedure.size_bytes = 16;
  procedure.name = name;
  procedure.entries = entries;
  profile.procedures.push_back(procedure);
  return procedure;
}

inline Module make_module(Profile& profile, const std::string& path, const std::string& build_id) {
  Module module;
  module.id = static_cast<uint32_t>(profile.modules.size());
  module.path = path;
  module.build_id = build_id;
  module.load_bias = 0x555555554000;
  module.mapped = {TargetAddr(0x555555554000), TargetAddr(0x555555560000)};
  module.size_bytes = 12345;
  profile.modules.push_back(module);
  return module;
}

inline void fill_run(Run& run) {
  run.command_line = {"/opt/sample", "-9", "", "a b\xff"};
  run.working_directory = "/tmp";
  run.environment_digest = "00ff";
  run.host = "host";
  run.kernel = "6.1.0";
  run.cpu = "a processor";
  run.tally_version = "0.1.0";
  run.placement = "edges";
  run.start_unix_ms = 1700000000123;
  run.exited = true;
  run.exit_status = 3;
  run.threads = 1;
  run.wall_seconds = 2.5;
  run.target_cpu_seconds = 2.0;
  run.monitor_cpu_seconds = 0.25;
  run.counters = 3;
  run.counter_increments = 20;
  run.code_cache_bytes = 4096;
  run.instructions_translated = 10;
  run.misses = 2;
  run.more = {{"a fact", "its value"}};
}

inline Profile sample_profile() {
  Profile profile;
  fill_run(profile.run);
  make_module(profile, "/opt/sample", "abcd01");
  profile.modules[0].main_program = true;
  make_procedure(profile, 0, 0x1000, "main", 1);
  make_procedure(profile, 0, 0x2000, "", 10);
  make_block(profile, 0, 0x1000, {1, 3, 2}, 1, CountSource::kDerived);
  make_block(profile, 0, 0x1006, {3, 5}, 10);
  make_block(profile, 0, 0x100e, {4, 2}, 10, CountSource::kDerived);
  make_block(profile, 1, 0x2000, {3, 1}, 10);
  make_block(profile, 0, 0x1014, {5}, 1, CountSource::kDerived);
  profile.blocks[1].counter = 7;
  profile.blocks[3].returns = true;
  profile.edges = {
      {0, 1, EdgeKind::kFallthrough, 1, CountSource::kDerived},
      {1, 3, EdgeKind::kCall, 10, CountSource::kDerived},
      {1, 2, EdgeKind::kCallReturn, 10, CountSource::kDerived},
      {2, 1, EdgeKind::kTaken, 9, CountSource::kMeasured},
      {2, 4, EdgeKind::kFallthrough, 1, CountSource::kDerived},
  };
  profile.abnormal = {
      {0, AbnormalKind::kProgramStart, 1, 0, ""},
      {4, AbnormalKind::kProgramExit, 0, 1, "exit_group(3)"},
  };
  profile.threads = {{1, 4711, "sample", "start", "exit_group", 60},
                     {1, 4712, "worker\n", "thread", "exit", 4}};
  return profile;
}

// A folder of its own under the system's temporary folder, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tally-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_whole(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace tally::profile
