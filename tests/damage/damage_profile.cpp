// Writes damaged copies of a profile, for tests of whoever judges profiles.
//
//   damage_profile IN.tally OUT.tally KIND SEED
//
// Prints what was done and as what a static check has to find it.  KIND is one of the names in
// damage.h.  Exit status 3: this profile offers nothing for that kind.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "damage.h"
#include "profile/file.h"

int main(int argc, char** argv) {
  using namespace tally;
  if (argc != 5) {
    std::fprintf(stderr, "usage: damage_profile IN.tally OUT.tally KIND SEED\n");
    return 2;
  }
  const auto profile = profile::load(argv[1]);
  if (!profile) {
    std::fprintf(stderr, "damage_profile: %s\n", profile.error().message.c_str());
    return 125;
  }
  damage::Damager damager(*profile);
  for (int kind = 0; kind <= static_cast<int>(damage::kKindLast); ++kind) {
    if (std::string_view(argv[3]) != to_string(static_cast<damage::Kind>(kind))) continue;
    profile::Profile damaged;
    const auto done = damager.apply(static_cast<damage::Kind>(kind),
                                    std::strtoull(argv[4], nullptr, 10), damaged);
    if (!done) return 3;
    const Status saved = profile::save(damaged, argv[2]);
    if (!saved) {
      std::fprintf(stderr, "damage_profile: %s\n", saved.error().message.c_str());
      return 125;
    }
    std::printf("%s at %#lx: %s\n", claims::to_string(done->expected),
                static_cast<unsigned long>(done->place.address.value()), done->words.c_str());
    return 0;
  }
  std::fprintf(stderr, "damage_profile: no kind '%s'\n", argv[3]);
  return 2;
}
