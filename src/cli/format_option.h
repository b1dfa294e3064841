// The --format option, the same for every command that has it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "report/output.h"

namespace tally::cli {

// Adds `--format` with the given choices; `target` holds the default and must outlive the parsing.
inline CLI::Option* add_format_option(CLI::App* app, report::Format& target,
                                      const std::vector<std::string>& choices) {
  return app
      ->add_option_function<std::string>(
          "--format",
          [&target](const std::string& name) {
            target = name == "json"  ? report::Format::kJson
                     : name == "csv" ? report::Format::kCsv
                                     : report::Format::kText;
          },
          "How to print")
      ->check(CLI::IsMember(choices))
      ->default_str(target == report::Format::kCsv ? "csv" : "text");
}

}  // namespace tally::cli
