// What GCC's canon_hash() did in SPECint-95: hash codes made of heap addresses, so that a program
// whose heap lies elsewhere walks other chains.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BUCKETS 61

struct symbol {
  struct symbol* next;
  int uses;
};
static struct symbol* table[BUCKETS];
static struct symbol* symbols[200];

#ifdef PAD
char pad[PAD];
#endif
static unsigned long walks;

static unsigned canon_hash(const struct symbol* s) {
  uint32_t address = (uint32_t)((uintptr_t)s >> 4);
  return ((address ^ address >> 7) * 2654435761u >> 8) % BUCKETS;
}

static void note_use(struct symbol* s) {
  struct symbol* at = table[canon_hash(s)];
  while (at != NULL && at != s) {
    at = at->next;
    walks++;
  }
  if (at != NULL) {
    at->uses++;
  }
}

int main(void) {
  for (int i = 0; i < 200; i++) {
    symbols[i] = malloc(sizeof(struct symbol) + (size_t)(i * 7 % 160));
    symbols[i]->uses = 0;
    symbols[i]->next = table[canon_hash(symbols[i])];
    table[canon_hash(symbols[i])] = symbols[i];
  }
  for (int i = 0; i < 1000; i++) {
    note_use(symbols[i * 31 % 200]);
  }
  printf("walks = %lu\n", walks);
  return 0;
}
