// Procedures of hand-assembled code.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cfg/procedure.h"

namespace tally::engine {

inline constexpr uint64_t kBase = 0x401000;

class HandAssembled : public ::testing::Test {
 protected:
  // The procedure of all of the code.  Callees lie outside, where nothing can be known of them.
  void discover(std::vector<uint8_t> code) {
    code_ = std::move(code);
    view_.code_at = [this](LinkAddr at) {
      const uint64_t offset = at.value() - kBase;
      return offset < code_.size() ? std::span<const uint8_t>(code_).subspan(offset)
                                   : std::span<const uint8_t>();
    };
    view_.read_data = [](LinkAddr, void*, size_t) { return false; };
    cfg::DiscoverRequest request;
    request.entry = LinkAddr(kBase);
    request.range = {request.entry, LinkAddr(kBase + code_.size())};
    procedure_ = cfg::Discoverer(view_).discover(request);
  }

  std::vector<uint8_t> code_;
  cfg::CodeView view_;
  cfg::Procedure procedure_;
};

}  // namespace tally::engine
