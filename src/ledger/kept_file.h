// One kept run, read back (kept_format.h).  Every byte is checked: the file may be damaged or made
// to hurt, and no number in it is used as an index before it has been compared with what is there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cache/translated.h"
#include "ledger/kept_format.h"
#include "ledger/ledger_books.h"
#include "profile/model.h"

namespace tally::engine {

// What the code cache held.
class KeptTranslated : public Translated {
 public:
  // Each adds what one record says; false when it makes no sense.
  bool add_module(ByteReader& in);
  bool add_unit(ByteReader& in);
  bool add_pair(ByteReader& in);
  bool add_arrival(ByteReader& in);
  bool add_link_pair(ByteReader& in);

  const std::vector<profile::Module>& modules() const { return described_; }
  const std::string& name_of(const Unit& unit) const { return names_[unit.id]; }
  bool has_block(uint64_t unit, uint64_t block) const;
  // `insn` may be the number of instructions: the block's end.
  bool has_place(const BlockRef& ref) const;
  bool has_edge(uint64_t unit, uint64_t edge) const;

 private:
  bool read_blocks(ByteReader& in, Unit& unit);
  bool read_edges(ByteReader& in, Unit& unit);
  bool read_ways_out(ByteReader& in, Unit& unit);
  bool fits_together(const Unit& unit) const;
  bool counter_fits(uint64_t counter);
  BlockRef read_target(ByteReader& in) const;

  std::vector<std::unique_ptr<Module>> modules_;
  std::vector<profile::Module> described_;
  std::vector<std::string> names_;  // by unit
  uint32_t blocks_total_ = 0;
  uint32_t links_total_ = 0;
};

// What the ledger held.
class KeptBooks : public LedgerBooks {
 public:
  // A booking and its amount; false when it makes no sense.
  bool add(ByteReader& in, int64_t amount, const KeptTranslated& translated);
  // A block that was being interrupted by a handler.
  void leave_interrupted(BlockRef ref, uint32_t done, bool counted,
                         const KeptTranslated& translated);
  void issue(const std::string& scope, const std::string& message, uint64_t amount = 1);
};

struct KeptThread {
  uint32_t where = 0;  // number of its unit + 1; 0: not known
  std::vector<translate::tcb::Interrupted> interrupted;
  bool interrupted_known = true;  // there were not too many to be noted
};

struct KeptFile {
  KeptHeader header{};
  bool began = false;  // else its program never ran
  bool ended = false;
  profile::Run facts;
  KeptTranslated translated;
  KeptBooks books;
  std::vector<uint64_t> counters;
  std::vector<KeptThread> alive;
};

// The beginning of a file says whether it is one.
Result<KeptHeader> read_kept_header(const std::string& path);
Result<std::unique_ptr<KeptFile>> read_kept_file(const std::string& path);

}  // namespace tally::engine
