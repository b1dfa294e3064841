// The rehearsal behind `tally doctor`: what it says when the kernel refuses, and that it leaves
// nothing behind.  Refusals are made with a seccomp filter in a forked child.
#include "tracee/probe.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <map>
#include <string>

namespace tally::tracee {
namespace {

using States = std::map<std::string, ProbeState>;

States states_of(const std::vector<ProbeResult>& results) {
  States states;
  for (const ProbeResult& result : results) states[result.name] = result.state;
  return states;
}

// Makes one system call fail with EPERM for this process and its children.
bool forbid(uint32_t number) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter{4, program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// Runs `check` in a child with the system call forbidden; true when it held.
bool holds_without(uint32_t number, const std::function<bool(const States&)>& check) {
  pid_t child = fork();
  if (child == 0) {
    if (!forbid(number)) _exit(2);
    const auto results = probe_tracing();
    const bool remedies = std::ranges::all_of(results, [](const ProbeResult& result) {
      return result.state != ProbeState::kFailed || !result.remedy.empty();
    });
    _exit(remedies && check(states_of(results)) ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Probe, SaysTheSameNamesWhateverHappens) {
  const States all = states_of(probe_tracing());
  EXPECT_EQ(all.size(), 8u);
  EXPECT_TRUE(holds_without(SYS_ptrace, [&](const States& states) {
    return std::ranges::equal(
        states, all, {}, [](const auto& pair) { return pair.first; },
        [](const auto& pair) { return pair.first; });
  }));
}

TEST(Probe, LeavesNoChildBehind) {
  probe_tracing();
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Probe, WithoutPtraceNothingElseIsTried) {
  EXPECT_TRUE(holds_without(SYS_ptrace, [](const States& states) {
    return states.at("ptrace") == ProbeState::kFailed &&
           std::ranges::count(states, ProbeState::kNotTried,
                              [](const auto& pair) { return pair.second; }) == 7;
  }));
}

TEST(Probe, WithoutMemfdTheRestIsStillTried) {
  EXPECT_TRUE(holds_without(SYS_memfd_create, [](const States& states) {
    return states.at("memfd") == ProbeState::kFailed &&
           states.at("memfd-execute") == ProbeState::kNotTried &&
           states.at("ptrace") == ProbeState::kOk && states.at("shared-futex") == ProbeState::kOk;
  }));
}

TEST(Probe, NamesEachMissingSystemCall) {
  EXPECT_TRUE(holds_without(SYS_pidfd_getfd, [](const States& states) {
    return states.at("pidfd-getfd") == ProbeState::kFailed && states.at("memfd") == ProbeState::kOk;
  }));
  EXPECT_TRUE(holds_without(SYS_process_vm_readv, [](const States& states) {
    return states.at("memory-read") == ProbeState::kFailed;
  }));
  EXPECT_TRUE(holds_without(SYS_futex, [](const States& states) {
    return states.at("shared-futex") == ProbeState::kFailed;
  }));
}

}  // namespace
}  // namespace tally::tracee
