// A profile as a file: complete or not there at all.
//
// The file is written under another name in the same folder, synced, and renamed at the end, so
// that whatever happens (disk full, killed, power lost) the name holds either the older profile or
// the new one, never half of one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "profile/model.h"

namespace tally::profile {

// Writes the profiles of several runs as they come; memory holds little more than one at a time.
// The file takes its name, replacing an older one, only by `commit`, when all is safely written;
// without it nothing is left.  When there is no room any more, or the folder takes no files, the
// profile is not lost: it goes on in a folder for temporary files, and `commit` fails with an error
// that says where it is.
class Writer {
 public:
  static Result<Writer> create(const std::string& path);
  Status add(Profile profile);
  Status commit();

  Writer(Writer&&) noexcept;
  Writer& operator=(Writer&&) noexcept;
  ~Writer();

 private:
  struct State;
  explicit Writer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The same for one run.
Status save(const Profile& profile, const std::string& path);

// Reads a file run by run.  Whatever is not a profile is refused by one line naming the path.
class Reader {
 public:
  static Result<Reader> open(const std::string& path);
  // The facts of all runs, in the order of their numbers.
  const std::vector<Run>& runs() const;
  // Reads and validates the profile of `runs()[index]`.
  Result<Profile> read(size_t index);

  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

 private:
  struct State;
  explicit Reader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// One run by its number, or the sum of all (merge.h).
Result<Profile> load(const std::string& path, std::optional<uint32_t> run_number = std::nullopt);

// Finds out before a long run whether `save` to `path` could work: the folder exists and takes
// files, and what is there now may be replaced.
Status check_writable(const std::string& path);

}  // namespace tally::profile
