// --run=N, the same for every command that reads a profile file.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

namespace tally::cli {

inline CLI::Option* add_run_option(CLI::App* app, std::optional<uint32_t>& run) {
  return app->add_option("--run", run,
                         "Only this run, by its number in the report (default: the sum of all)");
}

}  // namespace tally::cli
