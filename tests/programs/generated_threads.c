// Claim: threads run generated code while another thread writes other functions to the same page.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O1 nopie static
// flags: -pthread
// oracle: output
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static unsigned char* code;

static void* runner(void* argument) {
  long sum = 0;
  for (int i = 0; i < 20000; i++) sum += ((int (*)(int))code)(i & 7);
  return (void*)sum;
}

static void* writer(void* argument) {
  long sum = 0;
  for (int i = 1; i < 200; i++) {
    unsigned char* place = code + 16 * (i % 200);
    const unsigned char text[] = {0x8d, 0x47, i & 63, 0xc3};
    memcpy(place, text, sizeof text);
    sum += ((int (*)(int))place)(i);
  }
  return (void*)sum;
}

int main(void) {
  code = mmap((void*)0x20000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  const unsigned char text[] = {0x8d, 0x47, 7, 0xc3};
  memcpy(code, text, sizeof text);
  pthread_t t[3];
  for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, i == 1 ? writer : runner, 0);
  for (int i = 0; i < 3; i++) {
    void* result;
    pthread_join(t[i], &result);
    printf("%ld\n", (long)result);
  }
  return 0;
}
