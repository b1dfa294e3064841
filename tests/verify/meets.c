// Threads that wait for each other without a system call, and for a page that another one brings.
// Prints what one processor would give as well.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kRounds = 200, kPage = 4096, kWork = 3000 };

static volatile int turn;
static volatile unsigned long long shared[2];
static int faults = -1;

// Plain loads and stores alone: each waits for the other one's turn.
static void* bounce(void* me) {
  const int mine = (int)(intptr_t)me;
  for (int i = 0; i < kRounds; ++i) {
    while (turn != mine) {
    }
    shared[0] = shared[1] + 1;
    shared[1] = shared[0];
    turn = 1 - mine;
  }
  return NULL;
}

__attribute__((noinline)) static unsigned fixed(unsigned n) {
  unsigned sum = 0;
  for (unsigned i = 0; i < n; ++i) sum += i % 7 == 3 ? 2 : 1;
  return sum;
}

static void* work(void* sum) {
  for (int i = 0; i < 10; ++i) *(unsigned*)sum += fixed(kWork);
  return NULL;
}

// Brings one page, filled with ones.
static void* serve(void* unused) {
  (void)unused;
  static char page[kPage] __attribute__((aligned(kPage)));
  struct uffd_msg message;
  memset(page, 1, sizeof page);
  if (read(faults, &message, sizeof message) != sizeof message) return NULL;
  struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(uint64_t)(kPage - 1),
                             .src = (uintptr_t)page, .len = kPage};
  ioctl(faults, UFFDIO_COPY, &copy);
  return NULL;
}

// A load that waits for another thread, in no system call; 2 where the kernel does not have it.
static int fault(void) {
  struct uffdio_api api = {.api = UFFD_API};
  faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
  volatile char* memory =
      mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct uffdio_register range = {.range = {(uintptr_t)memory, kPage},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
  if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0 ||
      ioctl(faults, UFFDIO_REGISTER, &range) != 0) {
    return 2;
  }
  pthread_t server;
  pthread_create(&server, NULL, serve, NULL);
  usleep(100000);  // until it reads
  const int got = memory[7];
  pthread_join(server, NULL);
  return got;
}

int main(void) {
  pthread_t threads[4];
  unsigned sums[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    pthread_create(&threads[i], NULL, bounce, (void*)(intptr_t)i);
    pthread_create(&threads[2 + i], NULL, work, &sums[i]);
  }
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  const int got = fault();
  printf("%llu %u %u %d\n", shared[1], sums[0], sums[1], got);
  return 0;
}
