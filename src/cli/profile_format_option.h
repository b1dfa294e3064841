// The --profile-format option: the form of the profile that is read, not of what is printed.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "claims/read.h"

namespace tally::cli {

// `target` stays empty, which means by content, unless the option is given; it must outlive the
// parsing.
inline CLI::Option* add_profile_format_option(CLI::App* app, std::optional<claims::Form>& target) {
  return app
      ->add_option_function<std::string>(
          "--profile-format",
          [&target](const std::string& name) { target = claims::form_named(name); },
          "What made the profile (default: recognised by content)")
      ->check(CLI::IsMember(claims::form_names()));
}

}  // namespace tally::cli
