// See shared_pages.h.
#include "cache/shared_pages.h"

#include <algorithm>

namespace tally::engine {

CacheAddr SharedPages::frame_of(CacheAddr page) const {
  const auto found = frames_.find(page);
  return found == frames_.end() ? page : found->second;
}

SharedPages::Plan SharedPages::plan(const std::vector<Living>& pages) {
  struct Frame {
    CacheAddr home;
    Bytes lives;
    size_t living = 0;
    std::vector<const Living*> pages;
  };
  std::map<CacheAddr, Frame> by_home;
  for (const Living& page : pages) {
    Frame& frame = by_home[frame_of(page.page)];
    frame.home = frame_of(page.page);
    frame.lives |= page.lives;
    frame.pages.push_back(&page);
  }
  std::vector<Frame> frames;
  for (auto& [home, frame] : by_home) {
    frame.living = frame.lives.count();
    if (frame.living <= kLivingMax) frames.push_back(std::move(frame));
  }
  std::ranges::stable_sort(frames, std::ranges::greater(), &Frame::living);

  struct Hosting {
    const Frame& frame;
    Bytes lives;  // with those that come
    bool has_guests = false;
  };
  std::vector<Hosting> hosts;
  Plan plan;
  for (const Frame& frame : frames) {
    const auto fits = [&](const Hosting& host) { return (host.lives & frame.lives).none(); };
    const auto host = std::ranges::find_if(hosts, fits);
    const bool has_room = plan.moves.size() + frame.pages.size() <= kMovesMax;
    if (host == hosts.end() || !has_room) {
      hosts.push_back({frame, frame.lives});
      continue;
    }
    host->lives |= frame.lives;
    host->has_guests = true;
    for (const Living* page : frame.pages) {
      plan.moves.push_back({page->page, host->frame.home, page->lives});
      lives_[page->page] = page->lives;
    }
  }
  for (const Hosting& one : hosts) {
    if (!one.has_guests) continue;
    plan.hosts.push_back({one.frame.home, one.frame.lives});
    for (const Living* page : one.frame.pages) lives_[page->page] = page->lives;
  }
  return plan;
}

std::optional<CacheAddr> SharedPages::leave_frame(CacheAddr home) {
  const auto users = users_.try_emplace(home, 1).first;
  users->second -= 1;
  if (users->second > 0) return std::nullopt;
  users_.erase(users);
  return home;
}

std::optional<CacheAddr> SharedPages::move(CacheAddr page, CacheAddr to) {
  const CacheAddr from = frame_of(page);
  users_.try_emplace(to, 1).first->second += 1;
  frames_[page] = to;
  return leave_frame(from);
}

bool SharedPages::is_dead(CacheAddr code) const {
  const uint64_t offset = code.value() % kPageBytes;
  const auto found = lives_.find(CacheAddr(code.value() - offset));
  return found != lives_.end() && !found->second[offset];
}

std::optional<CacheAddr> SharedPages::leave(CacheAddr page) {
  const CacheAddr from = frame_of(page);
  frames_.erase(page);
  lives_.erase(page);
  return leave_frame(from);
}

}  // namespace tally::engine
