// The words for the model's enumerations.  They appear in dumps and in the CSV interfaces, so they
// are part of what docs/formats.md promises.
#include "profile/model.h"

#include <charconv>
#include <iterator>
#include <string_view>

#include "base/check.h"

namespace tally::profile {

const char* to_string(CountSource source) {
  switch (source) {
    case CountSource::kMeasured:
      return "measured";
    case CountSource::kDerived:
      return "derived";
    case CountSource::kUnknown:
      return "unknown";
  }
  return "invalid";
}

const char* to_string(Provenance provenance) {
  switch (provenance) {
    case Provenance::kEntryPoint:
      return "entry point";
    case Provenance::kSymbol:
      return "symbol";
    case Provenance::kUnwindRange:
      return "unwind range";
    case Provenance::kDirectCall:
      return "direct call";
    case Provenance::kFlow:
      return "flow";
    case Provenance::kJumpTable:
      return "jump table";
    case Provenance::kRunTime:
      return "run time";
  }
  return "invalid";
}

const char* to_string(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kFallthrough:
      return "fallthrough";
    case EdgeKind::kTaken:
      return "taken";
    case EdgeKind::kJump:
      return "jump";
    case EdgeKind::kIndirectJump:
      return "indirect_jump";
    case EdgeKind::kCall:
      return "call";
    case EdgeKind::kIndirectCall:
      return "indirect_call";
    case EdgeKind::kCallReturn:
      return "call_return";
    case EdgeKind::kSystemCall:
      return "system_call";
  }
  return "invalid";
}

const char* to_string(AbnormalKind kind) {
  switch (kind) {
    case AbnormalKind::kProgramStart:
      return "program start";
    case AbnormalKind::kThreadStart:
      return "thread start";
    case AbnormalKind::kProgramExit:
      return "program exit";
    case AbnormalKind::kThreadExit:
      return "thread exit";
    case AbnormalKind::kNonLocalJump:
      return "non-local jump";
    case AbnormalKind::kFault:
      return "fault";
    case AbnormalKind::kOther:
      return "other";
    case AbnormalKind::kSignalHandler:
      return "signal handler";
    case AbnormalKind::kAttach:
      return "attach";
    case AbnormalKind::kDetach:
      return "detach";
  }
  return "invalid";
}

std::string Block::equation() const {
  if (counter == kNoCounter) return {};
  // Half of a large program's blocks have one, so this takes no detour.
  constexpr std::string_view kWord = "counter ";
  constexpr size_t kDigitsMax = 10;
  char text[kWord.size() + kDigitsMax];
  kWord.copy(text, kWord.size());
  const auto [end, error] = std::to_chars(text + kWord.size(), std::end(text), counter);
  CHECK(error == std::errc()) << "counter " << counter;
  return {text, end};
}

}  // namespace tally::profile
